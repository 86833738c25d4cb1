"""A bar that shows how far a command is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

from kfs.format.checkpoint import TopicPartition
from kfs.log.log import Log


@contextmanager
def progress_bar(total: int | None, doing: str) -> Iterator[Callable[[int], None]]:
    """Show on standard error, where that is a terminal, how much is done; yield what tells of more bytes.

    Without a ``total`` it isn't known how much it will be.
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    # Only here: it is large, and most have no use for it.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(doing), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    # What is printed meanwhile goes above the bar, unless it goes somewhere else.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=sys.stdout.isatty()) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda done: progress.advance(task, done)


class LogsProgress:
    """How far a command is that goes through logs one after another: in bytes, about, as offsets tell."""

    def __init__(self, logs: Sequence[Log]) -> None:
        sizes = [log.size() for log in logs]
        self.total = sum(sizes)
        before = [0, *accumulate(sizes)][:-1]
        self._places = {each[0].topic_partition: each for each in zip(logs, before, sizes, strict=True)}
        self._done = 0

    def advanced(self, topic: str, partition: int, offset: int) -> int:
        """Return how many bytes more are done, now that it is at this offset."""
        log, before, size = self._places[TopicPartition(topic, partition)]
        start, end = log.log_start_offset, log.log_end_offset
        done = before + size * (offset + 1 - start) // max(end - start, 1)
        more = max(done - self._done, 0)
        self._done += more
        return more
