"""What only our own front does: slow requests hold up nobody, contents are there before they are asked for."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kfs.mount.kernel.prefetch import FIRST_WINDOW, HEAD_START
from kfs.mount.kernel.request_loop import MOST_LATE
from tests.mount.toy_mount import ToyMount, eventually, is_running
from tests.mount.toy_tree import Slot, record_json
from tests.requirements import need_fuse

pytestmark = pytest.mark.fuse

#: Long enough on a busy machine, and nothing like the time that a stalled disk takes here.
SOON = 5.0


@pytest.fixture
def toy(make_mount: Callable[..., ToyMount]) -> Iterator[ToyMount]:
    need_fuse("kernel")
    mount = make_mount(front="kernel")
    mount.start()
    try:
        yield mount
    finally:
        mount.control[Slot.STALLED] = mount.control[Slot.STALLED_RECORD] = 0


def answers(toy: ToyMount) -> bool:
    """Whether somebody who wants something else is served soon."""
    seconds = f"{SOON:g}"
    done = subprocess.run(["timeout", seconds, "cat", toy.path("static/b.json")], capture_output=True, check=False)
    return done.stdout == b'{"b": 2}\n'


def cat(path: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["cat", path], stdout=subprocess.PIPE)


def record(toy: ToyMount, number: int) -> str:
    return toy.path(f"walked/{number}.json")


# -- slow requests


def test_a_stalled_read_holds_up_nobody_else(toy: ToyMount) -> None:
    toy.control[Slot.STALLED] = 1
    with cat(toy.path("stalling/unread")) as reader:
        time.sleep(0.1)
        assert answers(toy)
        assert os.listdir(toy.path("static"))
        assert reader.poll() is None
        toy.control[Slot.STALLED] = 0
        assert reader.communicate(timeout=SOON)[0] == b"at last\n"


def test_a_size_that_takes_long_holds_up_nobody_else(toy: ToyMount) -> None:
    toy.control[Slot.STALLED] = 1
    with subprocess.Popen(["stat", "-c", "%s", toy.path("stalling/unsized")], stdout=subprocess.PIPE) as reader:
        time.sleep(0.1)
        assert answers(toy)
        toy.control[Slot.STALLED] = 0
        assert reader.communicate(timeout=SOON)[0] == b"8\n"


def test_many_may_wait_for_the_disk(toy: ToyMount) -> None:
    toy.control[Slot.STALLED] = 1
    readers = [cat(toy.path("stalling/unread")) for _ in range(MOST_LATE // 2)]
    readers += [
        subprocess.Popen(["stat", toy.path("stalling/unsized")], stdout=subprocess.PIPE) for _ in range(MOST_LATE // 4)
    ]
    time.sleep(0.5)
    assert answers(toy)
    toy.control[Slot.STALLED] = 0
    for reader in readers:
        reader.communicate(timeout=SOON)
        assert reader.returncode == 0


@pytest.mark.parametrize("command", [["cat", "stalling/unread"], ["stat", "stalling/unsized"]], ids=["read", "stat"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_who_is_interrupted_comes_back(toy: ToyMount, command: list[str], number: signal.Signals) -> None:
    toy.control[Slot.STALLED] = 1
    program, name = command
    with subprocess.Popen(
        [program, toy.path(name)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, restore_signals=True
    ) as reader:
        time.sleep(0.3)
        reader.send_signal(number)
        reader.wait(timeout=SOON)
    assert answers(toy)
    toy.control[Slot.STALLED] = 0
    assert Path(toy.path("stalling/unread")).read_bytes() == b"at last\n"


def test_a_daemon_that_is_killed_while_it_notifies_the_kernel_ends(toy: ToyMount) -> None:
    """The notification waits for the lock of a directory, held by a reader who waits for the daemon."""
    os.stat(toy.path("stalling/unread"))
    toy.control[Slot.STALLED] = 1
    with subprocess.Popen(["stat", toy.path("stalling/unsized")], stderr=subprocess.PIPE) as reader:
        toy.control[Slot.INVALIDATED] = 1
        assert eventually(lambda: is_in_the_kernel(toy.pid), SOON)
        os.kill(toy.pid, signal.SIGKILL)
        assert eventually(lambda: not is_running(toy.pid) and not threads_of(toy.pid), SOON)
        reader.communicate(timeout=SOON)
        assert reader.returncode == 1
    toy.control[Slot.INVALIDATED] = 0
    toy.start()
    assert answers(toy)


def threads_of(pid: int) -> list[str]:
    """Return the states of a process's threads that haven't ended."""
    states = []
    for status in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            states.append(status.read_text().rpartition(")")[2].split()[0])
    return [state for state in states if state != "Z"]


def is_in_the_kernel(pid: int) -> bool:
    """Return whether a thread waits in the kernel and can't be interrupted."""
    return "D" in threads_of(pid)


def test_unmounting_lazily_works_while_a_read_is_stalled(toy: ToyMount) -> None:
    toy.control[Slot.STALLED] = 1
    with cat(toy.path("stalling/unread")) as reader:
        time.sleep(0.1)
        os.kill(toy.pid, signal.SIGTERM)
        reader.wait(timeout=SOON)
        assert eventually(lambda: not is_running(toy.pid), SOON)


def test_a_mount_answers_without_a_single_descriptor_left(toy: ToyMount) -> None:
    used = len(os.listdir(f"/proc/{toy.pid}/fd"))
    before = resource.prlimit(toy.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(toy.pid, resource.RLIMIT_NOFILE, (used, before[1]))
    assert os.listdir(toy.path("records"))
    assert answers(toy)


# -- ahead of the reader


def read_all(toy: ToyMount) -> list[int]:
    """List a directory, then read all that is in it in order; return the numbers whose contents are wrong."""
    with os.scandir(toy.path("walked")) as listing:
        names = [entry.name for entry in listing]
    assert names == [f"{number}.json" for number in range(1000)]
    return [number for number in range(1000) if Path(record(toy, number)).read_bytes() != record_json(number)]


def test_who_reads_in_order_finds_what_is_next(toy: ToyMount) -> None:
    assert read_all(toy) == []
    assert 1 <= toy.control[Slot.RECORD_READS] < 500


def test_a_second_reading_asks_for_nothing(toy: ToyMount) -> None:
    assert read_all(toy) == []
    before = toy.control[Slot.RECORD_READS]
    for number in range(1000):
        assert Path(record(toy, number)).read_bytes() == record_json(number)
    # A page may be reclaimed at any time: where DAMON runs, a few in a hundred are.
    assert toy.control[Slot.RECORD_READS] - before < 100


def test_readers_at_once_get_every_byte_right(toy: ToyMount) -> None:
    with ThreadPoolExecutor(8) as readers:
        assert list(readers.map(lambda _: read_all(toy), range(8))) == [[]] * 8
    grep = ["grep", "-rc", '"offset"', toy.path("walked")]
    greps = [subprocess.Popen(grep, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in greps:
        lines = process.communicate(timeout=60)[0].splitlines()
        assert len(lines) == 1000
        assert all(line.endswith(":1") for line in lines)


def test_who_reads_at_random_is_not_read_ahead_for(make_mount: Callable[..., ToyMount]) -> None:
    need_fuse("kernel")
    toy = make_mount(front="kernel")
    toy.start("--records", "50000")
    os.listdir(toy.path("walked"))
    for number in random.Random(1).sample(range(50_000), 500):
        assert Path(record(toy, number)).read_bytes() == record_json(number)
    assert toy.control[Slot.RECORD_READS] > 400


def test_storing_a_page_that_is_being_asked_for_stops_nobody(toy: ToyMount) -> None:
    """The kernel has the page locked until the reader is answered, and our thread waits for that lock."""
    os.listdir(toy.path("walked"))
    stalled = 20
    toy.control[Slot.STALLED_RECORD] = stalled
    with cat(record(toy, stalled)) as reader:
        time.sleep(0.2)
        for number in [*range(stalled), *range(stalled + 1, 300)]:
            done = subprocess.run(["timeout", "5", "cat", record(toy, number)], stdout=subprocess.PIPE, check=False)
            assert done.stdout == record_json(number)
        assert answers(toy)
        assert reader.poll() is None
        toy.control[Slot.STALLED_RECORD] = 0
        assert reader.communicate(timeout=SOON)[0] == record_json(stalled)
    assert read_all(toy) == []


def test_a_reader_who_is_read_ahead_for_does_not_wait_for_another_ones_disk(toy: ToyMount) -> None:
    """The answer of one who has caught up is held while what follows is stored: a page of that may be locked."""
    os.listdir(toy.path("walked"))
    stalled = FIRST_WINDOW + 3 * HEAD_START
    toy.control[Slot.STALLED_RECORD] = stalled
    with cat(record(toy, stalled)) as waiting:
        time.sleep(0.2)
        before = [record(toy, number) for number in range(stalled)]
        with subprocess.Popen(["cat", *before], stdout=subprocess.PIPE) as reader:
            try:
                assert reader.communicate(timeout=SOON)[0] == b"".join(map(record_json, range(stalled)))
                assert waiting.poll() is None
            finally:
                toy.control[Slot.STALLED_RECORD] = 0
        assert waiting.communicate(timeout=SOON)[0] == record_json(stalled)
