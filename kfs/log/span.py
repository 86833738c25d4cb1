"""The assignment of offsets to the segments of a log.

In a log, each offset has exactly one segment. Deleted segments no longer form a log: a merged segment may extend over
the base offsets of the segments that the cleaner merged into it, while all of them wait for their removal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.log.block import Damage
from kfs.storage.open_files import FileChanged

if TYPE_CHECKING:
    from kfs.log.segment import Segment


class Span(NamedTuple):
    """The offsets from ``start`` up to, not including, ``end`` (None: unbounded) that a segment answers for."""

    segment: Segment
    start: int
    end: int | None

    def within(self, start: int, end: int) -> tuple[int, int]:
        """Return the start and the end of the part between two offsets."""
        return max(start, self.start), end if self.end is None else min(end, self.end)


def consecutive_spans(segments: Iterable[Segment]) -> tuple[Span, ...]:
    """Return the spans of segments that each end where the next begins."""
    return tuple(Span(segment, segment.base_offset, segment.next_base_offset) for segment in segments)


class DeletedSegments:
    """Divides offsets among deleted segments, which may overlap.

    If several segments contain an offset, the one with the highest base offset answers for it. If they overlap because
    of compaction, that is the oldest one, which still has the records that the cleaner merged. A segment that ends in
    damage answers up to the next base offset, so that its lost records are reported.
    """

    def __init__(self) -> None:
        #: The offset after each segment's last record, and whether it ends in damage; neither changes.
        self._ends: WeakKeyDictionary[Segment, tuple[int, bool]] = WeakKeyDictionary()

    def spans_of(self, segments: Sequence[Segment]) -> tuple[Span, ...]:
        """Return the spans of segments that are sorted by base offset, and set each segment's bound.

        A segment that extends over the next base offset isn't bounded by it.
        """
        for segment in segments:
            if segment not in self._ends:
                segment.next_base_offset = None if segment is segments[-1] else MAX_INT64
                self._ends[segment] = _end_of(segment)
        ends: dict[Segment, int] = {}
        for segment, following in pairwise(segments):
            end, is_damage = self._ends[segment]
            ends[segment] = max(end, following.base_offset) if is_damage else end
            segment.next_base_offset = MAX_INT64 if end > following.base_offset else following.base_offset
        for segment in segments[-1:]:
            ends[segment], _ = self._ends[segment]
            segment.next_base_offset = None
        if all(segment.next_base_offset != MAX_INT64 for segment in segments):
            return consecutive_spans(segments)
        return self._divided(ends)

    @staticmethod
    def _divided(ends: Mapping[Segment, int]) -> tuple[Span, ...]:
        """Return the spans of sorted segments, given the end offset of each."""
        begun: list[Segment] = []
        owners: list[tuple[Segment, int]] = []  # with the start offset of their span
        at = 0
        for segment in (*ends, None):
            base = MAX_INT64 if segment is None else segment.base_offset
            while begun and at < base:
                end = min(ends[begun[-1]], base)
                if end > at:
                    if not owners or owners[-1][0] is not begun[-1]:
                        owners.append((begun[-1], at))
                    at = end
                if end < base:
                    begun.pop()
            if segment is not None:
                at = base
                begun.append(segment)
        stops = [*(start for _, start in owners[1:]), None]
        return tuple(Span(owner, start, stop) for (owner, start), stop in zip(owners, stops, strict=True))


def _end_of(segment: Segment) -> tuple[int, bool]:
    try:
        _, end = segment.tail()
        last = deque(segment.walk_from(end), maxlen=1)
    except FileChanged:  # gone: a reader gets that error too
        return segment.base_offset, False
    except CorruptData as error:
        segment.problems.add_error(error)
        return segment.base_offset, True
    return end, any(isinstance(item, Damage) for item in last)
