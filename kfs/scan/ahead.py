"""Tasks done in their order, by this process or by others that work ahead."""

from __future__ import annotations

from collections.abc import Iterator

from kfs.export.piece import Left
from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.render.arrow_gather import Gathered
from kfs.scan.gathering import Gatherer
from kfs.scan.request import LogSource, Request, Task


def portions(request: Request, tasks: Iterator[Task], jobs: int) -> Iterator[Gathered | Problem]:
    """Yield what is gathered of each task, in the order of the tasks, and problems where they were met."""
    here = Here(request)
    try:
        for task in tasks:
            yield from here.gather(task)
    finally:
        here.close()


class Here:
    """Does tasks in this process, one after another, each where the one before it really ended."""

    def __init__(self, request: Request) -> None:
        self._gatherer = Gatherer(request)
        self._source: LogSource | None = None
        self._log: Log | None = None
        self._left: Left | None = None

    def gather(self, task: Task) -> Iterator[Gathered | Problem]:
        """Yield what is gathered of a task."""
        if task.source != self._source:
            self.close()
            self._source, self._log = task.source, task.source.open()
        work = self._left.next(task.work) if self._left else task.work
        yield from self._gatherer.gather(self._log, work, task.offsets)
        self._left = self._gatherer.left

    def close(self) -> None:
        """Give back what is open."""
        if self._log is not None:
            self._log.storage.close()
        self._source = self._log = self._left = None
