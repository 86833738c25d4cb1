"""Growing logs, as a stream follows them: their present start and end, and the ranges between two points."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator

from kfs.format.checkpoint import TopicPartition
from kfs.internal.broker_state import BrokerState
from kfs.log.data_dir import DataDir
from kfs.log.identity import UNKNOWN, Identity, identity_at, other_log, topic_id_of
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import DamagePolicy
from kfs.log.storage import Storage
from kfs.read.isolation import CommittedReader
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_reader import LogReader
from kfs.read.wanted_offsets import lost_at_end
from kfs.spark.offset_limits import names_of
from kfs.spark.options import StreamOptions
from kfs.spark.paths import expand_paths
from kfs.spark.ranges import Ends, LogRange, check_partitions, lose, reachable, resolved
from kfs.spark.stream_offsets import Offsets, Positions

_LOG = logging.getLogger("kfs.spark")


class FollowedLogs:
    """The logs that a stream reads; finds new segments, partitions, topics and directories as they appear.

    Data loss is handled by :func:`~kfs.spark.ranges.lose`.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._paths: list[str] = []
        self._data_dir: DataDir | None = None
        self._readers: dict[str, LogReader] = {}
        #: By path, the sizes of last segments that have no damage after their last batch.
        self._sound: dict[str, int] = {}

    def close(self) -> None:
        """Release resources."""
        if self._data_dir is not None:
            self._data_dir.close()
        self._data_dir = None
        self._readers.clear()

    def _opened(self) -> DataDir:
        paths = expand_paths(self._options.paths)
        if self._data_dir is None or paths != self._paths:
            self.close()
            self._data_dir = DataDir(paths, Storage(max_batch_bytes=self._options.read.max_batch_bytes))
            BrokerState(self._data_dir)
            self._paths = paths
        return self._data_dir

    def logs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Log]:
        """Return the logs of partitions, without those that are gone or have no segments (yet)."""
        data_dir = self._opened()
        logs = ((each, data_dir.log(each.topic, each.partition)) for each in sorted(partitions))
        return {each: log for each, log in logs if log is not None and log.segments}

    def _visible(self, log: Log) -> OffsetRange:
        # It remembers open transactions: only new data is read each time.
        reader = self._readers.get(log.directory.path)
        if reader is None or reader.log is not log:
            is_committed = self._options.read.isolation is IsolationLevel.READ_COMMITTED
            reader = self._readers[log.directory.path] = LogReader(log, CommittedReader(log) if is_committed else None)
        return reader.offsets

    def check_topics(self) -> None:
        """Raise :class:`NotFound` if a topic to read doesn't exist."""
        self._options.strategy.partitions(self._opened())

    def initial(self, only: set[TopicPartition] | None = None) -> Offsets:
        """Return the start offsets of a new stream, or ``only`` those of some partitions.

        Raises:
            NotFound: a topic doesn't exist.
            InvalidOption: offsets or timestamps are given for other partitions than those to read, or no record reaches
                the time at which to start.
            KfsError: as :func:`~kfs.spark.ranges.resolved`.
        """
        data_dir = self._opened()
        partitions = self._options.strategy.partitions(data_dir) if only is None else only
        starting = resolved(self._options.starting, data_dir, partitions)
        check_partitions(starting, partitions, "starting")
        return {
            each: Ends(log, each, self._options.read.isolation).start(starting)
            for each, log in self.logs(partitions).items()
        }

    def latest(self) -> Offsets:
        """Return the ends of the logs.

        Raises:
            CorruptData: one ends in damage, which hides its end, and that isn't to be skipped.
        """
        logs = self.logs(self._options.strategy.partitions(self._opened(), missing=_say_what_is_missing))
        for log in logs.values():
            self._look_at_end(log)
        return {each: self._visible(log).end for each, log in logs.items()}

    def _look_at_end(self, log: Log) -> None:
        """Report damage at the log's end once: reading up to the end doesn't meet it."""
        segment = log.segments[-1]
        path, size = segment.files.log.path, segment.size()
        if self._sound.get(path) == size:
            return
        damage = lost_at_end(log)
        if damage is not None and self._options.read.on_damage is DamagePolicy.FAIL:
            raise damage.problem.error()
        if damage is not None:
            _LOG.warning("%s: the log ends in damage, to be skipped once records follow it", damage.problem)
        self._sound[path] = size

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the starts of logs, without those that are gone."""
        return {each: self._visible(log).start for each, log in self.logs(partitions).items()}

    def identities(self, offsets: Offsets, before: Positions | None = None) -> dict[TopicPartition, Identity]:
        """Return the known identities of the offsets' logs.

        An identity known ``before`` for the same offset of the same log is kept: the log may have less information by
        now.
        """
        before = before or Positions({})
        found = {}
        for each, log in self.logs(offsets).items():
            identity = identity_at(log, offsets[each])
            kept = before.identities.get(each)
            if (
                kept is not None
                and before.offsets[each] == offsets[each]
                and other_log(log, offsets[each], kept) is None
            ):
                identity = kept.or_else(identity)
            if identity.is_known:
                found[each] = identity
        return found

    def of_other_logs(self, positions: Positions) -> dict[TopicPartition, str]:
        """Return the partitions whose logs aren't those of the positions, with the reason."""
        logs = self.logs(positions.identities)
        found = (
            (each, other_log(log, positions.offsets[each], positions.identities[each])) for each, log in logs.items()
        )
        return {each: other.reason for each, other in found if other is not None}

    def between(self, start: Positions, end: Positions) -> list[LogRange]:
        """Return the ranges to read between two points.

        (``KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets``) New partitions begin at their start. A log that
        was replaced since ``start`` begins where it may differ from the one that was read.

        Raises:
            DataLoss: part of it is gone, and that isn't accepted.
        """
        new = self._begin_of_new(end.offsets.keys() - start.offsets.keys())
        begins = {**start.offsets, **new}
        gone = start.offsets.keys() - end.offsets.keys()
        if gone:
            self._lose(f"partitions {names_of(gone)} are gone")
        wanted = {}
        for each, log in self._of_the_end(start, end, begins.keys()):
            stop = end.offsets[each]
            other = other_log(log, begins[each], start.identities.get(each)) if log is not None else None
            if log is not None and other is not None:
                self._lose(other.reason)
                begins[each] = self._visible(log).start if other.common is None else other.common
            if stop < begins[each]:
                self._lose(
                    f"the log of {each} ended at {begins[each]} and ends at {stop} now: the stream was started "
                    "after its end, or the log was truncated or re-created"
                )
            elif stop > begins[each]:
                wanted[each] = OffsetRange(begins[each], stop)
        return list(self._reachable(wanted, end))

    def _of_the_end(
        self, start: Positions, end: Positions, known: Container[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, Log | None]]:
        """Yield the partitions that have moved, with their logs, None if gone.

        Skips a log that was replaced since ``end``: the next range reads it from its start.
        """
        moved = sorted(
            each
            for each in end.offsets
            if each in known
            and (start.offsets.get(each), start.identities.get(each)) != (end.offsets[each], end.identities.get(each))
        )
        logs = self.logs(moved)
        for each in moved:
            log = logs.get(each)
            other = other_log(log, end.offsets[each], end.identities.get(each)) if log is not None else None
            if other is None:
                yield each, log
            else:
                self._lose(other.reason)

    def _begin_of_new(self, partitions: set[TopicPartition]) -> Offsets:
        earliest = self.earliest(partitions)
        if missing := partitions - earliest.keys():
            self._lose(f"new partitions {names_of(missing)} are gone again")
        for each, offset in sorted(earliest.items()):
            if offset:
                self._lose(f"the new partition {each} starts at {offset}, not at 0")
        return earliest

    def _reachable(self, wanted: dict[TopicPartition, OffsetRange], end: Positions) -> Iterable[LogRange]:
        logs = self.logs(wanted)
        for each, offsets in wanted.items():
            if each not in logs:
                wanted_text = f"offsets {offsets.start} to {offsets.end - 1} of {each}"
                self._lose(f"{wanted_text} are to be read, and its log is gone")
                continue
            log, fail = logs[each], self._options.read.fail_on_data_loss
            there = reachable(each, offsets, self._visible(log), fail=fail, remote=log.remote)
            if there.start < there.end:
                identity = end.identities.get(each, UNKNOWN)
                yield LogRange(log, there, topic_id=identity.topic_id or topic_id_of(log))

    def _lose(self, reason: str) -> None:
        lose(reason, fail=self._options.read.fail_on_data_loss)


def _say_what_is_missing(topic: str) -> None:
    _LOG.warning("topic %r doesn't exist now", topic)
