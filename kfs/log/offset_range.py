"""Ranges of offsets: any, and those that a segment can hold."""

from __future__ import annotations

from dataclasses import dataclass

from kfs.format.layout import MAX_INT32, MAX_INT64


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from ``start`` up to, not including, ``end``."""

    start: int
    end: int

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def overlaps(self, start: int, end: int) -> bool:
        """Whether some of the offsets are from ``start`` up to, not including, ``end``."""
        return max(self.start, start) < min(self.end, end)


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """The bounds of a segment's offsets: from its base offset, below the next one's, and within int32 of its own."""

    base_offset: int
    next_base_offset: int | None

    @property
    def limit(self) -> int:
        """The lowest offset that is too high for the segment."""
        most = min(self.base_offset + MAX_INT32 + 1, MAX_INT64)
        return most if self.next_base_offset is None else min(most, self.next_base_offset)

    @property
    def is_last(self) -> bool:
        """Whether this is the last segment; only that one may end within a batch or in zeros."""
        return self.next_base_offset is None
