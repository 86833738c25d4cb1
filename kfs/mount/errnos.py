"""Translating exceptions to the errnos that system calls report."""

from __future__ import annotations

import errno
import logging
import time
from typing import Final

from kfs.errors import CorruptData, KfsError, Shortage, SourceLost

logger = logging.getLogger("kfs.mount")

#: Seconds without a shortage after which the next one is logged again.
_QUIET_SECONDS: Final = 60.0


class Translator:
    """Turns exceptions into errnos and logs those that need attention.

    A KfsError has its errno; NotFound while a directory is listed becomes ESTALE. Only EIO is logged, unless it was
    reported where the damage was found: one line each, and only once if the kernel repeats the request at once (it
    repeats a failed read-ahead page by page). A Shortage or SourceLost is logged again only after a quiet minute. Any
    other exception is a bug of ours: EIO, and a traceback in the log.
    """

    __slots__ = ("_last", "_quiet_until")

    def __init__(self) -> None:
        self._last = ""
        self._quiet_until: dict[type[KfsError], float] = {}

    def errno_of(self, error: BaseException, operation: str, path: str | bytes | None) -> int:
        """Return the (positive) errno for ``error``, raised by ``operation`` on ``path``."""
        if not isinstance(error, KfsError):
            extra = _fields(error, operation, path)
            logger.error("%s %s: %r", operation, _shown(path), error, exc_info=error, extra=extra)
            return errno.EIO
        if isinstance(error, Shortage | SourceLost):
            now = time.monotonic()
            if now >= self._quiet_until.get(type(error), now):
                level = logging.WARNING if isinstance(error, Shortage) else logging.ERROR
                logger.log(level, "%s; requests that need it fail with EIO until then", error)
            self._quiet_until[type(error)] = now + _QUIET_SECONDS
            return error.errno
        if error.errno == errno.EIO and not (isinstance(error, CorruptData) and error.reported):
            line = f"{operation} {_shown(path)}: {error}"
            if line != self._last:
                self._last = line
                logger.warning("%s", line, extra=_fields(error, operation, path))
        if error.errno == errno.ENOENT and operation == "readdir":
            return errno.ESTALE
        return error.errno


def _fields(error: BaseException, operation: str, path: str | bytes | None) -> dict[str, dict[str, object]]:
    fields: dict[str, object] = {"operation": operation, "path": _shown(path)}
    if isinstance(error, CorruptData):
        fields |= {"file": error.file, "position": error.position, "reason": error.reason}
    return {"fields": fields}


def _shown(path: str | bytes | None) -> str:
    """Return ``path`` so that it fits on a line and contains no terminal controls."""
    if path is None:
        return "<open file>"
    text = path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else path
    return text if text.isprintable() else ascii(text)
