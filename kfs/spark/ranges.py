"""The offsets of each partition that a batch reads: options applied to the logs (``KafkaOffsetReader.scala``)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kfs.errors import DataLoss, InvalidOption, NotFound
from kfs.format.checkpoint import TopicPartition
from kfs.format.uuid import Uuid
from kfs.log.data_dir import DataDir
from kfs.log.identity import other_log, topic_id_of
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.remote_offsets import RemoteOffsets
from kfs.read.isolation import visible_at
from kfs.read.isolation_level import IsolationLevel
from kfs.spark.offset_limits import (
    EARLIEST,
    LATEST,
    Earliest,
    GlobalTimestamp,
    GroupOffsets,
    Latest,
    LogLimit,
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
    names_of,
)
from kfs.spark.options import BatchOptions

_LOG = logging.getLogger("kfs.spark")
DATA_LOSS_ADVICE: Final = "option failOnDataLoss=false reads what there is"


@dataclass(frozen=True, slots=True)
class LogRange:
    """A log, and the range of its offsets to read.

    ``to_log_end``: the range extends to the end of the log, so damage there hides records. ``topic_id`` is that of the
    requested topic, if it has one.
    """

    log: Log
    offsets: OffsetRange
    to_log_end: bool = False
    topic_id: Uuid | None = None


def ranges_of(data_dir: DataDir, options: BatchOptions) -> list[LogRange]:
    """Return the logs to read, by topic and partition, each with its range of offsets.

    Excludes records appended later, and logs without offsets to read.

    Raises:
        NotFound: a topic doesn't exist.
        InvalidOption: offsets or timestamps are given for other partitions than those to read, no record reaches the
            time at which to start, or the end is before the start.
        DataLoss: requested offsets are not in a log, a group has read more than it has, or it isn't the log of the
            offsets, and that isn't accepted.
    """
    partitions = options.strategy.partitions(data_dir)
    starting = resolved(options.starting, data_dir, partitions)
    check_partitions(starting, partitions, "starting")
    check_partitions(options.ending, partitions, "ending")
    found = []
    for partition in sorted(partitions):
        log = data_dir.log(partition.topic, partition.partition)
        if log is None:
            raise NotFound(f"partition {partition} is gone from {', '.join(data_dir.paths)}")
        topic_id = topic_id_of(log)
        ends = Ends(log, partition, options.read.isolation)
        offsets = _range_between(ends, starting, options)
        to_log_end = ends.is_open(options.ending) and offsets.start <= offsets.end == log.log_end_offset
        if offsets.start < offsets.end or to_log_end:
            found.append(LogRange(log, offsets, to_log_end, topic_id))
    return found


def _range_between(ends: Ends, starting: LogLimit, options: BatchOptions) -> OffsetRange:
    """Return the range of a log to read; its start is after its end if that is nothing."""
    fail, partition = options.read.fail_on_data_loss, ends.partition
    offsets = OffsetRange(ends.start(starting), ends.end(options.ending))
    if isinstance(options.ending, SpecificOffsets):
        other = other_log(ends.log, offsets.end, options.ending.identities.get(partition))
        if other is not None:
            lose(other.reason, fail=fail)
            return OffsetRange(offsets.end, offsets.end)
    if isinstance(starting, SpecificOffsets):
        other = other_log(ends.log, offsets.start, starting.identities.get(partition))
        if other is not None:
            lose(other.reason, fail=fail)
            offsets = OffsetRange(ends.visible.start if other.common is None else other.common, offsets.end)
    if isinstance(options.starting, GroupOffsets) and offsets.start > ends.visible.end:
        lose(
            f"group {options.starting.group!r} has read {partition} up to offset {offsets.start}, and the log has "
            f"{_range_text(ends.visible)}",
            fail=fail,
        )
    elif offsets.start > offsets.end:
        raise InvalidOption(
            f"the resolved start offset {offsets.start} is greater than the resolved end offset {offsets.end} of "
            f"{partition}"
        )
    if offsets.start < offsets.end:
        offsets = reachable(partition, offsets, ends.visible, fail=fail, remote=ends.log.remote)
    return offsets


def resolved(limit: OffsetLimit, data_dir: DataDir, partitions: set[TopicPartition]) -> LogLimit:
    """Return a limit; for one that names a group, the offsets that it has committed for those partitions.

    Raises:
        NotFound: there is no such group.
        UnusableSource: the log directories have no partition of ``__consumer_offsets``.
        CorruptStore: the group's commits can't be read.
    """
    if not isinstance(limit, GroupOffsets):
        return limit
    from kfs.spark.offsets.group_store import GroupStore

    with GroupStore(data_dir.paths, limit.group) as store:
        progress = store.load()
    offsets = {each: progress.positions.get(each, limit.otherwise) for each in partitions}
    return SpecificOffsets(offsets, progress.identities)


def check_partitions(limit: OffsetLimit, partitions: set[TopicPartition], which: str) -> None:
    """Raise :class:`InvalidOption` if a limit is for other partitions than those to read."""
    numbers: Mapping[TopicPartition, int]
    if isinstance(limit, SpecificOffsets):
        numbers, what, hint = limit.offsets, "offsets", "; -1 stands for latest, -2 for earliest"
    elif isinstance(limit, SpecificTimestamps):
        numbers, what, hint = limit.timestamps, "timestamps", ""
    else:
        return
    if numbers.keys() != partitions:
        raise InvalidOption(
            f"the {which} {what} have to name all partitions that are read and no others{hint}: "
            f"they name {names_of(numbers)}, read are {names_of(partitions)}"
        )


class Ends:
    """Start and end of a log, and the offsets that limits stand for in it."""

    def __init__(self, log: Log, partition: TopicPartition, isolation: IsolationLevel) -> None:
        self.log = log
        self.partition = partition
        self.visible = visible_at(log, isolation)

    @property
    def earliest(self) -> int:
        """The start of the log as a broker reports it: for a tiered topic it may be in remote storage, out of reach."""
        remote = self.log.remote
        return remote.start if remote is not None and remote.is_likely else self.visible.start

    def start(self, limit: LogLimit) -> int:
        """Return the offset to start at."""
        return self._offset(limit, is_start=True)

    def end(self, limit: LogLimit) -> int:
        """Return the offset to end before."""
        return self._offset(limit, is_start=False)

    def is_open(self, limit: LogLimit) -> bool:
        """Return whether a limit stands for the end of the log, wherever that is."""
        return isinstance(limit, Latest) or (
            isinstance(limit, SpecificOffsets) and limit.offsets[self.partition] == LATEST
        )

    def _offset(self, limit: LogLimit, *, is_start: bool) -> int:
        match limit:
            case Earliest():
                return self.earliest
            case Latest():
                return self.visible.end
            case SpecificOffsets():
                offset = limit.offsets[self.partition]
                return {EARLIEST: self.earliest, LATEST: self.visible.end}.get(offset, offset)
            case SpecificTimestamps():
                timestamp = limit.timestamps[self.partition]
            case GlobalTimestamp():
                timestamp = limit.timestamp
        found = self.log.offset_for_time(timestamp, self.visible)
        if found is None and is_start and not limit.latest_where_none:
            raise InvalidOption(
                f"no record of {self.partition} has timestamp {timestamp} or a later one to start at; "
                "startingOffsetsByTimestampStrategy=latest takes none of its records then"
            )
        return self.visible.end if found is None else found


def reachable(
    partition: TopicPartition,
    wanted: OffsetRange,
    visible: OffsetRange,
    *,
    fail: bool,
    remote: RemoteOffsets | None = None,
) -> OffsetRange:
    """Return the part of the wanted offsets that a log has; the rest, even in ``remote`` storage, is data loss."""
    there = OffsetRange(max(wanted.start, visible.start), min(wanted.end, visible.end))
    if there == wanted:
        return there
    is_remote = remote is not None and remote.overlaps(wanted.start, wanted.end)
    because = f": {remote.sentence}" if remote is not None and is_remote else ""
    lose(
        f"offsets {wanted.start} to {wanted.end - 1} of {partition} are to be read, "
        f"and the log has {_range_text(visible)}{because}",
        fail=fail,
    )
    return there


def _range_text(offsets: OffsetRange) -> str:
    return f"{offsets.start} to {offsets.end - 1}" if offsets.start < offsets.end else "none"


def lose(reason: str, *, fail: bool) -> None:
    """Report data loss: raise :class:`DataLoss`, or only log it if option ``failOnDataLoss`` is false."""
    if fail:
        raise DataLoss(f"{reason}; {DATA_LOSS_ADVICE}")
    _LOG.warning("%s; reading what there is", reason)
