"""A mount that is measured from outside: what its process has used, from ``/proc``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfs.errors import MountFailed
from kfs.mount import is_mounted, unmount

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_UNMOUNT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used until now, or between two moments.

    ``replies`` are the writes it made: one for each request of the kernel, but those that need no reply (forget).
    """

    cpu_seconds: float
    replies: int

    def since(self, before: Usage) -> Usage:
        """Return what was used since ``before``."""
        return Usage(self.cpu_seconds - before.cpu_seconds, self.replies - before.replies)


class ServedMount:
    """A mount that a process of its own serves in the foreground."""

    def __init__(self, mountpoint: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Mount, and return when the ``command`` says so, as ``kfs mount --foreground`` does."""
        self.mountpoint = mountpoint
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
        assert self._process.stdout is not None
        if not self._process.stdout.readline().endswith(": mounted\n"):
            raise RuntimeError(f"{command} failed with status {self._process.wait()}")

    def usage(self) -> Usage:
        """Return what the process has used so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])  # utime, stime
        return Usage(ticks / _TICKS_PER_SECOND, self._field("io", "syscw"))

    def peak_rss(self) -> int:
        """Return the most memory that was ever resident, in bytes."""
        return self._field("status", "VmHWM") * 1024

    def descriptors(self) -> int:
        """Return how many descriptors are open now."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def _field(self, file: str, name: str) -> int:
        for line in Path(f"/proc/{self._process.pid}/{file}").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise KeyError(name)

    def close(self) -> None:
        """Unmount, and wait for the process; raise :class:`MountFailed` where the mount stays in use."""
        deadline = time.monotonic() + _UNMOUNT_SECONDS
        while is_mounted(self.mountpoint):
            try:
                unmount(self.mountpoint)
            except MountFailed:
                if is_mounted(self.mountpoint) and time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        # It has ended, unless a mount namespace that was made meanwhile has a copy of the mount.
        self._process.terminate()
        self._process.wait()


@contextmanager
def scratch_directory(parent: str | None) -> Iterator[Path]:
    """Make a directory for the length of a block; it stays if its ``mnt`` is still mounted."""
    scratch = Path(tempfile.mkdtemp(prefix="kfs-benchmark.", dir=parent))
    try:
        yield scratch
    finally:
        if not is_mounted(scratch / "mnt"):
            shutil.rmtree(scratch)


@contextmanager
def served_by(mountpoint: Path, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[ServedMount]:
    """Have ``command`` serve a mount for the length of a block."""
    mountpoint.mkdir(exist_ok=True)
    mount = ServedMount(mountpoint, command, environment)
    try:
        yield mount
    finally:
        mount.close()


@contextmanager
def served(log_dir: Path, mountpoint: Path, front: str, kept: Path | None = None) -> Iterator[ServedMount]:
    """Mount with kfs for the length of a block; what was ``kept`` of earlier mounts is nothing unless given."""
    command = [sys.executable, "-c", "from kfs.cli.main import main; main()", "mount", "--foreground", "--no-index"]
    command += ["--front", front, str(log_dir), str(mountpoint)]
    with (
        tempfile.TemporaryDirectory() as empty,
        served_by(mountpoint, command, {"XDG_CACHE_HOME": str(kept or empty)}) as mount,
    ):
        yield mount
