"""A process that gathers for another one: tasks come through a socket, and what is gathered goes back through it.

Nothing is logged here: what can't be read goes back with the rest, and is logged there.
"""

from __future__ import annotations

import signal
import socket
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kfs.cores import cores
from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.memory import keep_freed_memory
from kfs.read.piece import Left
from kfs.render.arrow_gather import Gathered
from kfs.scan.channel import Channel, send_portion
from kfs.scan.gathering import Gatherer
from kfs.scan.request import LogSource, Request, Task
from kfs.scan.shared import Lender
from kfs.storage.descriptors import BUDGET, raise_limit

#: What is sent at once, in bytes or so: with less, two processes lose a fifth to waking each other.
_PORTION_BYTES: Final = 8 * 1024 * 1024
#: After so many seconds without anything to do a process ends; whoever needs one again starts another.
_IDLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Begin:
    """The tasks that follow are of this request; ``ready_bytes`` are what may be sent and not taken yet.

    These regions are free again.
    """

    request: Request
    ready_bytes: int
    returned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """The answer to :class:`Begin`."""


@dataclass(frozen=True, slots=True)
class Taken:
    """So many bytes were taken, and these regions are free again."""

    size: int
    returned: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class End:
    """The last message on a task: where it ended."""

    left: Left | None


@dataclass(frozen=True, slots=True)
class Rest:
    """There is nothing to do for now: close what is open.

    Some regions are free again, and one may still be ``lent``; any others that were are the parent's alone.
    """

    returned: tuple[int, ...]
    lent: int | None


def main(descriptor: int) -> None:
    """Serve the socket of that descriptor until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the parent, which ends us
    raise_limit()
    BUDGET.share(cores())
    keep_freed_memory()
    channel = Channel(socket.socket(fileno=descriptor))
    with suppress(EOFError, ConnectionError):
        Worker(channel).serve()


class Worker:
    """What a worker process does."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: deque[Task] = deque()
        self._gatherer: Gatherer | None = None
        self._ready_bytes = 0
        self._sent_bytes = 0
        self._source: LogSource | None = None
        self._log: Log | None = None
        self._lender = Lender()

    def serve(self) -> None:
        """Do tasks as they come, until there is nobody any more who would send one."""
        while True:
            if self._waiting:
                self._do(self._waiting.popleft())
            elif self._gatherer is None and not self._channel.has_message(_IDLE_SECONDS):
                return
            else:
                self._listen()

    def _listen(self) -> None:
        """Wait for a message."""
        message, _ = self._channel.receive()
        if isinstance(message, Taken):
            self._sent_bytes -= message.size
            self._lender.returned(message.returned)
        elif isinstance(message, Task):
            self._waiting.append(message)
        elif isinstance(message, Begin):
            self._rest()
            self._lender.returned(message.returned)
            self._gatherer = Gatherer(message.request, self._lender.room)
            self._ready_bytes, self._sent_bytes = message.ready_bytes, 0
            self._channel.send(Ready())
        elif isinstance(message, Rest):
            self._rest()
            self._lender.returned(message.returned)
            self._lender.rest(message.lent)

    def _rest(self) -> None:
        if self._log is not None:
            self._log.storage.close()
        self._gatherer = self._log = self._source = None

    def _do(self, task: Task) -> None:
        try:
            assert self._gatherer is not None
            if task.source != self._source:
                if self._log is not None:
                    self._log.storage.close()
                self._source, self._log = task.source, task.source.open()
            self._lender.begin()
            items: list[Gathered | Problem] = []
            size = 0
            for item in self._gatherer.gather(self._log, task.work, task.offsets):
                items.append(item)
                size += _size_of(item)
                if size >= _PORTION_BYTES:
                    self._send(items, size)
                    items, size = [], 0
            if items:
                self._send(items, size)
            self._channel.send(End(self._gatherer.left))
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            self._channel.send(error)

    def _send(self, items: list[Gathered | Problem], size: int) -> None:
        """Send items when there is room for them, or nothing on its way."""
        while self._sent_bytes and self._sent_bytes + size > self._ready_bytes:
            self._listen()
        self._sent_bytes += send_portion(self._channel, self._lender, items)


def _size_of(item: Gathered | Problem) -> int:
    if isinstance(item, Problem):
        return 1
    return sum(buffer.nbytes for buffer in item.buffers if buffer is not None)
