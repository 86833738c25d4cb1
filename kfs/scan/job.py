"""Splits of logs read into batches of rows, by any process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.read.log_source import LogJob, LogsOfWorker, LogTask, OpenLogJob, OpenLogs
from kfs.read.workers.job import MEBIBYTE, Arena
from kfs.render.arrow_builder import ArrowBuffers, open_arena
from kfs.scan.arrow_reader import ArrowReader
from kfs.scan.request import Request


@dataclass(frozen=True, slots=True)
class ScanJob(LogJob[ArrowBuffers | Problem]):
    """What a scan reads. The process that asks for rows uses them, and has no time to read as well."""

    request: Request

    #: With less, two processes lose a fifth to waking each other.
    portion_bytes: ClassVar[int] = 8 * MEBIBYTE
    ready_bytes: ClassVar[int] = 128 * MEBIBYTE
    takes_part: ClassVar[bool] = False
    worth_sharing: ClassVar[int] = 32 * MEBIBYTE
    worth_processes: ClassVar[int] = 32 * MEBIBYTE
    shares_memory: ClassVar[bool] = True

    def open(self) -> OpenScanJob:
        """See :meth:`~kfs.read.workers.job.Job.open`."""
        return OpenScanJob(self.request, LogsOfWorker(), open_arena())

    def open_on(self, logs: OpenLogs) -> OpenScanJob:
        """Open the job on logs that are open, or will be, in the process that asks."""
        return OpenScanJob(self.request, logs, None)


class OpenScanJob(OpenLogJob[ArrowBuffers | Problem]):
    """Reads splits; what can't be read, or has vanished, is a problem behind what lies before it."""

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
        return self._arrow.read(log, task.batches, task.offsets)
