"""What a worker process logs, kept for its parent, which says it."""

from __future__ import annotations

import logging
from typing import Final

_LOG: Final = logging.getLogger("kfs")

#: Levels and lines.
Logged = tuple[tuple[int, str], ...]


class KeptLog(logging.Handler):
    """Keeps what is logged until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[tuple[int, str]] = []

    @classmethod
    def instead(cls) -> KeptLog:
        """From now on nothing that this process logs goes anywhere else."""
        kept = cls()
        _LOG.handlers, _LOG.propagate = [kept], False
        return kept

    def emit(self, record: logging.LogRecord) -> None:
        """See :meth:`logging.Handler.emit`."""
        self._kept.append((record.levelno, record.getMessage()))

    def take(self) -> Logged:
        """Return what was logged since it was last asked for."""
        kept, self._kept = tuple(self._kept), []
        return kept


def log_again(logged: Logged) -> None:
    """Log here what was logged in another process."""
    for level, text in logged:
        _LOG.log(level, "%s", text)
