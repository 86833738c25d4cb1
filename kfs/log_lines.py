"""What is logged, as lines: for people, for the journal, or as JSON.

Levels say what an operator has to do:

- INFO: nothing. Segments were rolled, deleted by retention, compacted; topics were created anew.
- WARNING: look into it. Data is damaged or something is short, so some reads fail.
- ERROR: act. The mount ends, its source is gone, or kfs has a bug.

A record's ``fields`` (topic, partition, file, position, reason and others) are for programs: pass them as
``extra={"fields": {...}}``.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: systemd notes the time itself, and the level by the priority.
_IN_JOURNAL: Final = "%(name)s: %(message)s"
#: Priorities of syslog(3), which journald takes from the beginning of a line (sd-daemon(3)), by the least level.
_PRIORITIES: Final = (
    (logging.CRITICAL, "<2>"),
    (logging.ERROR, "<3>"),
    (logging.WARNING, "<4>"),
    (logging.INFO, "<6>"),
    (logging.NOTSET, "<7>"),
)
#: Device and inode of the stream that systemd connected to the journal.
_JOURNAL_VARIABLE: Final = "JOURNAL_STREAM"
_STANDARD_ERROR: Final = 2


class LogFormat(StrEnum):
    """The formats of log lines."""

    TEXT = "text"
    JSON = "json"


def formatter_of(log_format: LogFormat, *, is_journal: bool = False) -> logging.Formatter:
    """Return the formatter for a format; ``is_journal``: lines go to journald."""
    if log_format is LogFormat.JSON:
        return _JsonFormatter()
    return _JournalFormatter(_IN_JOURNAL) if is_journal else logging.Formatter(_TEXT)


def is_journal() -> bool:
    """Return whether standard error is the stream that systemd connected to the journal."""
    try:
        status = os.fstat(_STANDARD_ERROR)
    except OSError:
        return False
    return os.environ.get(_JOURNAL_VARIABLE) == f"{status.st_dev}:{status.st_ino}"


class _JournalFormatter(logging.Formatter):
    """Puts the priority before each line, so that journald doesn't take a traceback for information."""

    def format(self, record: logging.LogRecord) -> str:
        priority = next(prefix for level, prefix in _PRIORITIES if record.levelno >= level)
        return "\n".join(priority + line for line in super().format(record).split("\n"))


class _JsonFormatter(logging.Formatter):
    """One JSON object for each record: time (UTC), level, logger, message, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in getattr(record, "fields", {}).items() if name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"), default=str)
