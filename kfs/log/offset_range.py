"""A range of offsets."""

from __future__ import annotations

from dataclasses import dataclass


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
