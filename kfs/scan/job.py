"""The job that reads splits of logs into Arrow buffers, in any process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.read.log_source import LogJob, LogsOfWorker, LogTask, OpenLogJob, OpenLogs, SplitTask
from kfs.read.workers.job import MEBIBYTE, Arena
from kfs.render.arrow_builder import ArrowBuffers, open_arena
from kfs.scan.arrow_reader import ArrowReader
from kfs.scan.request import Request


@dataclass(frozen=True, slots=True)
class ScanJob(LogJob[ArrowBuffers | Problem]):
    """The job of a scan. The consuming process is busy with the rows, so it doesn't read."""

    request: Request

    #: With smaller portions, two processes lose a fifth of their time to waking each other.
    portion_bytes: ClassVar[int] = 8 * MEBIBYTE
    ready_bytes: ClassVar[int] = 128 * MEBIBYTE
    takes_part: ClassVar[bool] = False
    worth_sharing: ClassVar[int] = 32 * MEBIBYTE
    worth_processes: ClassVar[int] = 32 * MEBIBYTE
    worth_forks: ClassVar[int] = worth_processes  # pyarrow mostly has threads, so there are none
    shares_memory: ClassVar[bool] = True

    def open(self) -> OpenScanJob:
        """See :meth:`~kfs.read.workers.job.Job.open`."""
        return OpenScanJob(self.request, LogsOfWorker(), open_arena())

    def open_on(self, logs: OpenLogs) -> OpenScanJob:
        """Open the job on logs that the consuming process has open, or will open."""
        return OpenScanJob(self.request, logs, None)


class OpenScanJob(OpenLogJob[ArrowBuffers | Problem]):
    """Reads splits; anything that can't be read or has been deleted is a problem, after the rows before it."""

    def __init__(self, request: Request, logs: OpenLogs, arena: Arena | None) -> None:
        super().__init__(logs)
        self._arena: Final = arena
        self._arrow = ArrowReader(request, arena)

    @property
    def arena(self) -> Arena | None:
        """See :attr:`OpenJob.arena`."""
        return self._arena

    def read(self, log: Log, task: LogTask) -> Iterator[ArrowBuffers | Problem]:
        """See :meth:`OpenLogJob.read`."""
        assert isinstance(task, SplitTask)
        return self._arrow.read(log, task.batches, task.offsets)
