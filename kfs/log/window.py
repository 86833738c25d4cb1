"""A sliding window over a file, so that a walk makes few system calls and uses little memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kfs.format.batch_header import BatchHeader, read_header
from kfs.format.layout import BATCH_OVERHEAD
from kfs.log.offset_range import SegmentBounds
from kfs.storage.open_files import FileChanged, OpenFile

FIRST_READ: Final = 40 * 1024  # enough for one lookup between two index entries, with batches of 16 KiB
#: The maximum bytes per read: small enough to stay in a CPU core's own cache while they are processed.
WINDOW_BYTES: Final = 256 * 1024


class Window:
    """Bytes of ``file`` up to ``size``, read ahead in chunks of up to 256 KiB.

    ``bounds`` are the segment's bounds just before the size was read. ``check`` is called with the file after each
    read, and raises if the bytes may belong to another incarnation of the segment.
    """

    def __init__(
        self,
        file: OpenFile,
        size: int,
        bounds: SegmentBounds | None = None,
        check: Callable[[OpenFile], object] | None = None,
    ) -> None:
        self.file = file
        self.size = size
        self.bounds = bounds
        self._check = check
        self._start = 0
        self._buffer = b""
        self._ahead = FIRST_READ

    def at(self, position: int, length: int) -> tuple[bytes, int]:
        """Return a buffer and the index of ``position`` in it; at least ``length`` bytes follow there.

        The caller must stay below ``size``. Raises :class:`FileChanged` if the file has shrunk.
        """
        at = position - self._start
        if at < 0 or at + length > len(self._buffer):
            self._fill(position, length)
            at = 0
        return self._buffer, at

    def read(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes at ``position``; a large batch bypasses the window."""
        at = position - self._start
        if at >= 0 and at + length <= len(self._buffer):
            return self._buffer[at : at + length]
        if length > WINDOW_BYTES:
            return self._checked(position, length, self.file.read(position, length))
        self._fill(position, length)
        return self._buffer[:length]

    def header(self, position: int) -> BatchHeader:
        """Return the header at ``position``.

        Raises:
            CorruptData: there is no possible one, or the file changed.
        """
        buffer, at = self.at(position, min(BATCH_OVERHEAD, self.size - position))
        return read_header(buffer, at, position)

    def _fill(self, position: int, length: int) -> None:
        if self._buffer and position > self._start:  # sequential access: read further ahead
            self._ahead = min(self._ahead * 4, WINDOW_BYTES)
        wanted = min(max(length, self._ahead), self.size - position)
        self._buffer = self._checked(position, length, self.file.read(position, wanted))
        self._start = position

    def _checked(self, position: int, length: int, data: bytes) -> bytes:
        if len(data) < length:
            reason = f"file was truncated to {position + len(data)} bytes while it was read: it had {self.size}"
            raise FileChanged(reason, position, self.file.path)
        if self._check is not None:
            self._check(self.file)
        return data
