"""The segments of a log that is written, by base offset (``LogSegments.java``), and what is rebuilt from them."""

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
        """The first segment; there is one."""
        return self._segments[0]

    @property
    def last(self) -> LogSegment:
        """The last (active) segment; there is one."""
        return self._segments[-1]

    def add(self, segment: LogSegment) -> None:
        """Add a segment; one that is there with its base offset is replaced."""
        at = bisect_left(self.base_offsets, segment.base_offset)
        is_known = at < len(self._segments) and self._segments[at].base_offset == segment.base_offset
        self._segments[at : at + is_known] = [segment]

    def remove(self, segment: LogSegment) -> None:
        """Take a segment out; its files stay."""
        self._segments = [each for each in self._segments if each.base_offset != segment.base_offset]

    def clear(self) -> None:
        """Take all segments out."""
        self._segments.clear()

    def floor(self, offset: int) -> LogSegment | None:
        """Return the last segment that begins at or below ``offset``, None where all begin above."""
        at = bisect_right(self.base_offsets, offset)
        return self._segments[at - 1] if at else None

    def values(self, start: int, end: int = MAX_INT64) -> list[LogSegment]:
        """Return the segments from the one that may hold ``start`` on, as far as they begin below ``end``."""
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
    """Bring the producers to the state as of ``end_offset``: the latest snapshot before it, and the log behind that.

    Snapshots are taken on the way where the last two segments begin, and at the end (``UnifiedLog``'s method of the
    same name). After a clean stop without any snapshot (a broker that wrote none was upgraded) nothing is read.

    Raises:
        CorruptData: there is something else than a batch where one is read.
        InvalidTransaction: a batch doesn't fit the transaction its producer has open.
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
                # Where a batch ends isn't where the log has been replayed to: segments are taken as a whole.
                reached = producers.state.map_end_offset
                replay(producers.state, header, records)
                producers.state.map_end_offset = reached
    segment.park()
