"""The workers of one request: distributes the tasks to them, and yields the results in task order."""

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
from kfs.read.workers.forking import may_fork
from kfs.read.workers.in_process import InThisProcess
from kfs.read.workers.job import Group, Job
from kfs.read.workers.kept_log import Logged, log_here, log_level
from kfs.read.workers.messages import Begin, End, Failed, Give, PortionTaken, Ready, Turn
from kfs.read.workers.pool import Helper
from kfs.read.workers.portion import Portion, items_of

_LOG: Final = logging.getLogger("kfs")


class _Arrived(NamedTuple):
    """Items that a worker has sent, their weight, and the log messages up to the last of them."""

    items: list[Any]
    weight: int
    logged: Logged


@dataclass(slots=True)
class _Given:
    """A group of tasks, the worker that does them (None: not assigned yet), and results that weren't taken yet."""

    tasks: list[Any]
    member: BusyWorker | None = None
    arrived: deque[_Arrived] = field(default_factory=deque)
    end: End | Failed | None = None


class BusyWorker:
    """A worker that works on a request, and the groups of tasks that it was given and hasn't finished."""

    def __init__(self, helper: Helper, begin: Begin, output: int | None, *, is_ready: bool) -> None:
        self.helper = helper
        self.is_ready = is_ready
        self.has_failed = False
        self.given: deque[_Given] = deque()
        self.send(begin._replace(returned=helper.memory.take_returned()), output)

    def send(self, message: object, descriptor: int | None = None) -> None:
        """Send a message; raise :class:`WorkerDied` if the worker has ended."""
        try:
            self.helper.channel.send(message, descriptor)
        except OtherEndGone:
            self.lost()

    @property
    def is_idle(self) -> bool:
        """Whether the worker has no tasks and can be used for another request."""
        return self.is_ready and not self.has_failed and not self.given

    def lost(self) -> NoReturn:
        """Raise :class:`WorkerDied`, because the worker ended before its work was done."""
        raise WorkerDied(f"a worker process ended ({self.helper.end()}): the output is not complete")

    def give(self, given: _Given) -> None:
        """Give the worker a group of tasks, to be done after those that it already has."""
        self.send(Give(given.tasks))
        given.member = self
        self.given.append(given)

    def listen(self) -> None:
        """Receive and handle a message that is waiting; raise :class:`WorkerDied` if the worker has ended."""
        try:
            message, descriptor = self.helper.channel.receive()
        except (OtherEndGone, OSError):  # OSError: this is a fork, where the pool has closed the channel
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
        """Report to the worker that a portion was taken."""
        if weight:
            self.send(PortionTaken(weight, self.helper.memory.take_returned()))


class Team:
    """Workers for one request, used as a context manager; on exit, workers that still have tasks are ended.

    If the job takes part (:attr:`Job.takes_part`), two threads begin: they start at once, and mostly run without the
    interpreter lock. If there is enough work to be worth their start, processes follow; then one thread continues
    beside them. Forks, which start as fast, come first, as they can't come later, and one thread after them.
    """

    def __init__(self, job: Job[Any, Any], jobs: int, own: InThisProcess) -> None:
        self._pool = pool.POOL
        self._job = job
        self._own = own
        self._begin = Begin(job, job.ready_bytes // jobs, log_level(), jobs, own.output is not None)
        self._most_open = jobs * job.groups_open + 1
        self._jobs = jobs
        #: The number of workers that will still be started.
        self._to_start = jobs
        self._members: dict[int, BusyWorker] = {}  # by the descriptors of their channels
        #: The second thread, which gets no more tasks once there are enough other workers.
        self._spare: BusyWorker | None = None
        self._given: deque[_Given] = deque()
        self._poll = select.poll()

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_exception: object) -> None:
        for member in self._members.values():
            self._pool.give_back(member.helper, is_idle=member.is_idle)

    def do_all(self, groups: Iterator[Group], *, with_processes: bool) -> Generator[Any, None, None]:
        """Distribute tasks, and yield the results in task order; tasks without a free worker are done here."""
        forks = with_processes and may_fork()
        if forks:
            self._start_processes()
        if self._job.takes_part:
            self._start_threads(1 if forks else 2)
        self._give_out(groups)  # so that the threads have something to do while processes are started
        if with_processes and not forks:
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
                    del item  # its memory may be used again once it is dropped
                    self._listen(groups, 0)
            else:
                yield from self._made(given, groups)

    # -- starting workers

    def _start_threads(self, count: int) -> None:
        try:
            self._add(self._pool.take_thread())
            if count > 1:
                self._spare = self._add(self._pool.take_thread())
        except (OSError, RuntimeError, WorkerDied) as error:
            _LOG.warning("can't start a worker thread: %s", error)

    def _start_processes(self) -> None:
        if self._spare is not None:
            self._to_start += 1  # one more process replaces the spare thread
        thread_follows = self._job.takes_part and not self._members
        try:
            while self._to_start > thread_follows:
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

    # -- distributing tasks

    def _give_out(self, groups: Iterator[Group]) -> None:
        """Give free workers the next groups; in advance only if enough groups remain for workers without any."""
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
        """Wait for messages of workers, at most ``milliseconds`` if given; handle them, and give out more groups."""
        ready = self._poll.poll(milliseconds)
        for number, _ in ready:
            member = self._members[number]
            try:
                member.listen()
            except WorkerDied as error:
                if member.given:
                    raise
                _LOG.warning("%s", error)  # other workers do the rest, or this process
                self._poll.unregister(number)
                del self._members[number]
                self._pool.give_back(member.helper, is_idle=False)
        if ready:
            self._give_out(groups)

    def _made(self, given: _Given, groups: Iterator[Group]) -> Generator[Any, None, None]:
        """Yield a worker's results for a group of tasks; if there is an output, give the worker its turn to write."""
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
                yield items.pop(0)  # keep no reference, so that its memory can be used again
            given.member.took(weight)
            self._listen(groups, 0)
        log_here(given.end.logged)
        if isinstance(given.end, Failed):
            raise given.end.error
