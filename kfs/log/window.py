"""A sliding window over a file, so that a walk makes few system calls and holds little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kfs.log.segment_bounds import SegmentBounds
from kfs.storage.open_files import FileChanged, OpenFile

_FIRST_READ: Final = 40 * 1024  # enough for one lookup between two index entries, with batches of 16 KiB
#: What is read at a time: a chunk that stays in a processor's own cache while it is worked on.
WINDOW_BYTES: Final = 256 * 1024


class Window:
    """Bytes of ``file`` up to ``size``, read ahead in chunks of up to 256 KiB.

    ``bounds`` are those that its segment had just before it had that size. ``check`` is called with the file after each
    read, and raises where what was read may be of another incarnation of the segment.
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
        self._ahead = _FIRST_READ

    def at(self, position: int, length: int) -> tuple[bytes, int]:
        """Return a buffer and where in it ``position`` is; at least ``length`` bytes follow there.

        The caller stays below ``size``. Raises :class:`FileChanged` if the file has become shorter.
        """
        at = position - self._start
        if at < 0 or at + length > len(self._buffer):
            self._fill(position, length)
            at = 0
        return self._buffer, at

    def read(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes at ``position``; a long batch doesn't pass through the window."""
        at = position - self._start
        if at >= 0 and at + length <= len(self._buffer):
            return self._buffer[at : at + length]
        if length > WINDOW_BYTES:
            return self._checked(position, length, self.file.read(position, length))
        self._fill(position, length)
        return self._buffer[:length]

    def _fill(self, position: int, length: int) -> None:
        if self._buffer and position > self._start:  # a reader that gets further reads on
            self._ahead = min(self._ahead * 4, WINDOW_BYTES)
        wanted = min(max(length, self._ahead), self.size - position)
        self._buffer = self._checked(position, length, self.file.read(position, wanted))
        self._start = position

    def _checked(self, position: int, length: int, data: bytes) -> bytes:
        if len(data) < length:
            reason = f"file was cut to {position + len(data)} bytes while it was read, it had {self.size}"
            raise FileChanged(reason, position, self.file.path)
        if self._check is not None:
            self._check(self.file)
        return data
