"""Pieces of work done by several processes, their output in the order of the work.

Each process gets the pieces round robin, renders ahead, and writes to the output itself when it is
told that it is its turn: the output goes through no other process. What it has ready before is
bounded, and so is memory.
"""

from __future__ import annotations

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
from kfs.export.worker import Done, Worker
from kfs.kept_log import KeptLog, Logged, log_again
from kfs.log.problem import Problem
from kfs.read.piece import Left
from kfs.read.plan import WantedOffsets, Work
from kfs.storage.descriptors import BUDGET

#: What is written at once, in bytes or so.
_PORTION_BYTES: Final = 1024 * 1024
#: What all processes together may have ready, in bytes.
_READY_BYTES: Final = 96 * 1024 * 1024
#: Pieces that a process may have been given, the one it is at included.
_GIVEN: Final = 2

Assignment = tuple[Work, WantedOffsets]


def write_all(worker: Worker, work: Iterator[Assignment], jobs: int, out: int) -> Iterator[Problem]:
    """Do all pieces, by ``jobs`` processes, write their output to the descriptor ``out``, and yield their problems.

    A piece whose segment vanished gives a problem.

    Raises:
        OSError: ``out`` can't be written to.
        WorkerDied: a process ended early.
    """
    if jobs > 1:
        with _Team(worker, jobs, out) as team:
            yield from team.do_all(work)
        return
    left: Left | None = None
    for piece, offsets in work:
        yield from _write_here(worker, left.next(piece) if left else piece, offsets, out)
        left = worker.left


def write(out: int, data: bytes) -> None:
    """Write all of ``data``; raise OSError where that fails."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(out, rest) :]


def _write_here(worker: Worker, work: Work, offsets: WantedOffsets, out: int) -> Iterator[Problem]:
    for done in _portions(worker, work, offsets):
        write(out, done.data)
        yield from done.problems


def _portions(worker: Worker, work: Work, offsets: WantedOffsets) -> Iterator[Done]:
    """Yield the output of a piece in portions that are worth a system call."""
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
class _Said:
    """A message of a process: problems of the piece whose turn it is, and what was logged."""

    problems: tuple[Problem, ...] = ()
    logged: Logged = ()


_NOTHING: Final = _Said()


@dataclass(frozen=True, slots=True)
class _Rendered:
    """A portion, and what is to be said when it is written."""

    data: bytes
    said: _Said


@dataclass(frozen=True, slots=True)
class _End:
    """The last message of a process on a piece."""

    left: Left | None


@dataclass(frozen=True, slots=True)
class _Member:
    """A process as the parent sees it: it reads assignments and turns, and is read."""

    process: ForkProcess
    assignments: Connection
    turns: Connection


class _Team:
    """Processes, forked when it is entered and gone when it is left, whatever happens between."""

    def __init__(self, worker: Worker, jobs: int, out: int) -> None:
        self._worker = worker
        self._jobs = jobs
        self._out = out
        self._members: list[_Member] = []

    def __enter__(self) -> _Team:
        context = multiprocessing.get_context("fork")
        for _ in range(self._jobs):
            assignments, their_assignments = context.Pipe()
            turns, their_turns = context.Pipe()
            inherited = [assignments, turns]
            inherited += [end for member in self._members for end in (member.assignments, member.turns)]
            ready_bytes = max(_READY_BYTES // self._jobs, _PORTION_BYTES)
            arguments = (self._worker, self._jobs, self._out, their_assignments, their_turns, ready_bytes, inherited)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            their_assignments.close()
            their_turns.close()
            self._members.append(_Member(process, assignments, turns))
        return self

    def __exit__(self, *_exception: object) -> None:
        for member in self._members:
            member.assignments.close()
            member.turns.close()
            member.process.terminate()
        for member in self._members:
            member.process.join()

    def do_all(self, work: Iterator[Assignment]) -> Iterator[Problem]:
        """Give the work out, let each in turn write what it made of it, and yield the problems."""
        given: deque[tuple[_Member, Assignment]] = deque()
        turn = 0
        left: Left | None = None
        while True:
            while len(given) < self._jobs * _GIVEN:
                assignment = next(work, None)
                if assignment is None:
                    break
                member = self._members[turn]
                self._send(member, member.assignments, assignment)
                given.append((member, assignment))
                turn = (turn + 1) % self._jobs
            if not given:
                return
            member, (piece, offsets) = given.popleft()
            really = left.next(piece) if left else piece
            self._send(member, member.turns, really is piece)
            left = yield from self._problems_of(member)
            if really is not piece:
                yield from _write_here(self._worker, really, offsets, self._out)
                left = self._worker.left

    @staticmethod
    def _send(member: _Member, connection: Connection, message: object) -> None:
        try:
            connection.send(message)
        except OSError:
            _lost(member)

    @staticmethod
    def _problems_of(member: _Member) -> Generator[Problem, None, Left | None]:
        while True:
            try:
                message = member.turns.recv()
            except (EOFError, OSError):
                _lost(member)
            if isinstance(message, _End):
                return message.left
            if not isinstance(message, _Said):
                raise message
            log_again(message.logged)
            yield from message.problems


def _lost(member: _Member) -> NoReturn:
    member.process.join(1)
    raise WorkerDied(f"a worker process ended (status {member.process.exitcode}): the output is not complete")


class _Ready:
    """What a process has ready, portion by portion, ``most`` bytes of it; taken in another thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._portions: deque[_Rendered | _End | Exception] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    def put(self, portion: _Rendered | _End | Exception) -> None:
        """Add a portion; wait while there is no room for it."""
        size = _size(portion)
        with self._changed:
            self._changed.wait_for(lambda: not self._bytes or self._bytes + size <= self._most)
            self._portions.append(portion)
            self._bytes += size
            self._changed.notify_all()

    def take(self) -> _Rendered | _End | Exception:
        """Return the next portion; wait for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._portions)
            portion = self._portions.popleft()
            self._bytes -= _size(portion)
            self._changed.notify_all()
            return portion


def _size(portion: object) -> int:
    return len(portion.data) if isinstance(portion, _Rendered) else 0


def _serve(
    worker: Worker,
    jobs: int,
    out: int,
    assignments: Connection,
    turns: Connection,
    ready_bytes: int,
    inherited: list[Connection],
) -> None:
    """What a process does: pieces of work until the other end of its pipes is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the parent, which ends us
    for other in inherited:
        other.close()
    BUDGET.share(jobs)
    kept = KeptLog.instead()
    ready = _Ready(ready_bytes)
    threading.Thread(target=_write_in_turn, args=(ready, turns, out), daemon=True).start()
    with suppress(EOFError, ConnectionResetError):
        while True:
            work, offsets = assignments.recv()
            try:
                for done in _portions(worker, work, offsets):
                    ready.put(_Rendered(done.data, _Said(done.problems, kept.take())))
                ready.put(_Rendered(b"", _Said((), kept.take())))
            except Exception as error:
                ready.put(error)
            else:
                ready.put(_End(worker.left))


def _write_in_turn(ready: _Ready, turns: Connection, out: int) -> None:
    """Write piece after piece when told to, or drop it; report what was wrong, and when it is done."""
    try:
        while True:
            is_wanted = turns.recv()
            while isinstance(portion := ready.take(), _Rendered):
                if is_wanted:
                    write(out, portion.data)
                    if portion.said != _NOTHING:
                        turns.send(portion.said)
            turns.send(portion)
    except EOFError:
        os._exit(0)  # nobody is there any more
    except OSError as error:
        with suppress(OSError):
            turns.send(error)
        os._exit(1)
