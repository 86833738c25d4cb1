"""Fixtures: work cut into the smallest pieces there are, so that small logs have many, and workers that do them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kfs.read import plan
from kfs.read.workers import pool
from kfs.read.workers.job import Job
from kfs.read.workers.team import Team
from kfs.scan.job import ScanJob
from kfs.verify.job import CheckJob


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut wherever the offset index allows it."""
    monkeypatch.setattr(plan, "SPLIT_BYTES", 1)


@pytest.fixture
def eager_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes work on anything that has several tasks, and wait until they are there."""
    for job in (Job, ScanJob, CheckJob):
        monkeypatch.setattr(job, "worth_sharing", 1)
        monkeypatch.setattr(job, "worth_processes", 1)
        monkeypatch.setattr(job, "worth_forks", 1)
        monkeypatch.setattr(job, "together_bytes", 0)
    start = Team._start_processes

    def start_and_wait(self: Team) -> None:
        start(self)
        vars(self)["_give_out"] = lambda _tasks: None  # or the thread of this process does it all meanwhile
        while not all(member.is_ready for member in self._members.values()):
            self._listen(iter(()))
        del vars(self)["_give_out"]

    monkeypatch.setattr(Team, "_start_processes", start_and_wait)


@pytest.fixture
def eager_processes(small_pieces: None, eager_workers: None) -> None:
    """Both."""


@pytest.fixture
def own_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[pool.Pool]:
    """Processes of this test alone, which are gone when it is over."""
    own = pool.Pool()
    monkeypatch.setattr(pool, "POOL", own)
    yield own
    own.end()


def processes_of(helpers: Any) -> list[pool.WorkerProcess]:
    """Return those that are processes."""
    return [helper for helper in helpers if isinstance(helper, pool.WorkerProcess)]
