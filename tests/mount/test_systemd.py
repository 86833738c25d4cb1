"""What a supervisor is told: that the mount answers, and that it lives. When that ends, it is mounted anew."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from kfs.mount.systemd import Watchdog, notify, watchdog
from tests.mount.toy_mount import ToyMount, environment, eventually
from tests.mount.toy_tree import Slot
from tests.requirements import need_fuse
from tests.supervisor import Supervisor

#: The watchdog's limit, in seconds; the signs of life come four times as often.
_LIMIT: Final = 2.0

Supervise = Callable[..., tuple[Supervisor, ToyMount]]


@pytest.fixture
def supervise(make_mount: Callable[..., ToyMount], tmp_path: Path) -> Iterator[Supervise]:
    """Mounts the toy tree under a supervisor."""
    running: list[tuple[Supervisor, ToyMount]] = []

    def start(front: str = "kernel", **more: str) -> tuple[Supervisor, ToyMount]:
        need_fuse(front)
        toy = make_mount(front=front)
        supervisor = Supervisor(toy.command("--foreground"), tmp_path, watchdog=_LIMIT, environment=environment(**more))
        supervisor.start()
        running.append((supervisor, toy))
        supervisor.wait_for("READY=1")
        return supervisor, toy

    yield start
    for supervisor, toy in running:
        toy.control[Slot.STALLED] = 0
        supervisor.stop()


@pytest.mark.fuse
@pytest.mark.parametrize("implementation", ["compiled", "python"])
def test_a_mount_gives_signs_of_life_idle_and_while_a_disk_stalls(supervise: Supervise, implementation: str) -> None:
    if implementation == "compiled":
        pytest.importorskip("kfs.mount.kernel.compiled_reply_cache")
    supervisor, toy = supervise(KFS_IMPLEMENTATION=implementation)
    supervisor.wait_for("WATCHDOG=1", 3)
    toy.control[Slot.STALLED] = 1
    with subprocess.Popen(["cat", toy.path("stalling/unread")], stdout=subprocess.PIPE) as reader:
        supervisor.wait_for("WATCHDOG=1", len(supervisor.told("WATCHDOG=1")) + 6)  # for longer than the limit
        toy.control[Slot.STALLED] = 0
        assert reader.communicate(timeout=10)[0] == b"at last\n"
    assert not supervisor.told("ended")


@pytest.mark.fuse
def test_a_mount_that_is_killed_is_replaced(supervise: Supervise) -> None:
    supervisor, toy = supervise()
    supervisor.kill()
    supervisor.wait_for("READY=1", 2)
    assert Path(toy.path("static/a.txt")).read_bytes() == b"alpha\n"


@pytest.mark.fuse
def test_a_mount_that_reads_no_requests_is_replaced_and_says_where_it_was(supervise: Supervise) -> None:
    supervisor, toy = supervise()
    supervisor.kill(signal.SIGSTOP)
    supervisor.wait_for("READY=1", 2)
    assert [each.what for each in supervisor.told("ended")] == [f"ended {-signal.SIGABRT}"]
    assert Path(toy.path("static/a.txt")).read_bytes() == b"alpha\n"
    assert "ended by SIGABRT; the threads were here:" in supervisor.log()
    assert "in _lead" in supervisor.log()


@pytest.mark.fuse
def test_a_mount_that_is_unmounted_is_not_replaced(supervise: Supervise) -> None:
    supervisor, toy = supervise()
    subprocess.run([sys.executable, "-m", "kfs", "umount", toy.point], check=True)
    assert eventually(lambda: [each.what for each in supervisor.told("ended")] == ["ended 0"])
    assert os.listdir(toy.point) == []


@pytest.mark.fuse
def test_through_libfuse_no_signs_are_to_be_expected(supervise: Supervise) -> None:
    supervisor, _ = supervise(front="mfusepy")
    assert supervisor.told("WATCHDOG_USEC=0")


@pytest.mark.parametrize(
    ("variables", "interval"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "4000000"}, 1.0),
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": str(os.getpid())}, 1.0),
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_that_of_this_process(
    variables: dict[str, str], interval: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = watchdog()
    assert (found and found.interval) == interval


def test_a_supervisor_that_does_not_listen_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "nobody"))
        for _ in range(10_000):
            notify("WATCHDOG=1")
        assert supervisor.recv(100) == b"WATCHDOG=1"


def test_an_abstract_address_works(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"kfs-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(f"\0{name}")
        Watchdog(1.0).feed()
        assert supervisor.recv(100) == b"WATCHDOG=1"
