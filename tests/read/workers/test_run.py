"""Tasks done by any number of workers: what comes of them is what one process makes, in the order of the tasks."""

from __future__ import annotations

import logging
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kfs.errors import WorkerDied
from kfs.read.workers import pool
from kfs.read.workers.job import is_buffered
from kfs.read.workers.run import run
from kfs.read.workers.team import BusyWorker, Team, _Given
from tests.eager_workers import processes_of
from tests.read.workers.jobs import EVERY_MAKER, MAKERS, MakeJob, Task

pytestmark = [
    pytest.mark.usefixtures("own_pool", "eager_workers"),
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="processes share memory by memfd_create"),
]
WAYS = pytest.mark.parametrize("way", MAKERS)
EVERY_WAY = pytest.mark.parametrize("way", EVERY_MAKER)
JOBS = pytest.mark.parametrize("jobs", [2, 3])
TASKS = [Task(number, number % 5) for number in range(40)]


@pytest.fixture(params=[0, 4], ids=["alone", "together"])
def _groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are given out one by one, or by threes."""
    monkeypatch.setattr(MakeJob, "together_bytes", request.param)


GROUPS = pytest.mark.usefixtures("_groups")


def job_of(way: str) -> MakeJob:
    return MakeJob(way, os.getpid())


def made(job: MakeJob, tasks: Sequence[Task], jobs: int) -> tuple[list[object], bytes]:
    """Return what is yielded, buffers copied, and what is written."""
    with tempfile.TemporaryFile() as file:
        output = file.fileno() if job.way in ("written", "mixed") else None
        items = [plain(item) for item in run(job, tasks, jobs, output=output)]
        file.seek(0)
        return items, file.read()


def plain(item: object) -> object:
    if is_buffered(item):
        return [None if buffer is None else bytes(buffer) for buffer in item.buffers]
    return item


@GROUPS
@EVERY_WAY
@JOBS
def test_it_is_what_one_process_makes(way: str, jobs: int) -> None:
    expected = made(job_of(way), TASKS, 1)
    assert any(expected)
    for _ in range(2):  # the second time by processes that were there
        assert made(job_of(way), TASKS, jobs) == expected


@GROUPS
@WAYS
@pytest.mark.parametrize("takes_part", [False, True])
def test_lines_are_logged_in_the_order_of_the_tasks(
    way: str, takes_part: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MakeJob, "takes_part", takes_part)
    made(job_of(way), TASKS, 3)
    assert [record.getMessage() for record in caplog.records] == [
        f"task {task.number} {what}" for task in TASKS for what in ("begins", "ends")
    ]


def test_lines_that_nobody_wants_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "kfs"):
        made(job_of("pickled"), TASKS, 3)
    assert not caplog.records


@WAYS
@pytest.mark.parametrize("takes_part", [False, True])
def test_this_process_takes_part_where_it_has_time(
    way: str, takes_part: bool, monkeypatch: pytest.MonkeyPatch, own_pool: pool.Pool
) -> None:
    monkeypatch.setattr(MakeJob, "takes_part", takes_part)
    seen: list[tuple[int, int]] = []
    start = Team._start_processes

    def start_and_look(self: Team) -> None:
        started = len(own_pool._busy)
        start(self)
        seen.append((started, len(processes_of(own_pool._busy))))

    monkeypatch.setattr(Team, "_start_processes", start_and_look)
    made(job_of(way), TASKS, 3)
    assert seen == [(2, 2) if takes_part else (0, 3)]
    assert not [thread for thread in threading.enumerate() if thread.name == "kfs-worker"]


@WAYS
def test_a_process_that_dies_is_an_error(way: str, own_pool: pool.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MakeJob, "takes_part", False)
    tasks = [Task(number, act="die" if number == 20 else "") for number in range(40)]
    with pytest.raises(WorkerDied, match=r"a worker process ended \(status -9\): the output is not complete"):
        made(job_of(way), tasks, 2)
    assert not own_pool._busy
    assert made(job_of(way), TASKS, 2) == made(job_of(way), TASKS, 1)


@GROUPS
@WAYS
@pytest.mark.parametrize(
    ("act", "error"), [("raise", LookupError("as it was asked to")), ("raise what can't be sent", None)]
)
def test_what_a_task_raises_is_raised_when_it_is_its_turn(
    way: str, act: str, error: Exception | None, own_pool: pool.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MakeJob, "takes_part", False)
    tasks = [Task(number, act=act if number == 20 else "") for number in range(40)]
    items: list[object] = []
    with tempfile.TemporaryFile() as file:
        output = file.fileno() if way == "written" else None
        with pytest.raises(type(error) if error else RuntimeError, match="asked to" if error else "Broken: 1 and 2"):
            items.extend(plain(item) for item in run(job_of(way), tasks, 2, output=output))
        file.seek(0)
        written = file.read()
    before, written_before = made(job_of(way), tasks[:20], 1)
    assert items[: len(before)] == before
    assert written.startswith(written_before)
    assert len(items) + len(written.splitlines()) < 63
    assert not own_pool._busy


@JOBS
def test_what_can_t_be_opened_is_raised_here(jobs: int) -> None:
    with pytest.raises(ValueError, match="nothing can be made"):
        made(job_of("unusable"), TASKS, jobs)


@WAYS
def test_who_leaves_off_leaves_nothing(way: str, own_pool: pool.Pool) -> None:
    reading, writing = os.pipe()
    tasks = [Task(number, 5, "be slow") for number in range(1000)]
    making = run(job_of("mixed" if way == "written" else way), tasks, 3, output=writing if way == "written" else None)
    next(making)
    pids = [process.pid for process in processes_of(own_pool._busy)]
    making.close()
    assert len(pids) == 2
    assert not own_pool._busy
    there = {process.pid for process in own_pool._idle}
    for pid in {*pids} - there:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    os.close(reading)
    os.close(writing)
    until = time.monotonic() + 20
    while any(thread.name == "kfs-worker" for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)


@WAYS
def test_what_is_ready_and_not_taken_is_bounded(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = made(job_of(way), TASKS, 1)
    monkeypatch.setattr(MakeJob, "ready_bytes", 1)
    assert made(job_of(way), TASKS, 3) == expected


def test_few_tasks_are_done_here(monkeypatch: pytest.MonkeyPatch, own_pool: pool.Pool) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(pool, "POOL", own_pool)
    monkeypatch.setattr(own_pool, "take", None)
    assert made(job_of("pickled"), TASKS[:10], 3) == made(job_of("pickled"), TASKS[:10], 1)


@pytest.mark.parametrize("missing", ["no interpreter", "one that fails", "an empty name"])
def test_without_processes_it_is_done_here(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = made(job_of("pickled"), TASKS, 1)
    executable = tmp_path / "python"
    if missing == "one that fails":
        executable.write_text("#!/bin/sh\nexit 1\n")
        executable.chmod(0o755)
        monkeypatch.setattr(Team, "_start_processes", START)
    monkeypatch.setattr(sys, "executable", "" if missing == "an empty name" else str(executable))
    for takes_part in (False, True):
        monkeypatch.setattr(MakeJob, "takes_part", takes_part)
        assert made(job_of("pickled"), TASKS, 3) == expected


#: As it is, without waiting for those that never come.
START = Team._start_processes


@pytest.fixture
def no_descriptors() -> Iterator[None]:
    """Have none left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.listdir("/proc/self/fd")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_it_is_done_here(no_descriptors: None, caplog: pytest.LogCaptureFixture) -> None:
    items = list(run(job_of("pickled"), TASKS, 3))
    assert len(items) == sum(task.items for task in TASKS)
    said = [record.getMessage() for record in caplog.records if "can't start" in record.getMessage()]
    assert [line.split(":")[0] for line in said] == ["can't start a worker thread", "can't start a worker process"]


def test_an_output_without_a_reader_is_an_error(own_pool: pool.Pool) -> None:
    for jobs in (1, 2, 3):
        reading, writing = os.pipe()
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            list(run(job_of("written"), TASKS, jobs, output=writing))
        os.close(writing)
        assert not own_pool._busy


def threads_taken(own_pool: pool.Pool, monkeypatch: pytest.MonkeyPatch) -> list[pool.WorkerThread]:
    """Return a list that gets the threads that are started from now on."""
    threads: list[pool.WorkerThread] = []
    take = own_pool.take_thread

    def take_and_note() -> pool.WorkerThread:
        threads.append(take())
        return threads[-1]

    monkeypatch.setattr(own_pool, "take_thread", take_and_note)
    return threads


@pytest.mark.parametrize("way", ["pickled", "written"])
def test_threads_do_what_is_not_worth_processes(way: str, monkeypatch: pytest.MonkeyPatch, own_pool: pool.Pool) -> None:
    monkeypatch.setattr(MakeJob, "worth_processes", 1 << 40)
    monkeypatch.setattr(own_pool, "take", None)
    threads = threads_taken(own_pool, monkeypatch)
    for jobs in (2, 3):
        assert made(job_of(way), TASKS, jobs) == made(job_of(way), TASKS, 1)
    assert len(threads) == 4
    assert not own_pool._busy


@JOBS
def test_the_second_thread_makes_room_for_processes(
    jobs: int, monkeypatch: pytest.MonkeyPatch, own_pool: pool.Pool
) -> None:
    given: list[bool] = []
    give = BusyWorker.give

    def give_and_note(self: BusyWorker, task: _Given) -> None:
        given.append(self.helper is threads[1])
        give(self, task)

    threads = threads_taken(own_pool, monkeypatch)
    monkeypatch.setattr(BusyWorker, "give", give_and_note)
    made(job_of("pickled"), TASKS, jobs)
    assert given.count(True) == 1 + MakeJob.groups_ahead, "what it got before they were there"
    assert len(given) == len(TASKS)
