"""The records of topics and partitions that are wanted, written in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kfs.errors import NotFound
from kfs.export.output import OutputFormat
from kfs.export.piece import Chosen, Done, Left, Worker
from kfs.export.plan import Work, pieces_of, wanted_offsets
from kfs.export.selection import Selection
from kfs.export.workers import write, write_all
from kfs.log.data_dir import DataDir
from kfs.log.isolation import IsolationLevel
from kfs.log.log import Log, OffsetRange
from kfs.log.problem import Problem


@dataclass(frozen=True, slots=True)
class Export:
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
        partitions = self.data_dir.partitions(topic) if partition is None else [partition]
        logs = [self.data_dir.log(topic, number) for number in partitions]
        if not logs or None in logs:
            raise NotFound(f"no topic {topic!r}" if partition is None else f"no partition {partition} of {topic!r}")
        worker = Worker(self.data_dir, self.selection, self.output, self.isolation)
        if self.first is None and self.last is None:
            work = ((piece, offsets) for log in logs if log for piece, offsets in self._work(log))
            yield from write_all(worker, work, self.jobs, out)
            return
        for log in logs:
            if log is not None:
                for done in self._some_of(log, worker):
                    write(out, done.data)
                    yield from done.problems

    def _offsets(self, log: Log) -> OffsetRange:
        return wanted_offsets(log, self.selection, self.isolation)

    def _work(self, log: Log) -> Iterator[tuple[Work, OffsetRange]]:
        offsets = self._offsets(log)
        if offsets.start < offsets.end:
            for piece in pieces_of(log, offsets):
                yield piece, offsets

    def _some_of(self, log: Log, worker: Worker) -> Iterator[Done]:
        """Only the first or last records: in this process, and no further into the log than it takes."""
        offsets = self._offsets(log)
        if self.first is not None:
            yield from _first_of(worker, log, offsets, self.first)
        elif self.last is not None:
            yield from _last_of(worker, log, offsets, self.last)


def _chosen_in(worker: Worker, log: Log, offsets: OffsetRange) -> Iterator[tuple[Work, Chosen]]:
    left: Left | None = None
    for piece in pieces_of(log, offsets):
        work = left.next(piece) if left else piece
        for chosen in worker.choose(work, offsets):
            yield work, chosen
        left = worker.left


def _first_of(worker: Worker, log: Log, offsets: OffsetRange, count: int) -> Iterator[Done]:
    for work, chosen in _chosen_in(worker, log, offsets):
        if count <= 0:
            return
        chosen = replace(chosen, indexes=chosen.indexes[:count])
        count -= len(chosen.indexes)
        yield worker.render(work, chosen)


def _last_of(worker: Worker, log: Log, offsets: OffsetRange, count: int) -> Iterator[Done]:
    """Look further and further back: compaction, markers and filters leave out what they will."""
    span, end, missing = max(count, 1), offsets.end, count
    found: deque[tuple[Work, Chosen]] = deque()
    while missing > 0 and offsets.start < end:
        start = max(offsets.start, end - span)
        earlier = list(_chosen_in(worker, log, OffsetRange(start, end)))
        for work, chosen in reversed(earlier):
            kept = replace(chosen, indexes=chosen.indexes[max(len(chosen.indexes) - missing, 0) :])
            missing -= len(kept.indexes)
            found.appendleft((work, kept))
            if missing <= 0:
                break
        end, span = start, span * 2
    for work, chosen in found:
        yield worker.render(work, chosen)
