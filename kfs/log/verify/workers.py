"""The segments of a verification, checked by several processes."""

from __future__ import annotations

from collections.abc import Iterator

from kfs.forked import forked
from kfs.log.storage import Storage
from kfs.log.verify.segment import SegmentReport, check_segment
from kfs.log.verify.segment_task import SegmentTask


def reports_of(tasks: Iterator[SegmentTask], jobs: int, max_batch_bytes: int) -> Iterator[SegmentReport]:
    """Yield the report of each task, in order, done by ``jobs`` processes.

    Raises:
        WorkerDied: a process ended early.
    """
    # A pass over a log looks at each batch once: nothing to keep.
    storage = Storage(max_batch_bytes=max_batch_bytes, cache_bytes=0)
    for _, report in forked(lambda task: check_segment(task, storage), tasks, jobs):
        yield report
    storage.close()
