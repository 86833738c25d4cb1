"""What of a whole log is kept, and where it comes from; every byte of its files is accounted for, once."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from kfs.log.log import Log, gap_behind
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

_UNDONE: Final = "undone: what it replaces is kept in its place"
#: Gets how many more bytes of ``.log`` files are done.
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """What is written of a segment: of ``segment``, which may be patched, what ``stretches`` keep.

    ``beside`` are the stretches of the file itself, ``raw``, that aren't in the patched one.
    """

    segment: Segment
    stretches: Sequence[Stretch]
    completed: Completed
    beside: Sequence[Stretch] = ()

    @property
    def raw(self) -> Segment:
        """The segment as its file is."""
        return self.completed.segment

    @property
    def is_patched(self) -> bool:
        """Whether something was put into it."""
        return self.segment is not self.raw

    def of_fate(self, *fates: Fate) -> list[Stretch]:
        """Return the stretches of the segment with those fates."""
        return [stretch for stretch in self.stretches if stretch.fate in fates]

    def patches(self) -> Iterator[tuple[Run, Stretch]]:
        """Yield of a patched segment what of which file its stretches are, each with that stretch."""
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
    """What is written of a log, ``arrangement`` of whose files it is, and the producers at its end.

    ``sources`` are where else its records were looked for.
    """

    arrangement: Arrangement
    segments: Sequence[SegmentPlan]
    producers: ProducerState
    sources: Sequence[Source] = ()

    def accounts(self) -> Iterator[tuple[Completed, SegmentAccount]]:
        """Yield what became of each byte of the log's own files."""
        pieces: dict[str, list[Stretch]] = defaultdict(list)
        for plan in self.segments:
            for run, stretch in plan.patches() if plan.is_patched else ():
                is_moved = stretch.fate is Fate.KEPT and plan.completed.is_moved(run)
                fate = Fate.MOVED if is_moved else stretch.fate
                reason = f"kept in the segment of base offset {plan.raw.base_offset}" if is_moved else stretch.reason
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
        """Yield what comes from another file than that of its segment, or stood in another place there."""
        for plan in self.segments:
            path = plan.raw.files.log.path
            for run, stretch in plan.patches() if plan.is_patched else ():
                if stretch.fate is Fate.KEPT and plan.completed.is_moved(run):
                    yield TakenRecords(path, run.first, run.last, run.path, run.start, run.end)

    def refused(self) -> Iterator[Loss]:
        """Yield what comes from none of the log's own files, and a broker would refuse: it is set aside."""
        own = {plan.raw.files.log.path for plan in self.segments}
        for plan in self.segments:
            for run, stretch in plan.patches() if plan.is_patched else ():
                if stretch.fate is not Fate.KEPT and run.path not in own:
                    reason = stretch.reason
                    yield Loss(run.path, run.start, run.end, run.first, run.last, reason, set_aside=True)

    def missing(self) -> Iterator[OffsetRange]:
        """Yield the offsets that are known to be lost with segments of which there are no files, nor copies."""
        for plan in self.segments:
            last = plan.stretches[-1] if plan.stretches else None
            if not plan.is_patched and (last is None or last.fate is Fate.KEPT):
                end = plan.segment.base_offset if last is None else last.last_offset + 1
                missing = plan.segment.missing_from(end)
                if missing is not None:
                    yield missing

    @property
    def restored(self) -> list[OffsetRange]:
        """Offsets at which what compaction has removed may be back."""
        return [offsets for plan in self.segments for offsets in plan.completed.restored]


def _joined(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    """Yield stretches, those that are kept one behind another as one."""
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
    """Return what can be kept of a log. Only where not all of it can is anything else looked at.

    ``found`` is all that there is in its directory, ``sources`` returns where else its records may be, the best first,
    and ``new_state`` a state without any producer.

    Raises:
        CorruptData: a file changes meanwhile.
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
    """Return the offsets between segments."""
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
