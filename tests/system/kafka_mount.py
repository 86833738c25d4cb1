"""Runs the installed ``kfs`` command, and mounts Kafka's files with it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kfs.errors import MountFailed
from kfs.mount import is_mounted, unmount
from tests.mount.toy_mount import is_running
from tests.system.command_server import CommandServer

#: The console script that belongs to the Python that runs the tests.
KFS: Final = str(Path(sys.executable).with_name("kfs"))

_PEAK: Final = re.compile(r"^VmHWM:\s+([0-9]+) kB$", re.MULTILINE)


#: Where commands are run that don't mount: the words of a mount's daemon are looked at.
_SERVER: Final = CommandServer(KFS)
_SECONDS: Final = 90


def kfs(*arguments: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run ``kfs`` to its end; with more in its environment, or to mount, as a Python of its own."""
    if environment is None and arguments[:1] != ("mount",):
        return _SERVER.run([str(each) for each in arguments], _SECONDS)
    return subprocess.run(
        [KFS, *map(str, arguments)],
        capture_output=True,
        timeout=_SECONDS,
        check=False,
        env={**os.environ, **(environment or {})},
    )


def succeed(*arguments: str | Path) -> None:
    """Run ``kfs``, which must have nothing to say."""
    done = kfs(*arguments)
    assert done.returncode == 0, done.stderr.decode()
    assert (done.stdout, done.stderr) == (b"", b""), f"kfs {arguments[0]} prints {done.stdout + done.stderr!r}"


class KafkaMount:
    """A mount point of its own, and at times a daemon that shows ``sources`` there."""

    def __init__(self, point: Path, *sources: str | Path, front: str = "auto", options: Sequence[str] = ()) -> None:
        self.point = point
        self.point.mkdir(parents=True)
        self.log_file = point.with_name(f"{point.name}.log")
        self.arguments = ["--front", front, "--log-file", str(self.log_file), *options, *map(str, sources), str(point)]
        self._pid: int | None = None

    def start(self) -> None:
        """Mount; when this returns, the mount answers."""
        succeed("mount", *self.arguments)
        self._pid = None

    def stop(self) -> None:
        """Take the mount away as a user would; a daemon that died meanwhile fails the test."""
        assert self.is_alive(), f"the daemon died: {self.log()}"
        succeed("umount", self.point)

    def discard(self) -> None:
        """Take away what a test left mounted, in whatever state it is; quicker than a command."""
        if is_mounted(self.point):
            try:
                unmount(self.point)
            except MountFailed:
                with contextlib.suppress(MountFailed):
                    unmount(self.point, lazy=True)

    @property
    def pid(self) -> int:
        """The daemon: the one process that was started with this mount point and is still there."""
        if self._pid is None:
            found = processes_of(self.point)
            assert len(found) == 1, f"{len(found)} daemons for {self.point}"
            self._pid = found[0]
        return self._pid

    def is_alive(self) -> bool:
        """Whether the daemon runs and what it mounted is there."""
        return is_mounted(self.point) and is_running(self.pid)

    def peak_memory(self) -> int:
        """The most memory that the daemon ever had resident, in bytes."""
        match = _PEAK.search(Path(f"/proc/{self.pid}/status").read_text())
        assert match is not None, "no peak in status"
        return int(match[1]) * 1024

    def log(self) -> str:
        """What the daemon has logged."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def path(self, name: str) -> Path:
        """The absolute path of ``name`` in the mount."""
        return self.point / name

    def partitions(self) -> list[str]:
        """The paths of all partitions, ``<topic>/<partition>``, sorted."""
        return sorted(
            f"{topic}/{number}" for topic in os.listdir(self.point) for number in os.listdir(self.path(topic))
        )

    def offsets(self, partition: str) -> list[int]:
        """The offsets listed in ``<topic>/<partition>``, as they come."""
        return [int(name.removesuffix(".json")) for name in os.listdir(self.path(partition) / "offset")]

    def lines(self, partition: str) -> dict[int, bytes]:
        """The content of every file in the partition's ``offset``, by offset, in the order of the listing."""
        directory = self.path(partition) / "offset"
        return {offset: (directory / f"{offset}.json").read_bytes() for offset in self.offsets(partition)}


def content(path: Path) -> bytes | int:
    """Return the bytes of a file, or the errno with which it can't be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        return error.errno or -1


def mapped_files(pid: int) -> set[str]:
    """Return the names, without their directories, of what a process has mapped: its libraries among them."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {os.path.basename(line.split(maxsplit=5)[5]) for line in lines if "/" in line}


def processes_of(point: Path) -> list[int]:
    """Return the processes whose last argument is ``point``, without those that they forked."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(point) in words[-2:] and is_running(int(pid)):
            found[int(pid)] = parent_of(int(pid))
    return [pid for pid, parent in found.items() if parent not in found]


def parent_of(pid: int) -> int:
    """Return the process that started that one, 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
