"""Cutting a batch into tasks of about the same size, each a few ranges of bytes between batch boundaries.

The driver reads as little as possible: directory listings, the ends of the last segments, index files if a segment is
cut. It walks headers only if an index doesn't say where to cut, or not finely enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kfs.format.layout import MAX_INT64
from kfs.format.uuid import Uuid
from kfs.log.offset_range import OffsetRange
from kfs.read.log_source import LogSource
from kfs.read.plan import BatchRange, FileVersion, holds_some_of, splits_of
from kfs.read.wanted_offsets import WantedOffsets
from kfs.read.workers.cores import cores
from kfs.spark.options import SplitOptions
from kfs.spark.ranges import LogRange

#: The default bytes of log in a task: enough to be worth a task, few enough for every core to get one.
DEFAULT_TASK_BYTES: Final = 32 * 1024 * 1024
#: With more tasks Spark's driver becomes the bottleneck: then they are larger.
_MOST_TASKS: Final = 10_000
#: The cost of opening another segment, in bytes that could be read meanwhile.
_OPEN_COST_BYTES: Final = 512 * 1024
#: A task may exceed its target size by one part in this many.
_LEEWAY: Final = 16


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """A range of bytes of one segment, and the wanted offsets of it.

    Position and end are valid while the segment's file has this ``version``; offsets always are. ``size`` is the
    approximate bytes to read; ``topic_id`` is that of the requested topic, if it has one.
    """

    source: LogSource
    batches: BatchRange
    offsets: WantedOffsets
    version: FileVersion
    size: int
    topic_id: Uuid | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The splits that one task reads, in order."""

    splits: tuple[SourceSplit, ...]

    @property
    def size(self) -> int:
        """The approximate bytes."""
        return sum(split.size for split in self.splits)


def plan(ranges: Sequence[LogRange], options: SplitOptions) -> list[Task]:
    """Return the tasks that together read the ranges, in order; none if there is nothing to read."""
    tasks = _Tasks(_target_bytes(ranges, options), options.max_records)
    for each in ranges:
        for split in _splits_of_range(each, tasks):
            tasks.add(split)
    return tasks.done()


def _target_bytes(ranges: Sequence[LogRange], options: SplitOptions) -> int:
    """Return the target bytes of a task: as few tasks as possible, of about equal size."""
    sizes = [span.segment.size() for each in ranges for span in each.log.spans if holds_some_of(each.offsets, span)]
    total = sum(sizes)
    if options.min_partitions and not (options.max_bytes and options.max_bytes * options.min_partitions < total):
        return max(total // options.min_partitions, 1)
    most = options.max_bytes or max(DEFAULT_TASK_BYTES, total // _MOST_TASKS)
    cost = total + _OPEN_COST_BYTES * (len(sizes) - 1)
    count = max(-(-(cost - most // _LEEWAY) // most), 1)
    # Cores that idle while others do the last tasks are wasted; a few more tasks than necessary cost less. Only this
    # machine's number of cores is known: with local[*] that is enough.
    for_all_cores = -(-count // cores()) * cores()
    if 2 * for_all_cores <= 3 * count:
        count = for_all_cores
    return max(-(-cost // count), 1)


def _chunks(offsets: OffsetRange, most: int | None) -> Iterator[OffsetRange]:
    """Cut offsets evenly into parts of at most ``most`` (``KafkaOffsetRangeCalculator.scala``)."""
    size = offsets.end - offsets.start
    parts = 1 if most is None else max(-(-size // most), 1)
    for part in range(parts):
        yield OffsetRange(offsets.start + size * part // parts, offsets.start + size * (part + 1) // parts)


def _splits_of_range(wanted: LogRange, tasks: _Tasks) -> Iterator[SourceSplit]:
    """Yield splits as ``tasks`` has room for them; each has to be added before the next."""
    source = LogSource.of(wanted.log)
    for offsets in _chunks(wanted.offsets, tasks.max_records):
        to_log_end = wanted.to_log_end and offsets.end == wanted.offsets.end
        asked = WantedOffsets(offsets.start, offsets.end, MAX_INT64 if to_log_end else offsets.end)
        for split in splits_of(wanted.log, asked, tasks):
            version = split.batches.version
            assert version is not None
            # The task itself reports a file that was replaced meanwhile.
            batches = replace(split.batches, version=None, topic_id=None, stop=None)
            yield SourceSplit(source, batches, split.offsets, version, split.size, wanted.topic_id)


class _Tasks:
    """Tasks that are filled one after another, with consecutive splits of logs.

    Each gets about ``target`` bytes, and at most ``max_records`` offsets.
    """

    #: Sizes are limits, however expensive it is to find where to cut.
    are_limits: Final = True

    def __init__(self, target: int, max_records: int | None) -> None:
        self.target = target
        self.max_records = max_records
        self._done: list[Task] = []
        self._begin()

    def _begin(self) -> None:
        self._splits: list[SourceSplit] = []
        self._size = -_OPEN_COST_BYTES  # each task opens at least one file
        self._records = 0

    @property
    def room(self) -> int:
        """The approximate most bytes of the next split."""
        room = self.target - self._size - _OPEN_COST_BYTES
        return room if self._splits and room > _OPEN_COST_BYTES else self.target

    def add(self, split: SourceSplit) -> None:
        """Add a split to the unfinished task, or to a new one."""
        cost, count = split.size + _OPEN_COST_BYTES, split.offsets.end - split.offsets.start
        is_full = self._size + cost > self.target + self.target // _LEEWAY or (
            self.max_records is not None and self._records + count > self.max_records
        )
        if self._splits and is_full:
            self._finish()
        self._splits.append(split)
        self._size += cost
        self._records += count

    def _finish(self) -> None:
        self._done.append(Task(tuple(self._splits)))
        self._begin()

    def done(self) -> list[Task]:
        """Finish the last task; return all tasks."""
        if self._splits:
            self._finish()
        return self._done
