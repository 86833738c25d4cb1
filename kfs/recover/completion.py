"""Completes segments: fills in lost records from elsewhere, and moves misplaced batches to where they belong."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise
from typing import Final

from kfs.errors import CorruptData
from kfs.log.healing import without
from kfs.log.log_segments import gap_behind
from kfs.log.offset_range import OffsetRange
from kfs.log.segment import Segment
from kfs.recover.arrangement import Planned
from kfs.recover.placing import Placed, place
from kfs.recover.runs import Run, batches_between, joined
from kfs.recover.segment_plan import Fate, Misplaced, Stretch
from kfs.recover.sources import Source

#: Returns the other sources of a segment's lost records, best first.
Sources = Callable[[Segment], Sequence[Source]]
_MOVED: Final = "kept where its offsets belong"
_TAKEN: Final = "; its records are kept, taken from elsewhere"


@dataclass(slots=True)
class Completed:
    """A segment, the fate of its bytes, and the runs of its completed form; no runs if nothing was filled in.

    ``lost`` maps the position of a lost stretch to the offsets that are still lost; for a stretch that isn't in it, all
    its offsets are. ``reordered`` are runs of the segment's own file that were in the wrong place, by position.
    ``restored`` are offsets at which records that compaction removed may be back.
    """

    segment: Segment
    stretches: list[Stretch]
    runs: list[Run] = field(default_factory=list)
    lost: dict[int, list[OffsetRange]] = field(default_factory=dict)
    reordered: list[Run] = field(default_factory=list)
    restored: list[OffsetRange] = field(default_factory=list)

    def is_moved(self, run: Run) -> bool:
        """Whether a run of the completed segment comes from another file, or from another place in its own."""
        if run.path != self.segment.files.log.path:
            return True
        at = bisect_right(self.reordered, run.start, key=lambda each: each.start) - 1
        return at >= 0 and run.start < self.reordered[at].end

    def stays(self, stretch: Stretch) -> bool:
        """Whether no part of a stretch of the file is kept elsewhere."""
        at = bisect_right(self.stretches, stretch.position, key=lambda each: each.position) - 1
        return self.stretches[at].fate is not Fate.MOVED and stretch.end <= self.stretches[at].end

    def beginning_in(self, stretch: Stretch) -> Sequence[Stretch]:
        """Return the completed stretches that begin inside a stretch of another plan."""
        start, stop = (
            bisect_left(self.stretches, at, key=lambda each: each.position) for at in (stretch.position, stretch.end)
        )
        return self.stretches[start:stop]

    def lost_in(self, stretch: Stretch) -> Sequence[OffsetRange]:
        """Return the offsets that a stretch of the file has lost for good; none if they are unknown."""
        offsets = OffsetRange(stretch.first_offset, stretch.last_offset + 1)
        return self.lost.get(stretch.position, [offsets] if stretch.has_offsets else [])

    def as_it_is_read(self) -> Segment:
        """Return the completed segment, patched together from its runs; the segment itself if nothing was filled in."""
        if not self.runs:
            return self.segment
        raw = self.segment
        files = replace(raw.files, index=None, timeindex=None)
        patch = tuple(run.extent for run in self.runs)
        segment = Segment(files, raw.storage, raw.problems, patch=patch)
        segment.next_base_offset = raw.next_base_offset
        return segment


def complete(plans: Sequence[Planned], sources: Sources) -> list[Completed]:
    """Return the completed segments for plans that were made without producer state.

    Raises:
        CorruptData: a file changed meanwhile.
    """
    placed: dict[Segment, list[Placed]] = defaultdict(list)
    for each in place(plans):
        placed[each.segment].append(each)
    moved: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(each.run for some in placed.values() for each in some):
        moved[run.path].append(run)
    return [_completed(segment, stretches, placed.get(segment, ()), moved, sources) for segment, stretches in plans]


def _completed(
    segment: Segment,
    stretches: Sequence[Stretch],
    placed: Sequence[Placed],
    moved: Mapping[str, Sequence[Run]],
    sources: Sources,
) -> Completed:
    done = Completed(segment, [])
    taken: list[Run] = [each.run for each in placed]
    left: dict[int, list[OffsetRange]] = {}
    where_else = cache(partial(sources, segment))
    for offsets in _gaps(stretches):
        left[offsets.start] = _left_of(offsets, placed)
        taken += _take(left[offsets.start], where_else, done)
    gap = gap_behind(segment)
    if gap is not None and all(offsets.end < gap.end for offsets in _gaps(stretches)):
        taken += _take(_left_of(gap, placed), lambda: [each for each in where_else() if each.fills(gap)], done)
    for stretch in stretches:
        if stretch.fate is Fate.LOST and stretch.has_offsets:
            done.stretches.append(_what_is_left(stretch, left[stretch.first_offset], done))
        elif isinstance(stretch, Misplaced):
            done.stretches += _divided(segment, stretch, moved.get(segment.files.log.path, ()))
        else:
            done.stretches.append(stretch)
    if taken:
        done.reordered = sorted(each.run for each in placed if each.run.path == segment.files.log.path)
        kept = _kept(segment, stretches, placed)
        done.runs = list(joined(sorted((*kept, *taken), key=lambda run: run.first)))
    if any(one.last >= other.first for one, other in pairwise(done.runs)):
        raise CorruptData("its offsets changed while it was read", 0, segment.files.log.path)
    return done


def _gaps(stretches: Sequence[Stretch]) -> list[OffsetRange]:
    """Return the lost offsets, each range once: adjacent lost stretches share one."""
    ends: dict[int, int] = {}
    for each in stretches:
        if each.fate is Fate.LOST and each.has_offsets:
            ends[each.first_offset] = max(ends.get(each.first_offset, 0), each.last_offset + 1)
    return [OffsetRange(start, end) for start, end in ends.items()]


def _left_of(offsets: OffsetRange, placed: Sequence[Placed]) -> list[OffsetRange]:
    left = [offsets]
    for each in placed[bisect_left(placed, offsets.start, key=lambda each: each.run.last) :]:
        if each.run.first >= offsets.end:
            break
        left = without(left, each.run.first, each.run.last)
    return left


def _take(left: list[OffsetRange], sources: Callable[[], Sequence[Source]], done: Completed) -> list[Run]:
    """Return what the sources have of the offsets in ``left``, and remove these from ``left``."""
    taken: list[Run] = []
    for source in sources() if left else ():
        for offsets in list(left):
            runs, lost = source.found(offsets)
            if runs:
                left.remove(offsets)
                left += lost
                taken += runs
                if source.undoes_compaction:
                    done.restored.append(offsets)
    left.sort(key=lambda each: each.start)
    return taken


def _what_is_left(stretch: Stretch, left: Sequence[OffsetRange], done: Completed) -> Stretch:
    """Return the final form of a lost stretch; ``left`` are the offsets of its gap that no source has."""
    first, end = stretch.first_offset, stretch.last_offset + 1
    lost = [OffsetRange(max(each.start, first), min(each.end, end)) for each in left if each.start < end]
    if lost == [OffsetRange(first, end)]:
        return stretch
    if not lost:
        return replace(stretch, fate=Fate.REPLACED, reason=stretch.reason + _TAKEN)
    done.lost[stretch.position] = lost
    return replace(stretch, first_offset=lost[0].start, last_offset=lost[-1].end - 1)


def _kept(segment: Segment, stretches: Sequence[Stretch], placed: Sequence[Placed]) -> list[Run]:
    """Return the runs kept from a segment, split where placed batches go in between."""
    log = segment.files.log
    holes = sorted({each.hole for each in placed}, reverse=True)
    runs: list[Run] = []
    for each in stretches:
        if each.fate is not Fate.KEPT:
            continue
        run = Run(log.path, log.inode, each.position, each.end, each.first_offset, each.last_offset)
        while holes and holes[-1].after < run.last:
            hole = holes.pop()
            if run.first <= hole.after and hole.before <= run.last:
                runs.append(run._replace(end=hole.position, last=hole.after))
                run = run._replace(start=hole.position, first=hole.before)
        runs.append(run)
    return runs


def _divided(segment: Segment, stretch: Misplaced, moved: Sequence[Run]) -> list[Stretch]:
    """Split a stretch of misplaced batches into those that are kept elsewhere and the others."""
    stretches: list[Stretch] = []
    position = stretch.position
    for run in moved[bisect_left(moved, position, key=lambda run: run.start) :]:
        if run.start >= stretch.end:
            break
        if position < run.start:
            stretches.append(_part(segment, stretch, position, run.start))
        stretches.append(Stretch(run.start, run.end, Fate.MOVED, run.first, run.last, _MOVED))
        position = run.end
    if position == stretch.position:
        return [stretch]
    if position < stretch.end:
        stretches.append(_part(segment, stretch, position, stretch.end))
    return stretches


def _part(segment: Segment, stretch: Misplaced, start: int, end: int) -> Stretch:
    """Return the part of a stretch between two byte positions."""
    first, last = None, stretch.last_offset
    for batch in batches_between(segment, start, end):
        first, last = batch.first if first is None else first, batch.last
    return replace(
        stretch,
        position=start,
        end=end,
        first_offset=stretch.first_offset if first is None else first,
        last_offset=last,
    )
