"""The one place where an exception becomes the errno that a system call reports."""

from __future__ import annotations

import errno
import logging

from kfs.errors import CorruptData, KfsError

logger = logging.getLogger("kfs.mount")


class Translator:
    """Turns exceptions into errnos and writes down those that somebody should look at.

    A KfsError knows its errno; only those that mean EIO are logged, unless that was done where the
    damage was found: one line each, and once where the kernel asks again at once (it repeats a failed
    read-ahead page by page). Anything else is a mistake of ours: EIO, and a traceback in the log.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = ""

    def errno_of(self, error: BaseException, operation: str, path: str | bytes | None) -> int:
        """Return the (positive) errno for ``error``, raised by ``operation`` on ``path``."""
        if not isinstance(error, KfsError):
            logger.error("%s %s: %r", operation, _shown(path), error, exc_info=error)
            return errno.EIO
        if error.errno == errno.EIO and not (isinstance(error, CorruptData) and error.reported):
            line = f"{operation} {_shown(path)}: {error}"
            if line != self._last:
                self._last = line
                logger.warning("%s", line)
        return error.errno


def _shown(path: str | bytes | None) -> str:
    """Return ``path`` so that it fits on a line and drives no terminal."""
    if path is None:
        return "<open file>"
    text = path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else path
    return text if text.isprintable() else ascii(text)
