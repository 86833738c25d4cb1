"""Whether a ``.log`` is still what it was: it may grow at its end until its segment is closed, and nothing else.

A follower cuts its log where its leader has another history, and goes on with what the leader has: the same file, soon
longer than it was, with other records in it. Neither the inode nor the size tells. So the header of the last batch
that was seen is remembered, with its CRC and leader epoch: whatever cuts the log takes that batch away.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from kfs.format.layout import BATCH_OVERHEAD, LOG_OVERHEAD, MAGIC_V2
from kfs.log.block import Block
from kfs.storage.open_files import FileChanged, OpenFile
from kfs.storage.status import Status


class _SizeAndTime(NamedTuple):
    """The size of the file in bytes, and when it was last written to, in nanoseconds."""

    size: int
    mtime_ns: int


#: By how much, in nanoseconds, the times of last write and of last change may differ where one call sets both.
_AT_ONCE_NS: Final = 50_000_000
_NOT_YET: Final = _SizeAndTime(0, -1)


class LogIncarnation:
    """One file, from when it is first looked at until it is found to have become something else."""

    def __init__(self) -> None:
        #: Why it is no more what it was; empty as long as it is.
        self.end_reason = ""
        #: Whether it is that because the file became shorter.
        self.was_cut = False
        self._error: type[FileChanged] = FileChanged
        self._known = _NOT_YET
        self._was_closed = False
        self._log_end = 0
        self._last_batch: tuple[int, bytes] | None = None
        # Sizes are compared in the order in which they were asked for, or what has grown would look as if it were cut.
        self._looking = threading.Lock()

    @property
    def was_seen(self) -> bool:
        """Whether it was looked at, and not empty."""
        return self._known.size > 0

    def is_unchanged(self, status: Status) -> bool:
        """Whether nothing has happened to the file since it was last looked at, or it never was."""
        return self._known in (_NOT_YET, _SizeAndTime(status.size, status.mtime_ns))

    def verify(self, file: OpenFile, *, is_closed: bool) -> int:
        """Compare the file with what is known of it; return its size.

        ``is_closed`` says whether the segment was known to be closed before this was called: what is closed is written
        to no more.

        Raises:
            FileChanged: it isn't what it was, now or earlier.
        """
        if not self.end_reason:
            now, known = file.size_and_time(), self._known
            if now == known and (self._was_closed or not is_closed):
                return known.size  # as nearly always, and after each read
        with self._looking:
            if not self.end_reason:
                status = file.status()
                now = _SizeAndTime(status.size, status.mtime_ns)
                if now != self._known:
                    was_moved = status.ctime_ns - status.mtime_ns > _AT_ONCE_NS
                    self.end_reason = self._difference(file, now, was_moved=was_moved)
                    self._known = now
                self._was_closed = self._was_closed or is_closed
            if self.end_reason:
                raise self._error(self.end_reason, self._known.size, file.path)
            return self._known.size

    def _difference(self, file: OpenFile, now: _SizeAndTime, *, was_moved: bool) -> str:
        """Return what has become of the file, nothing if it has only grown.

        A cut is a write. Where the file ``was_moved`` after it was last written to, it is one that came under this name
        unseen, and the number of the one before was free again.
        """
        if now.size < self._known.size and (self._was_closed or now.size < self._log_end or not self._log_end):
            if was_moved:
                return "another file has its name and number"
            self.was_cut = True
            return f"file was cut from {self._known.size} to {now.size} bytes"
        if self._was_closed:
            return "file was written to although the segment is closed"
        if self._last_batch is not None:
            position, header = self._last_batch
            if file.read(position, len(header)) != header:
                return f"file was cut below {self._log_end} bytes and written anew"
        return ""

    def end(self, reason: str, error: type[FileChanged] = FileChanged) -> None:
        """Have it be something else, for a reason that the file doesn't show; readers get an ``error`` of that type."""
        with self._looking:
            if not self.end_reason:
                self.end_reason, self._error = reason, error

    def check(self, path: str) -> None:
        """Raise that :class:`FileChanged` if it was ended."""
        if self.end_reason:
            raise self._error(self.end_reason, self._known.size, path)

    def note_end(self, log_end: int, last: Block | None, *, is_closed: bool) -> None:
        """Note where the log ends in the file, and the last batch before that, if another one than was noted."""
        with self._looking:
            if log_end < self._log_end:
                return
            self._log_end = log_end
            if last is not None:
                self._last_batch = _last_header(last)
            self._was_closed = is_closed


def _last_header(block: Block) -> tuple[int, bytes]:
    """Return the position and the bytes of the header of the last batch in a block: one may hold many messages."""
    at = 0
    if block.header.magic < MAGIC_V2:
        while (following := at + _size_at(block.data, at)) < len(block.data):
            at = following
    return block.position + at, bytes(block.data[at : at + BATCH_OVERHEAD])


def _size_at(data: bytes, at: int) -> int:
    return LOG_OVERHEAD + int.from_bytes(data[at + 8 : at + LOG_OVERHEAD], "big")
