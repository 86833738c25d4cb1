"""The driver's part of an export: batch after batch, each in the dataset as a whole or not at all."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from kfs.broker_log.output_directory import check_apart
from kfs.errors import DataLoss, KfsError
from kfs.format.checkpoint import TopicPartition
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem
from kfs.spark.exporting.batches import PlannedBatch, batch_end, bytes_of, split_for
from kfs.spark.exporting.files import check_for_doubles
from kfs.spark.exporting.jobs import Advance
from kfs.spark.exporting.options import ExportOptions
from kfs.spark.exporting.sinks import Sink, WrittenBatch
from kfs.spark.following import FollowedLogs
from kfs.spark.offset_limits import names_of
from kfs.spark.offsets.progress import ConsumedRange
from kfs.spark.offsets.staged_output import StagedOutput, make_durable_directories
from kfs.spark.offsets.store_url import open_writable_store, without_secrets
from kfs.spark.options import RateOptions, SplitOptions, StreamOptions
from kfs.spark.paths import expand_paths
from kfs.spark.planning import plan
from kfs.spark.stream_offsets import Offsets, Positions

_LOG = logging.getLogger("kfs.spark")


def _nothing(_done: int) -> None:
    """Ignore the progress."""


@dataclass(slots=True)
class PartitionTotals:
    """The exported offsets of a partition, from and up to, and the number of records, None if unknown."""

    from_offset: int
    until_offset: int
    records: int | None = None


@dataclass(slots=True)
class ExportTotals:
    """The result of an export; ``skipped`` are the skipped bytes of the logs, ``size`` those of the files."""

    partitions: dict[TopicPartition, PartitionTotals] = field(default_factory=dict)
    batches: int = 0
    records: int = 0
    files: int = 0
    size: int = 0
    skipped: list[Problem] = field(default_factory=list)

    def add(self, ranges: Sequence[ConsumedRange], written: WrittenBatch) -> None:
        """Count a batch."""
        self.batches += 1
        self.records += written.records
        self.files += len(written.files)
        self.size += written.size
        self.skipped += written.skipped
        for each in ranges:
            totals = self.partitions.setdefault(each.topic_partition, PartitionTotals(each.from_offset, 0))
            totals.until_offset = each.until_offset
            if written.by_partition or not written.records:
                totals.records = (totals.records or 0) + written.by_partition.get(each.topic_partition, 0)


class Export:
    """An export that has its group, until it is closed.

    ::

        with opened_export(options, sink, cores) as export:
            export.reach(export.look())
    """

    def __init__(self, options: ExportOptions, sink: Sink, cores: int, output: StagedOutput) -> None:
        self._options = options
        self._sink = sink
        self._cores = cores
        self._output = output
        self._logs = _logs_of(options)
        self._has_begun = False
        self._said_gone: set[TopicPartition] = set()
        self.totals = ExportTotals()

    def close(self) -> None:
        """Release resources; the output releases the group."""
        self._logs.close()

    def look(self) -> Offsets:
        """Return the present ends of the logs.

        Start offsets of partitions without a stored position are chosen, and stored, before anything of them is read.

        Raises:
            DataLoss: a log isn't the one that was exported up to the position.
            KfsError: a log ends in damage, or the start offset is unknown.
        """
        latest = self._logs.latest()
        self._check_logs(self._positions(latest))
        positions = self._output.progress.positions
        missing = latest.keys() - positions.keys()
        if missing:
            starts = self._starts(set(missing))
            ranges = [ConsumedRange(each.topic, each.partition, offset, offset) for each, offset in starts.items()]
            self._output.commit(ranges, [], self._logs.identities(starts))
        self._catch_up_with_sink()
        self._say_what_is_gone(latest)
        self._has_begun = True
        return {each: end for each, end in latest.items() if each in self._output.progress.positions}

    def _check_logs(self, positions: Positions) -> None:
        """Raise :class:`DataLoss` if a log isn't the one of the positions, whatever losses are accepted otherwise.

        The records of such a log don't belong to those in the dataset.
        """
        others = self._logs.of_other_logs(positions)
        if not others:
            return
        topic, options = min(others).topic, self._options
        reset = [without_secrets(options.store_url), *expand_paths(options.paths), "--group", options.group_name]
        also = f" (and {len(others) - 1} more partitions like that)" if len(others) > 1 else ""
        raise DataLoss(
            f"{others[min(others)]}{also}: export it to another dataset; or remove topic {topic} from "
            f"{options.dataset} and start again: kfs offsets reset {shlex.join(reset)} --topic {topic} --to earliest "
            "(or --to latest, which leaves out the existing records)"
        )

    def _catch_up_with_sink(self) -> None:
        """Move the positions over batches that were written, but not stored as such.

        The sink has one range per partition, starting at the position, without gaps.
        """
        if self._has_begun:
            return
        positions = self._output.progress.positions
        if not (reached := self._sink.reached(dict(positions))):
            return
        self._output.commit(
            [ConsumedRange(each.topic, each.partition, positions[each], offset) for each, offset in reached.items()],
            [],
        )

    def _starts(self, missing: set[TopicPartition]) -> Offsets:
        """Return start offsets: as the option says; the earliest for partitions added to a known topic."""
        known = {each.topic for each in self._output.progress.positions}
        added = {each for each in missing if self._has_begun or each.topic in known}
        return {**self._logs.earliest(added), **self._logs.initial(missing - added)}

    def _say_what_is_gone(self, latest: Offsets) -> None:
        topics = {each.topic for each in latest}
        gone = {each for each in self._output.progress.positions if each.topic in topics} - latest.keys()
        if gone - self._said_gone:
            _LOG.warning(
                "partitions %s have positions, but are not in the log directories", names_of(gone - self._said_gone)
            )
            self._said_gone |= gone

    def left(self, end: Offsets) -> int:
        """Return the approximate bytes of log up to ``end``."""
        positions, logs = self._output.progress.positions, self._logs.logs(end)
        return sum(bytes_of(log, OffsetRange(positions[each], end[each])) for each, log in logs.items())

    def next_batch(self, end: Offsets) -> PlannedBatch | None:
        """Return the next batch on the way to ``end``, None if there is nothing left.

        Raises:
            DataLoss: the next offsets are gone, and that isn't accepted.
        """
        start = self._positions(end)
        self._check_logs(start)
        reached = batch_end(self._logs.logs(end), start.offsets, end, self._options.limits, self._cores)
        after = Positions(reached, self._logs.identities(reached, start))
        ranges = self._logs.between(start, after)
        consumed = tuple(
            ConsumedRange(each.topic, each.partition, start.offsets[each], reached[each])
            for each in sorted(reached)
            if reached[each] > start.offsets[each]
        )
        if not consumed:
            return None
        size = sum(bytes_of(each.log, each.offsets) for each in ranges)
        tasks = tuple(plan(ranges, split_for(size, self._cores)))
        return PlannedBatch(consumed, tasks, sum(task.size for task in tasks), after)

    def _positions(self, partitions: Container[TopicPartition]) -> Positions:
        """Return the stored positions of partitions."""
        progress = self._output.progress
        return Positions(
            {each: offset for each, offset in progress.positions.items() if each in partitions},
            {each: identity for each, identity in progress.identities.items() if each in partitions},
        )

    def do(self, batch: PlannedBatch, advance: Advance = _nothing) -> None:
        """Write a batch, and make it part of the dataset; ``advance`` gets bytes of log.

        Raises:
            Fenced: another export has the group; nothing of this batch is in the dataset.
            DataLoss: a log was replaced meanwhile; as with any other error:
            KfsError: nothing of this batch is in the dataset, unless the store didn't answer.
        """
        written = self._sink.write(batch, self._output.staging, advance)
        self._check_logs(batch.after)
        try:
            check_for_doubles(self._output.dataset, written.files)
        except KfsError:
            self._output.check()  # or the writer that took the group over has written them
            raise
        self._output.commit(batch.ranges, written.files, batch.after.identities)
        self._output.clear()
        self.totals.add(batch.ranges, written)

    def reach(self, end: Offsets, advance: Advance = _nothing, *, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Do batches up to ``end``, or until ``is_over`` returns True before one; return whether all were done.

        Raises:
            KfsError: as :meth:`next_batch` and :meth:`do`.
        """
        while (batch := self.next_batch(end)) is not None:
            if is_over():
                return False
            self.do(batch, advance)
        return True


def _logs_of(options: ExportOptions) -> FollowedLogs:
    return FollowedLogs(
        StreamOptions(options.paths, options.strategy, options.starting, RateOptions(), SplitOptions(), options.read)
    )


def check_logs(options: ExportOptions) -> None:
    """Check, before anything is started, that the logs exist and don't contain the dataset.

    Raises:
        UnusableSource: one of the paths is unusable.
        NotFound: a topic doesn't exist.
        KfsError: the dataset lies in a log directory.
    """
    for path in expand_paths(options.paths):
        check_apart(path, options.dataset)
    with closing(_logs_of(options)) as logs:
        logs.check_topics()


@contextmanager
def opened_export(options: ExportOptions, sink: Sink, cores: int) -> Iterator[Export]:
    """Open an export: acquire its group, and complete or remove leftovers of the previous one.

    Raises:
        KfsError: the dataset or the store is unusable.
    """
    check_logs(options)
    if options.store is None:
        try:
            make_durable_directories(os.path.dirname(options.staging))
        except OSError as error:
            raise KfsError(f"{options.dataset}: {error.strerror}") from None
    with (
        open_writable_store(options.store_url) as store,
        StagedOutput(store, options.group_name, options.dataset, options.staging) as output,
    ):
        export = Export(options, sink, cores, output)
        try:
            yield export
        finally:
            export.close()
