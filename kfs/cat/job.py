"""The job that turns splits of logs into output bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kfs.cat.output import OutputFormat, Renderer
from kfs.errors import CorruptData
from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_source import LogJob, LogsOfWorker, LogTask, OpenLogJob, OpenLogs
from kfs.read.selection import Selection
from kfs.read.split_reader import SplitReader
from kfs.read.workers.job import Output


@dataclass(frozen=True, slots=True)
class CatTask(LogTask):
    """A split, and the path of its partition in the tree, such as ``orders/0``."""

    path: str = ""


class Found(NamedTuple):
    """The path in the tree, the number of wanted records and the approximate number of bytes read for a task."""

    path: str
    records: int
    bytes: int


Item: TypeAlias = Output | Problem | Found


@dataclass(frozen=True, slots=True)
class CatJob(LogJob[Item]):
    """Selects the records to write, and how to write them; with ``output=None`` they are only counted.

    With ``counts`` each task ends with :class:`Found`, and offsets that were deleted meanwhile are a problem.
    """

    selection: Selection
    output: OutputFormat | None
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    counts: bool = False

    def open(self) -> OpenCatJob:
        """See :meth:`~kfs.read.workers.job.Job.open`."""
        return self.open_on(LogsOfWorker())

    def open_on(self, logs: OpenLogs) -> OpenCatJob:
        """Open the job on ``logs``, which are open already or open on demand."""
        return OpenCatJob(self, logs)


class OpenCatJob(OpenLogJob[Item]):
    """Renders splits; unreadable or deleted data is a problem, yielded after the output of the records before it."""

    def __init__(self, job: CatJob, logs: OpenLogs) -> None:
        super().__init__(logs)
        self.reader = SplitReader(
            job.selection, job.isolation, by_header=job.output is None, tells_what_is_gone=job.counts
        )
        self._renderer = None if job.output is None else Renderer(job.output)
        self._counts = job.counts

    def read(self, log: Log, task: LogTask) -> Iterator[Item]:
        """See :meth:`OpenLogJob.read`."""
        assert isinstance(task, CatTask)
        found = 0
        try:
            for selected in self.reader.select(log, task.batches, task.offsets):
                found += selected.count
                if self._renderer is not None:
                    data = self._renderer.render(task.path, log, selected)
                    if data:
                        yield Output(data)
                yield from selected.problems
        except CorruptData as error:
            yield Problem.of(error)
        if self._counts:
            yield Found(task.path, found, task.size)
