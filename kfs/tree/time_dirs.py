"""``time/<YYYY-MM-DD>/<HH>/`` and ``at/<ISO time>.json``: records by their timestamps, as symlinks into ``offset/``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from functools import partial
from typing import Final

from kfs.errors import NotFound
from kfs.log.segment import Segment
from kfs.render.timestamps import HOUR, has_time, iso_time, parse_time
from kfs.tree.files import FixedDirectory, Link, Maker, list_nodes
from kfs.tree.lines.index import LineIndex
from kfs.tree.node import LIVE, Entry, Node, clock_ns, settled
from kfs.tree.node_ids import View
from kfs.tree.partition_subdirectory import PartitionSubdirectory
from kfs.tree.partition_view import PartitionView
from kfs.tree.record_files import parse_offset

NO_TIME: Final = "none"
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY: Final = 24 * HOUR


class TimeDirectory(PartitionSubdirectory):
    """``time/``: a directory for each day (UTC) with records, and ``none`` for records without a time."""

    __slots__ = ()

    def lookup(self, name: str) -> Node:
        make = self._names().get(name)
        if make is None:
            raise NotFound(f"no records of {name!r}")
        return make()

    def _names(self) -> dict[str, Maker]:
        hours = hours_of(self.partition)
        names: dict[str, Maker] = {}
        for day in sorted({hour * HOUR // _DAY for hour in hours if hour is not None}):
            names[_day_name(day)] = partial(self._day, day, hours)
        if None in hours:
            names[NO_TIME] = partial(HourDirectory, self.partition, f"{self.path}/{NO_TIME}", None)
        return names

    def _day(self, day: int, hours: frozenset[int | None]) -> FixedDirectory:
        path = f"{self.path}/{_day_name(day)}"
        listed: dict[str, Maker] = {
            f"{hour % 24:02d}": partial(HourDirectory, self.partition, f"{path}/{hour % 24:02d}", hour)
            for hour in range(day * 24, day * 24 + 24)
            if hour in hours
        }
        return FixedDirectory(self.partition.context, path, self.partition.log.directory.path, listed)

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        yield from list_nodes(self._names(), cookie, with_attributes=with_attributes)


def _day_name(day: int) -> str:
    return (date.min + timedelta(days=day + _EPOCH_DAY - 1)).isoformat()


def hour_of(timestamp: int) -> int | None:
    """Return the hour since 1970 of a timestamp in milliseconds, None if it is no valid time."""
    return timestamp // HOUR if has_time(timestamp) else None


def hours_of(partition: PartitionView) -> frozenset[int | None]:
    """Return the hours in which the partition has records; the first call is a pass over each segment.

    If a segment disappears meanwhile, its records may be in another one by now: then the current segments are used.
    """
    return settled(partial(_hours_now, partition))


def _hours_now(partition: PartitionView) -> frozenset[int | None]:
    hours: set[int | None] = set()
    for segment in partition.shown_segments():
        hours |= _segment_hours(partition, segment)
    return frozenset(hours)


def _segment_hours(partition: PartitionView, segment: Segment) -> frozenset[int | None]:
    context = partition.context
    text = partition.lines.segment_text(segment)
    index = text.index()
    key = (text.key, index.log_end)
    with context.lock:
        hours = context.hours.get(key)
    if hours is None:
        found: set[int | None] = set()
        for chunk in range(len(index)):
            found |= _chunk_hours(partition, segment, index, chunk)
        hours = frozenset(found)
        with context.lock:
            if context.hours.getsizeof(hours) <= context.hours.maxsize:
                context.hours[key] = hours
    return hours


def _chunk_hours(partition: PartitionView, segment: Segment, index: LineIndex, chunk: int) -> set[int | None]:
    """Return the hours of one chunk of a segment's text; decodes its records only if there may be several hours."""
    earliest, latest = index.earliest[chunk], index.latest[chunk]
    if earliest > latest:
        return set()
    if hour_of(earliest) == hour_of(latest) is not None:
        return {hour_of(earliest)}
    end = index.positions[chunk + 1] if chunk + 1 < len(index) else index.log_end
    found: set[int | None] = set()
    for _, loaded, indexes in partition.reader.records_between(
        segment, index.positions[chunk], end, index.after[chunk]
    ):
        timestamps = loaded.columns.timestamps
        found.update(hour_of(timestamps[at]) for at in indexes)
    return found


class HourDirectory(PartitionSubdirectory):
    """The records of one hour (or without a time), in offset order, as links to their files in ``offset/``."""

    __slots__ = ("hour", "up")

    def __init__(self, partition: PartitionView, path: str, hour: int | None) -> None:
        super().__init__(partition, path)
        self.hour = hour
        self.up = "../../" if hour is None else "../../../"

    def lookup(self, name: str) -> Node:
        offset = parse_offset(name, ".json")
        if offset is None:
            raise NotFound(f"{name!r} is not the name of an offset")
        segment, loaded, index = self.partition.records.loaded(offset)
        timestamp = loaded.columns.timestamps[index]
        if hour_of(timestamp) != self.hour:
            raise NotFound(f"offset {offset} is of {iso_time(timestamp)}")
        return self._link(segment, offset, timestamp)

    def _link(self, segment: Segment, offset: int, timestamp: int) -> Link:
        return record_link(self.partition, segment, offset, timestamp, self.up, View.TIME_LINK)

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        for segment, loaded, indexes in self.partition.reader.records(cookie):
            columns = loaded.columns
            for index in indexes:
                if hour_of(columns.timestamps[index]) == self.hour:
                    offset = columns.offsets[index]
                    attributes = self._link(segment, offset, columns.timestamps[index]).attributes()
                    yield Entry(f"{offset}.json", offset + 1, attributes.node_id, attributes.mode, attributes)


def record_link(partition: PartitionView, segment: Segment, offset: int, timestamp: int, up: str, view: View) -> Link:
    """Return a link to the record's file; ``up`` leads from the link's directory to the partition's."""
    owner, mtime_ns = partition.owner(segment)
    node_id = partition.context.ids.first_of(view, segment, partition) + offset - segment.base_offset
    lifetime = LIVE if view is View.AT_LINK else partition.lifetime(segment)
    return Link(node_id, f"{up}offset/{offset}.json", owner, clock_ns(timestamp, mtime_ns), lifetime)


class AtDirectory(PartitionSubdirectory):
    """``at/``: lists nothing, but resolves ``<ISO time>.json`` for every time up to the last record's."""

    __slots__ = ()

    def lookup(self, name: str) -> Node:
        stem = name.removesuffix(".json")
        try:
            timestamp = parse_time(stem) if stem != name else None
        except (ValueError, OverflowError):
            timestamp = None
        if timestamp is None:
            raise NotFound(f"{name!r} is not <ISO time>.json")
        offset = self.partition.reader.first_at_or_after(timestamp)
        if offset is None:
            raise NotFound(f"no record at or after {stem}")
        segment, loaded, index = self.partition.records.loaded(offset)
        return record_link(self.partition, segment, offset, loaded.columns.timestamps[index], "../", View.AT_LINK)

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        yield from ()
