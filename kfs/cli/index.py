"""``kfs index``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import click

from kfs.cli.messages import messages
from kfs.cli.options import jobs_option
from kfs.cli.progress import progress_bar
from kfs.cli.source import SourceOptions, source_options
from kfs.errors import CorruptData, Shortage, SourceLost
from kfs.read.workers.cores import cores
from kfs.read.workers.forking import forks_allowed
from kfs.read.workers.job import Job, OpenJob
from kfs.read.workers.run import run
from kfs.tree.closed_segments import ClosedSegment, closed_segments, is_kept, size_segment
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.lines.index_store import LineIndexStore

#: The interval, in seconds, at which ``--background`` looks for newly closed segments.
_LOOK_AGAIN_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.5
_NICEST: Final = 19

#: Whether the line index was made just now, and the error if it can't be made.
_Sized = tuple[bool, CorruptData | None]


@click.command()
@click.argument("log_dirs", metavar="LOG_DIR...", nargs=-1, required=True, type=click.Path(readable=False))
@jobs_option
@click.option("--background", is_flag=True, hidden=True, help="Run at low priority until the parent ends.")
@source_options
def index(log_dirs: tuple[str, ...], jobs: int | None, background: bool, source: SourceOptions) -> None:
    """Read the closed segments of LOG_DIR... once, so that a mount knows the sizes of their lines.

    To size a file in segment/, kfs has to read each of its records. A mount does so on demand; this
    command does it ahead of time, on all cores. The result is kept in the user's cache directory, not
    in LOG_DIR. Use the same options as for the mount.

    \b
      kfs index /var/lib/kafka/data && kfs mount /var/lib/kafka/data /mnt/k
    """
    with source.opened(*log_dirs) as tree:
        _check_store(tree)
        if background:
            _accompany(tree)
        else:
            store = tree.context.text.store
            assert store is not None
            _index(SizeJob(log_dirs, source, store), tree, jobs or cores())


def _check_store(tree: KafkaTree) -> None:
    store = tree.context.text.store
    assert store is not None
    try:
        store.check()
    except OSError as error:
        messages.say(f"{store.directory}: can't keep line indexes there: {error.strerror}")
        raise click.exceptions.Exit(1) from None


def _index(job: SizeJob, tree: KafkaTree, jobs: int) -> None:
    wanted = list(closed_segments(tree.context))
    total = sum(closed.size for closed in wanted)
    made = 0
    broken: set[ClosedSegment] = set()
    # The largest first, so that all processes finish at about the same time.
    wanted.sort(key=lambda closed: -closed.size)
    with forks_allowed(), progress_bar(total, "reading") as advance:
        sized = run(job, wanted, jobs, here=_OpenSizes(tree))
        for closed, (is_made, failure) in zip(wanted, sized, strict=True):
            advance(closed.size)
            made += is_made
            if failure is not None:
                broken.add(closed)
                messages.say(str(failure))
    click.echo(
        f"{len(wanted)} closed segments, {total:,} bytes: {made} read, {len(wanted) - made - len(broken)} known before"
    )
    _say_what_was_dropped(tree, [closed for closed in wanted if closed not in broken])
    if broken:
        raise click.exceptions.Exit(1)


def _say_what_was_dropped(tree: KafkaTree, sized: list[ClosedSegment]) -> None:
    """Report line indexes that weren't kept for lack of room: a mount has to make them again."""
    dropped = sum(not is_kept(tree.context, closed) for closed in sized)
    if dropped:
        store = tree.context.text.store
        assert store is not None
        messages.say(
            f"{store.directory} keeps {store.capacity:,} bytes at most: the line indexes of "
            f"{dropped} of {len(sized)} segments didn't fit, and a mount reads those segments again on demand"
        )


@dataclass(frozen=True, slots=True)
class SizeJob(Job[ClosedSegment, _Sized]):
    """The job that makes the line indexes of segments, each independently."""

    log_dirs: tuple[str, ...]
    source: SourceOptions
    store: LineIndexStore

    def open(self) -> _OpenSizes:
        """See :meth:`Job.open`."""
        return _OpenSizes(self.source.open(self.log_dirs, self.store), is_own=True)

    def bytes_of(self, task: ClosedSegment) -> int:
        """See :meth:`Job.bytes_of`."""
        return task.size


class _OpenSizes(OpenJob[ClosedSegment, _Sized]):
    def __init__(self, tree: KafkaTree, *, is_own: bool = False) -> None:
        self._tree = tree
        self._is_own = is_own

    def do(self, task: ClosedSegment) -> Iterator[_Sized]:
        """See :meth:`OpenJob.do`."""
        try:
            yield size_segment(self._tree.context, task), None
        except CorruptData as error:
            yield False, error

    def close(self) -> None:
        """See :meth:`OpenJob.close`."""
        if self._is_own:
            self._tree.close()


def _accompany(tree: KafkaTree) -> None:
    """Index newly closed segments at intervals, as long as the parent process lives."""
    parent = os.getppid()
    os.nice(_NICEST)  # this also lowers the process's I/O priority

    def is_alone() -> bool:
        return os.getppid() != parent

    # Each segment once: if there isn't room for all, dropped ones would otherwise keep evicting others.
    done: set[ClosedSegment] = set()
    while not is_alone():
        with suppress(Shortage, SourceLost):  # may be temporary: the next look tries again
            for closed in closed_segments(tree.context):
                if is_alone():
                    return
                if closed in done:
                    continue
                with suppress(CorruptData):  # a reader gets the error
                    size_segment(tree.context, closed)
                done.add(closed)
        until = time.monotonic() + _LOOK_AGAIN_SECONDS
        while time.monotonic() < until and not is_alone():
            time.sleep(_POLL_SECONDS)
