"""Processes that gather ahead: whatever becomes of them, and of whoever asked, nothing hangs and nothing is left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from kfs.errors import WorkerDied
from kfs.format.codecs import Codec
from kfs.format.record import Record
from kfs.read.log_source import LogSource
from kfs.read.workers import pool
from kfs.scan import Scan
from kfs.scan.job import ScanJob
from tests.eager_workers import processes_of
from tests.logs import START, batch, write_partition
from tests.scan.scanning import opened, rows_of

pytestmark = [
    pytest.mark.usefixtures("own_pool", "eager_processes"),
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="processes share memory by memfd_create"),
]
RECORDS = 4000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of a kilobyte each that don't compress, so that none of them travels in a message."""
    directory = tmp_path_factory.mktemp("large")
    content = [Record(offset, START + offset, b"%d" % offset, os.urandom(1024)) for offset in range(RECORDS)]
    parts = [batch(content[start : start + 100], codec=Codec.LZ4) for start in range(0, RECORDS, 100)]
    write_partition(directory / "t-0", {0: parts[:20], 2000: parts[20:]})
    return directory


def scan_of(root: Path, **options: Any) -> Scan:
    return Scan(opened(root).logs, **{"jobs": 2, "columns": ["offset", "value"], **options})


def idle() -> list[pool.WorkerProcess]:
    return pool.POOL._idle


def test_a_process_with_many_files_open_scans_as_others_do(root: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    descriptors: list[int] = []
    pool.POOL.end()
    try:
        while not descriptors or descriptors[-1] <= 1024:
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
        assert scan_of(root).to_table().num_rows == RECORDS
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        pool.POOL.end()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_processes_are_kept_for_the_next_scan(root: Path) -> None:
    expected = scan_of(root, jobs=1).to_table()
    scan = scan_of(root)
    for _ in range(3):
        assert scan.to_table() == expected
    assert len(idle()) == 2
    pids = {member.pid for member in idle()}
    assert scan_of(root, columns=["offset"]).to_table() == expected.select(["offset"])
    assert {member.pid for member in idle()} == pids


def test_a_table_outlives_the_processes_and_later_scans(root: Path) -> None:
    expected = scan_of(root, jobs=1).to_table()
    table = scan_of(root).to_table()
    for _ in range(3):
        scan_of(root).to_table()
    pool.POOL.end()
    assert table == expected


def test_memory_is_used_again(root: Path) -> None:
    scan = scan_of(root, batch_size=500)
    for _ in range(4):
        for one in scan:
            one.validate(full=True)
    assert [len(member.memory._regions) <= 6 for member in idle()] == [True, True]


def test_more_batches_than_descriptors(root: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 24, hard))
    scan = scan_of(root, batch_size=100)
    try:
        held = [scan.to_table() for _ in range(8)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {table.num_rows for table in held} == {RECORDS}


def test_a_process_that_dies_is_an_error(root: Path) -> None:
    batches = iter(scan_of(root, batch_size=10))
    next(batches)
    for member in processes_of(pool.POOL._busy):
        os.kill(member.pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="the output is not complete"):
        list(batches)
    assert scan_of(root).to_table().num_rows == RECORDS


def test_processes_that_died_in_their_sleep_are_replaced(root: Path) -> None:
    scan_of(root).to_table()
    for member in idle():
        os.kill(member.pid, signal.SIGKILL)
        while member.is_alive:
            time.sleep(0.01)
    assert scan_of(root).to_table().num_rows == RECORDS


def test_an_iteration_that_is_left_leaves_nothing(root: Path) -> None:
    batches = iter(scan_of(root, batch_size=10))
    next(batches)
    pids = [member.pid for member in processes_of(pool.POOL._busy)]
    batches.close()
    assert not pool.POOL._busy
    still_there = {member.pid for member in idle()}
    for pid in set(pids) - still_there:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert scan_of(root).to_table().num_rows == RECORDS


def test_a_reader_that_is_dropped_leaves_nothing(root: Path) -> None:
    reader = scan_of(root, batch_size=10).to_reader()
    reader.read_next_batch()
    reader.close()
    del reader
    assert not pool.POOL._busy


def test_two_scans_at_once_and_in_several_threads(root: Path) -> None:
    expected = scan_of(root, jobs=1).to_table()
    found: list[pa.Table] = []
    threads = [threading.Thread(target=lambda: found.append(scan_of(root).to_table())) for _ in range(4)]
    for thread in threads:
        thread.start()
    one, other = iter(scan_of(root)), iter(scan_of(root))
    assert rows_of([next(one)]) == rows_of([next(other)])
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
    one.close()
    other.close()


def test_what_is_slow_to_be_taken_stops_the_processes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScanJob, "ready_bytes", 1)
    assert scan_of(root, batch_size=10).to_table() == scan_of(root, jobs=1).to_table()


def test_without_processes_it_is_done_here(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", os.fspath(tmp_path / "python"))
    assert scan_of(root).to_table().num_rows == RECORDS
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    assert scan_of(root).to_table().num_rows == RECORDS


def test_an_error_in_a_process_is_raised_here(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = LogSource.of
    monkeypatch.setattr(LogSource, "of", lambda log, **options: replace(of(log, **options), path=cast(str, None)))
    with pytest.raises(TypeError, match="NoneType"):
        scan_of(root).to_table()


SCRIPT = """
import os, signal, sys, threading
from kfs.read.workers import pool
from kfs.scan.job import ScanJob
from kfs.scan import Scan
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
ScanJob.worth_sharing = ScanJob.worth_processes = 1
ScanJob.together_bytes = 0
logs = DataDir([sys.argv[1]], Storage()).logs
batches = iter(Scan(logs, jobs=2, batch_size=10))
next(batches)
"""


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "sys.exit(0)",
        "os._exit(3)",
        "raise ZeroDivisionError",
        "if os.fork():\n    os.wait()\nelse:\n    print('forked', sum(1 for _ in Scan(logs, jobs=2)) > 0, flush=True)",
    ],
)
def test_when_the_parent_ends_so_do_its_processes(root: Path, end: str) -> None:
    script = textwrap.dedent(SCRIPT) + "print(*[one.pid for one in pool.POOL._busy], flush=True)\n" + end
    ran = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True, text=True, timeout=60)
    lines = ran.stdout.splitlines()
    assert "fork" not in end or "forked True" in lines, ran.stderr
    pids = [int(word) for line in lines if line[0].isdigit() for word in line.split()]
    assert pids, ran.stderr
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "a worker process is left"
        time.sleep(0.05)
    assert "ResourceWarning" not in ran.stderr
