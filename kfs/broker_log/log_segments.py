"""The segments of a log open for writing, by base offset (``LogSegments.java``), and state rebuilt from them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from kfs.broker_log.log_segment import LogSegment, replay
from kfs.broker_log.producer_state_manager import ProducerStateManager
from kfs.format.layout import MAX_INT64


class LogSegments:
    """Segments in the order of their base offsets."""

    def __init__(self) -> None:
        self._segments: list[LogSegment] = []

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(list(self._segments))

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def base_offsets(self) -> list[int]:
        """All base offsets, in order."""
        return [segment.base_offset for segment in self._segments]

    @property
    def first(self) -> LogSegment:
        """The first segment; there must be one."""
        return self._segments[0]

    @property
    def last(self) -> LogSegment:
        """The last (active) segment; there must be one."""
        return self._segments[-1]

    def add(self, segment: LogSegment) -> None:
        """Add a segment; it replaces one with the same base offset."""
        at = bisect_left(self.base_offsets, segment.base_offset)
        is_known = at < len(self._segments) and self._segments[at].base_offset == segment.base_offset
        self._segments[at : at + is_known] = [segment]

    def remove(self, segment: LogSegment) -> None:
        """Remove a segment from the list; its files stay."""
        self._segments = [each for each in self._segments if each.base_offset != segment.base_offset]

    def clear(self) -> None:
        """Remove all segments from the list."""
        self._segments.clear()

    def floor(self, offset: int) -> LogSegment | None:
        """Return the last segment with a base offset at or below ``offset``, or None if all are above."""
        at = bisect_right(self.base_offsets, offset)
        return self._segments[at - 1] if at else None

    def values(self, start: int, end: int = MAX_INT64) -> list[LogSegment]:
        """Return the segments from the one that may hold ``start`` on, with base offsets below ``end``."""
        if start == end:
            return []
        bases = self.base_offsets
        return self._segments[max(bisect_right(bases, start) - 1, 0) : bisect_left(bases, end)]


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    end_offset: int,
    *,
    had_clean_shutdown: bool = False,
) -> None:
    """Rebuild the producer state as of ``end_offset`` from the latest snapshot before it and the log after that.

    It takes snapshots at the base offsets of the last two segments, and at the end (``UnifiedLog``'s method of the same
    name). After a clean shutdown without any snapshot (after an upgrade of a broker that wrote none), nothing is read.

    Raises:
        CorruptData: the bytes at a batch's position are no batch.
        InvalidTransaction: a batch doesn't fit its producer's open transaction.
    """
    to_snapshot = [*segments.base_offsets[-2:], end_offset]
    state = producers.state
    if producers.latest_snapshot_offset is None and had_clean_shutdown:
        for offset in to_snapshot:
            state.map_end_offset = offset
            producers.take_snapshot()
        return
    was_empty = state.is_empty and state.map_end_offset >= end_offset
    producers.truncate_and_reload(log_start_offset, end_offset)
    if end_offset > state.map_end_offset and not was_empty:
        for segment in segments.values(state.map_end_offset, end_offset):
            start = max(segment.base_offset, state.map_end_offset, log_start_offset)
            state.map_end_offset = start
            if segment.base_offset in to_snapshot:
                producers.take_snapshot()
            is_last = segment is segments.floor(end_offset)
            _replay_segment(producers, segment, start, end_offset if is_last else None)
    state.map_end_offset = end_offset
    producers.take_snapshot()


def _replay_segment(producers: ProducerStateManager, segment: LogSegment, start: int, end_offset: int | None) -> None:
    end = segment.translate_offset(end_offset) if end_offset is not None else None
    first = segment.translate_offset(start)
    if first is not None:
        records = segment.records(None if end is None else end.position)
        for header in records.headers(first.position):
            if header.producer_id >= 0:
                # The map end offset advances only by whole segments, not by batches.
                reached = producers.state.map_end_offset
                replay(producers.state, header, records)
                producers.state.map_end_offset = reached
    segment.park()
