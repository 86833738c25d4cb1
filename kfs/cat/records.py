"""The records of topics and partitions that are wanted, written in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kfs.cat.job import CatJob, CatTask, Found, Renderer
from kfs.cat.output import OutputFormat
from kfs.errors import CorruptData, SourceLost
from kfs.format.checkpoint import TopicPartition
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_source import LogsOfParent, NotedProblem
from kfs.read.plan import BatchRange, holds_some_of, splits_of
from kfs.read.selection import Selection
from kfs.read.split_reader import SelectedRecords, SplitReader, last_in, selected_in
from kfs.read.wanted_offsets import WantedOffsets, remote_problem, wanted_offsets
from kfs.read.workers.job import Output, write


@dataclass(frozen=True, slots=True)
class Place:
    """A log, its path in the tree, and the function that returns which of its offsets that path shows."""

    log: Log
    path: str
    choose: Callable[[Log], OffsetRange] = Log.visible


@dataclass(slots=True)
class CatTotals:
    """What a request went through, and how many records it found, by the path of their place.

    ``advance`` is called with about how many bytes were gone through since it was called last.
    """

    advance: Callable[[int], None] = lambda _: None
    partitions: set[TopicPartition] = field(default_factory=set)
    #: Sizes in bytes, by path: visible and deleted records may lie in the same one.
    segments: dict[str, int] = field(default_factory=dict)
    offsets: int = 0
    records: Counter[str] = field(default_factory=Counter)

    def add_place(self, place: Place, selection: Selection, end: int) -> None:
        """Add the offsets of a place that are gone through: those that are selected by number, below ``end``.

        What an index or a header rules out was gone through as well.
        """
        offsets = OffsetRange(min(max(place.choose(place.log).start, selection.start), end), end)
        self.partitions.add(place.log.topic_partition)
        self.offsets += offsets.end - offsets.start
        if offsets.start < offsets.end:
            for span in place.log.spans:
                if holds_some_of(offsets, span):
                    self.segments[span.segment.files.log.path] = span.segment.size()

    def add_found(self, found: Found) -> None:
        """Add the records of a task."""
        self.records[found.path] += found.records
        self.advance(found.bytes)


@dataclass(frozen=True, slots=True)
class CatRequest:
    """Everything that was asked for: of each partition the ``first`` or ``last`` records that are wanted, or all.

    Without an ``output`` they are counted only.
    """

    selection: Selection
    output: OutputFormat | None
    first: int | None = None
    last: int | None = None
    jobs: int = 1
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    def write(self, out: int, places: Sequence[Place], totals: CatTotals | None = None) -> Iterator[Problem]:
        """Write places to the descriptor ``out``, one after another, each in offset order; yield problems.

        A place that can't be listed is a problem, and so is, where there are ``totals``, what is gone meanwhile.

        Raises:
            OSError: ``out`` can't be written to.
            WorkerDied: the output is not complete.
        """
        if self.first is None and self.last is None:
            yield from self._write_all(out, places, totals)
            return
        reader = SplitReader(self.selection, self.isolation, tells_what_is_gone=totals is not None)
        renderer = None if self.output is None else Renderer(self.output)
        for place in places:
            try:
                found = 0
                for _, selected in some_of(reader, place.log, self._offsets(place, totals), self.first, self.last):
                    found += selected.count
                    if renderer is not None:
                        write(out, renderer.render(place.path, place.log, selected))
                    yield from selected.problems
                if totals is not None:
                    totals.add_found(Found(place.path, found, 0))
                problem = _remote_problem(place, self.selection)
                if problem is not None and lacks_some(found, self.first, self.last):
                    yield problem
            except (CorruptData, SourceLost) as error:
                yield _problem_of(place, error)

    def _write_all(self, out: int, places: Sequence[Place], totals: CatTotals | None) -> Iterator[Problem]:
        from kfs.read.workers.run import run  # only here: a few records need no workers

        readable, unplanned = list[Place](), list[Problem]()
        for place in places:
            try:
                problem = _remote_problem(place, self.selection)
            except SourceLost as error:
                problem = _problem_of(place, error)
            else:
                readable.append(place)
            if problem is not None:
                yield problem
        job = CatJob(self.selection, self.output, self.isolation, totals is not None)
        here = LogsOfParent()
        tasks = self._tasks(here, readable, totals, unplanned)
        for item in run(job, tasks, self.jobs, here=job.open_on(here), output=out):
            if isinstance(item, Found):
                assert totals is not None
                totals.add_found(item)
            elif isinstance(item, NotedProblem):
                here.note(item)
            elif not isinstance(item, Output):  # which is written
                yield item
        yield from unplanned

    def _tasks(
        self, here: LogsOfParent, places: Iterable[Place], totals: CatTotals | None, unplanned: list[Problem]
    ) -> Iterator[CatTask]:
        """Yield the tasks of places; why a place, or the rest of it, has none is added to ``unplanned``."""
        for place in places:
            try:
                source, offsets = here.source_of(place.log), self._offsets(place, totals)
                for split in splits_of(place.log, offsets):
                    yield CatTask(source, split.batches, split.offsets, split.size, place.path)
            except (CorruptData, SourceLost) as error:
                unplanned.append(_problem_of(place, error))

    def _offsets(self, place: Place, totals: CatTotals | None) -> WantedOffsets:
        offsets = wanted_offsets(place.log, self.selection, self.isolation, place.choose)
        if totals is not None:
            totals.add_place(place, self.selection, offsets.end)
        return offsets


def _remote_problem(place: Place, selection: Selection) -> Problem | None:
    """Return the problem of a place whose first records tiered storage has; what was deleted begins where it does."""
    begins_with_log = place.choose is Log.visible and not place.log.directory.is_of_deleted
    return remote_problem(place.log, selection) if begins_with_log else None


def _problem_of(place: Place, error: CorruptData | SourceLost) -> Problem:
    if isinstance(error, CorruptData):
        return Problem.of(error)
    path = place.log.directory.path
    return Problem(path, 0, 0, str(error).removeprefix(f"{path}: "))


def lacks_some(found: int, first: int | None, last: int | None) -> bool:
    """Whether a log may have others of the first or last records, of which some were found, in what isn't here.

    That is before all that is here: the last ones are known when there are enough of them, the first never.
    """
    return bool(first) if last is None else found < last


def some_of(
    reader: SplitReader,
    log: Log,
    offsets: WantedOffsets,
    first: int | None,
    last: int | None,
    gone: Callable[[CorruptData], None] | None = None,
) -> Iterator[tuple[BatchRange, SelectedRecords]]:
    """Yield the ``first`` records that are wanted, or the ``last``, one of which is given.

    No more of the log is read than it takes. ``gone``, and what is raised, is as in
    :func:`~kfs.read.split_reader.selected_in`.
    """
    if first is None:
        yield from last_in(reader, log, offsets, last or 0, gone)
        return
    for batches, selected in selected_in(reader, log, offsets, gone):
        if first <= 0:
            return
        kept = replace(selected, indexes=selected.indexes[:first])
        first -= len(kept.indexes)
        yield batches, kept
