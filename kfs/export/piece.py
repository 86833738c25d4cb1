"""Doing one piece of work: from log bytes to output bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kfs.errors import CorruptData
from kfs.export.output import OutputFormat, Writer
from kfs.export.plan import WantedOffsets, Work, pieces_of
from kfs.export.selection import Selection
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader
from kfs.log.aborted_transactions import AbortedTransactions
from kfs.log.block import Damage
from kfs.log.bulk import Records, Undecodable
from kfs.log.data_dir import DataDir
from kfs.log.isolation import IsolationLevel
from kfs.log.log import Log
from kfs.log.problem import Problem, faulty_records
from kfs.log.segment import Segment


@dataclass(frozen=True, slots=True)
class Chosen:
    """Records of some blocks that are wanted, by index, and what of the blocks could not be read."""

    records: Records | None = None
    indexes: Sequence[int] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """Where work on a segment left off: the batch boundary, and the highest offset before it."""

    work: Work
    position: int
    seen: int

    def next(self, work: Work) -> Work:
        """Return ``work``, which comes next, as it has to be done after this.

        Where a segment can be cut was read off its index, which may lie: a boundary may turn out to lie inside of
        what was read up to it, or offsets behind it to have occurred before it. Then the work begins where this
        one really ended.
        """
        if not work.continues(self.work):
            return work
        if work.position == self.position and (work.seen is None or work.seen >= self.seen):
            return work
        return replace(work, position=self.position, seen=self.seen)


@dataclass(frozen=True, slots=True)
class Done:
    """Output of some blocks: the bytes, and what could not be read."""

    data: bytes = b""
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class Worker:
    """Does pieces of work on one data directory; ``left`` is where the last one ended, None if that was not reached."""

    data_dir: DataDir
    selection: Selection
    output: OutputFormat
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    reader: PieceReader = field(init=False)
    _writers: dict[tuple[str, int], Writer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reader = PieceReader(self.selection, self.isolation)

    @property
    def left(self) -> Left | None:
        """See :attr:`PieceReader.left`."""
        return self.reader.left

    def do(self, work: Work, offsets: WantedOffsets) -> Iterator[Done]:
        """Yield the output of a piece, block by block; errors as :meth:`choose`."""
        for chosen in self.choose(work, offsets):
            yield self.render(work, chosen)

    def render(self, work: Work, chosen: Chosen) -> Done:
        """Return the output of records of a piece."""
        if chosen.records is None or not chosen.indexes:
            return Done(problems=chosen.problems)
        key = (work.topic, work.partition)
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = self.output.writer(*key)
        return Done(writer(chosen.records.columns, chosen.indexes), chosen.problems)

    def choose(self, work: Work, offsets: WantedOffsets) -> Iterator[Chosen]:
        """See :meth:`PieceReader.choose`."""
        return self.reader.choose(self.data_dir.log(work.topic, work.partition), work, offsets)


@dataclass(slots=True)
class PieceReader:
    """Reads pieces of work; ``left`` is where the last one ended, None if that was not reached."""

    selection: Selection
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    left: Left | None = None
    _aborted: AbortedTransactions | None = None

    def choose(self, log: Log | None, work: Work, offsets: WantedOffsets) -> Iterator[Chosen]:
        """Yield the records of a piece that are wanted, block by block; those outside of ``offsets`` are not.

        Damage is among them where it may hide offsets that were asked for (:meth:`~kfs.log.block.Damage.may_hide`).
        ``log`` is that of the piece, None where it is gone. ``left`` tells afterwards where the piece ended.

        Raises:
            CorruptData: the segment is gone, or was cut under our hands.
        """
        self.left = None
        segment = log.segment_for(work.base_offset) if log is not None else None
        if log is None or segment is None or segment.base_offset != work.base_offset:
            raise CorruptData(f"segment {work.base_offset} of {work.topic}-{work.partition} is gone", work.position)
        self._isolate(log)
        position = work.position
        seen = work.base_offset - 1 if work.seen is None else work.seen
        for item in segment.bulk(position, work.seen, work.end):
            position = item.end
            if isinstance(item, Damage):
                if item.may_hide(offsets.start, offsets.asked_end):
                    yield Chosen(problems=(item.problem,))
                continue
            first, last = _offsets_of(item)
            seen = max(seen, last)
            if first >= offsets.end:
                break
            chosen = self._chosen_of(segment, item, offsets)
            if chosen is not None:
                yield chosen
        self.left = Left(work, position, seen)

    def _isolate(self, log: Log) -> None:
        if self.isolation is IsolationLevel.READ_COMMITTED and (self._aborted is None or self._aborted.log is not log):
            self._aborted = AbortedTransactions(log)

    def _chosen_of(self, segment: Segment, item: Records | Undecodable, offsets: WantedOffsets) -> Chosen | None:
        if isinstance(item, Undecodable):
            first, last = _offsets_of(item)
            if last < offsets.start or first >= offsets.end or self._is_aborted(segment, item.block.header):
                return None
            size = item.end - item.position
            return Chosen(problems=(Problem(item.block.file, item.position, size, item.error.reason),))
        return None if item.is_control else self._of_records(segment, item, offsets)

    def _of_records(self, segment: Segment, item: Records, offsets: WantedOffsets) -> Chosen | None:
        columns = item.columns
        first = bisect_left(columns.offsets, offsets.start)
        stop = bisect_left(columns.offsets, offsets.end, first)
        ranges = [range(first, stop)]
        if self._aborted is not None and first < stop:
            ranges = self._aborted.kept_ranges(segment, item, first, stop)
        indexes: Sequence[int] = ranges[0] if len(ranges) == 1 else [index for some in ranges for index in some]
        if self.selection.looks_inside:
            indexes = self.selection.indexes(columns, indexes)
        problems: tuple[Problem, ...] = ()
        if columns.faults:
            indexes = [index for index in indexes if index not in columns.faults]
            if any(index in some for index in columns.faults for some in ranges):
                problems = (faulty_records(columns, item.file, item.position, item.end - item.position),)
        return Chosen(item, indexes, problems) if indexes or problems else None

    def _is_aborted(self, segment: Segment, header: BatchHeader) -> bool:
        if self._aborted is None or not header.is_transactional:
            return False
        return self._aborted.is_aborted(segment, header.producer_id, header.base_offset, header.last_offset)


def chosen_in(
    reader: PieceReader, log: Log, offsets: WantedOffsets, gone: Callable[[CorruptData], None] | None = None
) -> Iterator[tuple[Work, Chosen]]:
    """Yield the records of a log that are wanted, block by block, with the work they belong to.

    ``gone`` is told of segments that vanished meanwhile, and reading goes on behind them.

    Raises:
        CorruptData: a segment vanished, and nobody is to be told.
    """
    left: Left | None = None
    for piece in pieces_of(log, offsets):
        work = left.next(piece) if left else piece
        try:
            for chosen in reader.choose(log, work, offsets):
                yield work, chosen
        except CorruptData as error:
            if gone is None:
                raise
            gone(error)
        left = reader.left


def last_in(
    reader: PieceReader, log: Log, offsets: WantedOffsets, count: int, gone: Callable[[CorruptData], None] | None = None
) -> Iterator[tuple[Work, Chosen]]:
    """Yield the last ``count`` of the records that :func:`chosen_in` yields; no more of the log is read than it takes.

    That is looked for further and further back: compaction, markers and filters leave out what they will.
    """
    span, end, asked_end, missing = max(count, 1), offsets.end, offsets.asked_end, count
    found: deque[tuple[Work, Chosen]] = deque()
    told: set[Problem] = set()
    while missing > 0 and offsets.start < end:
        start = max(offsets.start, end - span)
        earlier = list(chosen_in(reader, log, WantedOffsets(start, end, max(end, asked_end)), gone))
        asked_end = 0  # what is behind these was looked at
        for work, chosen in reversed(earlier):
            problems = tuple(problem for problem in chosen.problems if problem not in told)  # one may reach across
            told.update(problems)
            kept = replace(chosen, indexes=chosen.indexes[max(len(chosen.indexes) - missing, 0) :], problems=problems)
            missing -= len(kept.indexes)
            found.appendleft((work, kept))
            if missing <= 0:
                break
        end, span = start, span * 2
    yield from found


def _offsets_of(item: Records | Undecodable) -> tuple[int, int]:
    """Return the first offset that an item may answer for, and the last."""
    if isinstance(item, Records):
        offsets = item.columns.offsets
        return (offsets[0], max(offsets[-1], item.last_offset)) if offsets else (item.base_offset, item.last_offset)
    header = item.block.header
    # Where a wrapper begins is known only inside.
    return (0 if header.record_count == UNKNOWN_COUNT else header.base_offset), header.last_offset
