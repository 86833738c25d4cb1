"""Runs tasks in the requesting process."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from kfs.read.workers.job import Job, OpenJob, Output, portions_of
from kfs.storage.descriptors import write_all


class InThisProcess:
    """Runs the tasks of a job in this process."""

    def __init__(self, job: Job[Any, Any], here: OpenJob[Any, Any] | None, output: int | None) -> None:
        self.output = output
        self._job = job
        self._given = here
        self._opened: OpenJob[Any, Any] | None = None

    def do(self, tasks: Iterable[Any]) -> Generator[Any, None, None]:
        """Yield the items of each task; write :class:`Output` items to the output, if there is one."""
        if self._given is None and self._opened is None:
            self._opened = self._job.open()
        doing = self._given or self._opened
        assert doing is not None
        for items in map(doing.do, tasks):
            if self.output is None:
                yield from items
            else:
                for portion, _ in portions_of(items, self._job.portion_bytes):
                    write_all(self.output, (item.data for item in portion if isinstance(item, Output)))
                    yield from (item for item in portion if not isinstance(item, Output))

    def close(self) -> None:
        """Close the job if it was opened here."""
        if self._opened is not None:
            self._opened.close()
