"""Filters that Spark pushes down. Spark evaluates all of them, too: here they only save reading.

So no single records are filtered, which Spark does faster: only topics, partitions and ends of logs are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from kfs.format.layout import MAX_INT64
from kfs.log.offset_range import OffsetRange
from kfs.read.wanted_offsets import reaching
from kfs.spark.ranges import LogRange

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Pushed:
    """Bounds that every wanted record satisfies: offsets from ``start`` up to, not including, ``end``.

    ``since`` is in milliseconds. None is no bound.
    """

    start: int = 0
    end: int = MAX_INT64
    since: int | None = None
    topics: frozenset[object] | None = None
    partitions: frozenset[object] | None = None

    def and_also(self, condition: Filter) -> Pushed:
        """Return the bounds with one more filter; unknown filters add no bound."""
        attribute = getattr(condition, "attribute", ())
        match tuple(name.lower() for name in attribute):
            case ("offset",):
                return self._with_offsets(condition)
            case ("timestamp",):
                return self._with_times(condition)
            case ("topic",):
                return replace(self, topics=_common(self.topics, _values(condition)))
            case ("partition",):
                return replace(self, partitions=_common(self.partitions, _values(condition)))
        return self

    def _with_offsets(self, condition: Filter) -> Pushed:
        value = getattr(condition, "value", None)
        if not isinstance(value, int):
            return self
        match _kind(condition):
            case "EqualTo":
                return replace(self, start=max(self.start, value), end=min(self.end, value + 1))
            case "GreaterThanOrEqual":
                return replace(self, start=max(self.start, value))
            case "GreaterThan":
                return replace(self, start=max(self.start, value + 1))
            case "LessThanOrEqual":
                return replace(self, end=min(self.end, value + 1))
            case "LessThan":
                return replace(self, end=min(self.end, value))
        return self

    def _with_times(self, condition: Filter) -> Pushed:
        """Use lower bounds only, since timestamps don't ascend. A record without one counts as -1, below all."""
        value = getattr(condition, "value", None)
        is_lower = _kind(condition) in ("EqualTo", "GreaterThan", "GreaterThanOrEqual")
        if not is_lower or not isinstance(value, datetime) or value.tzinfo is None:
            return self
        milliseconds = (value - _EPOCH) // _MILLISECOND  # rounded down
        if milliseconds < 0:
            return self
        return replace(self, since=milliseconds if self.since is None else max(self.since, milliseconds))

    def applied_to(self, ranges: Sequence[LogRange]) -> Iterator[LogRange]:
        """Yield the ranges within the bounds, some perhaps empty."""
        for each in ranges:
            log = each.log
            if self.topics is not None and log.topic not in self.topics:
                continue
            if self.partitions is not None and log.partition not in self.partitions:
                continue
            offsets = OffsetRange(max(each.offsets.start, self.start), min(each.offsets.end, self.end))
            to_log_end = each.to_log_end and offsets.start <= each.offsets.end < self.end
            if self.since is not None and offsets.start < offsets.end:
                offsets = reaching(log, self.since, offsets)
            if offsets.start < offsets.end or to_log_end:
                yield replace(each, offsets=offsets, to_log_end=to_log_end)


def _values(condition: Filter) -> frozenset[object] | None:
    """Return the values that a filter allows, None if it doesn't list them."""
    value = getattr(condition, "value", None)
    match _kind(condition):
        case "EqualTo":
            return frozenset((value,))
        case "In" if isinstance(value, (tuple, list)):
            return frozenset(value)
    return None


def _kind(condition: Filter) -> str:
    """Return the name of a filter's class: PySpark 4.0 has no such classes, and this has to run there, too."""
    return type(condition).__name__


def _common(known: frozenset[object] | None, more: frozenset[object] | None) -> frozenset[object] | None:
    if known is None or more is None:
        return known if more is None else more
    return known & more
