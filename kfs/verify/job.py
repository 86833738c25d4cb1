"""The check of segments in several processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kfs.log.storage import Storage
from kfs.read.workers.job import Job, OpenJob
from kfs.read.workers.run import run
from kfs.storage.status import size_at
from kfs.verify.segment import SegmentReport, check_segment
from kfs.verify.segment_task import SegmentTask


def reports_of(tasks: Iterator[SegmentTask], jobs: int, max_batch_bytes: int) -> Iterator[SegmentReport]:
    """Yield the report of each task, in order, using ``jobs`` processes.

    Raises:
        WorkerDied: a worker process ended early.
    """
    return run(CheckJob(max_batch_bytes), tasks, jobs)


@dataclass(frozen=True, slots=True)
class CheckJob(Job[SegmentTask, SegmentReport]):
    """The job that checks segments, each independently."""

    max_batch_bytes: int

    worth_sharing: ClassVar[int] = Job.worth_processes  # a second thread would wait for the interpreter lock

    def open(self) -> _OpenCheck:
        """See :meth:`Job.open`."""
        return _OpenCheck(self.max_batch_bytes)

    def bytes_of(self, task: SegmentTask) -> int:
        """See :meth:`Job.bytes_of`."""
        return size_at(task.files.log.path)


class _OpenCheck(OpenJob[SegmentTask, SegmentReport]):
    def __init__(self, max_batch_bytes: int) -> None:
        # A verification reads each batch once, so a cache is no use.
        self._storage = Storage(max_batch_bytes=max_batch_bytes, cache_bytes=0)

    def do(self, task: SegmentTask) -> Iterator[SegmentReport]:
        """See :meth:`OpenJob.do`."""
        yield check_segment(task, self._storage)

    def close(self) -> None:
        """See :meth:`OpenJob.close`."""
        self._storage.close()
