"""A batch cut into tasks of about the same size, each a few ranges of bytes between batch boundaries.

The driver reads no more than it must: directory listings, the ends of the last segments, index files where a segment
is cut. Only where an index doesn't say where to cut, or not finely enough, are headers walked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData
from kfs.export.plan import Work
from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.log.block import Block, Damage
from kfs.log.bulk import Ordinary
from kfs.log.log import Log, OffsetRange
from kfs.log.segment import Segment
from kfs.scan.request import LogSource
from kfs.spark.options import SplitOptions
from kfs.spark.ranges import LogRange

#: Bytes of log in a task where nothing else is said: enough to be worth a task, few enough for every core to get one.
DEFAULT_TASK_BYTES: Final = 32 * 1024 * 1024
#: With more tasks than that Spark's driver becomes the bottleneck: then they are larger.
_MOST_TASKS: Final = 10_000
#: What opening another segment costs, in bytes that could be read meanwhile.
_OPEN_COST_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of bytes of one segment, and the offsets that are wanted of it.

    Position and end hold as long as the segment's file is the one with this ``inode``; offsets hold always.
    ``size`` is about what is read, in bytes.
    """

    source: LogSource
    work: Work
    offsets: OffsetRange
    inode: int
    size: int


@dataclass(frozen=True, slots=True)
class Task:
    """What one task reads, in this order."""

    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Bytes, about."""
        return sum(piece.size for piece in self.pieces)


def plan(ranges: Sequence[LogRange], split: SplitOptions) -> list[Task]:
    """Return the tasks that together read the ranges, in their order; none where there is nothing to read."""
    target = _target_bytes(ranges, split)
    pieces = (
        piece
        for each in ranges
        for offsets in _chunks(each.offsets, split.max_records)
        for piece in _pieces_of(each.log, offsets, target)
    )
    return list(_packed(pieces, target, split.max_records))


def _target_bytes(ranges: Sequence[LogRange], split: SplitOptions) -> int:
    """How many bytes a task should have."""
    total = sum(
        segment.size() for each in ranges for segment in each.log.segments if _holds_some_of(segment, each.offsets)
    )
    target = split.max_bytes or max(DEFAULT_TASK_BYTES, total // _MOST_TASKS)
    if split.min_partitions:
        target = min(target, max(total // split.min_partitions, 1))
    return target


def _holds_some_of(segment: Segment, offsets: OffsetRange) -> bool:
    return segment.base_offset < offsets.end and (
        segment.next_base_offset is None or segment.next_base_offset > offsets.start
    )


def _chunks(offsets: OffsetRange, most: int | None) -> Iterator[OffsetRange]:
    """Cut offsets evenly so that none has more than ``most`` (``KafkaOffsetRangeCalculator.scala``)."""
    size = offsets.end - offsets.start
    parts = 1 if most is None else -(-size // most)
    for part in range(parts):
        yield OffsetRange(offsets.start + size * part // parts, offsets.start + size * (part + 1) // parts)


def _pieces_of(log: Log, offsets: OffsetRange, target: int) -> Iterator[Piece]:
    source = LogSource.of(log)
    for segment in log.segments:
        if segment.base_offset >= offsets.end:
            return
        if not _holds_some_of(segment, offsets):
            continue
        cuts, stop = [_Cut(0, None)], 0
        with suppress(CorruptData):  # it vanished, or was cut: who reads it will say so
            cuts, stop = _cuts(segment, offsets, target)
        yield from _pieces_between(source, segment, cuts, stop, offsets)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A batch boundary, and the highest offset before it where that is known."""

    position: int
    seen: int | None


def _pieces_between(
    source: LogSource, segment: Segment, cuts: Sequence[_Cut], stop: int, offsets: OffsetRange
) -> Iterator[Piece]:
    end_of_all = offsets.end if segment.next_base_offset is None else min(offsets.end, segment.next_base_offset)
    for cut, following in zip(cuts, [*cuts[1:], None], strict=True):
        start = offsets.start if cut.seen is None else max(offsets.start, cut.seen + 1)
        end = end_of_all if following is None or following.seen is None else min(end_of_all, following.seen + 1)
        if start >= end:
            continue
        to = None if following is None else following.position
        work = Work(source.name.topic, source.name.partition, segment.base_offset, cut.position, to, cut.seen)
        length = (stop if to is None else to) - cut.position
        yield Piece(source, work, OffsetRange(start, end), segment.files.log.inode, max(length, 0))


def _cuts(segment: Segment, offsets: OffsetRange, target: int) -> tuple[list[_Cut], int]:
    """Return where a segment is cut for even pieces of about ``target`` bytes, and about where what is wanted ends.

    The first cut is where reading begins.
    """
    first = _Cut(*segment.position_before(max(offsets.start, segment.base_offset)))
    stop = segment.size()
    if segment.next_base_offset is None or offsets.end < segment.next_base_offset:
        stop = max(segment.position_before(offsets.end)[0], first.position)
    length = stop - first.position
    parts = -(-length // target)
    if parts <= 1:
        return [first], stop
    step = -(-length // parts)
    cuts = [first]
    for position, seen in segment.boundaries(first.position + step, step):
        if seen + 1 >= offsets.end:
            break
        cuts.append(_Cut(position, seen))
    return list(_refined(segment, cuts, stop, step)), stop


def _refined(segment: Segment, cuts: Sequence[_Cut], stop: int, step: int) -> Iterator[_Cut]:
    """Yield the cuts, and others between those that lie too far apart."""
    for cut, following in zip(cuts, [*cuts[1:], None], strict=True):
        yield cut
        end = stop if following is None else following.position
        if end - cut.position > 2 * step:
            yield from _walked(segment, cut, end, step)


def _walked(segment: Segment, begin: _Cut, end: int, step: int) -> Iterator[_Cut]:
    """Yield the batch boundaries between ``begin`` and ``end`` that are at least ``step`` bytes apart."""
    reader = segment.bulk_reader(report=lambda problem: None)
    due, seen = begin.position + step, begin.seen
    for piece in reader.pieces(begin.position, begin.seen, end):
        if isinstance(piece, Ordinary):
            table, rows = piece
            for row in range(rows):
                position = table.positions[row]
                if position >= due and seen is not None:
                    yield _Cut(position, seen)
                    due = position + step
                seen = table.last_offsets[row]
        elif isinstance(piece, Block):
            if piece.position >= due and seen is not None:
                yield _Cut(piece.position, seen)
                due = piece.position + step
            seen = _last_of(piece, seen)
        else:
            assert isinstance(piece, Damage)


def _last_of(block: Block, seen: int | None) -> int | None:
    """Return the highest offset behind a block, None where only decoding it would tell."""
    header = block.header
    if header.record_count == UNKNOWN_COUNT and header.last_offset == 0:
        return None
    return max(-1 if seen is None else seen, min(header.last_offset, block.before - 1))


def _packed(pieces: Iterable[Piece], target: int, max_records: int | None) -> Iterator[Task]:
    """Yield tasks of pieces that follow one another, as many as fit in ``target`` bytes and ``max_records`` offsets."""
    packed: list[Piece] = []
    size = records = 0
    for piece in pieces:
        cost, count = piece.size + _OPEN_COST_BYTES, piece.offsets.end - piece.offsets.start
        is_full = size + cost > target or (max_records is not None and records + count > max_records)
        if packed and is_full:
            yield Task(tuple(packed))
            packed, size, records = [], 0, 0
        packed.append(piece)
        size += cost
        records += count
    if packed:
        yield Task(tuple(packed))
