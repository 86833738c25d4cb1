"""Keeps the log messages of a worker for its parent, which logs them in task order."""

from __future__ import annotations

import logging
import threading
from typing import Final

_LOG: Final = logging.getLogger("kfs")

#: Log messages: pairs of level and text.
Logged = tuple[tuple[int, str], ...]


class KeptLog(logging.Handler):
    """Keeps log messages until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[tuple[int, str]] = []

    @classmethod
    def of_process(cls) -> KeptLog:
        """Return a handler that keeps all log messages of this process, which go nowhere else from now on."""
        kept = cls()
        _LOG.handlers, _LOG.propagate = [kept], False
        return kept

    @classmethod
    def of_thread(cls) -> KeptLog:
        """Return a handler that keeps the calling thread's log messages, which go nowhere else until it is closed."""
        kept = cls()
        own = threading.get_ident()
        kept.addFilter(lambda record: record.thread == own)
        _LOG.addFilter(kept._is_of_others)
        return kept

    def _is_of_others(self, record: logging.LogRecord) -> bool:
        """Whether a record is from another thread, and so passes; records of the own thread are kept."""
        return not self.handle(record)

    def emit(self, record: logging.LogRecord) -> None:
        """See :meth:`logging.Handler.emit`."""
        self._kept.append((record.levelno, record.getMessage()))

    def take(self) -> Logged:
        """Return the messages logged since the last call."""
        kept, self._kept = tuple(self._kept), []
        return kept

    def close(self) -> None:
        """Stop keeping messages."""
        _LOG.removeFilter(self._is_of_others)
        super().close()


def log_level() -> int:
    """Return the level from which on messages are logged here."""
    return _LOG.getEffectiveLevel()


def log_from(level: int) -> None:
    """Set the level from which on messages are logged."""
    _LOG.setLevel(level)


def log_here(logged: Logged) -> None:
    """Log the messages of a worker in this process."""
    for level, text in logged:
        _LOG.log(level, "%s", text)
