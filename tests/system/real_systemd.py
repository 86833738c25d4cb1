"""A real systemd in namespaces of its own, over a copy of this machine's root that is thrown away."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kfs.mount.mounts import mount_table
from tests.mount.toy_mount import eventually
from tests.requirements import unmet

PROGRAM: Final = "/lib/systemd/systemd"

_BOOT: Final = r"""
set -eu
scratch=$1
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
cd "$scratch/root"
mount --rbind /dev dev
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
# Or the first service, which wants sysinit.target, empties /tmp: a checkout there, too.
ln -s /dev/null etc/tmpfiles.d/tmp.conf
printf '[Unit]\nDescription=nothing but what tests start\n' >etc/systemd/system/nothing.target
exec chroot . /usr/bin/env -i container=kfs-tests PATH=/usr/sbin:/usr/bin \
    "$2" --system --unit=nothing.target --log-target=console --log-level=warning
"""


class RealSystemd:
    """What runs in it is seen and called from outside by :meth:`run`, which enters all of its namespaces."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def path(self, path: str | Path) -> Path:
        """Return a path by which this process finds what is at ``path`` there."""
        return Path(f"/proc/{self.pid}/root/{str(path).lstrip('/')}")

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command there."""
        entering = ["nsenter", "--target", str(self.pid), "--all", "--root", "--wd=/"]
        return subprocess.run([*entering, *map(str, command)], capture_output=True, text=True, check=False, timeout=120)

    def output(self, *command: str | Path) -> str:
        """Run a command there that must succeed; return what it prints."""
        done = self.run(*command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def property(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.output("systemctl", "show", "--value", "--property", name, unit).strip()


def need_systemd() -> None:
    """Go on only where there is systemd, and root may start it in namespaces."""
    if os.geteuid() != 0 or not Path(PROGRAM).exists():
        unmet("systemd", f"there is no {PROGRAM}, or this isn't root")
    if shutil.which("systemd-analyze") is None:
        unmet("systemd", "there is no systemd-analyze")


@contextlib.contextmanager
def running_systemd(directory: Path) -> Iterator[RealSystemd]:
    """Start it for the length of a block."""
    need_systemd()
    scratch, log = directory / "systemd", directory / "systemd.log"
    scratch.mkdir()
    group = _cgroup_root() / f"kfs-tests-{os.getpid()}"
    group.mkdir()
    enter = f"echo $$ >{shlex.quote(str(group))}/cgroup.procs && exec "
    unshare = "unshare --mount --pid --cgroup --uts --ipc --fork --kill-child --propagation private"
    boot = shlex.join(["bash", "-c", _BOOT, "boot", str(scratch), PROGRAM])
    with log.open("wb") as output:
        starter = subprocess.Popen(
            ["bash", "-c", f"{enter}{unshare} {boot}"], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield _booted(starter, log)
    finally:
        starter.kill()
        starter.wait(10)
        _remove_cgroup(group)


def _booted(starter: subprocess.Popen[bytes], log: Path) -> RealSystemd:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and starter.poll() is None:
        children = Path(f"/proc/{starter.pid}/task/{starter.pid}/children").read_text().split()
        if children:
            systemd = RealSystemd(int(children[0]))
            if systemd.path("/run/systemd/private").exists() and systemd.run("systemctl", "is-system-running").stdout:
                return systemd
        time.sleep(0.05)
    return unmet("systemd", f"it doesn't start here: {log.read_text()[-300:]}")


def _cgroup_root() -> Path:
    """Return where the unified cgroups are."""
    table = mount_table(Path("/proc/self/mountinfo").read_bytes())
    found = [mounted.mountpoint for mounted in table if mounted.filesystem_type == "cgroup2"]
    return Path(found[0]) if found else unmet("systemd", "there are no unified cgroups")


def _remove_cgroup(group: Path) -> None:
    def is_removed() -> bool:
        for directory, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        return not group.exists()

    eventually(is_removed)
