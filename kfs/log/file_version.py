"""How a segment's file is known again in another process, or later: by its inode, its size, and when it was written."""

from __future__ import annotations

from dataclasses import dataclass

from kfs.errors import CorruptData
from kfs.log.segment import Segment


@dataclass(frozen=True, slots=True)
class FileVersion:
    """How a segment's file can be known again; of one that may grow only the inode and the size, which it then exceeds.

    It is what of its :class:`~kfs.storage.status.Version` must be the same for its bytes to be: who gives it another
    name or mode changes only the time of that.
    """

    inode: int
    size: int
    mtime_ns: int | None

    @classmethod
    def of(cls, segment: Segment) -> FileVersion:
        """Return what a segment's file is now."""
        inode = segment.files.log.inode
        try:
            status = segment.file().status()
        except CorruptData:  # it vanished: nothing is this version
            return cls(inode, -1, -1)
        return cls(inode, status.size, None if segment.is_last else status.mtime_ns)

    def is_of(self, segment: Segment) -> bool:
        """Whether a segment's file still is what it was, or has only grown."""
        now = FileVersion.of(segment)
        if self.mtime_ns is None:
            return now.inode == self.inode and now.size >= self.size >= 0
        return now == self or (now.inode, now.size, now.mtime_ns) == (self.inode, self.size, None)
