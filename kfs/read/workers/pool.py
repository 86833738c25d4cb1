"""The processes that work: started when needed, kept for a while, since starting one takes a tenth of a second."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kfs.read.workers.channel import Channel, OtherEndGone
from kfs.read.workers.cores import cores
from kfs.read.workers.kept_log import KeptLog
from kfs.read.workers.messages import Rest
from kfs.read.workers.shared import ParentMemory
from kfs.read.workers.worker import Worker

_PROGRAM: Final = """
import sys
descriptor, sys.path[:] = int(sys.argv[1]), sys.argv[2:]
from kfs.read.workers.worker import main
main(descriptor)
"""
_SECONDS_TO_END: Final = 5.0
#: A thread can't be ended. One that is at a long task, or waits for who reads the output, ends with the process.
_SECONDS_TO_LEAVE: Final = 1.0


class Helper(ABC):
    """Who works for this process, and this end of the channel to it."""

    def __init__(self, ours: socket.socket) -> None:
        self.channel = Channel(ours)
        self.memory = ParentMemory()

    def rest(self) -> None:
        """Let it rest, and let go of what it has lent; raise :class:`OtherEndGone` where it has ended."""
        self.channel.send(Rest(self.memory.take_returned(), self.memory.rest()))

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether it hasn't ended."""

    @abstractmethod
    def end(self) -> str:
        """End it, whatever it does; return a word on how it ended."""

    def abandon(self) -> None:
        """Have nothing to do with it any more: it is that of another process, of which this is a fork."""
        self.channel.close()
        self.memory.close()


class WorkerProcess(Helper):
    """A process."""

    def __init__(self) -> None:
        """Start it; raise :class:`OSError` where that fails."""
        ours, theirs = socket.socketpair()
        try:
            descriptor = theirs.fileno()
            with _no_interrupts():
                self._process = subprocess.Popen(  # noqa: S603  our own command line
                    [sys.executable, "-c", _PROGRAM, str(descriptor), *sys.path],
                    pass_fds=[descriptor],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
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
        self._process.returncode = 0  # it isn't ours to wait for


class WorkerThread(Helper):
    """A thread of this process: it has nothing to start, and so begins at once."""

    def __init__(self) -> None:
        """Start it; raise :class:`OSError` or :class:`RuntimeError` where that fails."""
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
        """See :meth:`Helper.end`: one that is at a task ends when it next has something to say."""
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
    """Have what is started here never see ctrl-C, not even while it begins: that is for us, and when we end it does."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Pool:
    """Processes that have nothing to do, and those that have, threads included."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._busy: set[Helper] = set()

    def take(self) -> WorkerProcess:
        """Return a process that has nothing to do, a new one if need be; raise :class:`OSError` where that fails."""
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
        """Return a new thread; raise :class:`OSError` or :class:`RuntimeError` where that fails."""
        thread = WorkerThread()
        with self._lock:
            self._busy.add(thread)
        return thread

    def has_idle(self) -> bool:
        """Whether there is a process that needn't be started."""
        return bool(self._idle)

    def give_back(self, helper: Helper, *, is_idle: bool) -> None:
        """Take a process or a thread back; one that still has something to do ends."""
        with self._lock:
            if helper not in self._busy:
                return  # it was ended, or is that of another process
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
        """End all."""
        with self._lock:
            helpers = [*self._idle, *self._busy]
            self._idle.clear()
            self._busy.clear()
        for helper in helpers:
            helper.end()

    def before_fork(self) -> None:
        """Have nothing written to that is in use now: a fork may look at it for longer than this process."""
        for helper in [*self._idle, *self._busy]:
            helper.memory.keep_lent()

    def forget(self) -> None:
        """Begin anew in a fork of the process: these are not its children."""
        for helper in [*self._idle, *self._busy]:
            helper.abandon()
        self.__init__()  # type: ignore[misc]


POOL: Final = Pool()
atexit.register(POOL.end)
os.register_at_fork(before=POOL.before_fork, after_in_child=POOL.forget)
