"""The process beside the one that serves: it finds out that the mount answers, and hangs up when the server is killed.

The serving process must not access its own mount: if it is killed at that moment, its own pending request keeps the
process, and so the mount, alive for ever.

Nor may a notification that it sends to the kernel: the kernel may have it wait for a lock that a reader holds who waits
for an answer. If the server is killed then, that thread never ends: the device stays open, the mount hangs, and no
supervisor sees an end. Only an abort of the connection resolves it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kfs.mount.mounts import DEAD, Mounted, mount_at

#: How often, in milliseconds, the companion checks whether the server is still alive, until the mount answers.
_SERVER_CHECK_MS: Final = 500

#: ``<sys/prctl.h>``: the signal that a process gets when the thread that forked it has ended.
_PR_SET_PDEATHSIG: Final = 1
_SERVER_GONE: Final = signal.SIGUSR1
#: ``<sys/mount.h>``
_MNT_FORCE: Final = 1
_UMOUNT_NOFOLLOW: Final = 8

_CONNECTIONS: Final = Path("/sys/fs/fuse/connections")


class Companion:
    """A process that waits until our mount at ``mountpoint`` answers, and then for the server's end.

    Create it in the main thread, before other threads are started, and before files are opened that must not stay open.
    """

    def __init__(self, mountpoint: str) -> None:
        server = os.getpid()
        # Before the fork: the companion may first run after the mount. A dead mount's number may be given to the next.
        before = None if _ours_at(mountpoint) else os.stat(mountpoint).st_dev
        self._reading, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                _accompany(mountpoint, before, server, writing)
            finally:
                os._exit(0)
        os.close(writing)
        self._ending = threading.Lock()

    def when_ready(self, act: Callable[[], None]) -> None:
        """Call ``act``, in a thread, as soon as the mount answers."""
        threading.Thread(target=self._wait, args=(act,), name="kfs-readiness", daemon=True).start()

    def close(self) -> None:
        """End the process, whether or not the mount ever answered."""
        with self._ending:
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                self._pid = 0

    def _wait(self, act: Callable[[], None]) -> None:
        with open(self._reading, "rb") as pipe:
            ready = pipe.read(1)
        if ready:
            act()


def _accompany(mountpoint: str, before: int | None, server: int, writing: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {_SERVER_GONE})
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SERVER_GONE)
    mounted = _answering(mountpoint, before, server)
    if mounted is None:
        return
    _let_go_of_all_but(writing)
    os.write(writing, b"!")
    os.close(writing)
    signal.sigwait({_SERVER_GONE})
    _hang_up(mounted)


def _answering(mountpoint: str, before: int | None, server: int) -> Mounted | None:
    """Return the mount once it answers, on another device than ``before``; None when the server is gone."""
    with open("/proc/self/mountinfo", "rb") as table:
        changes = select.poll()
        # The kernel reports a change of the mount table as an error condition on this file.
        changes.register(table, select.POLLERR | select.POLLPRI)
        while os.getppid() == server:
            mounted = _ours_at(mountpoint)
            if mounted is not None:
                try:
                    return mounted if _device(mountpoint) != before else None
                except OSError as error:
                    if error.errno not in DEAD:  # else it is the dead mount that is about to be replaced
                        return None
            changes.poll(_SERVER_CHECK_MS)
    return None


def _device(mountpoint: str) -> int:
    """Return the number of the device. A dead mount may still have cached attributes, but can't be opened."""
    descriptor = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _let_go_of_all_but(writing: int) -> None:
    """Leave the session and the directory that the server was started in, and close its files."""
    os.chdir("/")
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != writing:
            with contextlib.suppress(OSError):  # the listing's own is closed
                os.close(int(name))


def _hang_up(mounted: Mounted) -> None:
    """Abort the connection, unless the mount is gone or has been replaced; what waits for an answer gets an error."""
    if _ours_at(mounted.mountpoint) != mounted:
        return
    try:
        (_CONNECTIONS / mounted.device.partition(":")[2] / "abort").write_text("1")
    except OSError:  # this filesystem isn't mounted everywhere
        _abort_by_unmounting(mounted.mountpoint)


def _abort_by_unmounting(mountpoint: str) -> None:
    """Abort the connection as root can, and keep the mount: its errors say more than an empty directory would."""
    with contextlib.suppress(OSError):
        in_use = os.open(mountpoint, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # so it can't be unmounted
        ctypes.CDLL(None).umount2(os.fsencode(mountpoint), _MNT_FORCE | _UMOUNT_NOFOLLOW)
        os.close(in_use)


def _ours_at(mountpoint: str) -> Mounted | None:
    mounted = mount_at(mountpoint)
    return mounted if mounted is not None and mounted.is_ours else None
