"""The unit of work of a verification, which any process can check on its own."""

from __future__ import annotations

from typing import NamedTuple

from kfs.log.segment_files import SegmentFiles
from kfs.verify.log_ends import KnownEnd


class SegmentTask(NamedTuple):
    """A segment to check, or, with ``is_kraft_snapshot``, a KRaft snapshot.

    ``is_stopped`` says that the broker was stopped cleanly: then even the last segment has no incomplete batch at its
    end, and its indexes are like a closed segment's. ``snapshot_offsets`` are the producer snapshots inside the
    segment. ``ends`` are known former log end offsets, set for the last segment only.
    """

    files: SegmentFiles
    next_base_offset: int | None
    is_stopped: bool
    snapshot_offsets: tuple[int, ...] = ()
    is_kraft_snapshot: bool = False
    ends: tuple[KnownEnd, ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether the broker no longer appends to the segment."""
        return self.next_base_offset is not None or self.is_stopped
