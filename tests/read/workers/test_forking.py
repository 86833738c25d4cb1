"""Workers that are forks make the same, keep nothing open of the process that they are forks of, and end with it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from kfs.read.workers.forking import may_fork

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts threads")

#: What each process begins with: one that runs tests has threads, and isn't forked.
BEGIN = """
import os, signal, sys, threading
from kfs.errors import WorkerDied
from kfs.read.workers import pool
from kfs.read.workers.forking import forks_allowed
from kfs.read.workers.job import Job
from kfs.read.workers.run import run
from kfs.storage.open_files import FilePool
from tests.read.workers.jobs import MAKERS, MakeJob, Task
from tests.read.workers.test_run import TASKS, made

Job.worth_forks = Job.worth_processes = 1
MakeJob.takes_part = False
files = FilePool()
file = files.open(sys.argv[1], os.stat(sys.argv[1]).st_ino)  # there is a thread now that looks whether it is deleted
started = []
take = pool.POOL.take
pool.POOL.take = lambda: started.append(take()) or started[-1]
kinds = lambda: {type(worker._process).__name__ for worker in started}
print("once")  # stays in a buffer that forks have, too
"""


def ran(script: str, path: Path, status: int = 0) -> list[str]:
    path.write_bytes(b"some file")
    command = [sys.executable, "-c", BEGIN + textwrap.dedent(script), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    once, *lines = done.stdout.splitlines()
    assert once == "once"
    return lines


def test_it_is_what_one_process_makes(tmp_path: Path) -> None:
    script = """
        with forks_allowed():
            for MakeJob.takes_part in (False, True):
                for way in (*MAKERS, "mixed"):
                    job = MakeJob(way, os.getpid())
                    for jobs in (2, 3):
                        assert made(job, TASKS, jobs) == made(job, TASKS, 1)
        print(kinds())
    """
    assert ran(script, tmp_path / "file") == ["{'Fork'}"]


def test_a_process_with_other_threads_is_not_forked(tmp_path: Path) -> None:
    script = """
        ended = threading.Event()
        threading.Thread(target=ended.wait).start()
        with forks_allowed():
            assert made(MakeJob("pickled"), TASKS, 2) == made(MakeJob("pickled"), TASKS, 1)
        ended.set()
        print(kinds())
    """
    assert ran(script, tmp_path / "file") == ["{'Popen'}"]


def test_only_commands_fork(tmp_path: Path) -> None:
    assert not may_fork()
    script = """
        made(MakeJob("pickled"), TASKS, 2)
        print(kinds())
    """
    assert ran(script, tmp_path / "file") == ["{'Popen'}"]


def test_a_fork_that_dies_is_an_error(tmp_path: Path) -> None:
    script = """
        with forks_allowed():
            try:
                made(MakeJob("pickled"), [Task(number, act="die" if number == 20 else "") for number in range(40)], 2)
            except WorkerDied as error:
                print(error)
        print(kinds())
    """
    expected = ["a worker process ended (status -9): the output is not complete", "{'Fork'}"]
    assert ran(script, tmp_path / "file") == expected


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(3)"])
def test_a_fork_has_its_own_channel_only_and_ends_with_it(end: str, tmp_path: Path) -> None:
    script = """
        def opened(worker):
            directory = f"/proc/{worker.pid}/fd"
            return sorted(os.readlink(f"{directory}/{name}").partition(":")[0] for name in os.listdir(directory))

        with forks_allowed():
            items = run(MakeJob("pickled"), [Task(number, 5, "be slow") for number in range(100)], 3)
            next(items)
            while not all(member.is_ready for member in items.gi_frame.f_locals["team"]._members.values()):
                next(items)
            for worker in started:
                print(worker.pid, *opened(worker))
            sys.stdout.flush()
    """
    path = tmp_path / "file"
    # Standard input and output, standard error, the channel: no file, and no channel of another fork.
    lines = ran(textwrap.dedent(script) + f"    {end}\n", path, -9 if "kill" in end else 3)
    pids, opened = zip(*(line.split(maxsplit=1) for line in lines), strict=True)
    assert opened == ("/dev/null /dev/null pipe socket",) * 3
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline, "a worker process is left"
        time.sleep(0.02)
