"""The pool of worker processes: started on demand, and kept for a while, as a start may take a tenth of a second."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kfs.read.workers.channel import Channel, OtherEndGone
from kfs.read.workers.cores import cores
from kfs.read.workers.forking import Fork
from kfs.read.workers.kept_log import KeptLog
from kfs.read.workers.messages import Rest
from kfs.read.workers.shared import ParentMemory
from kfs.read.workers.worker import Worker, main

if TYPE_CHECKING:
    import subprocess

_PROGRAM: Final = """
import sys
descriptor, sys.path[:] = int(sys.argv[1]), sys.argv[2:]
from kfs.read.workers.worker import main
main(descriptor)
"""
_SECONDS_TO_END: Final = 5.0
#: How long to wait for a thread to end. It can't be killed: in a long task, or while its output blocks, it continues,
#: and ends with the process.
_SECONDS_TO_LEAVE: Final = 1.0


class Helper(ABC):
    """A worker of this process, and this end of the channel to it."""

    def __init__(self, ours: socket.socket) -> None:
        self.channel = Channel(ours)
        self.memory = ParentMemory()

    def rest(self) -> None:
        """Make the worker idle, and release the memory that it lent; raise :class:`OtherEndGone` if it has ended."""
        self.channel.send(Rest(self.memory.take_returned(), self.memory.rest()))

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether the worker is still running."""

    @abstractmethod
    def end(self) -> str:
        """End the worker, whatever it is doing; return a short text on how it ended."""

    def abandon(self) -> None:
        """Release this end without ending the worker: this process is a fork, and the worker belongs to its parent."""
        self.channel.close()
        self.memory.close()


class WorkerProcess(Helper):
    """A worker in its own process: a fork where this process may be forked, else a new interpreter."""

    def __init__(self) -> None:
        """Start the process; raise :class:`OSError` if that fails."""
        ours, theirs = socket.socketpair()
        try:
            with _no_interrupts():
                fork = Fork.of_this_process(ours, theirs, main)
                self._process: Fork | subprocess.Popen[bytes] = fork or _new_interpreter(theirs.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        super().__init__(ours)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """See :attr:`Helper.is_alive`."""
        return self._process.poll() is None

    def end(self) -> str:
        """See :meth:`Helper.end`."""
        self.channel.close()
        self.memory.close()
        self._process.kill()
        return f"status {self._process.wait(_SECONDS_TO_END)}"

    def abandon(self) -> None:
        """See :meth:`Helper.abandon`."""
        super().abandon()
        self._process.returncode = 0  # not a child of this process, so Popen must not wait for it


def _new_interpreter(descriptor: int) -> subprocess.Popen[bytes]:
    import subprocess  # only here: slow to import, and a command forks

    return subprocess.Popen(  # noqa: S603  our own command line
        [sys.executable, "-c", _PROGRAM, str(descriptor), *sys.path],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


class WorkerThread(Helper):
    """A worker in a thread of this process, which begins at once."""

    def __init__(self) -> None:
        """Start the thread; raise :class:`OSError` or :class:`RuntimeError` if that fails."""
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self._thread = threading.Thread(target=_serve, args=(theirs,), name="kfs-worker", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            ours.close()
            theirs.close()
            raise

    @property
    def is_alive(self) -> bool:
        """See :attr:`Helper.is_alive`."""
        return self._thread.is_alive()

    def end(self) -> str:
        """See :meth:`Helper.end`: a thread that works on a task ends when it next uses the channel."""
        self.channel.close()
        self.memory.close()
        self._thread.join(_SECONDS_TO_LEAVE)
        return "a thread of this process"


def _serve(end: socket.socket) -> None:
    kept = KeptLog.of_thread()
    try:
        Worker(Channel(end), kept).serve()
    finally:
        kept.close()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Block ctrl-C for a process that is started here, even during its start: it ends with its parent anyway."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Pool:
    """The idle worker processes, and the busy worker processes and threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._busy: set[Helper] = set()

    def take(self) -> WorkerProcess:
        """Return an idle process, or a new one if there is none; raise :class:`OSError` if it can't be started."""
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_alive:
                    break
                process.end()
            else:
                process = WorkerProcess()
            self._busy.add(process)
            return process

    def take_thread(self) -> WorkerThread:
        """Return a new thread; raise :class:`OSError` or :class:`RuntimeError` if it can't be started."""
        thread = WorkerThread()
        with self._lock:
            self._busy.add(thread)
        return thread

    def has_idle(self) -> bool:
        """Whether there is an idle process."""
        return bool(self._idle)

    def give_back(self, helper: Helper, *, is_idle: bool) -> None:
        """Take a worker back: keep an idle process, unless there are enough of them; end any other worker."""
        with self._lock:
            if helper not in self._busy:
                return  # it was ended, or this process is a fork
            self._busy.discard(helper)
            if is_idle and isinstance(helper, WorkerProcess) and len(self._idle) < cores():
                try:
                    helper.rest()
                except (OSError, OtherEndGone):
                    pass
                else:
                    self._idle.append(helper)
                    return
        helper.end()

    def end(self) -> None:
        """End all workers."""
        with self._lock:
            helpers = [*self._idle, *self._busy]
            self._idle.clear()
            self._busy.clear()
        for helper in helpers:
            helper.end()

    def before_fork(self) -> None:
        """Make sure that memory in use isn't written to: a fork may use it for longer than this process."""
        for helper in [*self._idle, *self._busy]:
            helper.memory.keep_lent()

    def forget(self) -> None:
        """Reset the pool in a fork of the process: the workers aren't its children."""
        for helper in [*self._idle, *self._busy]:
            helper.abandon()
        self.__init__()  # type: ignore[misc]


POOL: Final = Pool()
atexit.register(POOL.end)
os.register_at_fork(before=POOL.before_fork, after_in_child=POOL.forget)
