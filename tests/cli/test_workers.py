"""Commands that do their work by several processes: by any number of them they do the same, and end as they should."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kfs.cli.main import main
from kfs.cli.messages import messages
from kfs.format.codecs import Codec
from kfs.read.workers import pool
from kfs.read.workers.team import BusyWorker
from tests.cli.running import printed
from tests.eager_workers import eager_processes, eager_workers, own_pool, processes_of, small_pieces
from tests.system.kafka_mount import KFS
from tests.system.toy_broker import ToyPartition, message

__all__ = ["eager_processes", "eager_workers", "own_pool", "small_pieces"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven partitions of four segments each, of which a batch is damaged; most is worth a table of its lines."""
    root = tmp_path_factory.mktemp("root")
    for number in range(7):
        partition = ToyPartition(root, "t", number)
        for segment in range(4):
            if segment:
                partition.roll()
            for _ in range(3):
                first = partition.next_offset
                partition.append([message(first + at, os.urandom(1500)) for at in range(60)], Codec.LZ4)
        data = bytearray(partition.file(180).read_bytes())
        data[100] ^= 0xFF
        partition.file(180).write_bytes(data)
    return root


@pytest.fixture(scope="module")
def other(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it that lacks the last segment of a partition."""
    other = tmp_path_factory.mktemp("other")
    for path in root.rglob("*"):
        if path.is_file() and not (path.parent.name == "t-1" and path.name.startswith(f"{540:020d}")):
            (other / path.parent.name).mkdir(exist_ok=True)
            (other / path.parent.name / path.name).write_bytes(path.read_bytes())
    return other


COMMANDS: dict[str, Callable[[Path, Path, Path], list[object]]] = {
    "cat": lambda root, _, out: ["cat", root, "t", "-o", out],
    "cat of values": lambda root, _, out: ["cat", root, "t/1", "-f", "value", "--length-prefix", "-o", out],
    "table": lambda root, _, out: ["cat", root, "t", "-f", "arrow", "-o", out],
    "verify": lambda root, *_: ["verify", "--json", root],
    "diff": lambda root, other, _: ["diff", "--json", root, other],
    "index": lambda root, *_: ["index", root],
}


@pytest.fixture
def ran(
    root: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, int], tuple[Result, bytes]]:
    """Return what runs a command here."""

    def run(name: str, jobs: int) -> tuple[Result, bytes]:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache {name} {jobs}"))
        monkeypatch.setattr(messages, "_said", set())
        out = tmp_path / "out"
        arguments = [*map(str, COMMANDS[name](root, other, out)), "--jobs", str(jobs)]
        done = CliRunner().invoke(main, arguments)
        return done, out.read_bytes() if out.exists() else b""

    return run


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("eager_processes", "own_pool")
def test_any_number_of_processes_does_the_same(
    name: str, ran: Callable[[str, int], tuple[Result, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "table":
        pytest.importorskip("pyarrow")
    given: list[object] = []
    give = BusyWorker.give

    def note(self: BusyWorker, task: object) -> None:
        given.append(self.helper)
        give(self, task)  # type: ignore[arg-type]

    monkeypatch.setattr(BusyWorker, "give", note)
    first, written = ran(name, 1)
    assert not given
    assert first.exception is None or isinstance(first.exception, SystemExit), first.exception
    assert first.stdout or written
    for jobs in (2, 3):
        again, written_again = ran(name, jobs)
        assert (again.exit_code, again.stdout, written_again) == (first.exit_code, first.stdout, written)
        assert again.stderr.splitlines() == first.stderr.splitlines()
        assert processes_of(given)
        given.clear()


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("eager_processes")
def test_a_process_that_is_killed_is_a_failure(
    name: str,
    ran: Callable[[str, int], tuple[Result, bytes]],
    own_pool: pool.Pool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if name == "table":
        pytest.importorskip("pyarrow")
    give = BusyWorker.give

    def give_and_kill(self: BusyWorker, task: object) -> None:
        give(self, task)  # type: ignore[arg-type]
        for process in processes_of([self.helper]):
            os.kill(process.pid, signal.SIGKILL)

    monkeypatch.setattr(BusyWorker, "give", give_and_kill)
    done, written = ran(name, 2)
    assert done.exit_code == (2 if name in ("verify", "diff") else 1)
    assert "kfs: a worker process ended (status -9): the output is not complete\n" in done.stderr
    assert not own_pool._busy
    assert not written  # a file gets its name when all is in it


# --- as a process of its own ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So many segments that processes are started for them."""
    root = tmp_path_factory.mktemp("long")
    partition = ToyPartition(root, "long")
    for number in range(200):
        if number:
            partition.roll()
        partition.append([message(partition.next_offset, b"%d " % number * 30_000)])
    return root


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def started(long: Path) -> subprocess.Popen[bytes]:
    """Start to read what a command prints, until its processes are there; nobody reads on."""
    process = subprocess.Popen(
        [KFS, "cat", long, "long", "-j", "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.read(10)
    until = time.monotonic() + 60
    while len(children_of(process.pid)) < 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    return process


def gone(pids: list[int]) -> None:
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_many_segments_are_printed_as_by_one_process(long: Path) -> None:
    expected = printed("cat", long, "long", "-j", "1")
    for jobs in ("2", "3"):
        assert printed("cat", long, "long", "-j", jobs) == expected


@pytest.mark.parametrize("to_all", [False, True])
def test_ctrl_c_ends_all_of_it_in_silence(long: Path, to_all: bool) -> None:
    """A terminal sends it to the processes, too; so it is when they have just been started."""
    process = started(long)
    children = children_of(process.pid)
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.read() == b"\nAborted!\n"
    assert process.wait(60) == 1
    gone(children)


def test_a_process_that_is_killed_while_the_output_waits(long: Path) -> None:
    process = started(long)
    children = children_of(process.pid)
    os.kill(children[0], signal.SIGKILL)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read()
    said = process.stderr.read().decode()
    status = process.wait(60)
    gone(children)
    # It may not have had anything to do yet: then others have done it.
    assert (status, said.count("the output is not complete")) in ((1, 1), (0, 1)), said


def test_a_reader_that_leaves_ends_all_of_it(long: Path) -> None:
    process = started(long)
    children = children_of(process.pid)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) in (0, 1)
    gone(children)


def test_when_it_is_killed_its_processes_end(long: Path) -> None:
    process = started(long)
    children = children_of(process.pid)
    process.kill()
    process.communicate()
    gone(children)


@pytest.mark.parametrize("jobs", ["2", "3"])
def test_a_full_disk_is_said(long: Path, jobs: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([KFS, "cat", long, "long", "-j", jobs], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"kfs: can't write: No space left on device\n")
