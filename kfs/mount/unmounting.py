"""Unmounting, and waiting until the serving process is gone."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kfs.errors import MountFailed
from kfs.mount.mounts import Mounted, canonical, is_automounted, mount_at

#: How long, in seconds, a daemon may take to end after its mount is gone.
END_TIMEOUT: Final = 10.0

#: ``<sys/mount.h>``
_MNT_DETACH: Final = 2
_UMOUNT_NOFOLLOW: Final = 8
#: The most processes that a "busy" message names.
_MAX_HOLDERS: Final = 5


def unmount(mountpoint: str | os.PathLike[str], *, lazy: bool = False, timeout: float = END_TIMEOUT) -> None:
    """Remove the mount at ``mountpoint``, alive or left by a killed daemon.

    Returns once the daemon has ended, which releases the source. A ``lazy`` unmount succeeds while files are open: the
    mount disappears at once, the daemon ends with the last of them, and this doesn't wait for it.

    Raises :class:`~kfs.errors.MountFailed` if kfs isn't mounted there, the mount is in use (the message says by which
    processes), or the daemon is still running after ``timeout`` seconds.
    """
    point = canonical(mountpoint)
    mounted = mount_at(point)
    if mounted is None:
        raise MountFailed(f"{point}: not mounted")
    if not mounted.is_ours:
        raise MountFailed(f"{point}: mounted, but not by kfs: {mounted.source} ({mounted.filesystem_type})")
    _take_away(mounted, lazy)
    if not lazy and not _daemon_ended(point, timeout):
        raise MountFailed(f"{point}: unmounted, but its daemon is still running after {timeout:g} s")


def _take_away(mounted: Mounted, lazy: bool) -> None:
    number = _umount(mounted.mountpoint, lazy)
    if number in (errno.EPERM, errno.EACCES):
        number = _fusermount(mounted.mountpoint, lazy)
    if number == errno.EBUSY:
        raise MountFailed(_busy(mounted))
    if number:
        raise MountFailed(f"{mounted.mountpoint}: cannot unmount: {os.strerror(number)}")


def _umount(mountpoint: str, lazy: bool) -> int:
    """Call umount2(2), for root only; return 0 or the errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0)
    failed: int = libc.umount2(ctypes.c_char_p(os.fsencode(mountpoint)), flags)
    return ctypes.get_errno() if failed else 0


def _fusermount(mountpoint: str, lazy: bool) -> int:
    """Unmount a mount of this user through the setuid helper; return 0 or an errno."""
    helper = shutil.which("fusermount3") or shutil.which("fusermount")
    if helper is None:
        raise MountFailed(
            f"{mountpoint}: fusermount3 is missing, and only root can unmount without it: apt install fuse3"
        )
    command = [helper, "-u", *(["-z"] if lazy else []), "--", mountpoint]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603
    if done.returncode == 0:
        return 0
    if "busy" in done.stderr:
        return errno.EBUSY
    raise MountFailed(f"{mountpoint}: cannot unmount: {done.stderr.strip()}")


def _daemon_ended(mountpoint: str, timeout: float) -> bool:
    """Wait for the lock on the underlying directory, held by the daemon all its life; return whether it is released."""
    if is_automounted(mountpoint):
        return True  # nobody can open that directory, so the daemon doesn't hold a lock either
    try:
        descriptor = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)
            except OSError:
                return True
    finally:
        os.close(descriptor)


def _busy(mounted: Mounted) -> str:
    holders = ", ".join(itertools.islice(_holders(mounted), _MAX_HOLDERS))
    point = mounted.mountpoint
    by = f" by {holders}" if holders else ""
    return f"{point}: in use{by}; to detach it anyway: kfs umount --lazy {point}"


def _holders(mounted: Mounted) -> Iterator[str]:
    """Yield name and pid of the processes in the mount, of those that we may inspect.

    Reads only links and files below /proc, never the mount itself.
    """
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if _is_in(f"/proc/{pid}", mounted):
                yield f"{Path(f'/proc/{pid}/comm').read_text().strip()} ({pid})"


def _is_in(process: str, mounted: Mounted) -> bool:
    for name in ("cwd", "root", "exe"):
        with contextlib.suppress(OSError):
            if mounted.contains(os.readlink(f"{process}/{name}")):
                return True
    for number in os.listdir(f"{process}/fd"):
        with contextlib.suppress(OSError):
            # The daemon has the directory under the mount open, by the same path.
            inside = mounted.contains(os.readlink(f"{process}/fd/{number}"))
            if inside and _mount_id(process, number) == mounted.mount_id:
                return True
    return False


def _mount_id(process: str, descriptor: str) -> int:
    """Return the id of the mount in which a process's descriptor is open."""
    lines = Path(f"{process}/fdinfo/{descriptor}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("mnt_id:"))
