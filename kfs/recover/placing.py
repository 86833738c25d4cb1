"""Places misplaced intact batches where their offsets belong, if that place is free.

No CRC covers an offset. So a batch's offsets count only if it exactly fills the gap between kept batches, or if other
misplaced batches are next to it in the file: a flipped bit causes neither.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.layout import MAX_INT64
from kfs.log.block import Block
from kfs.log.segment import Segment
from kfs.recover.arrangement import Planned
from kfs.recover.runs import Run, batches_between
from kfs.recover.segment_plan import Misplaced

_CHUNK_BYTES: Final = 1024 * 1024


class Hole(NamedTuple):
    """A range of offsets that no batch of a segment has: above ``after`` and below ``before``.

    The batch after the hole begins at byte ``position``.
    """

    after: int
    before: int
    position: int

    def is_filled_by(self, run: Run) -> bool:
        """Whether a run covers the hole from its first to its last offset."""
        return (run.first, run.last) == (self.after + 1, self.before - 1)


class Placed(NamedTuple):
    """A run, and the segment and hole that it goes into."""

    run: Run
    segment: Segment
    hole: Hole


def place(plans: Sequence[Planned]) -> list[Placed]:
    """Return the misplaced runs that other places can keep, by offset; ``plans`` are made without producer state.

    Raises:
        CorruptData: a file changed meanwhile.
    """
    segments = [segment for segment, _ in plans]
    claims = _Claims({segment.files.log.path: segment for segment in segments})
    for segment, stretches in plans:
        for stretch in stretches:
            if isinstance(stretch, Misplaced):
                for placed in _places_of(segment, stretch, segments):
                    claims.add(placed)
    return claims.agreed()


class _Claim(NamedTuple):
    """A range of offsets and the run placed there, or None if several runs contradict each other."""

    first: int
    last: int
    placed: Placed | None


class _Claims:
    """The claims to offset ranges, in order, without overlaps."""

    def __init__(self, segments: dict[str, Segment]) -> None:
        self._segments = segments
        self._claims: list[_Claim] = []

    def add(self, placed: Placed) -> None:
        """Add a placed run; if it contradicts other claims, none of them holds."""
        run = placed.run
        start = bisect_left(self._claims, run.first, key=lambda claim: claim.last)
        stop = bisect_right(self._claims, run.last, key=lambda claim: claim.first)
        others = self._claims[start:stop]
        if not others:
            insort(self._claims, _Claim(run.first, run.last, placed), key=lambda claim: claim.first)
        elif len(others) > 1 or others[0].placed is None or not self._is_same(others[0].placed.run, run):
            first, last = min(run.first, others[0].first), max(run.last, others[-1].last)
            self._claims[start:stop] = [_Claim(first, last, None)]

    def agreed(self) -> list[Placed]:
        """Return all runs that no other claim contradicts."""
        return [claim.placed for claim in self._claims if claim.placed is not None]

    def _is_same(self, one: Run, other: Run) -> bool:
        """Whether two runs have the same bytes."""
        if one.end - one.start != other.end - other.start:
            return False
        return all(left == right for left, right in zip(self._bytes_of(one), self._bytes_of(other), strict=True))

    def _bytes_of(self, run: Run) -> Iterator[bytes]:
        file = self._segments[run.path].file()
        for position in range(run.start, run.end, _CHUNK_BYTES):
            yield file.read(position, min(_CHUNK_BYTES, run.end - position))


def _places_of(segment: Segment, stretch: Misplaced, segments: Sequence[Segment]) -> list[Placed]:
    """Return the places of a stretch's batches; consecutive batches that go into the same hole form one run."""
    found: list[Placed] = []
    holes: dict[int, _Holes] = {}
    for batch in batches_between(segment, stretch.position, stretch.end):
        target = _segment_of(batch, segments)
        if target is None:
            continue
        if target.base_offset not in holes:
            holes[target.base_offset] = _Holes(target, batch.first)
        hole = holes[target.base_offset].around(batch)
        is_alone = batch.end - batch.start == stretch.end - stretch.position
        if hole is None or (is_alone and not hole.is_filled_by(batch)):
            continue
        last = found[-1] if found else None
        if last is not None and (last.segment, last.hole, last.run.end) == (target, hole, batch.start):
            found[-1] = last._replace(run=last.run._replace(end=batch.end, last=batch.last))
        else:
            found.append(Placed(batch, target, hole))
    return found


def _segment_of(run: Run, segments: Sequence[Segment]) -> Segment | None:
    """Return the segment whose range contains all offsets of a run, or None."""
    at = bisect_right(segments, run.first, key=lambda segment: segment.base_offset) - 1
    if at < 0:
        return None
    end = segments[at].next_base_offset
    return segments[at] if end is None or run.last < end else None


class _Holes:
    """Finds the free offsets of a segment; queries must ascend, from ``first`` on."""

    def __init__(self, segment: Segment, first: int) -> None:
        self._segment = segment
        self._size = segment.size()
        self._after = segment.base_offset - 1
        self._blocks = self._from(segment.walk_from(first - 1))
        self._block = next(self._blocks, None)
        if self._block is None or self._block[0].header.last_offset >= first:  # the block before it is unknown
            self._blocks = self._from(segment.walk())
            self._block = next(self._blocks, None)

    def _from(self, items: Iterator[object]) -> Iterator[tuple[Block, int]]:
        """Yield the blocks of a walk with their first offsets."""
        for item in items:
            if isinstance(item, Block):
                yield item, self._first_of(item)

    def _first_of(self, block: Block) -> int:
        if block.header.record_count != UNKNOWN_COUNT:
            return block.header.base_offset
        try:
            return self._segment.load(block, keep=False).columns.offsets[0]
        except (CorruptData, IndexError):
            return self._after + 1

    def around(self, batch: Run) -> Hole | None:
        """Return the hole that a batch fits into, or None."""
        while self._block is not None and self._block[0].header.last_offset < batch.first:
            self._after = self._block[0].header.last_offset
            self._block = next(self._blocks, None)
        if self._block is None:
            end = self._segment.next_base_offset
            return Hole(self._after, MAX_INT64 if end is None else end, self._size)
        block, first = self._block
        return Hole(self._after, first, block.position) if batch.last < first else None
