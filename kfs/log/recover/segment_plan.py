"""What of a segment can be saved and what can't: every byte of it is accounted for, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT, read_header
from kfs.format.layout import BATCH_OVERHEAD
from kfs.log.block import Block, Cause, Damage
from kfs.log.bulk import Ordinary
from kfs.log.resync import is_zero_to_end
from kfs.log.segment import Segment

#: Damage that is an intact batch in the wrong place.
_INTACT: Final = (Cause.REPEATED, Cause.MISPLACED)


class Fate(StrEnum):
    """What becomes of bytes."""

    KEPT = "kept"
    EXTRA = "extra"  # intact batches whose offsets can't be where they are: set aside
    LOST = "lost"
    PADDING = "padding"  # zeros, preallocated for batches that were never written


@dataclass(frozen=True, slots=True)
class Stretch:
    """The bytes of a segment from ``position`` to ``end``, and their fate.

    Of kept and extra batches the offsets are the first and last; of what is lost, the lowest and highest that can have
    been in it: those between the batches kept on either side. ``last_offset`` is below ``first_offset`` where there are
    none, and where nothing is kept behind it ``last_offset`` is the highest that the damaged bytes claim.
    """

    position: int
    end: int
    fate: Fate
    first_offset: int
    last_offset: int
    reason: str = ""

    @property
    def has_offsets(self) -> bool:
        """Whether there are offsets in it, or can have been."""
        return self.first_offset <= self.last_offset


def plan_segment(segment: Segment) -> list[Stretch]:
    """Return the fate of every byte of a segment, in order; neighbours of one fate that has no reasons are one.

    Raises:
        CorruptData: the file changes meanwhile.
    """
    stretches: list[Stretch] = []
    for stretch in _stretches(segment):
        last = stretches[-1] if stretches else None
        if last is not None and last.fate is stretch.fate is Fate.KEPT and last.end == stretch.position:
            stretches[-1] = replace(last, end=stretch.end, last_offset=stretch.last_offset)
        else:
            stretches.append(stretch)
    return _bounded(stretches, segment.next_base_offset)


def _stretches(segment: Segment) -> Iterator[Stretch]:
    reader = segment.bulk_reader()
    seen = segment.base_offset - 1
    for piece in reader.pieces():
        if isinstance(piece, Ordinary):
            table, last_row = piece.table, piece.rows - 1
            first, last = table.base_offsets[0], table.last_offsets[last_row]
            yield Stretch(table.positions[0], table.end(last_row), Fate.KEPT, first, last)
            seen = last
        elif isinstance(piece, Block):
            stretch = _of_block(segment, piece, seen)
            if stretch.fate is Fate.KEPT:
                seen = stretch.last_offset
            yield stretch
        else:
            yield _of_damage(segment, piece, seen)
    if reader.walk.end < reader.walk.size:
        yield _tail(segment, reader.walk.end, reader.walk.size, seen)


def _of_block(segment: Segment, block: Block, seen: int) -> Stretch:
    first, last = _offsets_of(segment, block)
    if seen < first and last < block.before:
        return Stretch(block.position, block.end, Fate.KEPT, first, last)
    reason = f"offsets {first} to {last}, not all above {seen} and below {block.before}"
    return Stretch(block.position, block.end, Fate.EXTRA, first, last, reason)


def _offsets_of(segment: Segment, block: Block) -> tuple[int, int]:
    """Return the first and the last offset; of a compressed message they are known for certain only inside."""
    header = block.header
    if header.record_count == UNKNOWN_COUNT:
        try:
            offsets = segment.storage.load(block, segment.problems.add).columns.offsets
        except CorruptData:  # reported, and kept all the same: its CRC holds
            return header.last_offset, header.last_offset
        if offsets:
            return offsets[0], offsets[-1]
    return header.base_offset, header.last_offset


def _of_damage(segment: Segment, damage: Damage, seen: int) -> Stretch:
    reason = damage.problem.reason
    if damage.cause in _INTACT:
        header = read_header(_head(segment, damage.position), 0, damage.position)
        return Stretch(damage.position, damage.end, Fate.EXTRA, header.base_offset, header.last_offset, reason)
    return Stretch(damage.position, damage.end, Fate.LOST, seen + 1, damage.claimed_last, reason)


def _head(segment: Segment, position: int) -> bytes:
    """Return the bytes of a header, padded where a short message ends the file."""
    return segment.file().read(position, BATCH_OVERHEAD).ljust(BATCH_OVERHEAD, b"\0")


def _tail(segment: Segment, position: int, size: int, seen: int) -> Stretch:
    if is_zero_to_end(segment.file(), position, size):
        return Stretch(position, size, Fate.PADDING, seen + 1, seen)
    try:
        last = read_header(_head(segment, position), 0, position).last_offset
    except CorruptData:
        last = seen
    return Stretch(position, size, Fate.LOST, seen + 1, last, "an incomplete batch at the end of the log")


def _bounded(stretches: list[Stretch], next_base_offset: int | None) -> list[Stretch]:
    """Let what is lost end before the offset that is kept behind it, which is known only now."""
    result = []
    following = next_base_offset
    for stretch in reversed(stretches):
        if stretch.fate is Fate.LOST and following is not None:
            stretch = replace(stretch, last_offset=following - 1)
        elif stretch.fate is Fate.KEPT:
            following = stretch.first_offset
        result.append(stretch)
    return result[::-1]
