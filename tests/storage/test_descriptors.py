"""The budget of descriptors: a process's own limit, who lets go, and what a process does that has too few."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kfs.cli.main import main
from kfs.errors import Shortage
from kfs.storage.descriptors import BUDGET
from kfs.storage.open_files import FileGone, FilePool, OpenFile
from tests.logs import batch, look_every_time, record, write_partition
from tests.shortages import REFUSALS, Shortages


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory of many segments."""
    segments = {base: [batch([record(base)]), batch([record(base + 1)])] for base in range(0, 200, 2)}
    write_partition(tmp_path / "data" / "t-0", segments, interval=1)
    return tmp_path / "data"


def run(program: str, *arguments: str | Path) -> str:
    """Run a program in a process of its own."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_process_that_may_have_few_files_open_reads_all(data: Path) -> None:
    program = """
import resource, sys
import kfs
resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
with kfs.open(sys.argv[1]) as data:
    log = data["t"][0]
    for _ in range(2):
        assert [record.offset for record in log] == list(range(200))
        assert [log[offset].offset for offset in range(200)] == list(range(200))
print("all")
"""
    assert run(program, data) == "all\n"


def test_the_library_leaves_the_limit_and_the_command_raises_it(data: Path) -> None:
    program = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
import kfs
with kfs.open(sys.argv[1]) as data:
    assert len(list(data["t"][0])) == 200
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
from kfs.cli.main import main
main(["ls", sys.argv[1]], standalone_mode=False)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    assert run(program, data).split() == ["100", "t", "300"]


@pytest.mark.parametrize("number", REFUSALS)
@pytest.mark.parametrize("command", ["ls LOG_DIR t/0/offset", "verify LOG_DIR -j 1"])
def test_a_command_that_finds_no_descriptor_says_so(
    command: str, number: int, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortages = Shortages(monkeypatch, str(data / "t-0"))
    shortages.begin(range(10_000), number)
    done = CliRunner().invoke(main, command.replace("LOG_DIR", str(data)).split())
    assert done.exit_code == (2 if command.startswith("verify") else 1)
    assert os.strerror(number) in done.stderr
    assert "ulimit -n" in done.stderr


def test_those_that_were_used_lately_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BUDGET, "_most", 16)
    BUDGET.let_all_go()
    pool, paths = FilePool(), []
    for number in range(100):
        path = tmp_path / str(number)
        path.write_bytes(b"x")
        paths.append((str(path), path.stat().st_ino))
    used = pool.open(*paths[0])
    for one in paths[1:]:
        pool.open(*one)
        assert pool.open(*paths[0]) is used
        assert BUDGET.count <= 16


def test_a_descriptor_is_not_closed_under_who_uses_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    file = OpenFile(str(tmp_path / "file"))
    descriptor = file.descriptor()
    file.let_go()
    assert os.pread(descriptor.number, 3, 0) == b"abc"
    number = descriptor.number
    del descriptor
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


@pytest.mark.parametrize("how", ["unlinked", "renamed", "replaced", "directory renamed"])
def test_a_deleted_file_is_let_go_and_gone_for_who_reads_it(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    path, other = directory / "file", directory / "other"
    path.write_bytes(b"abc")
    other.write_bytes(b"def")
    pool = FilePool()
    file, neighbour = pool.open(str(path), path.stat().st_ino), pool.open(str(other), other.stat().st_ino)
    BUDGET.look_for_deleted()
    if how == "unlinked":
        path.unlink()
    elif how == "renamed":
        path.rename(directory / "file.deleted")
    elif how == "replaced":
        (directory / "new").write_bytes(b"new")
        (directory / "new").rename(path)
    else:
        directory.rename(tmp_path / "t-0.x-delete")
    BUDGET.look_for_deleted()
    assert file.read(0, 3) == b"abc"  # for a moment
    monkeypatch.setattr("kfs.storage.descriptors._GRACE_SECONDS", 0.0)
    BUDGET.look_for_deleted()
    assert not any(who() is file for who in BUDGET.held.values())
    with pytest.raises(FileGone):
        file.read(0, 3)
    if how != "directory renamed":
        assert neighbour.read(0, 3) == b"def"


def test_a_fork_has_descriptors_of_its_own(data: Path) -> None:
    program = """
import os, sys
import kfs
from kfs.storage.descriptors import BUDGET
with kfs.open(sys.argv[1]) as data:
    log = data["t"][0]
    assert len(list(log)) == 200 and BUDGET.count > 50
    child = os.fork()
    if child == 0:
        kept = BUDGET.count
        os._exit(0 if not kept and len(list(log)) == 200 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(log)) == 200
print("both")
"""
    assert run(program, data) == "both\n"


def test_when_a_shortage_is_over_nothing_of_it_is_left(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import kfs

    look_every_time(monkeypatch)
    shortages = Shortages(monkeypatch, str(data))
    with kfs.open(data) as opened:
        log = opened["t"][0]
        shortages.begin(range(10_000))
        for _ in range(2):
            with pytest.raises(Shortage):
                list(log)
        shortages.begin()
        assert [each.offset for each in log] == list(range(200))
        assert not log.problems
