"""The plan of a segment's salvage: what can be kept and what can't. It accounts for every byte exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kfs.broker_log.file_records import first_record
from kfs.errors import CorruptData, InvalidTransaction
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader, read_header
from kfs.format.batch_table import BatchTable
from kfs.format.layout import BATCH_OVERHEAD, MAGIC_V2, NO_PRODUCER_ID
from kfs.log.block import Block, Cause, Damage
from kfs.log.bulk import ScannedBatches
from kfs.log.offset_range import SegmentBounds
from kfs.log.producer_state import ProducerState
from kfs.log.resync import find_batch, is_zero_to_end
from kfs.log.segment import Segment
from kfs.log.window import Window

#: Causes of damage where the batch itself is intact, but in the wrong place.
_INTACT: Final = (Cause.REPEATED, Cause.MISPLACED)
_SEVERAL: Final = " (the first of several batches)"


class Fate(StrEnum):
    """The fate of bytes in a recovery."""

    KEPT = "kept"
    EXTRA = "extra"  # intact batches whose offsets don't fit the log: set aside
    MOVED = "moved"  # intact batches that are kept in another place, where their offsets belong
    REPLACED = "replaced"  # damaged or undone; the records are kept, taken from elsewhere
    LOST = "lost"
    PADDING = "padding"  # zeros, preallocated for batches that were never written


@dataclass(frozen=True, slots=True)
class Stretch:
    """The bytes of a segment from ``position`` to ``end``, and their fate.

    For kept and extra batches, the offsets are the first and the last. For lost bytes, they are the lowest and highest
    offset that the bytes can have had: all offsets between the batches kept on either side. If nothing is kept after
    them, ``last_offset`` is the highest offset that the damaged bytes claim. Without any offsets, ``last_offset`` is
    below ``first_offset``.
    """

    position: int
    end: int
    fate: Fate
    first_offset: int
    last_offset: int
    reason: str = ""

    @property
    def has_offsets(self) -> bool:
        """Whether the stretch has, or can have had, any offsets."""
        return self.first_offset <= self.last_offset


@dataclass(frozen=True, slots=True)
class Misplaced(Stretch):
    """Adjacent intact batches with ascending offsets that can't be kept in place, but perhaps elsewhere."""


@dataclass(frozen=True, slots=True)
class Repeated(Misplaced):
    """Misplaced batches with offsets that occurred earlier."""


def plan_segment(segment: Segment, producers: ProducerState | None) -> list[Stretch]:
    """Return the fate of every byte of a segment, in order; join adjacent kept stretches, and adjacent misplaced ones.

    ``producers`` is the producer state before the segment, and is updated to the state after it. A batch that a
    broker's recovery refuses because of this state is set aside. With None, no batch is set aside for that reason, and
    adjacent repeated batches are joined too.

    Raises:
        CorruptData: the file changed meanwhile.
    """
    stretches: list[Stretch] = []
    for stretch in _Planner(segment, producers).stretches():
        last = stretches[-1] if stretches else None
        is_alone = producers is not None and (isinstance(stretch, Repeated) or isinstance(last, Repeated))
        joined = _joined(last, stretch) if last is not None and not is_alone else None
        if joined is not None:
            stretches[-1] = joined
        else:
            stretches.append(stretch)
    return _bounded(stretches, segment.next_base_offset)


def _joined(last: Stretch, stretch: Stretch) -> Stretch | None:
    """Return two stretches joined into one, or None if they can't be joined."""
    if last.end != stretch.position:
        return None
    if last.fate is stretch.fate is Fate.KEPT:
        return replace(last, end=stretch.end, last_offset=stretch.last_offset)
    if isinstance(last, Misplaced) and isinstance(stretch, Misplaced) and last.last_offset < stretch.first_offset:
        reason = last.reason if last.reason.endswith(_SEVERAL) else last.reason + _SEVERAL
        return replace(last, end=stretch.end, last_offset=stretch.last_offset, reason=reason)
    return None


class _Planner:
    """Plans a segment in one pass."""

    def __init__(self, segment: Segment, producers: ProducerState | None) -> None:
        self._segment = segment
        self._producers = producers
        self._after = segment.base_offset - 1

    def stretches(self) -> Iterator[Stretch]:
        reader = self._segment.bulk_reader(tells_missing=False)
        for item in reader.undecoded():
            if isinstance(item, ScannedBatches):
                yield from self._of_rows(item.table, item.stop)
            elif isinstance(item, Block):
                yield self._of_block(item)
            else:
                yield from self._of_damage(item)
        if reader.walk.end < reader.walk.size:
            yield self._tail(reader.walk.end, reader.walk.size)

    def _of_rows(self, table: BatchTable, rows: int) -> Iterator[Stretch]:
        if self._producers is None or table.producer_ids[:rows].count(NO_PRODUCER_ID) == rows:  # all at once
            self._after = table.last_offsets[rows - 1]
            yield Stretch(table.positions[0], table.end(rows - 1), Fate.KEPT, table.base_offsets[0], self._after)
            return
        for row in range(rows):
            yield self._judged(table.header(row), table.data(row))

    def _of_block(self, block: Block) -> Stretch:
        header = block.header
        if header.magic >= MAGIC_V2 and not block.is_trimmed:
            return self._judged(header, block.data)
        try:
            first, last = _offsets_of(self._segment, block)
        except CorruptData as error:  # a broker's loader fails on it too
            return Stretch(block.position, block.end, Fate.EXTRA, header.base_offset, header.last_offset, error.reason)
        if self._after < first and last < block.before:
            self._after = last
            return Stretch(block.position, block.end, Fate.KEPT, first, last)
        reason = f"offsets {first} to {last}, not all above {self._after} and below {block.before}"
        return Stretch(block.position, block.end, Fate.EXTRA, first, last, reason)

    def _judged(self, header: BatchHeader, data: bytes) -> Stretch:
        """Keep a record batch (v2) that is in place, unless a broker's recovery would refuse it."""
        fate, reason = Fate.KEPT, ""
        try:
            if self._producers is not None:
                self._producers.append(header, first_record(header, data) if header.is_transaction_marker else None)
        except (CorruptData, InvalidTransaction) as error:
            fate, reason = Fate.EXTRA, error.reason if isinstance(error, CorruptData) else str(error)
        else:
            self._after = header.last_offset
        end = header.position + header.size
        return Stretch(header.position, end, fate, header.base_offset, header.last_offset, reason)

    def _of_damage(self, damage: Damage) -> Iterator[Stretch]:
        reason = damage.problem.reason
        if damage.cause in _INTACT:
            kind = Repeated if damage.cause is Cause.REPEATED else Misplaced
            yield _aside(header_at(self._segment, damage.position), reason, kind)
            return
        lost = Stretch(damage.position, damage.end, Fate.LOST, self._after + 1, damage.claimed_last, reason)
        for header in self._intact_in(damage):
            if lost.position < header.position:
                yield replace(lost, end=header.position)
            extra = _aside(header, f"an intact batch within damage: {reason}")
            yield extra
            lost = replace(lost, position=extra.end)
        if lost.position < lost.end:
            yield lost

    def _intact_in(self, damage: Damage) -> Iterator[BatchHeader]:
        """Yield the headers of intact batches that the walk skipped because their offsets are too low or too high."""
        file, storage = self._segment.file(), self._segment.storage
        window = Window(file, damage.end)
        bounds = SegmentBounds(self._segment.base_offset, None)
        position: int | None = damage.position + 1
        while position is not None:
            position = find_batch(window, bounds, position, bounds.base_offset - 1, storage.max_batch_bytes)
            if position is not None:
                header = header_at(self._segment, position)
                yield header
                position += header.size

    def _tail(self, position: int, size: int) -> Stretch:
        if is_zero_to_end(self._segment.file(), position, size):
            return Stretch(position, size, Fate.PADDING, self._after + 1, self._after)
        try:
            last = header_at(self._segment, position).last_offset
        except CorruptData:
            last = self._after
        return Stretch(position, size, Fate.LOST, self._after + 1, last, "an incomplete batch at the end of the log")


def _offsets_of(segment: Segment, block: Block) -> tuple[int, int]:
    """Return a block's first and last offset; for a compressed message, only the inner messages are reliable.

    Raises:
        CorruptData: the inner messages can't be decoded.
    """
    if block.header.record_count == UNKNOWN_COUNT:
        offsets = segment.storage.load(block, segment.problems.add).columns.offsets
        if offsets:
            return offsets[0], offsets[-1]
    return block.header.base_offset, block.header.last_offset


def _aside(header: BatchHeader, reason: str, kind: type[Stretch] = Stretch) -> Stretch:
    end = header.position + header.size
    return kind(header.position, end, Fate.EXTRA, header.base_offset, header.last_offset, reason)


def header_at(segment: Segment, position: int) -> BatchHeader:
    """Return the header at a byte position, even if the batch is damaged.

    Raises:
        CorruptData: the header makes no sense.
    """
    return read_header(segment.file().read(position, BATCH_OVERHEAD), 0, position)


def _bounded(stretches: list[Stretch], next_base_offset: int | None) -> list[Stretch]:
    """Set the end of each lost stretch to just below the next kept offset, which is known only after the pass."""
    result = []
    following = next_base_offset
    for stretch in reversed(stretches):
        if stretch.fate is Fate.LOST and following is not None:
            stretch = replace(stretch, last_offset=following - 1)
        elif stretch.fate is Fate.KEPT:
            following = stretch.first_offset
        result.append(stretch)
    return result[::-1]
