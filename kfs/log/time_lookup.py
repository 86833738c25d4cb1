"""Lookup by timestamp in a segment (``LogSegment.findOffsetByTimestamp``), correct whatever the time index says."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from typing import TYPE_CHECKING

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.layout import MAGIC_V2, NO_TIMESTAMP
from kfs.log.block import Block
from kfs.log.time_index import TimestampOffset

if TYPE_CHECKING:
    from kfs.log.segment import Segment
    from kfs.log.storage import LoadedBlock


def first_offset_at_or_after(segment: Segment, timestamp: int, start: int) -> int | None:
    """Return the lowest offset at or above ``start`` whose record's timestamp is at or after ``timestamp`` (ms).

    The time index only provides a starting point, and only if its entry matches the log. Timestamps aren't monotonic,
    so the search checks each record from there on. It skips unreadable records (they are reported), and records without
    a timestamp.
    """
    begin = start
    entry = _entry_before(segment, timestamp)
    if entry is not None and _is_true(segment, entry):
        begin = max(begin, entry.offset)
    for item in segment.walk_from(begin):
        if not isinstance(item, Block) or item.header.is_control:
            continue
        if item.header.magic == MAGIC_V2 and item.header.max_timestamp < timestamp:
            continue
        with suppress(CorruptData):
            found = _first_in(segment.load(item), timestamp, start)
            if found is not None:
                return found
    return None


def _entry_before(segment: Segment, timestamp: int) -> TimestampOffset | None:
    index = segment.indexes.time_index()
    if index is None:
        return None
    at = index.lookup(timestamp)
    return index.entry(at) if at >= 0 else None


def _is_true(segment: Segment, entry: TimestampOffset) -> bool:
    """Whether the batch or message at the entry's offset has the entry's timestamp as its maximum.

    A time index that is foreign, stale or damaged doesn't match the log.
    """
    try:
        loaded = segment.find(entry.offset)
    except CorruptData:
        return False
    if loaded is None:
        return False
    if loaded.header.magic == MAGIC_V2 or loaded.header.record_count == UNKNOWN_COUNT:
        return loaded.header.max_timestamp == entry.timestamp
    # Kafka treats each message of a run as a batch.
    columns = loaded.columns
    index = bisect_left(columns.offsets, entry.offset)
    return index < len(columns) and (columns.offsets[index], columns.timestamps[index]) == (
        entry.offset,
        entry.timestamp,
    )


def _first_in(loaded: LoadedBlock, timestamp: int, start: int) -> int | None:
    columns = loaded.columns
    for offset, at in zip(columns.offsets, columns.timestamps, strict=True):
        if at >= timestamp and offset >= start and at != NO_TIMESTAMP:
            return offset
    return None
