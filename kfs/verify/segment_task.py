"""What is to be checked by itself, and so by any process."""

from __future__ import annotations

from dataclasses import dataclass

from kfs.log.segment_files import SegmentFiles
from kfs.verify.log_ends import KnownEnd


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment to be checked, or, with ``is_kraft_snapshot``, a file of batches that isn't one.

    ``is_stopped`` says that the broker was stopped cleanly, so that even the last segment has no unfinished tail and
    its indexes are as a closed one's. ``snapshot_offsets`` are those of producer snapshots inside. ``ends`` are where
    the log is known to have ended once, of the last segment.
    """

    files: SegmentFiles
    next_base_offset: int | None
    is_stopped: bool
    snapshot_offsets: tuple[int, ...] = ()
    is_kraft_snapshot: bool = False
    ends: tuple[KnownEnd, ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether nothing is appended to it any more."""
        return self.next_base_offset is not None or self.is_stopped
