"""Which offsets a segment can have."""

from __future__ import annotations

from dataclasses import dataclass

from kfs.format.layout import MAX_INT32, MAX_INT64


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """Which offsets can be a segment's: from its base, below the next one's, within int32 of its base."""

    base_offset: int
    next_base_offset: int | None

    @property
    def limit(self) -> int:
        """The first offset that is too high to lie in the segment."""
        most = min(self.base_offset + MAX_INT32 + 1, MAX_INT64)
        return most if self.next_base_offset is None else min(most, self.next_base_offset)

    @property
    def is_last(self) -> bool:
        """The last segment may end in the middle of a batch, or in zeros; no other may."""
        return self.next_base_offset is None
