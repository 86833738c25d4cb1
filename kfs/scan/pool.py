"""The processes that gather: started when needed, kept for a while, since starting one takes a tenth of a second.

They are new interpreters, not forks: who scans may have threads, pyarrow's or DuckDB's, and a fork of such a process
may hang.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from typing import Final, NoReturn

from kfs.cores import cores
from kfs.errors import WorkerDied
from kfs.scan.channel import Channel
from kfs.scan.shared import Borrower
from kfs.scan.worker import Rest

_PROGRAM: Final = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from kfs.scan.worker import main
main(int(sys.argv[1]))
"""
_SECONDS_TO_END: Final = 5.0


class Member:
    """A process, and this end of its channel."""

    def __init__(self) -> None:
        """Start it; raise :class:`OSError` where that fails."""
        ours, theirs = socket.socketpair()
        try:
            descriptor = theirs.fileno()
            command = [sys.executable, "-c", _PROGRAM, str(descriptor), json.dumps(sys.path)]
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                command,
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for us, and when we end they do
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channel = Channel(ours)
        self.borrower = Borrower()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process hasn't ended."""
        return self._process.poll() is None

    def rest(self) -> None:
        """Let the process rest, and let go of what it has lent; raise :class:`OSError` where it has ended."""
        self.channel.send(Rest(self.borrower.take_returned(), self.borrower.rest()))

    def lost(self) -> NoReturn:
        """Raise that the process ended without having done its work."""
        self.end()
        raise WorkerDied(f"a worker process ended (status {self._process.returncode}): not all records were read")

    def end(self) -> None:
        """End the process, whatever it does."""
        self.channel.close()
        self.borrower.close()
        self._process.kill()
        self._process.wait(_SECONDS_TO_END)

    def abandon(self) -> None:
        """Have nothing to do with the process any more: it is that of another one, of which this is a fork."""
        self.channel.close()
        self.borrower.close()
        self._process.returncode = 0  # it isn't ours to wait for


class Pool:
    """Processes that have nothing to do, and those that have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Member] = []
        self._busy: set[Member] = set()

    def take(self) -> Member:
        """Return a process that has nothing to do, a new one if need be; raise :class:`OSError` where that fails."""
        with self._lock:
            while self._idle:
                member = self._idle.pop()
                if member.is_alive:
                    break
                member.end()
            else:
                member = Member()
            self._busy.add(member)
            return member

    def has_idle(self) -> bool:
        """Whether there is one that needn't be started."""
        return bool(self._idle)

    def give_back(self, member: Member, *, is_idle: bool) -> None:
        """Take a process back; one that still has something to do ends."""
        with self._lock:
            self._busy.discard(member)
            if is_idle and len(self._idle) < cores():
                try:
                    member.rest()
                except OSError:
                    is_idle = False
                else:
                    self._idle.append(member)
                    return
        member.end()

    def end(self) -> None:
        """End all."""
        with self._lock:
            members = [*self._idle, *self._busy]
            self._idle.clear()
            self._busy.clear()
        for member in members:
            member.end()

    def before_fork(self) -> None:
        """Have nothing written to that somebody looks at now: a fork may look at it for longer than this process."""
        for member in [*self._idle, *self._busy]:
            member.borrower.keep_lent()

    def forget(self) -> None:
        """Begin anew in a fork of the process: these are not its children."""
        for member in [*self._idle, *self._busy]:
            member.abandon()
        self.__init__()  # type: ignore[misc]


POOL: Final = Pool()
atexit.register(POOL.end)
os.register_at_fork(before=POOL.before_fork, after_in_child=POOL.forget)
