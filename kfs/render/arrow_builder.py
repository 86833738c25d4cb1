"""Lays out the records of decoded blocks in Arrow's buffers, in Python.

:class:`ArrowBuilder` is the interface, :class:`PythonArrowBuilder` the implementation in pure Python. Neither needs
pyarrow, so worker processes don't import it; :mod:`kfs.render.arrow_batches` makes arrays of the buffers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kfs.compiled import compiled_or_python
from kfs.format.batch_header import later_sequence
from kfs.format.columns import RecordColumns
from kfs.format.java_text import java_text
from kfs.format.layout import MAX_INT64
from kfs.render.arrow_columns import BatchFields, Column

if TYPE_CHECKING:
    from kfs.read.workers.job import Arena

#: The range of milliseconds whose microseconds fit an int64; timestamps outside it are null.
LAST_MILLISECOND: Final = MAX_INT64 // 1000
FIRST_MILLISECOND: Final = -LAST_MILLISECOND

#: A buffer is None if it isn't needed: the validity of a column without nulls.
Buffers = list[memoryview | None]
NO_BATCH: Final = BatchFields()


class ArrowBuffers(NamedTuple):
    """A number of rows, and the buffers of each column; :data:`~kfs.render.arrow_columns.BUFFERS` has their number."""

    rows: int
    buffers: Buffers

    def with_buffers(self, buffers: Buffers) -> ArrowBuffers:
        """Return the same rows with other buffers."""
        return self._replace(buffers=buffers)


class ArrowBuilder(Protocol):
    """Lays out the records of one segment, block by block, in the requested columns.

    ``topic`` is UTF-8, ``segment`` the segment's base offset. Bytes of a header name that aren't UTF-8 are replaced as
    Java does. A timestamp whose microseconds don't fit an int64 is null.
    """

    def __init__(
        self, columns: Sequence[Column], topic: bytes, partition: int, segment: int, arena: Arena | None = None
    ) -> None: ...

    @property
    def rows(self) -> int:
        """The number of records added since the last :meth:`finish`."""
        ...

    @property
    def nbytes(self) -> int:
        """The total size in bytes of these records' keys, values and headers, as far as these columns are requested."""
        ...

    def add(self, columns: RecordColumns, indexes: Sequence[int], fields: BatchFields = NO_BATCH) -> None:
        """Add the records at the given indexes of a block, none of them broken; ``fields`` are those of their batch.

        Raises:
            ValueError: the columns point outside their buffer.
            OverflowError: a column would exceed 2^31 - 1 bytes; call :meth:`finish` before that.
        """
        ...

    def finish(self) -> ArrowBuffers:
        """Return the buffers of the added records, and start over without records."""
        ...


def arrow_builder(
    columns: Sequence[Column], topic: str, partition: int, segment: int, arena: Arena | None = None
) -> ArrowBuilder:
    """Return a builder; see :func:`~kfs.compiled.compiled_or_python` for the choice and errors."""
    # A directory name may have any bytes, but an Arrow string must be UTF-8.
    name = topic.encode(errors="surrogateescape").decode(errors="replace").encode()
    return _builder_class()(columns, name, partition, segment, arena)


def open_arena() -> Arena | None:
    """Return an arena without memory, None if the builder is :class:`PythonArrowBuilder`, which doesn't use one."""
    if _builder_class() is PythonArrowBuilder:
        return None
    from kfs.render.compiled_arrow import CompiledArena

    return CompiledArena()


@cache
def _builder_class() -> type[ArrowBuilder]:
    builder: type[ArrowBuilder] = compiled_or_python(lambda: PythonArrowBuilder, _import_compiled)
    return builder


def _import_compiled() -> type[ArrowBuilder]:
    from kfs.render.compiled_arrow import CompiledArrowBuilder

    return CompiledArrowBuilder


class PythonArrowBuilder:
    """The builder in pure Python; it ignores the arena."""

    def __init__(
        self, columns: Sequence[Column], topic: bytes, partition: int, segment: int, arena: Arena | None = None
    ) -> None:
        self._columns = tuple(columns)
        self._constant: dict[Column, object] = {
            Column.TOPIC: topic,
            Column.PARTITION: partition,
            Column.SEGMENT: segment,
        }
        self._begin()

    def _begin(self) -> None:
        self.rows = 0
        self.nbytes = 0
        self._fields: dict[Column, list[bytes | None]] = {
            column: [] for column in (Column.KEY, Column.VALUE) if column in self._columns
        }
        self._numbers: dict[Column, array[int]] = {
            column: array(_TYPECODES[column]) for column in self._columns if column in _TYPECODES
        }
        self._null_timestamps: set[int] = set()
        self._header_counts: list[int] = []
        self._header_names: list[bytes | None] = []
        self._header_values: list[bytes | None] = []

    def add(self, columns: RecordColumns, indexes: Sequence[int], fields: BatchFields = NO_BATCH) -> None:
        """See :meth:`ArrowBuilder.add`."""
        for column, found in self._fields.items():
            read = columns.key if column is Column.KEY else columns.value
            lengths = columns.key_lengths if column is Column.KEY else columns.value_lengths
            starts = columns.key_starts if column is Column.KEY else columns.value_starts
            for index in indexes:
                _check(lengths[index] < 0 or 0 <= starts[index] <= len(columns.buffer) - lengths[index])
                found.append(read(index))
                self.nbytes += max(lengths[index], 0)
        for column, numbers in self._numbers.items():
            if column is Column.TIMESTAMP:
                self._add_timestamps(columns, indexes, numbers)
            else:
                numbers.extend(_NUMBERS[column](columns, indexes, fields))
        if Column.HEADERS in self._columns:
            self._add_headers(columns, indexes)
        self.rows += len(indexes)

    def _add_timestamps(self, columns: RecordColumns, indexes: Sequence[int], numbers: array[int]) -> None:
        for index in indexes:
            milliseconds = columns.timestamps[index]
            if FIRST_MILLISECOND <= milliseconds <= LAST_MILLISECOND:
                numbers.append(milliseconds * 1000)
            else:
                self._null_timestamps.add(len(numbers))
                numbers.append(0)

    def _add_headers(self, columns: RecordColumns, indexes: Sequence[int]) -> None:
        for index in indexes:
            headers = columns.headers(index)
            self._header_counts.append(len(headers))
            for name, value in headers:
                text = java_text(name).encode()
                self._header_names.append(text)
                self._header_values.append(value)
                self.nbytes += len(text) + len(value or b"")

    def finish(self) -> ArrowBuffers:
        """See :meth:`ArrowBuilder.finish`."""
        built = ArrowBuffers(self.rows, [buffer for column in self._columns for buffer in self._buffers_of(column)])
        self._begin()
        return built

    def _buffers_of(self, column: Column) -> Buffers:
        if column in self._fields:
            return _variable(self._fields[column])
        if column is Column.TOPIC:
            topic = self._constant[column]
            assert isinstance(topic, bytes)
            return _variable([topic] * self.rows)
        if column in self._constant:
            constant = self._constant[column]
            assert isinstance(constant, int)
            return [None, memoryview(array("i" if column is Column.PARTITION else "q", repeat(constant, self.rows)))]
        if column is Column.HEADERS:
            validity = _bits([count > 0 for count in self._header_counts])
            offsets = array("i", accumulate(self._header_counts, initial=0))
            return [
                validity,
                memoryview(offsets),
                *_variable(self._header_names),
                *_variable(self._header_values),
            ]
        numbers = self._numbers[column]
        if column is Column.IS_TRANSACTIONAL:
            return [None, _bits(list(map(bool, numbers)), always=True)]
        if column is Column.TIMESTAMP:
            validity = _bits([row not in self._null_timestamps for row in range(self.rows)])
            return [validity, memoryview(numbers)]
        return [None, memoryview(numbers)]


def _check(is_inside: bool) -> None:
    if not is_inside:
        raise ValueError("columns that point outside of their buffer")


def _variable(fields: Sequence[bytes | None]) -> Buffers:
    """Return the validity, offsets and bytes of variable-length fields."""
    offsets = array("i", accumulate((len(field or b"") for field in fields), initial=0))
    data = b"".join(field for field in fields if field)
    return [_bits([field is not None for field in fields]), memoryview(offsets), memoryview(data)]


def _bits(values: Sequence[bool], *, always: bool = False) -> memoryview | None:
    """Return values as bits, lowest bit of a byte first; None if all are set, unless ``always``."""
    if all(values) and not always:
        return None
    number = sum(1 << at for at, value in enumerate(values) if value)
    return memoryview(number.to_bytes((len(values) + 7) // 8, "little"))


_Numbers = Callable[[RecordColumns, Sequence[int], BatchFields], Sequence[int]]


def _of_batch(name: str) -> _Numbers:
    return lambda columns, indexes, fields: [getattr(fields, name)] * len(indexes)


def _sequences(columns: RecordColumns, indexes: Sequence[int], fields: BatchFields) -> list[int]:
    return [later_sequence(fields.base_sequence, columns.offsets[index] - fields.base_offset) for index in indexes]


#: The array type codes of the numeric columns ...
_TYPECODES: Final = {
    Column.OFFSET: "q",
    Column.TIMESTAMP: "q",
    Column.TIMESTAMP_TYPE: "i",
    Column.TIMESTAMP_MILLIS: "q",
    Column.POSITION: "q",
    Column.BASE_OFFSET: "q",
    Column.LEADER_EPOCH: "i",
    Column.PRODUCER_ID: "q",
    Column.PRODUCER_EPOCH: "i",
    Column.SEQUENCE: "i",
    Column.IS_TRANSACTIONAL: "b",
    Column.CODEC: "b",
    Column.MAGIC: "i",
}
#: ... and the functions that compute their values.
_NUMBERS: Final[dict[Column, _Numbers]] = {
    Column.OFFSET: lambda columns, indexes, _: [columns.offsets[index] for index in indexes],
    Column.TIMESTAMP_TYPE: lambda columns, indexes, _: [columns.timestamp_type] * len(indexes),
    Column.TIMESTAMP_MILLIS: lambda columns, indexes, _: [columns.timestamps[index] for index in indexes],
    Column.POSITION: _of_batch("position"),
    Column.BASE_OFFSET: _of_batch("base_offset"),
    Column.LEADER_EPOCH: _of_batch("leader_epoch"),
    Column.PRODUCER_ID: _of_batch("producer_id"),
    Column.PRODUCER_EPOCH: _of_batch("producer_epoch"),
    Column.SEQUENCE: _sequences,
    Column.IS_TRANSACTIONAL: _of_batch("is_transactional"),
    Column.CODEC: _of_batch("codec"),
    Column.MAGIC: _of_batch("magic"),
}
