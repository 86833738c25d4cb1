"""Splits of logs written as records: from log bytes to output bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kfs.cat.output import OutputFormat, Writer
from kfs.errors import CorruptData
from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_source import LogJob, LogsOfWorker, LogTask, OpenLogJob, OpenLogs
from kfs.read.plan import BatchRange
from kfs.read.selection import Selection
from kfs.read.split_reader import SelectedRecords, SplitReader
from kfs.read.workers.job import Output


@dataclass(frozen=True, slots=True)
class CatJob(LogJob[Output | Problem]):
    """Which records are written, and how."""

    selection: Selection
    output: OutputFormat
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    def open(self) -> OpenCatJob:
        """See :meth:`~kfs.read.workers.job.Job.open`."""
        return self.open_on(LogsOfWorker())

    def open_on(self, logs: OpenLogs) -> OpenCatJob:
        """Open the job on logs that are open, or will be."""
        return OpenCatJob(self, logs)


class OpenCatJob(OpenLogJob[Output | Problem]):
    """Writes splits; what can't be read, or has vanished, is a problem behind what lies before it."""

    def __init__(self, job: CatJob, logs: OpenLogs) -> None:
        super().__init__(logs)
        self.reader = SplitReader(job.selection, job.isolation)
        self._renderer = Renderer(job.output)

    def read(self, log: Log, task: LogTask) -> Iterator[Output | Problem]:
        """See :meth:`OpenLogJob.read`."""
        try:
            for selected in self.reader.select(log, task.batches, task.offsets):
                data = self._renderer.render(task.batches, selected)
                if data:
                    yield Output(data)
                yield from selected.problems
        except CorruptData as error:
            yield Problem(error.file or "", error.position, 0, error.reason)


@dataclass(slots=True)
class Renderer:
    """Makes bytes of records, of any partition."""

    output: OutputFormat
    _writers: dict[tuple[str, int], Writer] = field(default_factory=dict)

    def render(self, batches: BatchRange, selected: SelectedRecords) -> bytes:
        """Return the output of records of a split."""
        if selected.records is None or not selected.indexes:
            return b""
        key = (batches.topic, batches.partition)
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = self.output.writer(*key)
        return writer(selected.records.columns, selected.indexes)
