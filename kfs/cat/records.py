"""The records of topics and partitions that are wanted, written in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kfs.cat.job import CatJob, Renderer
from kfs.cat.output import OutputFormat
from kfs.errors import CorruptData, NotFound
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_source import LogsOfParent, LogTask, NotedProblem
from kfs.read.plan import BatchRange, splits_of
from kfs.read.selection import Selection
from kfs.read.split_reader import SelectedRecords, SplitReader, last_in, selected_in
from kfs.read.wanted_offsets import WantedOffsets, remote_problem, wanted_offsets
from kfs.read.workers.job import Output, write


@dataclass(frozen=True, slots=True)
class CatRequest:
    """Everything that was asked for: of each partition the ``first`` or ``last`` records that are wanted, or all."""

    data_dir: DataDir
    selection: Selection
    output: OutputFormat
    first: int | None = None
    last: int | None = None
    jobs: int = 1
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    def write(self, out: int, topic: str, partition: int | None = None) -> Iterator[Problem]:
        """Write a topic to the descriptor ``out``, one partition after another, each in offset order; yield problems.

        Raises:
            NotFound: there is no such topic or partition.
            OSError: ``out`` can't be written to.
            WorkerDied: the output is not complete.
        """
        logs = logs_of(self.data_dir, topic, partition)
        if self.first is None and self.last is None:
            yield from filter(None, [remote_problem(log, self.selection) for log in logs])
            yield from self._write_all(out, logs)
            return
        reader, renderer = SplitReader(self.selection, self.isolation), Renderer(self.output)
        for log in logs:
            found = 0
            for split, selected in some_of(reader, log, self._offsets(log), self.first, self.last):
                found += len(selected.indexes)
                write(out, renderer.render(split, selected))
                yield from selected.problems
            problem = remote_problem(log, self.selection)
            if problem is not None and lacks_some(found, self.first, self.last):
                yield problem

    def _write_all(self, out: int, logs: Sequence[Log]) -> Iterator[Problem]:
        from kfs.read.workers.run import run  # only here: a few records need no workers

        job = CatJob(self.selection, self.output, self.isolation)
        here = LogsOfParent()
        for item in run(job, self._tasks(here, logs), self.jobs, here=job.open_on(here), output=out):
            if isinstance(item, NotedProblem):
                here.note(item)
            elif not isinstance(item, Output):  # which is written
                yield item

    def _tasks(self, here: LogsOfParent, logs: Sequence[Log]) -> Iterator[LogTask]:
        for log in logs:
            source, offsets = here.source_of(log), self._offsets(log)
            for split in splits_of(log, offsets):
                yield LogTask(source, split.batches, split.offsets, split.size)

    def _offsets(self, log: Log) -> WantedOffsets:
        return wanted_offsets(log, self.selection, self.isolation)


def lacks_some(found: int, first: int | None, last: int | None) -> bool:
    """Whether a log may have others of the first or last records, of which some were found, in what isn't here.

    That is before all that is here: the last ones are known when there are enough of them, the first never.
    """
    return bool(first) if last is None else found < last


def logs_of(data_dir: DataDir, topic: str, partition: int | None = None) -> list[Log]:
    """Return the logs of a topic, or of one partition; raise :class:`~kfs.errors.NotFound` where there is none."""
    partitions = data_dir.partitions(topic) if partition is None else [partition]
    logs = [log for log in (data_dir.log(topic, number) for number in partitions) if log is not None]
    if not logs or len(logs) < len(partitions):
        raise NotFound(f"no topic {topic!r}" if partition is None else f"no partition {partition} of {topic!r}")
    return logs


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
