"""The entries that Kafka 4.x writes to a segment's offset and time index, batch by batch.

``LogSegment.append`` and ``LogSegment.recover`` follow one rule: a batch gets an entry in both indexes if more than
``index.interval.bytes`` lie between it and the last batch with an entry (or the start). They differ only in where they
begin to count. Recovery begins at the start of the segment. An append to a reopened segment begins as if the last batch
had just got an entry.

The entry of a batch in the offset index has its last offset. The entry in the time index has the latest timestamp so
far, and the last offset of the batch with that timestamp. It is left out if the timestamp isn't later than that of the
previous entry.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kfs.errors import IndexFull, InvalidOffset, OffsetOverflow
from kfs.format.layout import MAX_INT32, NO_TIMESTAMP, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kfs.log.offset_index import OffsetPosition
from kfs.log.time_index import TimestampOffset

#: The default of ``index.interval.bytes``.
INDEX_INTERVAL_BYTES: Final = 4096
#: The default of ``segment.index.bytes``: the maximum size of each index.
MAX_INDEX_BYTES: Final = 10 * 1024 * 1024

_WARM_BYTES: Final = 8192  # AbstractIndex.warmEntries


class IndexBuilder:
    """Builds the entries of one segment's indexes from its batches, added in log order.

    ``offset_index`` and ``time_index`` are the entries so far, encoded as in the files. ``largest`` is the latest
    timestamp so far, in milliseconds, with the last offset of the first batch that has it.
    """

    def __init__(
        self,
        base_offset: int,
        *,
        interval_bytes: int = INDEX_INTERVAL_BYTES,
        max_index_bytes: int = MAX_INDEX_BYTES,
    ) -> None:
        self.base_offset = base_offset
        self.offset_index = bytearray()
        self.time_index = bytearray()
        self.largest = TimestampOffset(NO_TIMESTAMP, base_offset)
        self._interval_bytes = interval_bytes
        self._max_offset_bytes = max_index_bytes // OFFSET_INDEX_ENTRY.size * OFFSET_INDEX_ENTRY.size
        # The last slot is reserved for the entry that is added when the segment is closed (TimeIndex.isFull).
        self._max_time_bytes = (max_index_bytes // TIME_INDEX_ENTRY.size - 1) * TIME_INDEX_ENTRY.size
        self._bytes_since_last_entry = 0
        self._last_offset = base_offset
        self._last_time = TimestampOffset(NO_TIMESTAMP, base_offset)

    @property
    def is_full(self) -> bool:
        """Whether one of the indexes is full, so that the segment must be rolled."""
        return len(self.offset_index) >= self._max_offset_bytes or len(self.time_index) >= self._max_time_bytes

    def accepts(self, offset: int) -> bool:
        """Whether an entry can hold ``offset`` (``AbstractIndex.canAppendOffset``): at most an int32 above the base."""
        return 0 <= offset - self.base_offset <= MAX_INT32

    def add(self, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        """Add a batch by its last offset, latest timestamp (milliseconds), byte position and size.

        Raises:
            OffsetOverflow: the offset doesn't fit an entry, whether or not one is due.
            InvalidOffset: an entry is due, but the offset isn't above that of the last entry.
            IndexFull: an entry is due, but there is no room for it.
        """
        if not self.accepts(last_offset):
            raise OffsetOverflow(f"offset {last_offset} is out of the range of segment {self.base_offset}")
        if max_timestamp > self.largest.timestamp:
            self.largest = TimestampOffset(max_timestamp, last_offset)
        if self._bytes_since_last_entry > self._interval_bytes:
            self._append_offset(last_offset, position)
            self._append_time(may_fill=False)
            self._bytes_since_last_entry = 0
        self._bytes_since_last_entry += size

    def finish(self) -> None:
        """Append the latest timestamp to the time index (``LogSegment.onBecomeInactiveSegment``).

        Raises:
            InvalidOffset: its offset is below that of the last entry.
        """
        self._append_time(may_fill=True)

    def resume(
        self,
        offset_index: bytes | bytearray,
        time_index: bytes | bytearray,
        largest: TimestampOffset | None = None,
    ) -> None:
        """Continue from existing entries, such as those of a reopened segment.

        An incomplete entry at the end is dropped. ``largest`` defaults to the last entry of the time index, as in a
        broker.
        """
        self.offset_index[:] = offset_index[: len(offset_index) // OFFSET_INDEX_ENTRY.size * OFFSET_INDEX_ENTRY.size]
        self.time_index[:] = time_index[: len(time_index) // TIME_INDEX_ENTRY.size * TIME_INDEX_ENTRY.size]
        self._bytes_since_last_entry = 0
        last_offset = _last_entry(OFFSET_INDEX_ENTRY, self.offset_index)
        self._last_offset = self.base_offset + last_offset[0] if last_offset else self.base_offset
        timestamp, relative = _last_entry(TIME_INDEX_ENTRY, self.time_index) or (NO_TIMESTAMP, 0)
        self._last_time = TimestampOffset(timestamp, self.base_offset + relative)
        self.largest = largest or self._last_time

    @property
    def last_offset(self) -> int:
        """The offset of the last entry in the offset index, or the base offset if there is none."""
        return self._last_offset

    @property
    def last_time_entry(self) -> TimestampOffset:
        """The last entry of the time index; without one, no timestamp and the base offset."""
        return self._last_time

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry at or below ``offset``; without one, the base offset and position 0."""
        slot = _slot_below(OFFSET_INDEX_ENTRY, self.offset_index, 0, offset - self.base_offset)
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = OFFSET_INDEX_ENTRY.unpack_from(self.offset_index, slot * OFFSET_INDEX_ENTRY.size)
        return OffsetPosition(self.base_offset + relative, position)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``; ``largest`` stays unchanged."""
        relative = offset - self.base_offset
        _truncate(OFFSET_INDEX_ENTRY, self.offset_index, 0, relative)
        _truncate(TIME_INDEX_ENTRY, self.time_index, 1, relative)
        self.resume(self.offset_index, self.time_index, self.largest)

    def _append_offset(self, offset: int, position: int) -> None:
        """Append an entry to the offset index (``OffsetIndex.append``)."""
        if len(self.offset_index) >= self._max_offset_bytes:
            raise IndexFull(f"the offset index of segment {self.base_offset} has no place for offset {offset}")
        if self.offset_index and offset <= self._last_offset:
            raise InvalidOffset(
                f"offset {offset} at position {position} of segment {self.base_offset}: not above {self._last_offset},"
                " the last in its offset index"
            )
        if position > MAX_INT32:
            raise OffsetOverflow(f"position {position} is out of the range of segment {self.base_offset}")
        self.offset_index += OFFSET_INDEX_ENTRY.pack(offset - self.base_offset, position)
        self._last_offset = offset

    def _append_time(self, *, may_fill: bool) -> None:
        """Append an entry to the time index, if it is later (``TimeIndex.maybeAppend``)."""
        if not may_fill and len(self.time_index) >= self._max_time_bytes:
            raise IndexFull(f"the time index of segment {self.base_offset} has no place left")
        if self.time_index and self.largest.offset < self._last_time.offset:
            raise InvalidOffset(
                f"offset {self.largest.offset} of segment {self.base_offset}: below {self._last_time.offset},"
                " the last in its time index"
            )
        if self.largest.timestamp > self._last_time.timestamp:
            self.time_index += TIME_INDEX_ENTRY.pack(self.largest.timestamp, self.largest.offset - self.base_offset)
            self._last_time = self.largest


def _last_entry(layout: Struct, entries: bytearray) -> tuple[int, ...] | None:
    return layout.unpack_from(entries, len(entries) - layout.size) if entries else None


def _truncate(layout: Struct, entries: bytearray, field: int, relative: int) -> None:
    slot = _slot_below(layout, entries, field, relative)
    is_equal = slot >= 0 and layout.unpack_from(entries, slot * layout.size)[field] == relative
    del entries[(slot if is_equal else slot + 1) * layout.size :]


def _slot_below(layout: Struct, entries: bytearray, field: int, target: int) -> int:
    """Return the number of the last entry at or below ``target``, or -1 (``AbstractIndex.indexSlotRangeFor``).

    It takes the same steps as Kafka, which begins with the last 8 KiB. In an index with entries out of order, the
    result depends on these steps, and so does a broker's behavior.
    """

    def value(slot: int) -> int:
        found: int = layout.unpack_from(entries, slot * layout.size)[field]
        return found

    count = len(entries) // layout.size
    if not count:
        return -1
    low, high = max(0, count - 1 - _WARM_BYTES // layout.size), count - 1
    if value(low) >= target:
        if value(0) > target:
            return -1
        low, high = 0, low
    while low < high:
        middle = (low + high + 1) // 2
        found = value(middle)
        if found == target:
            return middle
        if found > target:
            high = middle - 1
        else:
            low = middle
    return low
