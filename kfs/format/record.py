"""One decoded record."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

Header = tuple[bytes, bytes | None]


class TimestampType(IntEnum):
    """The type of a timestamp (``TimestampType.java``): the value of the attribute bit, or -1 for none (v0)."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """Kafka's name of the type."""
        return _LABELS[self]


_LABELS = {
    TimestampType.NO_TIMESTAMP: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record: ``timestamp`` is in milliseconds since 1970 (-1: none), null is None, empty is ``b""``."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
