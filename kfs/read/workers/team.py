"""The workers of one request: who does which tasks, and what comes of it, in the order of the tasks."""

from __future__ import annotations

import logging
import os
import select
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, NoReturn

from kfs.errors import WorkerDied
from kfs.read.workers import pool
from kfs.read.workers.channel import OtherEndGone
from kfs.read.workers.in_process import InThisProcess
from kfs.read.workers.job import Group, Job
from kfs.read.workers.kept_log import Logged, log_here, log_level
from kfs.read.workers.messages import Begin, End, Failed, Give, PortionTaken, Ready, Turn
from kfs.read.workers.pool import Helper
from kfs.read.workers.portion import Portion, items_of

_LOG: Final = logging.getLogger("kfs")


class _Arrived(NamedTuple):
    """Items that a worker has sent, what they count as, and what was logged up to the last of them."""

    items: list[Any]
    weight: int
    logged: Logged


@dataclass(slots=True)
class _Given:
    """Tasks that go together, who does them (None: none yet), and what has come of them and wasn't taken."""

    tasks: list[Any]
    member: BusyWorker | None = None
    arrived: deque[_Arrived] = field(default_factory=deque)
    end: End | Failed | None = None


class BusyWorker:
    """A worker at work on a request, and the groups of tasks that it was given and hasn't done."""

    def __init__(self, helper: Helper, begin: Begin, output: int | None, *, is_ready: bool) -> None:
        self.helper = helper
        self.is_ready = is_ready
        self.has_failed = False
        self.given: deque[_Given] = deque()
        self.send(begin._replace(returned=helper.memory.take_returned()), output)

    def send(self, message: object, descriptor: int | None = None) -> None:
        """Send a message; raise :class:`WorkerDied` where it doesn't arrive."""
        try:
            self.helper.channel.send(message, descriptor)
        except OtherEndGone:
            self.lost()

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do, and is as it was at the beginning."""
        return self.is_ready and not self.has_failed and not self.given

    def lost(self) -> NoReturn:
        """Raise that it ended without having done its work."""
        raise WorkerDied(f"a worker process ended ({self.helper.end()}): the output is not complete")

    def give(self, given: _Given) -> None:
        """Have it do tasks, after those that it has."""
        self.send(Give(given.tasks))
        given.member = self
        self.given.append(given)

    def listen(self) -> None:
        """Take a message in, which is there; raise :class:`WorkerDied` where it has ended."""
        try:
            message, descriptor = self.helper.channel.receive()
        except (OtherEndGone, OSError):  # closed by us, in a fork of the process that has started it
            self.lost()
        if isinstance(message, Portion):
            try:
                items = items_of(message, self.helper.memory, descriptor)
            finally:
                if descriptor is not None:
                    os.close(descriptor)
            self.given[0].arrived.append(_Arrived(items, message.weight, message.logged))
        elif isinstance(message, Ready):
            self.is_ready = True
        else:
            assert isinstance(message, End | Failed)
            self.has_failed |= isinstance(message, Failed)
            self.given.popleft().end = message

    def took(self, weight: int) -> None:
        """Say that a portion was taken."""
        if weight:
            self.send(PortionTaken(weight, self.helper.memory.take_returned()))


class Team:
    """Workers for one request; when it is left, those that still have something to do are ended.

    Where the job has this process take part, two threads begin: there is nothing to start, and most of what they do
    needs no interpreter lock. Where there is so much to do that it is worth their start, processes follow; then one
    thread goes on beside them.
    """

    def __init__(self, job: Job[Any, Any], jobs: int, own: InThisProcess) -> None:
        self._pool = pool.POOL
        self._job = job
        self._own = own
        self._begin = Begin(job, job.ready_bytes // jobs, log_level(), jobs, own.output is not None)
        self._most_open = jobs * job.groups_open + 1
        self._jobs = jobs
        #: How many more there will be.
        self._to_start = jobs
        self._members: dict[int, BusyWorker] = {}  # by the descriptors of their channels
        #: The second thread, which has nothing to do any more when there are enough others.
        self._spare: BusyWorker | None = None
        self._given: deque[_Given] = deque()
        self._poll = select.poll()

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_exception: object) -> None:
        for member in self._members.values():
            self._pool.give_back(member.helper, is_idle=member.is_idle)

    def do_all(self, groups: Iterator[Group], *, with_processes: bool) -> Generator[Any, None, None]:
        """Give tasks out, and yield what is made of each in turn; what no worker is ready for is done here."""
        if self._job.takes_part:
            self._start_threads()
        self._give_out(groups)  # so that the threads have something to do while processes are started
        if with_processes:
            self._start_processes()
        self._to_start = 0
        while True:
            self._give_out(groups)
            if not self._given:
                return
            given = self._given.popleft()
            if given.member is None:
                for item in self._own.do(given.tasks):
                    yield item
                    del item  # whose memory may be used again once it is dropped
                    self._listen(groups, 0)
            else:
                yield from self._made(given, groups)

    # -- who there is

    def _start_threads(self) -> None:
        try:
            self._add(self._pool.take_thread())
            self._spare = self._add(self._pool.take_thread())
        except (OSError, RuntimeError, WorkerDied) as error:
            _LOG.warning("can't start a worker thread: %s", error)

    def _start_processes(self) -> None:
        if self._spare is not None:
            self._to_start += 1  # in its place
        try:
            while self._to_start:
                self._add(self._pool.take())
        except (OSError, WorkerDied) as error:
            _LOG.warning("can't start a worker process: %s", error)

    def _add(self, helper: Helper) -> BusyWorker:
        self._to_start -= 1
        try:
            is_thread = isinstance(helper, pool.WorkerThread)
            member = BusyWorker(helper, self._begin, self._own.output, is_ready=is_thread)
        except BaseException:
            self._pool.give_back(helper, is_idle=False)
            raise
        self._members[helper.channel.fileno()] = member
        self._poll.register(helper.channel, select.POLLIN)
        return member

    # -- what they do

    def _give_out(self, groups: Iterator[Group]) -> None:
        """Give each worker that can have more the next group; a second one only where that leaves others no less."""
        missing = self._most_open - len(self._given)
        self._given.extend(_Given(group.tasks) for group in islice(groups, max(missing, 0)))
        waiting = [given for given in self._given if given.member is None]
        for at, given in enumerate(waiting):
            without = self._to_start + sum(not member.given for member in self._members.values())
            free = [member for member in self._members.values() if member.is_ready and not member.has_failed]
            if self._spare in free and len(free) > self._jobs:
                free.remove(self._spare)
            member = min(free, key=lambda one: len(one.given), default=None)
            if member is None or len(member.given) > self._job.groups_ahead:
                return
            if member.given and len(waiting) - at <= without:
                return
            member.give(given)

    def _listen(self, groups: Iterator[Group], milliseconds: int | None = None) -> None:
        """Take in what workers have sent, and give out what that allows; wait for something, or not for long."""
        ready = self._poll.poll(milliseconds)
        for number, _ in ready:
            member = self._members[number]
            try:
                member.listen()
            except WorkerDied as error:
                if member.given:
                    raise
                _LOG.warning("%s", error)  # the others do what there is, or this process
                self._poll.unregister(number)
                del self._members[number]
                self._pool.give_back(member.helper, is_idle=False)
        if ready:
            self._give_out(groups)

    def _made(self, given: _Given, groups: Iterator[Group]) -> Generator[Any, None, None]:
        """Yield what a worker makes of tasks; where there is an output, it is its turn to write there."""
        assert given.member is not None
        if self._own.output is not None:
            given.member.send(Turn())
        while given.arrived or given.end is None:
            if not given.arrived:
                self._listen(groups)
                continue
            items, weight, logged = given.arrived.popleft()
            log_here(logged)
            while items:
                yield items.pop(0)  # nothing here may keep it
            given.member.took(weight)
            self._listen(groups, 0)
        log_here(given.end.logged)
        if isinstance(given.end, Failed):
            raise given.end.error
