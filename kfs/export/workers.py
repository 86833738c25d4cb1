"""Pieces of work done by several processes, their output in the order of the work.

Each process gets the pieces round robin and sends their output through a pipe of its own, which is
read in that same order. What a process has ready and nobody has asked for yet is bounded, and so is
memory.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Final, NoReturn

from kfs.errors import CorruptData, WorkerDied
from kfs.export.piece import Done, Left, Worker
from kfs.export.plan import Work
from kfs.log.log import OffsetRange
from kfs.log.problem import Problem

#: Output is handed over in portions of about this many bytes.
_PORTION_BYTES: Final = 1024 * 1024
#: What all processes together may have ready, in bytes.
_READY_BYTES: Final = 96 * 1024 * 1024
#: Pieces that a process may have been given ahead of the one it is at.
_AHEAD: Final = 2

_LOG = logging.getLogger("kfs")

Assignment = tuple[Work, OffsetRange]


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def do_all(worker: Worker, work: Iterator[Assignment], jobs: int) -> Iterator[Done]:
    """Do all pieces, by ``jobs`` processes, and yield the output in order.

    A piece whose segment vanished gives a problem.

    Raises:
        WorkerDied: a process ended early.
    """
    if jobs > 1:
        with _Team(worker, jobs) as team:
            yield from team.do_all(work)
        return
    left: Left | None = None
    for piece, offsets in work:
        yield from _portions(worker, left.next(piece) if left else piece, offsets)
        left = worker.left


def _portions(worker: Worker, work: Work, offsets: OffsetRange) -> Iterator[Done]:
    """Yield the output of a piece in portions that are worth a message."""
    parts: list[Done] = []
    size = 0
    try:
        for done in worker.do(work, offsets):
            parts.append(done)
            size += len(done.data)
            if size >= _PORTION_BYTES:
                yield _joined(parts)
                parts, size = [], 0
    except CorruptData as error:
        parts.append(Done(problems=(Problem(error.file or "", error.position, 0, error.reason),)))
    if parts:
        yield _joined(parts)


def _joined(parts: list[Done]) -> Done:
    return Done(b"".join(part.data for part in parts), tuple(problem for part in parts for problem in part.problems))


@dataclass(frozen=True, slots=True)
class _Portion:
    """A message: a portion whose bytes are the next one, and what was logged meanwhile."""

    problems: tuple[Problem, ...]
    logged: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class _End:
    """The last message of a piece."""

    left: Left | None


class _Team:
    """Processes, forked when it is entered and gone when it is left, whatever happens between."""

    def __init__(self, worker: Worker, jobs: int) -> None:
        self._worker = worker
        self._jobs = jobs
        self._members: list[tuple[ForkProcess, Connection]] = []

    def __enter__(self) -> _Team:
        context = multiprocessing.get_context("fork")
        for _ in range(self._jobs):
            ours, theirs = context.Pipe()
            inherited = [connection for _, connection in self._members] + [ours]
            ready_bytes = max(_READY_BYTES // self._jobs, _PORTION_BYTES)
            process = context.Process(target=_serve, args=(self._worker, theirs, inherited, ready_bytes), daemon=True)
            process.start()
            theirs.close()
            self._members.append((process, ours))
        return self

    def __exit__(self, *_exception: object) -> None:
        for process, connection in self._members:
            connection.close()
            process.terminate()
        for process, _ in self._members:
            process.join()

    def do_all(self, work: Iterator[Assignment]) -> Iterator[Done]:
        """Give the work out and yield its output in order."""
        given: deque[tuple[int, Assignment]] = deque()
        turn = 0
        left: Left | None = None
        while True:
            while len(given) < self._jobs * _AHEAD:
                assignment = next(work, None)
                if assignment is None:
                    break
                self._send(turn, assignment)
                given.append((turn, assignment))
                turn = (turn + 1) % self._jobs
            if not given:
                return
            number, (piece, offsets) = given.popleft()
            really = left.next(piece) if left else piece
            if really is piece:
                left = yield from self._output_of(number)
                continue
            for _ in self._output_of(number):
                pass  # begun in the wrong place
            yield from _portions(self._worker, really, offsets)
            left = self._worker.left

    def _send(self, number: int, assignment: Assignment) -> None:
        try:
            self._members[number][1].send(assignment)
        except OSError:
            self._lost(number)

    def _output_of(self, number: int) -> Generator[Done, None, Left | None]:
        connection = self._members[number][1]
        while True:
            try:
                message = connection.recv()
                data = connection.recv_bytes() if isinstance(message, _Portion) else b""
            except (EOFError, OSError):
                self._lost(number)
            if isinstance(message, _Portion):
                for level, text in message.logged:
                    _LOG.log(level, "%s", text)
                yield Done(data, message.problems)
            elif isinstance(message, _End):
                return message.left
            else:
                raise message

    def _lost(self, number: int) -> NoReturn:
        process = self._members[number][0]
        process.join(1)
        raise WorkerDied(f"a worker process ended (status {process.exitcode}): the output is not complete")


class _Outbox:
    """Sends from a thread of its own, so that work goes on while nobody listens; ``most`` bytes wait at most."""

    def __init__(self, connection: Connection, most: int) -> None:
        self._connection = connection
        self._most = most
        self._waiting: deque[tuple[object, bytes]] = deque()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, message: object, data: bytes = b"") -> None:
        """Send a message, and ``data`` behind a portion; raise BrokenPipeError once nobody can listen any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._bytes or self._bytes + len(data) <= self._most)
            if self._closed:
                raise BrokenPipeError
            self._waiting.append((message, data))
            self._bytes += len(data)
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting)
                    message, data = self._waiting.popleft()
                self._connection.send(message)
                if isinstance(message, _Portion):
                    self._connection.send_bytes(data)
                with self._changed:
                    self._bytes -= len(data)
                    self._changed.notify_all()
        except OSError:
            with self._changed:
                self._closed = True
                self._changed.notify_all()


class _KeptLog(logging.Handler):
    """Keeps what is logged for the parent, which says it."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See :meth:`logging.Handler.emit`."""
        self._kept.append((record.levelno, record.getMessage()))

    def take(self) -> tuple[tuple[int, str], ...]:
        """Return what was logged since it was last asked for."""
        kept, self._kept = self._kept, []
        return tuple(kept)


def _serve(worker: Worker, connection: Connection, inherited: list[Connection], ready_bytes: int) -> None:
    """What a process does: pieces of work until the other end of its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the parent, which ends us
    for other in inherited:
        other.close()
    kept = _KeptLog()
    _LOG.handlers, _LOG.propagate = [kept], False
    outbox = _Outbox(connection, ready_bytes)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            work, offsets = connection.recv()
            try:
                for done in _portions(worker, work, offsets):
                    outbox.put(_Portion(done.problems, kept.take()), done.data)
                logged = kept.take()
                if logged:
                    outbox.put(_Portion((), logged))
            except BrokenPipeError:
                raise
            except Exception as error:
                outbox.put(error)
            else:
                outbox.put(_End(worker.left))
