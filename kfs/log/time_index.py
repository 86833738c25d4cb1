"""The sparse time index of a segment (``TimeIndex.java``): ``timestamp:int64 relative offset:int32``, big-endian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData
from kfs.format.layout import TIME_INDEX_ENTRY
from kfs.log.index_file import EntryLayout, IndexBytes

LAYOUT: Final = EntryLayout(TIME_INDEX_ENTRY.size, 8)


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """An entry: no record up to ``offset`` has a timestamp (milliseconds) above ``timestamp``."""

    timestamp: int
    offset: int


class TimeIndex:
    """The entries of one time index, searched in place."""

    def __init__(self, content: IndexBytes, base_offset: int) -> None:
        self._data = content.data
        self.entries = content.entries
        self.base_offset = base_offset

    def lookup(self, timestamp: int) -> int:
        """Return the index of the last entry whose timestamp is below ``timestamp``, or -1 if there is none."""
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if TIME_INDEX_ENTRY.unpack_from(self._data, middle * LAYOUT.size)[0] < timestamp:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def entry(self, index: int) -> TimestampOffset:
        """Return the entry at ``index``, from 0."""
        timestamp, relative = TIME_INDEX_ENTRY.unpack_from(self._data, index * LAYOUT.size)
        return TimestampOffset(timestamp, self.base_offset + relative)


def check_time_index(content: IndexBytes) -> None:
    """Check the entries against each other.

    Raises:
        CorruptData: the file can't be a time index; the position is in the index.
    """
    if content.file_size % LAYOUT.size:
        raise CorruptData(f"time index of {content.file_size} bytes, not a multiple of {LAYOUT.size}")
    previous = (-1, -1)
    for at, pair in enumerate(TIME_INDEX_ENTRY.iter_unpack(content.data[: content.entries * LAYOUT.size])):
        # The final entry may repeat an offset (LogSegment.onBecomeInactiveSegment), but offsets never decrease.
        if pair[0] < previous[0] or pair[1] < previous[1]:
            raise CorruptData(f"time index entry {pair} after {previous}", at * LAYOUT.size)
        previous = pair
