"""Tasks done in their order: in this process, or by workers where there is enough to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

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
    """Yield what is made of each task, in the order of the tasks; what is :class:`Output` is written to ``output``.

    With more than one of ``jobs`` tasks are done ahead by as many threads or processes, where there is enough to do.
    What they log is logged here when it is the task's turn. ``here`` is the job as it is open in this process, if it
    is: it does what this process does by itself, and isn't closed. A caller that stops early closes the generator.

    Raises:
        OSError: ``output`` can't be written to.
        WorkerDied: a process ended early, and what was yielded and written isn't complete.
        Exception: what a task raises, when it is its turn.
    """
    own = InThisProcess(job, here, output)
    tasks = iter(tasks)
    try:
        if jobs > 1 and _can_start(job):
            groups = groups_of(job, tasks)
            first, size = _first_of(job, groups)
            groups = chain(first, groups)
            with_processes = size >= job.worth_processes or _has_idle()
            if len(first) > 1 and (with_processes or size >= job.worth_sharing):
                from kfs.read.workers.team import Team  # only here: one thread alone needn't wait for it

                with Team(job, jobs, own) as team:
                    yield from team.do_all(groups, with_processes=with_processes)
                return
            tasks = chain.from_iterable(group.tasks for group in groups)
        yield from own.do(tasks)
    finally:
        own.close()


def _can_start(job: Job[Any, Any]) -> bool:
    """Whether there can be other processes."""
    if not sys.executable or not hasattr(os, "register_at_fork"):
        return False
    return not job.shares_memory or hasattr(os, "memfd_create")


def _first_of(job: Job[Any, Any], groups: Iterator[Group]) -> tuple[list[Group], int]:
    """Return the first groups, and how much there is to do, in bytes: all, or enough to be worth processes."""
    first: list[Group] = []
    size = 0
    while size < job.worth_processes or len(first) < 2:
        group = next(groups, None)
        if group is None:
            break
        first.append(group)
        size += group.size
    return first, size


def _has_idle() -> bool:
    """Whether there are processes that needn't be started."""
    pool = sys.modules.get("kfs.read.workers.pool")
    return pool is not None and pool.POOL.has_idle()
