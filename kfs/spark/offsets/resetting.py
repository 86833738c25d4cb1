"""The targets of ``kfs offsets reset``: an offset, a time, the earliest or the latest."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from kfs.errors import NotFound, OffsetStoreError
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT64
from kfs.log.data_dir import DataDir
from kfs.log.identity import Identity, identity_at
from kfs.log.log import Log
from kfs.read.log_reader import LogReader
from kfs.render.timestamps import parse_time
from kfs.spark.offsets.starting import OffsetReset, parse_offset_reset


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The same offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in milliseconds."""

    timestamp: int


#: The values of ``--to``.
Target = AtOffset | AtTime | OffsetReset


@dataclass(frozen=True, slots=True)
class NewPosition:
    """The new position of a partition, and a note about it.

    ``identity`` is that of its log; None keeps what is known of the present one.
    """

    partition: TopicPartition
    offset: int
    note: str | None = None
    identity: Identity | None = None


def parse_target(text: str) -> Target:
    """Parse ``--to``: digits are an offset, anything else that isn't a keyword is a time.

    Raises:
        ValueError: it is none of them.
    """
    if text.isascii() and text.isdecimal():
        if len(text) > 19 or int(text) > MAX_INT64:
            raise ValueError(f"{text[:40]} is not an offset")
        return AtOffset(int(text))
    try:
        return parse_offset_reset(text)
    except OffsetStoreError:
        return AtTime(parse_time(text))


def new_positions(
    stored: Collection[TopicPartition],
    data_dir: DataDir | None,
    matches: Callable[[str], bool] | None,
    target: Target,
) -> list[NewPosition]:
    """Return the positions to set: for the group's ``stored`` partitions, and for all in log directories, if given.

    ``matches`` selects topics; in log directories it also finds those without a position in the group.

    Raises:
        OffsetStoreError: the target needs log directories, and there are none.
        NotFound: a partition isn't in there, or there is nothing to set.
    """
    if data_dir is None and not isinstance(target, AtOffset):
        raise OffsetStoreError("a time, earliest and latest are looked up in log directories: name them")
    partitions = {each for each in stored if matches is None or matches(each.topic)}
    if data_dir is not None:
        known = {each.topic for each in stored}
        topics = [topic for topic in data_dir.topics() if (matches(topic) if matches is not None else topic in known)]
        partitions.update(TopicPartition(topic, number) for topic in topics for number in data_dir.partitions(topic))
    if not partitions:
        raise NotFound("no partition to set: no stored position matches; --topic with LOG_DIR sets all that are there")
    return [_new_position(each, data_dir, target) for each in sorted(partitions)]


def _new_position(partition: TopicPartition, data_dir: DataDir | None, target: Target) -> NewPosition:
    if data_dir is None:
        assert isinstance(target, AtOffset)
        return NewPosition(partition, target.offset)
    log = data_dir.log(partition.topic, partition.partition)
    if log is None:
        raise NotFound(
            f"{partition} is not in the log directories: name its directory too, or choose others with --topic"
        )
    found = _in_log(partition, log, target)
    return replace(found, identity=identity_at(log, found.offset))


def _in_log(partition: TopicPartition, log: Log, target: Target) -> NewPosition:
    reader = LogReader(log)
    there = reader.offsets
    remote = log.remote.sentence if log.remote is not None else None
    if target is OffsetReset.EARLIEST:
        return NewPosition(partition, there.start, remote)
    if target is OffsetReset.LATEST:
        return NewPosition(partition, there.end)
    if isinstance(target, AtTime):
        found = reader.first_at_or_after(target.timestamp)
        if found is None:
            return NewPosition(partition, there.end, "no record is of that time or later: the log's end")
        return NewPosition(partition, found, remote if found == there.start else None)
    assert isinstance(target, AtOffset)
    if target.offset < there.start:
        return NewPosition(partition, there.start, remote or f"{target.offset} is below the log's start")
    if target.offset > there.end:
        return NewPosition(partition, there.end, f"{target.offset} is above the log's end")
    return NewPosition(partition, target.offset)
