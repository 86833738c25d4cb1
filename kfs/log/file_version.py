"""Recognition of a segment's file in another process, or later: by inode, size and modification time."""

from __future__ import annotations

from dataclasses import dataclass

from kfs.errors import CorruptData
from kfs.log.segment import Segment


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What identifies the content of a segment's file; for a file that may grow, only the inode and the minimum size.

    It has the part of :class:`~kfs.storage.status.Version` that must match for the bytes to be the same. A rename or a
    mode change only changes the ctime, which isn't part of it.
    """

    inode: int
    size: int
    mtime_ns: int | None

    @classmethod
    def of(cls, segment: Segment) -> FileVersion:
        """Return the current version of a segment's file."""
        inode = segment.files.log.inode
        try:
            status = segment.file().status()
        except CorruptData:  # the file is gone: no file matches this version
            return cls(inode, -1, -1)
        return cls(inode, status.size, None if segment.is_last else status.mtime_ns)

    def is_of(self, segment: Segment) -> bool:
        """Whether a segment's file is unchanged, or has only grown."""
        now = FileVersion.of(segment)
        if self.mtime_ns is None:
            return now.inode == self.inode and now.size >= self.size >= 0
        return now == self or (now.inode, now.size, now.mtime_ns) == (self.inode, self.size, None)
