"""Independent pieces of work done by forked processes, their results as they come."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, TypeVar

from kfs.errors import WorkerDied
from kfs.kept_log import KeptLog, Logged, log_again

Item = TypeVar("Item")
Result = TypeVar("Result")


def forked(work: Callable[[Item], Result], items: Sequence[Item], jobs: int) -> Iterator[tuple[Item, Result]]:
    """Yield each of ``items`` with what ``work`` makes of it, in the order in which they get done.

    They are begun in their own order, by ``jobs`` processes that know what this one knows now; only results travel,
    pickled. What is logged on the way is logged here.

    Raises:
        WorkerDied: a process ended early; some results are missing.
    """
    # Forked, so that neither the work nor what the parent knows has to be pickled.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, context, initializer=_Worker.begin, initargs=(work, items)) as pool:
        futures = {pool.submit(_Worker.do, number): item for number, item in enumerate(items)}
        try:
            for future in as_completed(futures):
                result, logged = future.result()
                log_again(logged)
                yield futures.pop(future), result
        except BrokenProcessPool:
            raise WorkerDied("a worker process ended early: not all of the work is done") from None
        finally:
            pool.shutdown(cancel_futures=True)


class _Worker(Generic[Item, Result]):
    """What a worker process works with."""

    _current: _Worker[Any, Any]

    def __init__(self, work: Callable[[Item], Result], items: Sequence[Item]) -> None:
        self._work = work
        self._items = items
        self._kept = KeptLog.instead()

    @classmethod
    def begin(cls, work: Callable[[Any], Any], items: Sequence[Any]) -> None:
        cls._current = cls(work, items)

    @classmethod
    def do(cls, number: int) -> tuple[Any, Logged]:
        worker = cls._current
        return worker._work(worker._items[number]), worker._kept.take()
