"""The progress bar of commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

from kfs.format.checkpoint import TopicPartition
from kfs.log.log import Log


@contextmanager
def progress_bar(total: int | Callable[[], int] | None, doing: str) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, if that is a terminal; yield a function to call with each number of bytes.

    ``total`` is the total number of bytes, or a function that returns it, for a bar that is shown, or None if unknown.
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    # Only here: rich is large, and most runs don't need it.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(doing), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    # If standard output is a terminal, what is printed there meanwhile appears above the bar.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=sys.stdout.isatty()) as progress:
        task = progress.add_task(doing, total=total() if callable(total) else total)
        yield lambda done: progress.advance(task, done)


class LogsProgress:
    """The progress of a command that reads logs one after another, in bytes, estimated from offsets."""

    def __init__(self, logs: Sequence[Log]) -> None:
        sizes = [log.size() for log in logs]
        self.total = sum(sizes)
        before = [0, *accumulate(sizes)][:-1]
        self._places = {each[0].topic_partition: each for each in zip(logs, before, sizes, strict=True)}
        self._done = 0

    def advanced(self, topic: str, partition: int, offset: int) -> int:
        """Return the number of bytes done since the last call, now that the command is at this offset."""
        log, before, size = self._places[TopicPartition(topic, partition)]
        start, end = log.log_start_offset, log.log_end_offset
        done = before + size * (offset + 1 - start) // max(end - start, 1)
        more = max(done - self._done, 0)
        self._done += more
        return more
