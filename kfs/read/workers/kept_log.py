"""What a worker logs, kept for its parent, which says it in the order of the tasks."""

from __future__ import annotations

import logging
import threading
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
    def of_process(cls) -> KeptLog:
        """From now on nothing that this process logs goes anywhere else."""
        kept = cls()
        _LOG.handlers, _LOG.propagate = [kept], False
        return kept

    @classmethod
    def of_thread(cls) -> KeptLog:
        """From now on, and until it is closed, nothing that the calling thread logs goes anywhere else."""
        kept = cls()
        own = threading.get_ident()
        kept.addFilter(lambda record: record.thread == own)
        _LOG.addFilter(kept._is_of_others)
        return kept

    def _is_of_others(self, record: logging.LogRecord) -> bool:
        """Whether a line may go where lines go; others are kept."""
        return not self.handle(record)

    def emit(self, record: logging.LogRecord) -> None:
        """See :meth:`logging.Handler.emit`."""
        self._kept.append((record.levelno, record.getMessage()))

    def take(self) -> Logged:
        """Return what was logged since it was last asked for."""
        kept, self._kept = tuple(self._kept), []
        return kept

    def close(self) -> None:
        """Keep nothing any more."""
        _LOG.removeFilter(self._is_of_others)
        super().close()


def log_level() -> int:
    """Return the level from which on something is logged here."""
    return _LOG.getEffectiveLevel()


def log_from(level: int) -> None:
    """Log from a level on."""
    _LOG.setLevel(level)


def log_here(logged: Logged) -> None:
    """Log here what was logged in a worker."""
    for level, text in logged:
        _LOG.log(level, "%s", text)
