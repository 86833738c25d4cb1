"""The output for each wanted record."""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kfs.compiled import compiled_or_python
from kfs.format.columns import RecordColumns
from kfs.read.selection import rows_of
from kfs.render.renderers import line_renderer

if TYPE_CHECKING:
    from kfs.log.log import Log
    from kfs.read.split_reader import SelectedRecords

_LENGTH: Final = struct.Struct(">i")


class RecordPart(StrEnum):
    """The part of a record to write."""

    RECORD = "json"  # the whole record as a line of JSON
    VALUE = "value"  # the raw bytes
    KEY = "key"


class TableFormat(StrEnum):
    """The format of a table file."""

    ARROW = "arrow"  # a file that can be mapped; or the stream format if the output isn't a file
    PARQUET = "parquet"


class OutputFormat(NamedTuple):
    """The format in which records are written.

    A raw field comes before ``delimiter`` or, if that is None, after its length as a big-endian int32, -1 for null.
    With a delimiter, null is written as an empty field. ``with_path`` writes the record's path in the tree and a tab
    before each record.
    """

    field: RecordPart = RecordPart.RECORD
    delimiter: bytes | None = b"\n"
    with_path: bool = False

    def writer(self, topic: str, partition: int, path: str) -> Writer:
        """Return a function that turns columns into bytes for a partition, whose path in the tree is ``path``."""
        writer = self._without_path(topic, partition)
        return self._with_paths(writer, os.fsencode(path)) if self.with_path else writer

    def _with_paths(self, writer: Writer, path: bytes) -> Writer:
        def write(columns: RecordColumns, indexes: Sequence[int]) -> bytes:
            each: Iterable[bytes]
            if self.field is RecordPart.RECORD:
                each = writer(columns, indexes).splitlines(keepends=True)
            else:
                each = (writer(columns, (index,)) for index in indexes)
            offsets = (columns.offsets[index] for index in indexes)
            return b"".join(
                b"%s/offset/%d.json\t%s" % (path, offset, data) for offset, data in zip(offsets, each, strict=True)
            )

        return write

    def _without_path(self, topic: str, partition: int) -> Writer:
        if self.field is RecordPart.RECORD:
            lines = line_renderer(topic, partition).lines
            return lambda columns, indexes: lines(rows_of(columns, indexes), (0, 0)).buffer
        joined, delimiter = _fields(), self.delimiter
        if self.field is RecordPart.VALUE:
            return lambda columns, indexes: joined(
                columns.buffer, columns.value_starts, columns.value_lengths, indexes, delimiter
            )
        return lambda columns, indexes: joined(
            columns.buffer, columns.key_starts, columns.key_lengths, indexes, delimiter
        )


#: Returns the output of the records of a block at the given indexes.
Writer = Callable[[RecordColumns, Sequence[int]], bytes]


@dataclass(slots=True)
class Renderer:
    """Turns records of any partition into output bytes."""

    output: OutputFormat
    _writers: dict[tuple[str, int, str], Writer] = field(default_factory=dict)

    def render(self, path: str, log: Log, selected: SelectedRecords) -> bytes:
        """Return the output of selected records; ``path`` is the log's path in the tree."""
        if selected.records is None or not selected.indexes:
            return b""
        key = (log.topic, log.partition, path)
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = self.output.writer(*key)
        return writer(selected.records.columns, selected.indexes)


Fields = Callable[[bytes, "array[int]", "array[int]", Sequence[int], bytes | None], bytes]


def python_fields(
    buffer: bytes, starts: array[int], lengths: array[int], indexes: Sequence[int], delimiter: bytes | None
) -> bytes:
    """Return the fields of the records at ``indexes``, which begin at ``starts`` in ``buffer``, joined.

    A length of -1 means null. Without a ``delimiter``, each field comes after its length; see :class:`OutputFormat`.
    """
    sizes = [(starts[index], lengths[index]) for index in indexes]
    if delimiter is None:
        return b"".join(_LENGTH.pack(size) + buffer[start : start + max(size, 0)] for start, size in sizes)
    return b"".join(buffer[start : start + max(size, 0)] + delimiter for start, size in sizes)


@cache
def _fields() -> Fields:
    return compiled_or_python(lambda: python_fields, _import_compiled)


def _import_compiled() -> Fields:
    from kfs.cat.compiled_fields import compiled_fields

    return compiled_fields
