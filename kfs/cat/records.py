"""Writes the wanted records of partitions in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from kfs.cat.output import OutputFormat, Renderer
from kfs.errors import CorruptData, SourceLost
from kfs.format.checkpoint import TopicPartition
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem
from kfs.read.isolation_level import IsolationLevel
from kfs.read.plan import BatchRange, holds_some_of, splits_of
from kfs.read.selection import Selection
from kfs.read.split_reader import SelectedRecords, SplitReader, last_in, selected_in
from kfs.read.wanted_offsets import WantedOffsets, remote_problem, wanted_offsets
from kfs.storage.descriptors import write_all

if TYPE_CHECKING:
    from kfs.cat.job import CatTask
    from kfs.read.log_source import LogsOfParent


class Place(NamedTuple):
    """A log, a path in the tree, and the function that returns the range of the log's offsets under that path."""

    log: Log
    path: str
    choose: Callable[[Log], OffsetRange] = Log.visible


@dataclass(slots=True)
class CatTotals:
    """What a request has searched, and the number of records that it found, by the path of their place.

    ``advance`` is called with the approximate number of bytes searched since its last call.
    """

    advance: Callable[[int], None] = lambda _: None
    partitions: set[TopicPartition] = field(default_factory=set)
    #: The sizes of segments in bytes, by path, so that one with both visible and deleted records counts once.
    segments: dict[str, int] = field(default_factory=dict)
    offsets: int = 0
    records: Counter[str] = field(default_factory=Counter)

    def add_place(self, place: Place, selection: Selection, end: int) -> None:
        """Add the searched offsets of a place: those that the selection includes by number, below ``end``.

        Offsets that an index or a header rules out count as searched.
        """
        offsets = OffsetRange(min(max(place.choose(place.log).start, selection.start), end), end)
        self.partitions.add(place.log.topic_partition)
        self.offsets += offsets.end - offsets.start
        if offsets.start < offsets.end:
            for span in place.log.spans:
                if holds_some_of(offsets, span):
                    self.segments[span.segment.files.log.path] = span.segment.size()

    def add_found(self, path: str, records: int, bytes_read: int) -> None:
        """Add a number of records of the place at ``path``, and the approximate number of bytes read for them."""
        self.records[path] += records
        self.advance(bytes_read)


@dataclass(frozen=True, slots=True)
class CatRequest:
    """A request for the ``first``, the ``last``, or all wanted records of each partition.

    With ``output=None`` they are only counted. ``jobs`` is the number of processes for all records; None means as many
    as there are cores.
    """

    selection: Selection
    output: OutputFormat | None
    first: int | None = None
    last: int | None = None
    jobs: int | None = 1
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    def write(self, out: int, places: Sequence[Place], totals: CatTotals | None = None) -> Iterator[Problem]:
        """Write places to the descriptor ``out``, one after another, each in offset order; yield problems.

        A place that can't be listed is a problem. With ``totals``, so are offsets that were deleted meanwhile.

        Raises:
            OSError: ``out`` can't be written to.
            WorkerDied: a worker process ended early, so the output is incomplete.
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
                        write_all(out, [renderer.render(place.path, place.log, selected)])
                    yield from selected.problems
                if totals is not None:
                    totals.add_found(place.path, found, 0)
                problem = _remote_problem(place, self.selection)
                if problem is not None and lacks_some(found, self.first, self.last):
                    yield problem
            except (CorruptData, SourceLost) as error:
                yield Problem.of_unread(place.log.directory.path, error)

    def _write_all(self, out: int, places: Sequence[Place], totals: CatTotals | None) -> Iterator[Problem]:
        from kfs.cat.job import CatJob, Found, size_of_small  # only here: a few records need no workers
        from kfs.read.log_source import LogsOfParent, NotedProblem
        from kfs.read.workers.cores import cores
        from kfs.read.workers.job import Output
        from kfs.read.workers.run import run

        readable, unplanned = list[tuple[Place, int | None]](), list[Problem]()
        for place in places:
            small = size_of_small(place.log) if totals is None and place.choose is Log.visible else None
            try:
                problem = _remote_problem(place, self.selection) if small is None else None
            except SourceLost as error:
                problem = Problem.of_unread(place.log.directory.path, error)
            else:
                readable.append((place, small))
            if problem is not None:
                yield problem
        job = CatJob(self.selection, self.output, self.isolation, totals is not None)
        here = LogsOfParent()
        tasks = self._tasks(here, readable, totals, unplanned)
        for item in run(job, tasks, self.jobs or cores(), here=job.open_on(here), output=out):
            if isinstance(item, Found):
                assert totals is not None
                totals.add_found(*item)
            elif isinstance(item, NotedProblem):
                here.note(item)
            elif not isinstance(item, Output):  # the worker has written that already
                yield item
        yield from unplanned

    def _tasks(
        self,
        here: LogsOfParent,
        places: Iterable[tuple[Place, int | None]],
        totals: CatTotals | None,
        unplanned: list[Problem],
    ) -> Iterator[CatTask]:
        """Yield the tasks of places, each with its size if it is a task as a whole.

        If a place can't be planned to its end, add the reason to ``unplanned``.
        """
        from kfs.cat.job import CatTask, tasks_of

        for place, small in places:
            if small is not None:
                yield CatTask(here.source_of(place.log, has_all=True), small, place.path, None)
                continue
            try:
                source, offsets = here.source_of(place.log), self._offsets(place, totals)
                yield from tasks_of(source, place.path, splits_of(place.log, offsets))
            except (CorruptData, SourceLost) as error:
                unplanned.append(Problem.of_unread(place.log.directory.path, error))

    def _offsets(self, place: Place, totals: CatTotals | None) -> WantedOffsets:
        offsets = wanted_offsets(place.log, self.selection, self.isolation, place.choose)
        if totals is not None:
            totals.add_place(place, self.selection, offsets.end)
        return offsets


def _remote_problem(place: Place, selection: Selection) -> Problem | None:
    """Return a problem if tiered storage has the first records of a place, but never for a place of deleted records."""
    begins_with_log = place.choose is Log.visible and not place.log.directory.is_of_deleted
    return remote_problem(place.log, selection) if begins_with_log else None


def lacks_some(found: int, first: int | None, last: int | None) -> bool:
    """Whether some of the requested first or last records may be in tiered storage, after ``found`` were found here.

    Records in tiered storage precede all records here. So the last records are complete once enough of them are found,
    but the first ones never are.
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
    """Yield the ``first`` or the ``last`` wanted records; one of the two is given.

    It reads not much more of the log than needed. ``gone`` and errors are as in
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
