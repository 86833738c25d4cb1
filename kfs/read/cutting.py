"""Finds cuts in a segment: batch boundaries at about even distances, with the highest offset before each.

The offset index gives positions of batches, but it may be wrong: an index that was made for other bytes can point at
intact batches in another part of the log. So a boundary is used only if a walk over the few batches before it arrives
at it. The highest offset before it comes from the batch headers, not from the index.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, pairwise
from typing import Final, NamedTuple, Protocol

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.log.block import Block, Damage
from kfs.log.bulk import ScannedBatches
from kfs.log.segment import Segment
from kfs.read.wanted_offsets import WantedOffsets


class SplitSizes(Protocol):
    """The wanted sizes of splits."""

    @property
    def target(self) -> int:
        """The approximate size of a split in bytes."""
        ...

    @property
    def room(self) -> int:
        """The approximate maximum size of the next split in bytes."""
        ...

    @property
    def are_limits(self) -> bool:
        """Whether to walk batch headers for cuts if the index has none; otherwise such splits are larger."""
        ...


class EvenSplits(NamedTuple):
    """Splits of about the same size, cut only where that is cheap."""

    target: int
    are_limits: bool = False

    @property
    def room(self) -> int:
        """See :class:`SplitSizes`."""
        return self.target


class Cut(NamedTuple):
    """A batch boundary, and the highest offset before it; None if that isn't known."""

    position: int
    after: int | None


class Cuts(NamedTuple):
    """The boundary where reading begins, further boundaries where it can begin, and the one where it ends.

    ``cuts`` is lazy; it ends early if the segment vanishes. If ``end`` is None, reading ends with the segment. ``stop``
    is the approximate byte position where reading ends, and always known.
    """

    cuts: Iterable[Cut]
    end: int | None
    stop: int


#: Splits below this size, if sizes are limits, are found by walking headers: checking every boundary of the index would
#: take longer.
_INDEXED_BYTES: Final = 256 * 1024
#: The cuts for a segment that is read as one split.
UNCUT: Final = Cuts((Cut(0, None),), None, 0)


def cuts_of(segment: Segment, offsets: WantedOffsets, sizes: SplitSizes) -> Cuts:
    """Return the cuts of a segment for splits of these sizes.

    Raises:
        CorruptData: the segment vanished, or was cut off.
    """
    first = Cut(*segment.position_before(offsets.start))
    runs_to_end = segment.is_last and offsets.asked_end > offsets.end
    end = end_of(segment, offsets.end) if sizes.are_limits and not runs_to_end else None  # else the reader finds it
    stop = max(segment.size() if end is None else end, first.position)
    if stop - first.position <= sizes.room:
        return Cuts((first,), end, stop)
    cuts = _indexed(segment, first, stop, offsets.end, sizes)
    return Cuts(_refined(segment, cuts, stop, sizes.target) if sizes.are_limits else cuts, end, stop)


def _indexed(segment: Segment, first: Cut, stop: int, end: int, sizes: SplitSizes) -> Iterator[Cut]:
    """Yield the first cut, and the cuts of the index that a walk confirms, up to offset ``end``."""
    yield first
    last = first.after
    if sizes.are_limits and sizes.target < _INDEXED_BYTES:
        return
    with suppress(CorruptData):  # the segment vanished, or was cut just now: its reader gets the same error
        for position, before in segment.boundaries(first.position + sizes.room, sizes.target):
            if position >= stop or (last is not None and last + 1 >= end):
                return
            after = _highest_before(segment, Cut(position, before))
            if after is not None and (last is None or after > last):
                yield Cut(position, after)
                last = after


def end_of(segment: Segment, offset: int) -> int | None:
    """Return the boundary after all offsets below ``offset``, or None if that is the end of the segment.

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
    """Return the highest offset before a boundary that the index names, or None if it isn't a boundary."""
    assert cut.after is not None
    position, _ = segment.position_before(cut.after)
    steps = deque(_walk(segment, Cut(position if position < cut.position else 0, None), cut.position), maxlen=1)
    if not steps or steps[0].end != cut.position:
        return None
    last = steps[0].last
    return cut.after if last is None else max(cut.after, last)


def _refined(segment: Segment, cuts: Iterable[Cut], stop: int, step: int) -> Iterator[Cut]:
    """Yield the cuts, and additional ones where they are too far apart."""
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
        if cut.after is None or each.after > cut.after:  # else there is only damage since the last cut
            cut = Cut(each.position, each.after)
            yield cut


class _Step(NamedTuple):
    """A block (a batch, or a run of messages) or damage, from ``position`` to ``end``.

    ``after`` is the highest offset before it, ``last`` the highest offset up to its end; either is None if unknown.
    ``first`` is the lowest offset that it can have.
    """

    position: int
    end: int
    after: int | None
    first: int
    last: int | None
    is_damage: bool = False


def _walk(segment: Segment, begin: Cut, end: int | None) -> Iterator[_Step]:
    """Walk the batch headers between two boundaries, without reporting problems: readers of the records do that."""
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
            # The first offset in a compressed message is known only after decompression.
            first = 0 if item.header.record_count == UNKNOWN_COUNT else item.header.base_offset
            yield _Step(item.position, item.end, after, first, last_of_block)
            after = last_of_block


def _last_of(block: Block, after: int | None) -> int | None:
    """Return the highest offset up to the end of a block, or None if only decoding would reveal it."""
    header = block.header
    if header.record_count == UNKNOWN_COUNT and header.last_offset == 0:
        return None
    return max(-1 if after is None else after, min(header.last_offset, block.before - 1))
