"""Tasks done by several processes, their reports in the order of the tasks."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kfs.errors import WorkerDied
from kfs.log.storage import Storage
from kfs.log.verify.segment import SegmentReport, check_segment
from kfs.log.verify.segment_task import SegmentTask

if TYPE_CHECKING:
    from concurrent.futures import Future

#: Tasks given out for each process, those that are done and not taken yet included: their reports are held.
_AHEAD: Final = 4
#: A pass over a log looks at each batch once: nothing to keep.
_CACHE_BYTES: Final = 0


def reports_of(tasks: Iterator[SegmentTask], jobs: int, max_batch_bytes: int) -> Iterator[SegmentReport]:
    """Yield the report of each task, in order, done by ``jobs`` processes.

    Raises:
        WorkerDied: a process ended early.
    """
    if jobs == 1:
        storage = _storage(max_batch_bytes)
        for task in tasks:
            yield check_segment(task, storage)
        storage.close()
        return
    yield from _reports_of_processes(tasks, jobs, max_batch_bytes)


def _reports_of_processes(tasks: Iterator[SegmentTask], jobs: int, max_batch_bytes: int) -> Iterator[SegmentReport]:
    # Only here: one process alone needn't wait for it.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(max_batch_bytes,)) as pool:
        given: deque[Future[SegmentReport]] = deque()
        try:
            for task in tasks:
                given.append(pool.submit(_check, task))
                if len(given) >= jobs * _AHEAD:
                    yield given.popleft().result()
            while given:
                yield given.popleft().result()
        except BrokenProcessPool:
            raise WorkerDied("a worker process ended early: not all was checked") from None
        finally:
            pool.shutdown(cancel_futures=True)


def _storage(max_batch_bytes: int) -> Storage:
    return Storage(max_batch_bytes=max_batch_bytes, cache_bytes=_CACHE_BYTES)


class _Worker:
    """What a worker process works with."""

    storage: Storage


def _begin(max_batch_bytes: int) -> None:
    logging.getLogger("kfs").disabled = True  # what is wrong is in the report
    _Worker.storage = _storage(max_batch_bytes)


def _check(task: SegmentTask) -> SegmentReport:
    return check_segment(task, _Worker.storage)
