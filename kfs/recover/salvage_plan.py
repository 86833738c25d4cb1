"""The plan of a log's salvage: what is kept and where it comes from. It accounts for every byte exactly once."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from kfs.log.log import Log
from kfs.log.log_segments import gap_behind
from kfs.log.offset_range import OffsetRange
from kfs.log.producer_state import ProducerState
from kfs.log.segment import Segment
from kfs.log.segment_files import PartitionFiles
from kfs.recover.arrangement import Arrangement, arranged, replaced_by
from kfs.recover.arrangement import log_of as log_of_files
from kfs.recover.completion import Completed, complete
from kfs.recover.report import Loss, SegmentAccount, TakenRecords
from kfs.recover.runs import Run
from kfs.recover.segment_plan import Fate, Misplaced, Stretch, plan_segment
from kfs.recover.sources import Replaced, Source

_UNDONE: Final = "undone: the segments that it replaces are kept instead"
#: Called with the number of ``.log`` bytes processed since the last call.
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """What to write of a segment: the kept ``stretches`` of ``segment``, which may be patched.

    ``beside`` are the stretches of the original file, ``raw``, that the patched segment doesn't have.
    """

    segment: Segment
    stretches: Sequence[Stretch]
    completed: Completed
    beside: Sequence[Stretch] = ()

    @property
    def raw(self) -> Segment:
        """The segment as its file is on disk."""
        return self.completed.segment

    @property
    def is_patched(self) -> bool:
        """Whether records were filled in or moved."""
        return self.segment is not self.raw

    def of_fate(self, *fates: Fate) -> list[Stretch]:
        """Return the stretches with the given fates."""
        return [stretch for stretch in self.stretches if stretch.fate in fates]

    def patches(self) -> Iterator[tuple[Run, Stretch]]:
        """Yield the pieces of files that make up a patched segment, each with its stretch."""
        runs = self.completed.runs
        begins = list(accumulate((run.end - run.start for run in runs), initial=0))
        for stretch in self.stretches:
            at = bisect_right(begins, stretch.position) - 1
            while at < len(runs) and begins[at] < stretch.end:
                run, begin, end = runs[at], begins[at], begins[at + 1]
                if stretch.position > begin:
                    run = run._replace(start=run.start + stretch.position - begin, first=stretch.first_offset)
                if stretch.end < end:
                    run = run._replace(end=run.end - (end - stretch.end), last=stretch.last_offset)
                yield run, stretch
                at += 1


@dataclass(frozen=True, slots=True)
class SalvagePlan:
    """What to write of a log, whose files are arranged by ``arrangement``, and the producer state at its end.

    ``sources`` are the other logs that were searched for lost records.
    """

    arrangement: Arrangement
    segments: Sequence[SegmentPlan]
    producers: ProducerState
    sources: Sequence[Source] = ()

    def accounts(self) -> Iterator[tuple[Completed, SegmentAccount]]:
        """Yield the fate of each byte of the log's own files."""
        pieces: dict[str, list[Stretch]] = defaultdict(list)
        for plan in self.segments:
            for run, stretch in plan.patches() if plan.is_patched else ():
                is_moved = stretch.fate is Fate.KEPT and plan.completed.is_moved(run)
                fate = Fate.MOVED if is_moved else stretch.fate
                reason = f"kept in the segment with base offset {plan.raw.base_offset}" if is_moved else stretch.reason
                pieces[run.path].append(Stretch(run.start, run.end, fate, run.first, run.last, reason))
        for plan in self.segments:
            path = plan.raw.files.log.path
            own = [each for each in (plan.beside if plan.is_patched else plan.stretches) if each.fate is not Fate.MOVED]
            stretches = sorted((*own, *pieces[path]), key=lambda stretch: stretch.position)
            yield plan.completed, SegmentAccount(path, tuple(_joined(stretches)))
        for segment in self.arrangement.undone:
            last = segment.tail()[1] - 1
            stretch = Stretch(0, segment.size(), Fate.REPLACED, segment.base_offset, last, _UNDONE)
            yield Completed(segment, []), SegmentAccount(segment.files.log.path, (stretch,))

    def taken(self) -> Iterator[TakenRecords]:
        """Yield the records that come from another file than their segment's, or from another place in it."""
        for plan in self.segments:
            path = plan.raw.files.log.path
            for run, stretch in plan.patches() if plan.is_patched else ():
                if stretch.fate is Fate.KEPT and plan.completed.is_moved(run):
                    yield TakenRecords(path, run.first, run.last, run.path, run.start, run.end)

    def refused(self) -> Iterator[Loss]:
        """Yield the batches from other sources that a broker would refuse; they are set aside."""
        own = {plan.raw.files.log.path for plan in self.segments}
        for plan in self.segments:
            for run, stretch in plan.patches() if plan.is_patched else ():
                if stretch.fate is not Fate.KEPT and run.path not in own:
                    reason = stretch.reason
                    yield Loss(run.path, run.start, run.end, run.first, run.last, reason, set_aside=True)

    def missing(self) -> Iterator[OffsetRange]:
        """Yield the offsets that are known to be lost with segments of which neither files nor copies exist."""
        for plan in self.segments:
            last = plan.stretches[-1] if plan.stretches else None
            if not plan.is_patched and (last is None or last.fate is Fate.KEPT):
                end = plan.segment.base_offset if last is None else last.last_offset + 1
                missing = plan.segment.missing_from(end)
                if missing is not None:
                    yield missing

    @property
    def restored(self) -> list[OffsetRange]:
        """The offsets at which records that compaction removed may be back."""
        return [offsets for plan in self.segments for offsets in plan.completed.restored]


def _joined(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    """Yield stretches, with adjacent kept ones joined into one."""
    last: Stretch | None = None
    for stretch in stretches:
        if last is not None and last.fate is stretch.fate is Fate.KEPT:
            last = replace(last, end=stretch.end, last_offset=stretch.last_offset)
            continue
        if last is not None:
            yield last
        last = stretch
    if last is not None:
        yield last


def plan_salvage(
    log: Log,
    found: PartitionFiles,
    sources: Callable[[Log], Sequence[Source]],
    new_state: Callable[[], ProducerState],
    advance: Advance,
) -> SalvagePlan:
    """Plan the salvage of a log; use other sources only if something is lost, set aside or missing between segments.

    ``found`` lists all files in the log's directory. ``sources`` returns the other sources of its records, best first.
    ``new_state`` returns a producer state without producers.

    Raises:
        CorruptData: a file changed meanwhile.
    """
    producers, plans = new_state(), []
    for segment in log.segments:
        plans.append(SegmentPlan(segment, plan_segment(segment, producers), Completed(segment, [])))
        advance(segment.size())
    is_whole = not any(plan.of_fate(Fate.LOST, Fate.EXTRA) for plan in plans)
    gaps = _gaps(log) if is_whole else []
    if is_whole and not any(each.fills(gap) for each in (sources(log) if gaps else ()) for gap in gaps):
        return SalvagePlan(Arrangement(log), plans, producers)
    surveyed = [(segment, plan_segment(segment, None)) for segment in log.segments]
    arrangement = arranged(log, surveyed, found)
    if arrangement.log is not log:
        surveyed = [(segment, plan_segment(segment, None)) for segment in arrangement.log.segments]
    others = sources(arrangement.log)
    replaced: list[Source] = []

    def of_segment(segment: Segment) -> list[Source]:
        before = replaced_by(arrangement.log, segment, found)
        if not before:
            return [*others]
        swap, old = (log_of_files(arrangement.log, files) for files in ([segment.files], before))
        replaced.append(Replaced(swap, old))
        return [replaced[-1], *others]

    producers = new_state()
    segments = [_planned(each, producers) for each in complete(surveyed, of_segment)]
    return SalvagePlan(arrangement, segments, producers, [*replaced, *others])


def _gaps(log: Log) -> list[OffsetRange]:
    """Return the offset ranges missing between segments."""
    return [gap for segment in log.segments if (gap := gap_behind(segment)) is not None]


def _planned(completed: Completed, producers: ProducerState) -> SegmentPlan:
    segment = completed.as_it_is_read()
    stretches = plan_segment(segment, producers)
    if segment is not completed.segment:
        beside = [each for each in completed.stretches if each.fate is not Fate.KEPT]
        return SegmentPlan(segment, stretches, completed, beside)
    final: list[Stretch] = []
    for stretch in stretches:
        if isinstance(stretch, Misplaced) and not completed.stays(stretch):
            final += completed.beginning_in(stretch)
        else:
            final.append(stretch)
    return SegmentPlan(segment, final, completed)
