"""Writes record batches to files: Parquet, and Arrow's IPC file and stream formats. Needs pyarrow."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final

from kfs.cat.output import TableFormat
from kfs.errors import KfsError
from kfs.render.arrow_columns import SPARK_COLUMNS_WITH_HEADERS, Column

if TYPE_CHECKING:
    import pyarrow as pa

#: The limits of a Parquet row group: rows (pyarrow's default), and bytes in memory.
_ROW_GROUP_ROWS: Final = 1024 * 1024
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
#: Columns of numbers that mostly ascend in small steps: delta encoding takes a fifth of a dictionary's size, or less.
_ASCENDING: Final = ("offset", "timestamp", "timestampMillis")
#: The other columns, whose values may repeat: dictionary encoding, which the writer gives up if it doesn't pay off.
_REPEATING: Final = (
    *("key", "value", "topic", "partition", "timestampType"),
    *("headers.list.element.key", "headers.list.element.value"),
)
#: The columns of a file: Spark's with headers, and Kafka's timestamp in milliseconds, as not all of them fit Spark's.
FILE_COLUMNS: Final = tuple(column.label for column in (*SPARK_COLUMNS_WITH_HEADERS, Column.TIMESTAMP_MILLIS))


def need_pyarrow() -> None:
    """Raise :class:`~kfs.errors.KfsError`, which says what to install, if pyarrow isn't installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise KfsError("Arrow and Parquet need pyarrow: pip install 'kfs[arrow]'") from None


class TableWriter:
    """Writes batches with the columns of ``schema`` to ``out``; leave its ``with`` block to complete the output.

    If the block is left by an error, the output stays incomplete. ``is_file`` says whether the output will be readable
    from any position. Memory doesn't grow with the output, except for Parquet's list of row groups, which is written at
    the end.

    Raises:
        OSError: ``out`` can't be written to.
    """

    def __init__(
        self,
        schema: pa.Schema,
        table_format: TableFormat,
        out: BinaryIO,
        *,
        is_file: bool,
        metadata: dict[str, str],
        compression: str = "zstd",
    ) -> None:
        import pyarrow as pa

        schema = schema.with_metadata(metadata)
        self._sink = _Sink(out)
        sink = pa.PythonFile(self._sink, mode="w")
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._parquet: pa.parquet.ParquetWriter | None = None
        if table_format is TableFormat.PARQUET:
            self._parquet = _parquet_writer(sink, schema, compression)
        else:
            self._writer = pa.ipc.new_file(sink, schema) if is_file else pa.ipc.new_stream(sink, schema)

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def close(self) -> None:
        """Complete the output."""
        if self._parquet is not None:
            self.write_row_group()
            self._parquet.close()
        elif self._writer is not None:
            self._writer.close()

    def abandon(self) -> None:
        """Discard everything that would be written from now on."""
        self._sink.is_abandoned = True

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes held in memory for the next row group."""
        return self._bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch; in Parquet, it is held in memory until there are enough for a row group."""
        if self._writer is not None:
            self._writer.write_batch(batch)
            return
        size = batch.nbytes
        if self._rows + batch.num_rows > _ROW_GROUP_ROWS or self._bytes + size > _ROW_GROUP_BYTES:
            self.write_row_group()
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += size

    def write_row_group(self) -> None:
        """Write the batches held in memory as a Parquet row group."""
        import pyarrow as pa

        if self._waiting and self._parquet is not None:
            self._parquet.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._rows)
        self._waiting.clear()
        self._rows = self._bytes = 0


def _parquet_writer(sink: pa.PythonFile, schema: pa.Schema, compression: str) -> pa.parquet.ParquetWriter:
    from pyarrow import parquet

    return parquet.ParquetWriter(
        sink,
        schema,
        compression=compression,
        use_dictionary=[name for name in _REPEATING if name.partition(".")[0] in schema.names],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _ASCENDING if name in schema.names},
        write_page_checksum=True,
    )


class _Sink:
    """The output for pyarrow: a file, or a pipe, which can't tell its position, so this counts it.

    Once it ``is_abandoned``, nothing is written, because pyarrow would complete a failed output when it is released.
    """

    closed = False

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._position = 0
        self.is_abandoned = False

    def write(self, data: bytes) -> int:
        if not self.is_abandoned:
            self._out.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        if not self.is_abandoned:
            self._out.flush()

    def close(self) -> None:
        """Leave the output open, for the code that opened it to close."""
