"""Where a segment can be cut: batch boundaries about evenly apart, and what is known of the offsets before each.

The offset index says where batches begin, and an index may lie: one that was made for other bytes can point at batches
that are intact, and in another place in the log. So a boundary is used only where a walk over the few batches before it
arrives at it; the offsets that it meets, and not the index, say what lies before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final, NamedTuple, Protocol

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.log.block import Block, Damage
from kfs.log.bulk import ScannedBatches
from kfs.log.segment import Segment
from kfs.read.wanted_offsets import WantedOffsets


class SplitSizes(Protocol):
    """How large splits are to be."""

    @property
    def target(self) -> int:
        """Bytes of a split, about."""
        ...

    @property
    def room(self) -> int:
        """Bytes of the next split, at most or so."""
        ...

    @property
    def are_limits(self) -> bool:
        """Whether headers are walked for cuts where indexes don't say where to cut; else such splits are larger."""
        ...


@dataclass(frozen=True, slots=True)
class EvenSplits:
    """Splits of about the same size, cut where that costs next to nothing."""

    target: int
    are_limits: bool = False

    @property
    def room(self) -> int:
        """See :class:`SplitSizes`."""
        return self.target


@dataclass(frozen=True, slots=True)
class Cut:
    """A batch boundary, and the highest offset before it where that is known."""

    position: int
    after: int | None


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where reading begins, where else it can, and the boundary where it ends, None: at the end of the log.

    ``cuts`` are found as they are asked for; a segment that vanishes meanwhile ends them. ``stop``
    is about where reading ends, in any case.
    """

    cuts: Iterable[Cut]
    end: int | None
    stop: int


#: Where sizes are limits, splits smaller than that are found by walking headers: to look at each boundary of the index
#: would take longer.
_INDEXED_BYTES: Final = 256 * 1024
#: A segment read from its start to its end.
UNCUT: Final = Cuts((Cut(0, None),), None, 0)


def cuts_of(segment: Segment, offsets: WantedOffsets, sizes: SplitSizes) -> Cuts:
    """Return where a segment is cut for splits of these sizes.

    Raises:
        CorruptData: the segment vanished, or was cut off.
    """
    first = Cut(*segment.position_before(max(offsets.start, segment.base_offset)))
    runs_to_end = segment.is_last and offsets.asked_end > offsets.end
    end = end_of(segment, offsets.end) if sizes.are_limits and not runs_to_end else None  # else who reads sees it
    stop = max(segment.size() if end is None else end, first.position)
    if stop - first.position <= sizes.room:
        return Cuts((first,), end, stop)
    cuts = _indexed(segment, first, stop, offsets.end, sizes)
    return Cuts(_refined(segment, cuts, stop, sizes.target) if sizes.are_limits else cuts, end, stop)


def _indexed(segment: Segment, first: Cut, stop: int, end: int, sizes: SplitSizes) -> Iterator[Cut]:
    """Yield the first cut and those that the index knows of, as far as it is right: up to one at offset ``end``."""
    yield first
    last = first.after
    if sizes.are_limits and sizes.target < _INDEXED_BYTES:
        return
    with suppress(CorruptData):  # the segment vanished, or was cut just now: who reads it hears of that
        for position, before in segment.boundaries(first.position + sizes.room, sizes.target):
            if position >= stop or (last is not None and last + 1 >= end):
                return
            after = _highest_before(segment, Cut(position, before))
            if after is not None and (last is None or after > last):
                yield Cut(position, after)
                last = after


def end_of(segment: Segment, offset: int) -> int | None:
    """Return the boundary behind all that lies below ``offset``, None where that is the end of the segment.

    Raises:
        CorruptData: the segment vanished, or was cut off.
    """
    if segment.next_base_offset is not None and offset >= segment.next_base_offset:
        return None
    position, after = segment.position_before(offset)
    for step in _walk(segment, Cut(position, after), None):
        if step.first >= offset or (step.after is not None and step.after + 1 >= offset):
            return step.position
    return None


def _highest_before(segment: Segment, cut: Cut) -> int | None:
    """Return the highest offset before a boundary that an index names, None where it is no boundary."""
    assert cut.after is not None
    position, _ = segment.position_before(cut.after)
    steps = deque(_walk(segment, Cut(position if position < cut.position else 0, None), cut.position), maxlen=1)
    if not steps or steps[0].end != cut.position:
        return None
    last = steps[0].last
    return cut.after if last is None else max(cut.after, last)


def _refined(segment: Segment, cuts: Iterable[Cut], stop: int, step: int) -> Iterator[Cut]:
    """Yield the cuts, and others between those that lie too far apart."""
    for cut, following in pairwise(chain(cuts, (None,))):
        assert cut is not None
        yield cut
        end = stop if following is None else following.position
        if end - cut.position > 2 * step:
            with suppress(CorruptData):
                yield from _between(segment, cut, end, step)


def _between(segment: Segment, begin: Cut, end: int, step: int) -> Iterator[Cut]:
    """Yield the batch boundaries between ``begin`` and ``end`` that are at least ``step`` bytes apart."""
    cut = begin
    for each in _walk(segment, begin, end):
        if each.is_damage or each.after is None or each.position < cut.position + step:
            continue
        if cut.after is None or each.after > cut.after:  # else all that lies between is damage
            cut = Cut(each.position, each.after)
            yield cut


class _Step(NamedTuple):
    """A batch, or several, or damage, from ``position`` to ``end``.

    ``after`` is the highest offset before it, ``last`` the highest up to its end, None where that isn't known;
    ``first`` is the lowest that it can hold.
    """

    position: int
    end: int
    after: int | None
    first: int
    last: int | None
    is_damage: bool = False


def _walk(segment: Segment, begin: Cut, end: int | None) -> Iterator[_Step]:
    """Walk the headers of batches between two boundaries; what is wrong there is for those to report who read it."""
    after = begin.after
    reader = segment.bulk_reader(report=lambda problem: None, tells_missing=False)
    for item in reader.undecoded(begin.position, begin.after, end):
        if isinstance(item, ScannedBatches):
            table = item.table
            for row in range(item.stop):
                last = table.last_offsets[row]
                yield _Step(table.positions[row], table.end(row), after, table.base_offsets[row], last)
                after = last
        elif isinstance(item, Damage):
            yield _Step(item.position, item.end, after, 0, after, is_damage=True)
        else:
            last_of_block = _last_of(item, after)
            # Where a wrapper begins is known only inside.
            first = 0 if item.header.record_count == UNKNOWN_COUNT else item.header.base_offset
            yield _Step(item.position, item.end, after, first, last_of_block)
            after = last_of_block


def _last_of(block: Block, after: int | None) -> int | None:
    """Return the highest offset up to the end of a block, None where only decoding it would tell."""
    header = block.header
    if header.record_count == UNKNOWN_COUNT and header.last_offset == 0:
        return None
    return max(-1 if after is None else after, min(header.last_offset, block.before - 1))
