"""Detecting that a mount answers.

The serving process must not access its own mount: if it is killed at that moment, its own pending request keeps the
process, and so the mount, alive for ever. So another process does, and reports through a pipe.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Final

from kfs.mount.mounts import DEAD, is_mounted

#: How often, in milliseconds, the probe checks whether its parent is still alive.
_PARENT_CHECK_MS: Final = 500


class Probe:
    """A process that waits until our mount at ``mountpoint`` answers.

    Create it before threads are started, and before files are opened that must not stay open.
    """

    def __init__(self, mountpoint: str) -> None:
        server = os.getpid()
        # Before the fork: the child may first run after the mount. A dead mount's number may be given to the next one.
        before = None if is_mounted(mountpoint) else os.stat(mountpoint).st_dev
        self._reading, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                if _answers(mountpoint, before, server):
                    os.write(writing, b"!")
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
        self.close()
        if ready:
            act()


def _answers(mountpoint: str, before: int | None, server: int) -> bool:
    """Return True once the mount answers, on another device than ``before``; False when the server is gone."""
    with open("/proc/self/mountinfo", "rb") as table:
        changes = select.poll()
        # The kernel reports a change of the mount table as an error condition on this file.
        changes.register(table, select.POLLERR | select.POLLPRI)
        while os.getppid() == server:
            if is_mounted(mountpoint):
                try:
                    return _device(mountpoint) != before
                except OSError as error:
                    if error.errno not in DEAD:  # else it is the dead mount that is about to be replaced
                        return False
            changes.poll(_PARENT_CHECK_MS)
    return False


def _device(mountpoint: str) -> int:
    """Return the number of the device. A dead mount may still have cached attributes, but can't be opened."""
    descriptor = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)
