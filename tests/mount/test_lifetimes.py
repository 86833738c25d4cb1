"""What cannot change is asked for once; what may change is seen to change within a second."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from kfs.tree.node import LIVE
from tests.mount.conftest import ONE_OF_EACH_KIND
from tests.mount.toy_mount import ToyMount, eventually
from tests.mount.toy_tree import SLOW_SECONDS, Slot, static_bytes
from tests.requirements import need_fuse

pytestmark = pytest.mark.fuse


@pytest.fixture(scope="module", params=ONE_OF_EACH_KIND)
def front(request: pytest.FixtureRequest) -> str:
    """One front of each kind, as these tests wait for time to pass."""
    name: str = request.param
    need_fuse(name)
    return name


@pytest.mark.parametrize("front", ["kernel"], indirect=True)  # the others have one timeout for the whole mount
@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.long)])
def test_immortal_attributes_are_asked_for_once(mounted: ToyMount, times: int) -> None:
    path = mounted.path("static/a.txt")
    os.stat(path)
    Path(path).read_bytes()
    before = mounted.control[Slot.STATIC_ATTRIBUTES]
    for _ in range(times):
        time.sleep(LIVE)
        os.stat(path)
        assert Path(path).read_bytes() == b"alpha\n"
    assert mounted.control[Slot.STATIC_ATTRIBUTES] == before


def test_live_attributes_are_asked_for_after_their_lifetime(mounted: ToyMount) -> None:
    path = mounted.path("live/growing")
    time.sleep(LIVE)
    before = mounted.control[Slot.LIVE_ATTRIBUTES]
    os.stat(path)
    asked = mounted.control[Slot.LIVE_ATTRIBUTES] - before
    assert 1 <= asked <= 2
    for _ in range(2):
        time.sleep(LIVE + 0.1)
        os.stat(path)
    assert mounted.control[Slot.LIVE_ATTRIBUTES] - before >= asked + 2


@pytest.mark.parametrize("front", ["kernel"], indirect=True)  # the others keep no attributes
def test_live_attributes_are_kept_for_a_moment(mounted: ToyMount) -> None:
    path = mounted.path("live/growing")
    os.stat(path)
    before = mounted.control[Slot.LIVE_ATTRIBUTES]
    started = time.monotonic()
    while time.monotonic() < started + 1:
        os.stat(path)
    assert mounted.control[Slot.LIVE_ATTRIBUTES] - before <= 6


def test_a_growing_file_shows_its_size_and_bytes_within_a_second(mounted: ToyMount) -> None:
    path = Path(mounted.path("live/growing"))
    for size in (100, 200, 5000, 5001, 300_000):
        mounted.control[Slot.GROWTH] = size
        assert eventually(lambda: path.stat().st_size == mounted.control[Slot.GROWTH], 1.0)
        assert path.read_bytes() == static_bytes(size)


def test_a_growing_file_grows_for_those_who_have_it_open(mounted: ToyMount) -> None:
    path = mounted.path("live/growing")
    mounted.control[Slot.GROWTH] = 0
    assert eventually(lambda: os.stat(path).st_size == 0)
    with open(path, "rb", buffering=0) as file:
        seen = b""
        for size in (10, 4096, 4100, 20_000):
            mounted.control[Slot.GROWTH] = size
            deadline = time.monotonic() + 1
            while len(seen) < size and time.monotonic() < deadline:
                seen += file.read(1 << 20)
                time.sleep(0.05)
            assert seen == static_bytes(size)


def test_no_zeros_come_of_a_file_that_grows_while_it_is_read(mounted: ToyMount) -> None:
    """The kernel hears of a larger size, because another asks for it, while what there was before is on its way."""
    path = mounted.path("live/appended")
    begin = mounted.control[Slot.APPENDED]
    over = threading.Event()

    def append() -> None:
        while not over.wait(0.01):
            mounted.control[Slot.APPENDED] += 20
            os.stat(path)

    appending = threading.Thread(target=append)
    appending.start()
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(begin)
            seen, until = b"", time.monotonic() + 8 * SLOW_SECONDS
            while time.monotonic() < until:
                seen += file.read(1 << 20)
                time.sleep(0.01)
    finally:
        over.set()
        appending.join()
    assert len(seen) > 100
    assert seen.count(b"x") == len(seen)


def test_tail_follows_a_growing_file(mounted: ToyMount) -> None:
    mounted.control[Slot.GROWTH] = 50
    time.sleep(2 * LIVE)
    command = ["tail", "-c", "+1", "-f", "-s", "0.1", mounted.path("live/growing")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        try:
            seen = os.read(tail.stdout.fileno(), 1 << 20)
            for size in (60, 9000):
                mounted.control[Slot.GROWTH] = size
                while len(seen) < size:
                    seen += os.read(tail.stdout.fileno(), 1 << 20)
            assert seen == static_bytes(9000)
        finally:
            tail.kill()


def test_a_name_that_was_missing_is_found_as_soon_as_it_is_there(mounted: ToyMount) -> None:
    path = Path(mounted.path("live/appearing"))
    mounted.control[Slot.APPEARED] = 0
    time.sleep(2 * LIVE)
    assert not path.exists()
    mounted.control[Slot.APPEARED] = 1
    assert path.read_bytes() == b"here\n"


def test_a_name_that_vanishes_is_gone_within_a_second_but_an_open_file_reads_on(mounted: ToyMount) -> None:
    path = Path(mounted.path("live/vanishing"))
    mounted.control[Slot.VANISHED] = 0
    with path.open("rb", buffering=0) as file:
        start = file.read(4096)
        mounted.control[Slot.VANISHED] = 1
        try:
            assert eventually(lambda: not path.exists(), 1.2)
            assert "vanishing" not in os.listdir(path.parent)
            with pytest.raises(OSError) as caught:
                path.read_bytes()
            assert caught.value.errno == errno.ENOENT
            assert start + file.read() == static_bytes(300_000)
        finally:
            mounted.control[Slot.VANISHED] = 0
