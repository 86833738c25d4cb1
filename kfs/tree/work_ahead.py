"""Work done before it is asked for, for readers that go through something in order: by a thread for each core."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from kfs.errors import KfsError
from kfs.read.workers.cores import cores

#: Jobs ahead of what was asked for, for each thread.
_AHEAD: Final = 2


class WorkAheadJob(NamedTuple):
    """Something to be done, whose result ``run`` leaves where it is looked for; ``key`` tells it from others."""

    key: Hashable
    run: Callable[[], object]


class WorkAhead:
    """Does jobs in threads of its own, none until :meth:`start`.

    They end when there is nothing to do, and don't keep the process from ending.
    """

    def __init__(self) -> None:
        self._most = 0
        self._running = 0
        self._jobs: deque[WorkAheadJob] = deque()
        self._busy: set[Hashable] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """From now on do what is asked for; with a single core there is no thread to do it."""
        self._most = cores() if cores() > 1 else 0

    @property
    def reach(self) -> int:
        """How many jobs ahead to ask for."""
        return self._most * _AHEAD

    @property
    def is_at_work(self) -> bool:
        """Whether anything is being done, or will be."""
        return self._running > 0

    def ask(self, jobs: Iterable[WorkAheadJob]) -> None:
        """Have jobs done, the first of them first; what was asked for earlier, and isn't begun, is forgotten."""
        with self._lock:
            self._jobs.clear()
            self._jobs.extend(job for job in jobs if job.key not in self._busy)
            missing = min(len(self._jobs), self._most) - self._running
            for _ in range(missing):
                self._running += 1
                threading.Thread(target=self._work, name="kfs-ahead", daemon=True).start()

    def stop(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._most = 0
            self._jobs.clear()

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                with suppress(KfsError):  # who asks for it gets the error
                    job.run()
                with self._lock:
                    self._busy.discard(job.key)
        except BaseException:
            with self._lock:
                self._running -= 1
            raise

    def _next(self) -> WorkAheadJob | None:
        """Return what to do next; None, and one thread fewer is counted, where there is nothing."""
        with self._lock:
            if not self._jobs:
                self._running -= 1
                return None
            job = self._jobs.popleft()
            self._busy.add(job.key)
            return job
