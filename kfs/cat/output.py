"""What is written for each record that is wanted."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kfs.format.columns import RecordColumns
from kfs.read.selection import rows_of
from kfs.render.renderers import line_renderer

_LENGTH: Final = struct.Struct(">i")
_NULL_LENGTH: Final = _LENGTH.pack(-1)


class RecordPart(StrEnum):
    """Which part of a record is written."""

    RECORD = "json"  # a line
    VALUE = "value"  # the raw bytes
    KEY = "key"


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """How records are written.

    A raw field is followed by ``delimiter`` or, where that is None, follows its length as a
    big-endian int32, -1 for null. With a delimiter null is written as nothing before it.
    """

    field: RecordPart = RecordPart.RECORD
    delimiter: bytes | None = b"\n"

    def writer(self, topic: str, partition: int) -> Writer:
        """Return what turns columns into bytes for one partition."""
        if self.field is RecordPart.RECORD:
            lines = line_renderer(topic, partition).lines
            return lambda columns, indexes: lines(rows_of(columns, indexes), (0, 0)).buffer
        read = RecordColumns.value if self.field is RecordPart.VALUE else RecordColumns.key
        delimiter = self.delimiter
        if delimiter is None:
            return lambda columns, indexes: b"".join(_prefixed(read(columns, index)) for index in indexes)
        return lambda columns, indexes: b"".join((read(columns, index) or b"") + delimiter for index in indexes)


#: Bytes of the records of a block at the indexes.
Writer = Callable[[RecordColumns, Sequence[int]], bytes]


def _prefixed(data: bytes | None) -> bytes:
    return _NULL_LENGTH if data is None else _LENGTH.pack(len(data)) + data
