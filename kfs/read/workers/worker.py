"""The worker: receives tasks through a channel, and sends the results back, or writes them to the output."""

from __future__ import annotations

import os
import pickle
import signal
import socket
from collections import deque
from contextlib import suppress
from itertools import chain
from typing import Any, Final, NamedTuple

from kfs.read.workers.channel import Channel, OtherEndGone
from kfs.read.workers.cores import cores
from kfs.read.workers.job import OpenJob, Output, portions_of
from kfs.read.workers.kept_log import KeptLog, Logged, log_from
from kfs.read.workers.messages import Begin, End, Failed, Give, PortionTaken, Ready, Rest, Turn
from kfs.read.workers.portion import send_portion
from kfs.read.workers.shared import WorkerMemory
from kfs.storage.descriptors import BUDGET, raise_limit, write_all
from kfs.storage.memory import collect_garbage_less, keep_freed_memory

#: Seconds without a job after which a worker ends; another one is started on demand.
_IDLE_SECONDS: Final = 60.0


def main(descriptor: int) -> None:
    """Run a worker process that serves the socket with that descriptor until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the parent, which ends its workers
    raise_limit()
    keep_freed_memory()
    collect_garbage_less()
    kept = KeptLog.of_process()
    _Process(Channel(socket.socket(fileno=descriptor)), kept).serve()


class _Waiting(NamedTuple):
    """A portion that waits until it is its task's turn to be written."""

    items: list[Any]
    weight: int
    logged: Logged


class Worker:
    """Runs tasks for the process at the other end of a channel."""

    def __init__(self, channel: Channel, kept: KeptLog) -> None:
        self._channel = channel
        self._kept = kept
        self._memory = WorkerMemory()
        self._given: deque[list[Any]] = deque()
        self._job: OpenJob[Any, Any] | None = None
        self._portion_bytes = 0
        self._ready_bytes = 0
        #: The total weight of portions that were sent and not taken yet, or that wait for their turn.
        self._ready_weight = 0
        self._output: int | None = None
        #: The error with which all tasks fail, if there is one.
        self._failed: Failed | None = None
        self._turn: Turn | None = None
        self._waiting: deque[_Waiting | End | Failed] = deque()

    def serve(self) -> None:
        """Run tasks as they arrive, until the other end is closed."""
        try:
            with suppress(OtherEndGone):
                while True:
                    if self._given:
                        self._do(self._given.popleft())
                    elif self._job is None and not self._channel.has_message(_IDLE_SECONDS):
                        return
                    else:
                        self._listen()
        finally:
            self._rest()
            self._channel.close()

    def _listen(self) -> None:
        """Wait for a message, and handle it."""
        message, descriptor = self._channel.receive()
        if isinstance(message, PortionTaken):
            self._ready_weight -= message.weight
            self._memory.returned(message.returned)
        elif isinstance(message, Give):
            self._given.append(message.tasks)
        elif isinstance(message, Turn):
            self._turn = message
            self._write_ready()
        elif isinstance(message, Begin):
            self._begin(message, descriptor)
        elif isinstance(message, Rest):
            self._rest()
            self._memory.returned(message.returned)
            self._memory.rest(message.lent)

    def _begin(self, message: Begin, output: int | None) -> None:
        self._rest()
        self._memory.returned(message.returned)
        self._output, self._failed = output, None
        self._prepare(message)
        try:
            self._job = message.job.open()
            self._memory.arena = self._job.arena
        except Exception as error:
            self._failed = Failed(_sendable(error), self._kept.take())  # the answer to every task
        self._portion_bytes, self._ready_bytes, self._ready_weight = message.job.portion_bytes, message.ready_bytes, 0
        self._channel.send(Ready())

    def _prepare(self, message: Begin) -> None:
        """Apply settings that affect the whole process; does nothing by default."""

    def _rest(self) -> None:
        if self._job is not None:
            self._job.close()
        if self._output is not None:
            os.close(self._output)
        self._job = self._output = self._memory.arena = None

    def _do(self, tasks: list[Any]) -> None:
        end = self._failed or self._result_of(tasks)
        if self._output is None or self._job is None:
            self._channel.send(end)
        elif self._failed is None:
            self._waiting.append(end)
            self._write_ready()

    def _result_of(self, tasks: list[Any]) -> End | Failed:
        assert self._job is not None
        try:
            self._memory.begin()
            for items, weight in portions_of(chain.from_iterable(map(self._job.do, tasks)), self._portion_bytes):
                self._put(items, weight)
                items.clear()
                if self._failed is not None:
                    return self._failed
            return End(self._kept.take())
        except OtherEndGone:
            raise
        except Exception as error:
            return Failed(_sendable(error), self._kept.take())

    def _put(self, items: list[Any], weight: int) -> None:
        """Send items, or write them at their turn; first wait until they fit in the limit, or nothing else is ready."""
        while self._ready_weight and self._ready_weight + weight > self._ready_bytes:
            self._listen()
        if self._output is None:
            self._ready_weight += weight
            send_portion(self._channel, self._memory, items, weight, self._kept.take())
            return
        self._ready_weight += weight
        self._waiting.append(_Waiting(list(items), weight, self._kept.take()))
        self._write_ready()
        while self._channel.has_message(0):
            self._listen()

    def _write_ready(self) -> None:
        """Write what is ready of the tasks whose turn it is, send items that aren't output, and report the end."""
        while self._turn is not None and self._waiting:
            ready = self._waiting.popleft()
            if not isinstance(ready, _Waiting):
                self._turn = None
                self._channel.send(ready)
                return
            self._ready_weight -= ready.weight
            self._write(ready)

    def _write(self, ready: _Waiting) -> None:
        assert self._output is not None
        try:
            write_all(self._output, (item.data for item in ready.items if isinstance(item, Output)))
        except OSError as error:
            self._failed = Failed(error)  # nothing else is sent: the parent raises it, and ends this worker
            self._waiting.clear()
            self._channel.send(self._failed)
            return
        rest = [item for item in ready.items if not isinstance(item, Output)]
        if rest or ready.logged:
            send_portion(self._channel, self._memory, rest, 0, ready.logged)


class _Process(Worker):
    """A worker in its own process."""

    def _prepare(self, message: Begin) -> None:
        log_from(message.level)
        BUDGET.share(max(message.processes, cores()))


def _sendable(error: Exception) -> Exception:
    """Return an error that can be pickled: the error itself, or a RuntimeError with its type and message."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
