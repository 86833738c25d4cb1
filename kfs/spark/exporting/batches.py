"""How much of growing logs the next batch takes: bounded, so that a backup of any size makes progress that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kfs.format.checkpoint import TopicPartition
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.spark.exporting.options import BatchLimits
from kfs.spark.offsets.progress import ConsumedRange
from kfs.spark.options import SplitOptions
from kfs.spark.planning import Task
from kfs.spark.stream_offsets import Offsets, Positions

#: Bytes of log for each core in a batch where nothing else is said: some seconds of work.
_BATCH_BYTES_OF_CORE: Final = 512 * 1024 * 1024
#: A task has at most as many bytes of log, since it makes a file of them, and at least as many, if there are.
_LARGEST_TASK: Final = 256 * 1024 * 1024
_SMALLEST_TASK: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """Ranges of offsets, one a partition, and the tasks that read them; ``size`` is their bytes of log, about.

    ``after`` are the positions behind it, and which logs these are of.
    """

    ranges: tuple[ConsumedRange, ...]
    tasks: tuple[Task, ...]
    size: int
    after: Positions


def batch_end(
    logs: Mapping[TopicPartition, Log], start: Offsets, end: Offsets, limits: BatchLimits, cores: int
) -> Offsets:
    """Return how far a batch goes that begins at ``start``, if there is more up to ``end`` than one may have.

    One partition after the other, rather than a little of each: so there are fewer files, and larger ones.
    """
    bytes_left = limits.bytes or _BATCH_BYTES_OF_CORE * cores
    records_left = limits.records
    reached = dict(start)
    for each in sorted(end.keys() & start.keys()):
        if end[each] <= start[each]:
            reached[each] = end[each]  # the reader says what that means
            continue
        if bytes_left <= 0 or records_left == 0:
            continue
        stop = end[each] if records_left is None else min(end[each], start[each] + records_left)
        if each in logs:
            stop, size = _within(logs[each], OffsetRange(start[each], stop), bytes_left)
            bytes_left -= size
        if records_left is not None:
            records_left -= stop - start[each]
        reached[each] = stop
    return reached


def _within(log: Log, offsets: OffsetRange, most: int) -> tuple[int, int]:
    """Return where about ``most`` bytes of the offsets end, at least one offset behind their start, and how many."""
    total = 0
    for part, size in _parts(log, offsets):
        if total + size > most:
            stop = part.start + (part.end - part.start) * (most - total) // max(size, 1)
            return max(stop, offsets.start + 1), most
        total += size
    return offsets.end, total


def bytes_of(log: Log, offsets: OffsetRange) -> int:
    """Return about how many bytes of log offsets take."""
    return sum(size for _, size in _parts(log, offsets))


def _parts(log: Log, offsets: OffsetRange) -> list[tuple[OffsetRange, int]]:
    """Return the offsets by segment, and about how many bytes of it they take."""
    parts = []
    for segment in log.segments:
        end = log.log_end_offset if segment.next_base_offset is None else segment.next_base_offset
        there = OffsetRange(max(segment.base_offset, offsets.start), min(end, offsets.end))
        if there.start < there.end:
            size = segment.size() * (there.end - there.start) // (end - segment.base_offset)
            parts.append((there, size))
    return parts


def split_for(size: int, cores: int) -> SplitOptions:
    """Return how a batch is cut into tasks: all cores have some, and the files aren't small without need."""
    return SplitOptions(max_bytes=min(max(-(-size // max(cores, 1)), _SMALLEST_TASK), _LARGEST_TASK))
