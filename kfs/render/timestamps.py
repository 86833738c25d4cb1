"""Kafka's milliseconds as ISO 8601, and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from kfs.format.layout import NO_TIMESTAMP

#: A ``datetime`` (UTC unless it says otherwise), ISO 8601 text that may be cut short, or milliseconds since 1970.
Moment = datetime | str | int

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
FIRST_MILLISECOND: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
LAST_MILLISECOND: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
HOUR: Final = 3_600_000
_MILLISECONDS: Final = re.compile(r"-?[0-9]{9,18}\Z")
_YEAR_OR_MONTH: Final = re.compile(r"[0-9]{4}(-[0-9]{2})?\Z")


def has_time(timestamp: int) -> bool:
    """Whether a timestamp is there at all and a calendar can write it (years 1 to 9999)."""
    return timestamp != NO_TIMESTAMP and FIRST_MILLISECOND <= timestamp <= LAST_MILLISECOND


def iso_time(timestamp: int) -> str | None:
    """Return milliseconds as ``2020-11-27T03:12:51.205Z``, None where there is no such time."""
    if not has_time(timestamp):
        return None
    second, millisecond = divmod(timestamp, 1000)
    return f"{_second(second)}.{millisecond:03d}Z"


def time_of(timestamp: int) -> datetime | None:
    """Return milliseconds as a time in UTC, None where there is no such time."""
    return _EPOCH + timestamp * _MILLISECOND if has_time(timestamp) else None


@lru_cache(maxsize=4096)
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")


def parse_time(text: str) -> int:
    """Return the milliseconds of an ISO 8601 date or time, UTC unless it says otherwise.

    It may be cut short (``2020``, ``2020-11``, ``2020-11-27T03``): then the first moment of that. A
    number of nine digits or more is milliseconds since 1970.

    Raises:
        ValueError: it is none of these.
    """
    if _MILLISECONDS.match(text):
        return int(text)
    return milliseconds_of(
        datetime.fromisoformat(text + "-01-01"[len(text) - 4 :] if _YEAR_OR_MONTH.match(text) else text)
    )


def milliseconds_of(moment: Moment) -> int:
    """Return a time, UTC unless it says otherwise, in milliseconds since 1970, rounded up; text as :func:`parse_time`.

    Raises:
        ValueError: it is none.
    """
    if isinstance(moment, int):
        return moment
    if isinstance(moment, str):
        return parse_time(moment)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return -((_EPOCH - moment) // _MILLISECOND)  # rounded up: at or after
