"""Reads the rows to import from Arrow and Parquet files with the columns of ``kfs cat`` or of Spark's Kafka source."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from kfs.errors import BadLine, KfsError
from kfs.format.record import Header, Record, TimestampType
from kfs.imports.lines import ImportedRecord, LineMaker

if TYPE_CHECKING:
    import pyarrow as pa

#: The number of rows to convert to Python objects at once.
_ROWS: Final = 1024
#: The number of bytes to read at once of a Parquet column, which may be as large as the file.
_PARQUET_BUFFER_BYTES: Final = 1024 * 1024
#: How many units of a timestamp column are a millisecond. Seconds are handled separately.
_PER_MILLISECOND: Final = {"ms": 1, "us": 1000, "ns": 1_000_000}
_MILLISECONDS_A_SECOND: Final = 1000
_TIMESTAMP: Final = "timestamp"
_MILLIS: Final = "timestampMillis"
_HEADERS: Final = "headers"
_TYPES: Final = {-1: TimestampType.NO_TIMESTAMP, 0: TimestampType.CREATE_TIME, 1: TimestampType.LOG_APPEND_TIME}


class TableInput(StrEnum):
    """The file format of a table."""

    PARQUET = "Parquet"
    ARROW_FILE = "an Arrow file"
    ARROW_STREAM = "an Arrow stream"

    @classmethod
    def of(cls, head: bytes) -> TableInput | None:
        """Return the format that begins with these bytes, or None. A JSON line doesn't begin with any of them."""
        for start, kind in (
            (b"PAR1", cls.PARQUET),
            (b"ARROW1", cls.ARROW_FILE),
            (b"\xff\xff\xff\xff", cls.ARROW_STREAM),
        ):
            if head.startswith(start):
                return kind
        return None


#: A complete Arrow stream ends with a message of length 0; a truncated one doesn't.
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"


def rows_of(
    file: BinaryIO, kind: TableInput, source: str, advance: Callable[[int], None] = lambda size: None
) -> Iterator[ImportedRecord | BadLine]:
    """Yield the records of the table named ``source``, and errors for invalid rows; keep a few rows in memory.

    ``advance`` is called from time to time with the number of bytes read since the last call.

    Raises:
        KfsError: the table can't be read to its end, or doesn't have a record's columns.
    """
    maker = LineMaker(source, "row")
    number = told = 0
    try:
        for batch in _batches(file, kind, source):
            for start in range(0, batch.num_rows, _ROWS):
                for row in _rows(batch.slice(start, _ROWS)):
                    number += 1
                    yield _line(maker, number, row)
            position = file.tell() if file.seekable() else told
            advance(max(position - told, 0))
            told = max(position, told)
        if file.seekable():
            advance(file.seek(0, os.SEEK_END) - told)
    except _unreadable() as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise KfsError(f"{source}: after row {number}: can't be read as {kind}: {reason}") from error


def _unreadable() -> tuple[type[Exception], ...]:
    """Return the exceptions that pyarrow raises for corrupt data."""
    import pyarrow as pa

    return pa.ArrowException, OSError, MemoryError, ValueError


def _batches(file: BinaryIO, kind: TableInput, source: str) -> Iterator[pa.RecordBatch]:
    """Yield the table's batches, validated, with only the columns of records."""
    if kind is not TableInput.ARROW_STREAM and not file.seekable():
        raise KfsError(f"{source}: is {kind}, whose end must be read first: name the file")
    for batch in _stored_batches(file, kind, source):
        batch.validate(full=True)
        yield batch


def _stored_batches(file: BinaryIO, kind: TableInput, source: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if kind is TableInput.PARQUET:
        from pyarrow import parquet

        stored = parquet.ParquetFile(
            file, page_checksum_verification=True, pre_buffer=False, buffer_size=_PARQUET_BUFFER_BYTES
        )
        names = _checked(stored.schema_arrow, source)
        yield from stored.iter_batches(_ROWS, columns=list(names), use_threads=False)
    elif kind is TableInput.ARROW_FILE:
        opened = pa.ipc.open_file(file)
        names = _checked(opened.schema, source)
        for index in range(opened.num_record_batches):
            yield opened.get_batch(index).select(names)
    else:
        ending = _Ending(file)
        reader = pa.ipc.open_stream(pa.PythonFile(ending, mode="r"))
        names = _checked(reader.schema, source)
        for batch in reader:
            yield batch.select(names)
        if ending.last != _END_OF_STREAM:
            raise OSError("the stream ends without its end mark: it isn't complete")


class _Ending:
    """A file wrapper that remembers the last bytes read."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.last = b""

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.last = (self.last + data[-len(_END_OF_STREAM) :])[-len(_END_OF_STREAM) :]
        return data

    def close(self) -> None:
        """Do nothing: the owner closes the file."""


# -- the columns


@dataclass(frozen=True, slots=True)
class _Expected:
    """The required type of a column."""

    what: str
    fits: Callable[[pa.DataType], bool]
    is_required: bool = True


def _is_bytes(of: pa.DataType) -> bool:
    from pyarrow import types

    tests = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary, types.is_null)
    return _is_text(of) or any(test(of) for test in tests)


def _is_text(of: pa.DataType) -> bool:
    from pyarrow import types

    return any(test(of) for test in (types.is_string, types.is_large_string, types.is_string_view))


def _is_integer(of: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_integer(of))


def _is_timestamp(of: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_timestamp(of))


def _is_headers(of: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_null(of):
        return True
    if not (types.is_list(of) or types.is_large_list(of)) or not types.is_struct(of.value_type):
        return False
    fields = {field.name: _decoded(field.type) for field in of.value_type}
    return (
        len(fields) == of.value_type.num_fields
        and fields.keys() == {"key", "value"}
        and all(map(_is_bytes, fields.values()))
    )


_INTEGER: Final = _Expected("integers", _is_integer)
_BYTES: Final = _Expected("bytes or text", _is_bytes)
_COLUMNS: Final = {
    "topic": _Expected("text", _is_text),
    "partition": _INTEGER,
    "offset": _INTEGER,
    _TIMESTAMP: _Expected("timestamps", _is_timestamp, is_required=False),
    _MILLIS: _Expected("integers", _is_integer, is_required=False),
    "timestampType": _INTEGER,
    "key": _BYTES,
    "value": _BYTES,
    _HEADERS: _Expected("lists of structs of key and value", _is_headers, is_required=False),
}


def _checked(schema: pa.Schema, source: str) -> Sequence[str]:
    """Return the names of the columns to read.

    Raises:
        KfsError: a column is missing, occurs twice, or has another type.
    """
    names = [name for name in _COLUMNS if name in schema.names]
    missing = [name for name, expected in _COLUMNS.items() if expected.is_required and name not in names]
    if not {_TIMESTAMP, _MILLIS} & set(names):
        missing.append(_TIMESTAMP)
    if missing:
        raise KfsError(f"{source}: no column {', '.join(missing)}; there are {', '.join(schema.names) or 'none'}")
    for name in names:
        if schema.names.count(name) > 1:
            raise KfsError(f"{source}: column {name} twice")
        of = _decoded(schema.field(name).type)
        if not _COLUMNS[name].fits(of):
            raise KfsError(f"{source}: column {name} is of {of}, expected {_COLUMNS[name].what}")
    return names


def _decoded(of: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary type; any other type as it is."""
    from pyarrow import types

    return of.value_type if types.is_dictionary(of) else of


# -- the rows


def _rows(batch: pa.RecordBatch) -> Iterator[Mapping[str, Any]]:
    columns = {name: _values(batch.column(name)) for name in batch.schema.names}
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; a timestamp in milliseconds, or as a :class:`ValueError` if not whole."""
    import pyarrow as pa

    if not _is_timestamp(_decoded(column.type)):
        values: list[Any] = column.to_pylist()
        return values
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    unit = column.type.unit
    return [None if value is None else _milliseconds(value, unit) for value in column.cast(pa.int64()).to_pylist()]


def _milliseconds(value: int, unit: str) -> int | ValueError:
    if unit == "s":
        return value * _MILLISECONDS_A_SECOND
    whole, rest = divmod(value, _PER_MILLISECOND[unit])
    return ValueError(f"timestamp {value} {unit}, expected whole milliseconds") if rest else whole


def _line(maker: LineMaker, number: int, row: Mapping[str, Any]) -> ImportedRecord | BadLine:
    try:
        record = Record(
            _given(row, "offset"),
            _timestamp(row),
            _bytes(row["key"]),
            _bytes(row["value"]),
            tuple(map(_header, row.get(_HEADERS) or ())),
            _timestamp_type(_given(row, "timestampType")),
        )
        return maker.line(number, _given(row, "topic"), _given(row, "partition"), record)
    except ValueError as error:
        return maker.bad(number, str(error))


def _given(row: Mapping[str, Any], name: str) -> Any:
    value = row[name]
    if value is None:
        raise ValueError(f"{name} is null")
    return value


def _timestamp(row: Mapping[str, Any]) -> int:
    timestamp: int | ValueError | None = row.get(_TIMESTAMP)
    millis: int | None = row.get(_MILLIS)
    if isinstance(timestamp, ValueError):
        raise timestamp
    if timestamp is not None and millis is not None and timestamp != millis:
        raise ValueError(f"timestamp is {timestamp} milliseconds, but {_MILLIS} {millis}")
    found = timestamp if millis is None else millis
    if found is None:
        raise ValueError("timestamp is null")
    return found


def _timestamp_type(value: int) -> TimestampType:
    found = _TYPES.get(value)
    if found is None:
        raise ValueError(f"timestampType {value}, expected -1, 0 or 1")
    return found


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _header(header: Mapping[str, Any] | None) -> Header:
    key = None if header is None else _bytes(header["key"])
    if header is None or key is None:
        raise ValueError("a header without a key")
    return key, _bytes(header["value"])
