"""Detection of files and directories that are no longer the same under their name.

Until its segment is closed, a ``.log`` may only grow.

A follower truncates its log where its leader's history differs, and then fetches the leader's records. The file stays
the same, and soon it is longer than before, with other records in it. Neither the inode nor the size reveals that. So
the header of the last batch seen is remembered, with its CRC and leader epoch: any truncation removes that batch.

A partition directory may be replaced, or its topic recreated under the same name. A file system reuses the inode number
of a deleted file or directory. So inode numbers of the files in a directory prove nothing once the directory, or its
topic, is a different one.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from kfs.errors import CorruptData, Shortage
from kfs.format.layout import BATCH_OVERHEAD, LOG_OVERHEAD, MAGIC_V2
from kfs.format.partition_metadata import parse_partition_metadata
from kfs.format.uuid import Uuid
from kfs.log.block import Block
from kfs.storage.open_files import FileChanged, OpenFile, Patched
from kfs.storage.side_file import Watched, read_side_file
from kfs.storage.status import Status


class SizeAndTime(NamedTuple):
    """The size of the file in bytes, and when it was last written to, in nanoseconds."""

    size: int
    mtime_ns: int


class IncarnationState(NamedTuple):
    """All that is known of a file that is still the same, as :class:`LogIncarnation` goes on with it later."""

    size: int
    mtime_ns: int
    log_end: int
    was_closed: bool
    last_batch: tuple[int, bytes] | None


#: The maximum difference, in nanoseconds, between mtime and ctime if one call sets both.
_AT_ONCE_NS: Final = 50_000_000
_NOT_YET: Final = SizeAndTime(0, -1)
#: Of a directory that wasn't checked yet.
_NO_NUMBER: Final = (-1, -1)


class LogIncarnation:
    """One file, from the first check until it is found to be a different one."""

    __slots__ = ("_error", "_known", "_last_batch", "_log_end", "_looking", "_was_closed", "end_reason", "was_cut")

    def __init__(self) -> None:
        #: Why the file is no longer the same; empty while it is.
        self.end_reason = ""
        #: Whether the reason is that the file shrank.
        self.was_cut = False
        self._error: type[FileChanged] = FileChanged
        self._known = _NOT_YET
        self._was_closed = False
        self._log_end = 0
        self._last_batch: tuple[int, bytes] | None = None
        # Compare sizes in the order in which they were read. Otherwise growth would look like truncation.
        self._looking = threading.Lock()

    @property
    def state(self) -> IncarnationState | None:
        """What is known of the file; None if it is a different one by now."""
        with self._looking:
            if self.end_reason:
                return None
            return IncarnationState(*self._known, self._log_end, self._was_closed, self._last_batch)

    def resume(self, state: IncarnationState) -> None:
        """Go on from a state that was known earlier."""
        with self._looking:
            known = SizeAndTime(state.size, state.mtime_ns)
            self._known = _NOT_YET if known == _NOT_YET else known
            self._log_end, self._was_closed, self._last_batch = state.log_end, state.was_closed, state.last_batch

    @property
    def was_patched(self) -> bool:
        """Whether it ended because another copy completes the file, or no longer does."""
        return bool(self.end_reason) and self._error is Patched

    @property
    def was_seen(self) -> bool:
        """Whether the file was checked, and wasn't empty."""
        return self._known.size > 0

    def is_unchanged(self, status: Status) -> bool:
        """Whether the file hasn't changed since the last check, or was never checked."""
        return self._known in (_NOT_YET, SizeAndTime(status.size, status.mtime_ns))

    def verify(self, file: OpenFile, *, is_closed: bool) -> SizeAndTime:
        """Compare the file with its known state; return its current state.

        ``is_closed`` says whether the segment was known to be closed before this call. A closed segment is never
        written to.

        Raises:
            FileChanged: the file is a different one, since now or earlier.
        """
        if not self.end_reason and self._known is not _NOT_YET:  # else one query below suffices
            now, known = file.size_and_time(), self._known
            if now == known and (self._was_closed or not is_closed):
                return known  # the usual case, also after each read
        with self._looking:
            if not self.end_reason:
                status = file.status()
                now = SizeAndTime(status.size, status.mtime_ns)
                if now != self._known:
                    was_moved = status.ctime_ns - status.mtime_ns > _AT_ONCE_NS
                    self.end_reason = self._difference(file, now, was_moved=was_moved)
                    self._known = now
                self._was_closed = self._was_closed or is_closed
            if self.end_reason:
                raise self._error(self.end_reason, self._known.size, file.path)
            return self._known

    def _difference(self, file: OpenFile, now: SizeAndTime, *, was_moved: bool) -> str:
        """Return how the file has changed; an empty string if it has only grown.

        Truncation updates the mtime. If the file ``was_moved`` after its last write, another file took its name
        unnoticed, and got the freed inode number.
        """
        if now.size < self._known.size and (self._was_closed or now.size < self._log_end or not self._log_end):
            if was_moved:
                return "another file has its path and inode number"
            self.was_cut = True
            return f"file was truncated from {self._known.size} to {now.size} bytes"
        if self._was_closed:
            return "file was written to although the segment is closed"
        if self._last_batch is not None:
            position, header = self._last_batch
            if file.read(position, len(header)) != header:
                return f"file was truncated below {self._log_end} bytes and rewritten"
        return ""

    def end(self, reason: str, error: type[FileChanged] = FileChanged) -> None:
        """Declare the file changed, for a reason that the file itself doesn't show; ``error`` is what readers get."""
        with self._looking:
            if not self.end_reason:
                self.end_reason, self._error = reason, error

    def check(self, path: str) -> None:
        """Raise the :class:`FileChanged` error if the incarnation has ended."""
        if self.end_reason:
            raise self._error(self.end_reason, self._known.size, path)

    def note_end(self, log_end: int, last: Block | None, *, is_closed: bool) -> None:
        """Remember where the log ends in the file, and the last batch before that end, if it is new."""
        with self._looking:
            if log_end < self._log_end:
                return
            self._log_end = log_end
            if last is not None:
                self._last_batch = _last_header(last)
            self._was_closed = is_closed


def _last_header(block: Block) -> tuple[int, bytes]:
    """Return the position and the bytes of the last batch header in a block, which may hold many messages."""
    at = 0
    if block.header.magic < MAGIC_V2:
        while (following := at + _size_at(block.data, at)) < len(block.data):
            at = following
    return block.position + at, bytes(block.data[at : at + BATCH_OVERHEAD])


def _size_at(data: bytes, at: int) -> int:
    return LOG_OVERHEAD + int.from_bytes(data[at + 8 : at + LOG_OVERHEAD], "big")


class DirectoryIncarnation:
    """The device and inode number of a directory, and its topic id if known (KIP-516)."""

    __slots__ = ("_number", "_topic_id", "_watched")

    def __init__(self) -> None:
        self._number = _NO_NUMBER
        self._topic_id: Uuid | None = None
        self._watched = Watched()

    def has_number_of(self, status: Status) -> bool:
        """Whether the directory had this device and inode number at the last check."""
        return self._number == status.number

    def is_another(self, status: Status, metadata_path: str | None) -> bool:
        """Check the directory; return whether it is a different one than at the last check.

        ``metadata_path`` is its ``partition.metadata``, or None if it has none. Older brokers don't write that file,
        and newer ones may write it after they create the directory.

        Raises:
            Shortage: no file descriptor is available to read the file.
        """
        topic_id = None if metadata_path is None else self._topic_id_in(metadata_path)
        is_other_topic = topic_id is not None and self._topic_id not in (None, topic_id)
        is_another = self._number != _NO_NUMBER and (not self.has_number_of(status) or is_other_topic)
        self._number = status.number
        if topic_id is not None or is_another:
            self._topic_id = topic_id
        return is_another

    def _topic_id_in(self, path: str) -> Uuid | None:
        if not self._watched.changed(path):
            return self._topic_id
        try:
            metadata = read_side_file(path, parse_partition_metadata)
        except CorruptData:  # callers that need its content get the error
            return None
        except Shortage:
            self._watched.look_again()
            raise
        return None if metadata is None else metadata.topic_id
