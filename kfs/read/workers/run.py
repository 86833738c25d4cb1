"""Runs tasks and yields their results in order: in this process, or with workers if there is enough to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

from kfs.read.workers.forking import may_fork
from kfs.read.workers.in_process import InThisProcess
from kfs.read.workers.job import Group, Job, OpenJob, groups_of

Task = TypeVar("Task")
Item = TypeVar("Item")


def run(
    job: Job[Task, Item],
    tasks: Iterable[Task],
    jobs: int,
    *,
    here: OpenJob[Task, Item] | None = None,
    output: int | None = None,
) -> Generator[Item, None, None]:
    """Yield the items of each task, in the order of the tasks; :class:`Output` items are written to ``output``.

    If ``jobs`` is more than one and there is enough to do, that many threads or processes work ahead. Their log
    messages are logged here when it is the task's turn. ``here`` is the job if it is open in this process already; it
    does this process's share of the tasks, and isn't closed. A caller that stops early must close the generator.

    Raises:
        OSError: ``output`` can't be written to.
        WorkerDied: a worker process ended early, so the items and the output are incomplete.
        Exception: the error that a task raises, when it is the task's turn.
    """
    own = InThisProcess(job, here, output)
    tasks = iter(tasks)
    try:
        if jobs > 1 and _can_start(job):
            groups = groups_of(job, tasks)
            worth_processes = job.worth_forks if may_fork() else job.worth_processes
            first, size = _first_of(groups, worth_processes)
            groups = chain(first, groups)
            with_processes = size >= worth_processes or _has_idle()
            if len(first) > 1 and (with_processes or size >= job.worth_sharing):
                from kfs.read.workers.team import Team  # only here: a single thread doesn't need it

                with Team(job, jobs, own) as team:
                    yield from team.do_all(groups, with_processes=with_processes)
                return
            tasks = chain.from_iterable(group.tasks for group in groups)
        yield from own.do(tasks)
    finally:
        own.close()


def _can_start(job: Job[Any, Any]) -> bool:
    """Whether this system supports worker processes for a job."""
    if not sys.executable or not hasattr(os, "register_at_fork"):
        return False
    return not job.shares_memory or hasattr(os, "memfd_create")


def _first_of(groups: Iterator[Group], worth_processes: int) -> tuple[list[Group], int]:
    """Return the first groups and their total size in bytes: all groups, or enough to be worth starting processes."""
    first: list[Group] = []
    size = 0
    while size < worth_processes or len(first) < 2:
        group = next(groups, None)
        if group is None:
            break
        first.append(group)
        size += group.size
    return first, size


def _has_idle() -> bool:
    """Whether the pool has an idle process."""
    pool = sys.modules.get("kfs.read.workers.pool")
    return pool is not None and pool.POOL.has_idle()
