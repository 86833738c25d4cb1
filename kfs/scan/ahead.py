"""Tasks done in their order, by this process or by others that work ahead."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from kfs.errors import KfsError
from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.read.piece import Left
from kfs.read.plan import Work
from kfs.render.arrow_gather import Gathered
from kfs.scan import pool
from kfs.scan.channel import Portion, rows_of
from kfs.scan.gathering import Gatherer
from kfs.scan.pool import Member
from kfs.scan.request import Assignment, LogSource, Request, Task
from kfs.scan.worker import Begin, End, Ready, Taken

_LOG: Final = logging.getLogger("kfs")
#: What all processes together may have ready, in bytes.
_READY_BYTES: Final = 128 * 1024 * 1024
#: Tasks that a process may have been given, the one it is at included.
_GIVEN: Final = 2
#: So many tasks are worth the start of processes.
_WORTH_PROCESSES: Final = 8

Portions = Generator[Gathered | Problem, None, None]


def portions(request: Request, tasks: Iterator[Assignment], jobs: int) -> Portions:
    """Yield what is gathered of each task, in the order of the tasks, and problems where they were met.

    With more than one job that is done by as many processes, where there is enough to do.

    Raises:
        WorkerDied: a process ended early.
    """
    here = Here(request)
    first = list(islice(tasks, _WORTH_PROCESSES))
    tasks = chain(first, tasks)
    is_worth_it = len(first) == _WORTH_PROCESSES or (len(first) > 1 and pool.POOL.has_idle())
    if jobs > 1 and is_worth_it and hasattr(os, "memfd_create") and sys.executable:
        with Team(request, jobs) as team:
            yield from team.do_all(tasks, here)
    else:
        for assignment in tasks:
            yield from here.gather(assignment)


class Here:
    """Does tasks in this process, each where the one before it really ended."""

    def __init__(self, request: Request) -> None:
        self._gatherer = Gatherer(request)
        self._before: tuple[LogSource, Left | None] | None = None

    def really(self, task: Task) -> Work:
        """Return the work of a task as it has to be done after the one before it."""
        if self._before is None or self._before[1] is None or self._before[0] != task.source:
            return task.work
        return self._before[1].next(task.work)

    def done(self, task: Task, left: Left | None) -> None:
        """Note where a task ended, whoever did it."""
        self._before = task.source, left

    def gather(self, assignment: Assignment) -> Portions:
        """Yield what is gathered of a task."""
        yield from self._gatherer.gather(assignment.log, self.really(assignment.task), assignment.task.offsets)
        self.done(assignment.task, self._gatherer.left)


class _Hand:
    """A process at work on a request, and the tasks that it was given and hasn't done."""

    def __init__(self, member: Member, begin: Begin) -> None:
        self.member = member
        self.is_ready = False
        self.given = 0
        self.send(replace(begin, returned=member.borrower.take_returned()))

    def send(self, message: object) -> None:
        try:
            self.member.channel.send(message)
        except OSError:
            self.member.lost()

    def receive(self) -> tuple[object, int | None]:
        try:
            return self.member.channel.receive()
        except (EOFError, ConnectionError):
            self.member.lost()

    def rows_of(self, portion: Portion, descriptor: int | None) -> Portions:
        """Yield what a portion has, and then say that it was taken."""
        try:
            items = rows_of(portion, self.member.borrower, descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)
        while items:
            yield items.pop(0)  # nothing here may keep it
        self.send(Taken(portion.size, self.member.borrower.take_returned()))

    def becomes_ready(self) -> bool:
        """Whether it has answered by now."""
        if not self.is_ready and self.member.channel.has_message(0):
            message, _ = self.receive()
            self.is_ready = isinstance(message, Ready)
        return self.is_ready


class Team:
    """Processes for one request; when it is left, those that still have something to do are ended."""

    def __init__(self, request: Request, jobs: int) -> None:
        self._begin = Begin(request, _READY_BYTES // jobs)
        self._jobs = jobs
        self._hands: list[_Hand] = []
        self._given: deque[tuple[Assignment, _Hand | None]] = deque()

    def __enter__(self) -> Team:
        try:
            for _ in range(self._jobs):
                self._hands.append(_Hand(pool.POOL.take(), self._begin))
        except (OSError, KfsError) as error:
            _LOG.warning("can't start a worker process: %s", error)
        return self

    def __exit__(self, *_exception: object) -> None:
        for hand in self._hands:
            pool.POOL.give_back(hand.member, is_idle=hand.is_ready and not hand.given)

    def do_all(self, tasks: Iterator[Assignment], here: Here) -> Portions:
        """Give the tasks out, and yield what is made of each in turn; what nobody is ready for is done here."""
        while True:
            self._give_out(tasks)
            if not self._given:
                return
            assignment, hand = self._given.popleft()
            if hand is None:
                for item in here.gather(assignment):
                    yield item
                    del item  # whose memory may be used again when nobody has it
                    self._give_out(tasks)
            elif here.really(assignment.task) is assignment.task.work:
                here.done(assignment.task, (yield from self._made_by(hand, assignment.log)))
            else:
                for _ in self._made_by(hand, None):
                    pass
                yield from here.gather(assignment)

    def _give_out(self, tasks: Iterator[Assignment]) -> None:
        missing = self._jobs * _GIVEN + 1 - len(self._given)
        self._given.extend((assignment, None) for assignment in islice(tasks, max(missing, 0)))
        for at, (assignment, hand) in enumerate(self._given):
            if hand is None:
                hand = self._free_hand()
                if hand is None:
                    return
                hand.send(assignment.task)
                hand.given += 1
                self._given[at] = assignment, hand

    def _free_hand(self) -> _Hand | None:
        """Return whoever is ready and has least to do."""
        free: _Hand | None = None
        for hand in list(self._hands):
            try:
                is_free = hand.becomes_ready() and hand.given < _GIVEN
            except KfsError as error:
                _LOG.warning("%s", error)  # it never began; the others do, or this process
                self._hands.remove(hand)
                continue
            if is_free and (free is None or hand.given < free.given):
                free = hand
        return free

    @staticmethod
    def _made_by(hand: _Hand, log: Log | None) -> Generator[Gathered | Problem, None, Left | None]:
        """Yield what a process made of the task that it was given first; its problems become those of ``log``, too."""
        while True:
            message, descriptor = hand.receive()
            if isinstance(message, Portion):
                for item in hand.rows_of(message, descriptor):
                    if log is not None and isinstance(item, Problem):
                        log.problems.add(item)
                    yield item
                    del item
                continue
            hand.given -= 1
            if isinstance(message, Exception):
                raise message
            assert isinstance(message, End)
            return message.left
