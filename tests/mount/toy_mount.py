"""Mounts the toy tree through a program of its own, as a user would mount a log directory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kfs.errors import MountFailed
from kfs.mount import is_mounted, unmount
from tests.mount.toy_tree import Control, Slot

ROOT: Final = Path(__file__).parents[2]


class ToyMount:
    """A directory with a mount point, the shared numbers, a log, and at times a daemon."""

    def __init__(self, directory: Path, front: str) -> None:
        self.front = front
        self.point = directory / "mnt"
        self.point.mkdir(parents=True)
        self.control_file = directory / "control"
        self.control = Control(self.control_file)
        self.log_file = directory / "log"

    def command(self, *arguments: str) -> list[str]:
        """Return the command that mounts: a daemon, unless the arguments say otherwise."""
        given = ["--front", self.front, "--control", str(self.control_file), "--log-file", str(self.log_file)]
        return [sys.executable, "-m", "tests.mount.serve_toy", str(self.point), *given, *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command until it returns, which takes long if a daemon holds on to its output."""
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=60, env=environment(), check=False
        )

    def start(self, *arguments: str) -> None:
        """Mount with a daemon."""
        done = self.run(*arguments)
        assert (done.returncode, done.stderr) == (0, "")

    def popen(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Mount in the foreground of a process; wait until it says that the mount answers."""
        command = self.command("--foreground", *arguments)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**more)
        )
        assert process.stdout is not None
        assert process.stdout.readline() == f"{self.point}: mounted\n"
        return process

    def stop(self) -> None:
        """Take away whatever a test left mounted."""
        if is_mounted(self.point):
            try:
                unmount(self.point)
            except MountFailed:
                with contextlib.suppress(MountFailed):
                    unmount(self.point, lazy=True)

    @property
    def pid(self) -> int:
        """The process that serves the tree."""
        return self.control[Slot.PID]

    def log(self) -> list[str]:
        return self.log_file.read_text().splitlines()

    def path(self, name: str) -> str:
        return os.path.join(self.point, name)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def is_running(pid: int) -> bool:
    """Return whether the process is there and not just waiting to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Return whether ``condition`` comes true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def output(command: Sequence[str], **more: str) -> str:
    """Run a tool that must succeed and say nothing on standard error; return what it prints."""
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, env={**os.environ, **more})
    assert (done.returncode, done.stderr) == (0, b"")
    return os.fsdecode(done.stdout)
