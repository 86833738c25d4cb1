"""Workers that are forks: they start in a few milliseconds, and a new interpreter in a tenth of a second.

A fork has a copy of everything that the process has open, and of locks that no other thread will release. So only a
command forks, which has nothing open that others wait for (:func:`forks_allowed`), and only while it has no other
thread, by the kernel's count: a library may have started one.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from kfs.storage.descriptors import BUDGET

if TYPE_CHECKING:
    import socket  # each command that could fork imports this module

#: Where Linux lists the threads of this process.
_THREADS: Final = "/proc/self/task"
#: How often, and for how many seconds each time, to wait until a thread that has ended is gone.
_WAITS: Final = 20
_WAIT_SECONDS: Final = 0.0005

_is_allowed = False


@contextmanager
def forks_allowed() -> Iterator[None]:
    """Let workers be forks of this process; for commands, which control their process from its start."""
    global _is_allowed
    before, _is_allowed = _is_allowed, True
    try:
        yield
    finally:
        _is_allowed = before


def may_fork() -> bool:
    """Whether workers may be forks; if this process has other threads, they still become new interpreters."""
    return _is_allowed and os.path.isdir(_THREADS)


class Fork:
    """A forked process, with the part of the interface of :class:`subprocess.Popen` that the pool needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    @classmethod
    def of_this_process(cls, ours: socket.socket, theirs: socket.socket, main: Callable[[int], None]) -> Fork | None:
        """Return a fork that runs ``main`` with the descriptor of ``theirs``; None if this process can't be forked.

        The fork closes ``ours``. Raises :class:`OSError` if the system can't start a process.
        """
        if not may_fork():
            return None
        BUDGET.pause()  # its thread, as each fork does, before threads are counted
        if not _is_only_thread():
            BUDGET.resume()
            return None
        pid = os.fork()
        if not pid:
            _be_worker(ours, theirs, main)
        return cls(pid)

    def poll(self) -> int | None:
        """Return the status with which the process ended, a signal as a negative number; None if it is running."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        """End the process."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Wait for the end of the process; raise :class:`TimeoutError` after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} doesn't end")
            time.sleep(_WAIT_SECONDS)
        return status


def _is_only_thread() -> bool:
    """Whether the calling thread is the only one; one that has just ended still counts for some microseconds."""
    for _ in range(_WAITS):
        if len(os.listdir(_THREADS)) == 1:
            return True
        time.sleep(_WAIT_SECONDS)
    return False


def _be_worker(ours: socket.socket, theirs: socket.socket, main: Callable[[int], None]) -> NoReturn:
    """Run the worker as if in a new interpreter; nothing of the process that it is a fork of happens twice."""
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        gc.freeze()  # a collection would write to all pages, which are shared until then
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):
            os.dup2(nothing, standard)
        if nothing > 1:
            os.close(nothing)
        main(theirs.detach())
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)
