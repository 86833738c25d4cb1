"""A bar that shows how far a command is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int | None, doing: str) -> Iterator[Callable[[int], None]]:
    """Show on standard error, where that is a terminal, how much is done; yield what tells of more bytes.

    Without a ``total`` nobody knows how much it will be.
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
