"""The size of the next batch of growing logs: bounded, so that a backup of any size makes durable progress."""

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

#: The default bytes of log per core in a batch: some seconds of work.
_BATCH_BYTES_OF_CORE: Final = 512 * 1024 * 1024
#: The most bytes of log in a task, since it makes a file of them, and the least, if there are enough.
_LARGEST_TASK: Final = 256 * 1024 * 1024
_SMALLEST_TASK: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """Ranges of offsets, one per partition, and the tasks that read them; ``size`` is their approximate bytes of log.

    ``after`` are the positions after it, with the identities of their logs.
    """

    ranges: tuple[ConsumedRange, ...]
    tasks: tuple[Task, ...]
    size: int
    after: Positions


def batch_end(
    logs: Mapping[TopicPartition, Log], start: Offsets, end: Offsets, limits: BatchLimits, cores: int
) -> Offsets:
    """Return the end of a batch that begins at ``start``, within ``end`` and the limits of a batch.

    One partition after the other, rather than a little of each: this makes fewer, larger files.
    """
    bytes_left = limits.bytes or _BATCH_BYTES_OF_CORE * cores
    records_left = limits.records
    reached = dict(start)
    for each in sorted(end.keys() & start.keys()):
        if end[each] <= start[each]:
            reached[each] = end[each]  # the reader handles a position past the end
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
    """Return the end of about ``most`` bytes of the offsets, at least one offset after their start, and the bytes."""
    total = 0
    for part, size in _parts(log, offsets):
        if total + size > most:
            stop = part.start + (part.end - part.start) * (most - total) // max(size, 1)
            return max(stop, offsets.start + 1), most
        total += size
    return offsets.end, total


def bytes_of(log: Log, offsets: OffsetRange) -> int:
    """Return the approximate bytes of log of offsets."""
    return sum(size for _, size in _parts(log, offsets))


def _parts(log: Log, offsets: OffsetRange) -> list[tuple[OffsetRange, int]]:
    """Return the offsets by segment, with their approximate bytes."""
    parts = []
    for segment in log.segments:
        end = log.log_end_offset if segment.next_base_offset is None else segment.next_base_offset
        there = OffsetRange(max(segment.base_offset, offsets.start), min(end, offsets.end))
        if there.start < there.end:
            size = segment.size() * (there.end - there.start) // (end - segment.base_offset)
            parts.append((there, size))
    return parts


def split_for(size: int, cores: int) -> SplitOptions:
    """Return how to cut a batch into tasks: work for all cores, and no needlessly small files."""
    return SplitOptions(max_bytes=min(max(-(-size // max(cores, 1)), _SMALLEST_TASK), _LARGEST_TASK))
