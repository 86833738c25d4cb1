"""Kafka's timestamps, in milliseconds, as ISO 8601 and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from kfs.format.layout import NO_TIMESTAMP

#: A ``datetime`` (UTC by default), ISO 8601 text that may be abbreviated, or milliseconds since 1970.
Moment = datetime | str | int

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
FIRST_MILLISECOND: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
LAST_MILLISECOND: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
HOUR: Final = 3_600_000
_MILLISECONDS: Final = re.compile(r"-?[0-9]{9,18}\Z")
_YEAR_OR_MONTH: Final = re.compile(r"[0-9]{4}(-[0-9]{2})?\Z")
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def has_time(timestamp: int) -> bool:
    """Whether a timestamp is set and within the years 1 to 9999."""
    return timestamp != NO_TIMESTAMP and FIRST_MILLISECOND <= timestamp <= LAST_MILLISECOND


def iso_time(timestamp: int) -> str | None:
    """Return milliseconds as ``2020-11-27T03:12:51.205Z``, None if :func:`has_time` is false."""
    if not has_time(timestamp):
        return None
    second, millisecond = divmod(timestamp, 1000)
    return f"{_second(second)}.{millisecond:03d}Z"


def time_of(timestamp: int) -> datetime | None:
    """Return milliseconds as a time in UTC, None if :func:`has_time` is false."""
    return _EPOCH + timestamp * _MILLISECOND if has_time(timestamp) else None


@lru_cache(maxsize=4096)
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")


def parse_time(text: str) -> int:
    """Return the milliseconds of an ISO 8601 date or time, in UTC by default.

    An abbreviated time (``2020``, ``2020-11``, ``2020-11-27T03``) means its first moment. A number of nine digits or
    more is milliseconds since 1970.

    Raises:
        ValueError: the text is none of these.
    """
    if _MILLISECONDS.match(text):
        return int(text)
    return milliseconds_of(
        datetime.fromisoformat(text + "-01-01"[len(text) - 4 :] if _YEAR_OR_MONTH.match(text) else text)
    )


def milliseconds_of(moment: Moment) -> int:
    """Return a time, in UTC by default, as milliseconds since 1970, rounded up; for text, see :func:`parse_time`.

    Raises:
        ValueError: the text isn't a time.
    """
    if isinstance(moment, int):
        return moment
    if isinstance(moment, str):
        return parse_time(moment)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return -((_EPOCH - moment) // _MILLISECOND)  # rounded up: at or after


def age_text(milliseconds: int) -> str:
    """Return a duration in its two largest units: ``3d4h``, ``12m7s``, ``0s``; a negative one has a minus sign."""
    left = abs(milliseconds)
    first = next((at for at, (_, size) in enumerate(_UNITS) if left >= size), len(_UNITS) - 1)
    sign = "-" if milliseconds <= -_UNITS[-1][1] else ""
    text = ""
    for unit, size in _UNITS[first : first + 2]:
        text += f"{left // size}{unit}"
        left %= size
    return sign + text
