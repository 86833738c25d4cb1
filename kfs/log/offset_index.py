"""The sparse offset index of a segment (``OffsetIndex.java``): ``relative offset:int32 position:int32``, big-endian."""

from __future__ import annotations

import sys
from array import array
from typing import Final, NamedTuple

from kfs.errors import CorruptData
from kfs.format.layout import OFFSET_INDEX_ENTRY
from kfs.log.index_file import EntryLayout, IndexBytes

LAYOUT: Final = EntryLayout(OFFSET_INDEX_ENTRY.size, 0)


class OffsetPosition(NamedTuple):
    """An entry: an absolute offset, and the byte position of a batch that begins at or below it."""

    offset: int
    position: int


class OffsetIndex:
    """The entries of one index file, searched in place.

    Three properties hold for every broker version, although brokers before 4.x wrote the first or last offset of an
    append, and later ones write the last offset of a batch. Offsets and positions ascend. Each position is a batch
    boundary. The batch there begins at or below the entry's offset.
    """

    def __init__(self, content: IndexBytes, base_offset: int) -> None:
        self._data = content.data
        self.entries = content.entries
        self.base_offset = base_offset

    def lookup(self, offset: int) -> OffsetPosition | None:
        """Return the last entry at or below ``offset``, or None if all are above it (``OffsetIndex.lookup``)."""
        relative = offset - self.base_offset
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if OFFSET_INDEX_ENTRY.unpack_from(self._data, middle * LAYOUT.size)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else None

    def entry(self, index: int) -> OffsetPosition:
        """Return the entry at ``index``, from 0."""
        relative, position = OFFSET_INDEX_ENTRY.unpack_from(self._data, index * LAYOUT.size)
        return OffsetPosition(self.base_offset + relative, position)


def check_offset_index(content: IndexBytes, log_size: int) -> None:
    """Check the entries against each other and against the size of the ``.log`` in bytes.

    Raises:
        CorruptData: the file can't be an index of that log; the position is in the index.
    """
    if content.file_size % LAYOUT.size:
        raise CorruptData(f"index of {content.file_size} bytes, not a multiple of {LAYOUT.size}")
    values = array("i", content.data[: content.entries * LAYOUT.size])
    if sys.byteorder == "little":
        values.byteswap()
    if not values:
        return
    if values[0] < 0 or values[1] < 0:
        raise CorruptData(f"negative entry ({values[0]}, {values[1]})")
    _check_ascending(values[::2], "offset", 0)
    _check_ascending(values[1::2], "position", 4)
    if values[-1] >= log_size:
        last = (content.entries - 1) * LAYOUT.size
        raise CorruptData(f"entry for position {values[-1]} in a log of {log_size} bytes", last)


def _check_ascending(values: array[int], what: str, field: int) -> None:
    if values == array("i", sorted(set(values))):  # the ordinary case at C speed
        return
    for index in range(1, len(values)):
        if values[index] <= values[index - 1]:
            at = index * LAYOUT.size + field
            raise CorruptData(f"index {what} {values[index]} after {values[index - 1]}", at)
