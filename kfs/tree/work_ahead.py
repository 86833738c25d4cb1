"""Work done ahead for sequential readers, by a thread for each core."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from kfs.errors import KfsError

#: Jobs ahead of the reader, for each thread.
_AHEAD: Final = 2


class WorkAheadJob(NamedTuple):
    """A job, whose result ``run`` leaves where readers look for it; ``key`` identifies it."""

    key: Hashable
    run: Callable[[], object]


class WorkAhead:
    """Runs jobs in its own threads, none before :meth:`start`.

    The threads end when there is nothing to do, and don't keep the process from ending.
    """

    def __init__(self) -> None:
        self._most = 0
        self._running = 0
        self._jobs: deque[WorkAheadJob] = deque()
        self._busy: set[Hashable] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Run jobs from now on; with a single core there is no thread for it."""
        from kfs.read.workers.cores import cores  # only here: commands don't work ahead

        self._most = cores() if cores() > 1 else 0

    @property
    def reach(self) -> int:
        """How many jobs ahead to ask for."""
        return self._most * _AHEAD

    @property
    def is_at_work(self) -> bool:
        """Whether any thread is running."""
        return self._running > 0

    def ask(self, jobs: Iterable[WorkAheadJob]) -> None:
        """Run jobs, in this order; earlier ones that haven't begun are dropped."""
        with self._lock:
            self._jobs.clear()
            self._jobs.extend(job for job in jobs if job.key not in self._busy)
            missing = min(len(self._jobs), self._most) - self._running
            for _ in range(missing):
                self._running += 1
                threading.Thread(target=self._work, name="kfs-ahead", daemon=True).start()

    def stop(self) -> None:
        """Begin no more jobs."""
        with self._lock:
            self._most = 0
            self._jobs.clear()

    def _work(self) -> None:
        try:
            while (job := self._next()) is not None:
                with suppress(KfsError):  # readers get the error themselves
                    job.run()
                with self._lock:
                    self._busy.discard(job.key)
        except BaseException:
            with self._lock:
                self._running -= 1
            raise

    def _next(self) -> WorkAheadJob | None:
        """Return the next job; if there is none, count one thread fewer and return None."""
        with self._lock:
            if not self._jobs:
                self._running -= 1
                return None
            job = self._jobs.popleft()
            self._busy.add(job.key)
            return job
