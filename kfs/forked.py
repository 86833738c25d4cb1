"""Independent pieces of work done by forked processes, their results in the order of the work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kfs.errors import WorkerDied
from kfs.kept_log import KeptLog, Logged, log_again
from kfs.storage.descriptors import BUDGET

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Items given out for each process, those that are done and not taken yet included: their results are held.
_AHEAD: Final = 4


def forked(work: Callable[[Item], Result], items: Iterable[Item], jobs: int) -> Iterator[tuple[Item, Result]]:
    """Yield each of ``items`` with what ``work`` makes of it, done by ``jobs`` processes that know what this one knows.

    One job is done here. Otherwise items and results travel, pickled, and what is logged on the way is logged here.

    Raises:
        WorkerDied: a process ended early; some results are missing.
    """
    if jobs == 1:
        for item in items:
            yield item, work(item)
        return
    # Only here: one process alone needn't wait for it.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    # Forked, so that neither the work nor what it refers to has to be pickled.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, context, initializer=_Worker.begin, initargs=(work, jobs)) as pool:
        given: deque[tuple[Item, Future[tuple[Result, Logged]]]] = deque()
        try:
            for item in items:
                given.append((item, pool.submit(_Worker.do, item)))
                if len(given) >= jobs * _AHEAD:
                    yield _taken(*given.popleft())
            while given:
                yield _taken(*given.popleft())
        except BrokenProcessPool:
            raise WorkerDied("a worker process ended early: not all of the work is done") from None
        finally:
            pool.shutdown(cancel_futures=True)


def _taken(item: Item, future: Future[tuple[Result, Logged]]) -> tuple[Item, Result]:
    result, logged = future.result()
    log_again(logged)
    return item, result


class _Worker(Generic[Item, Result]):
    """What a worker process works with."""

    _current: _Worker[Any, Any]

    def __init__(self, work: Callable[[Item], Result]) -> None:
        self._work = work
        self._kept = KeptLog.instead()

    @classmethod
    def begin(cls, work: Callable[[Any], Any], jobs: int) -> None:
        BUDGET.share(jobs)
        cls._current = cls(work)

    @classmethod
    def do(cls, item: Any) -> tuple[Any, Logged]:
        worker = cls._current
        return worker._work(item), worker._kept.take()
