"""Jobs for workers that new interpreters can import: each way for items to travel, and everything that may go wrong."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kfs.read.workers.job import Job, OpenJob, Output

_LOG = logging.getLogger("kfs")


class Block(NamedTuple):
    """An item with buffers."""

    number: int
    buffers: list[memoryview | None]

    def with_buffers(self, buffers: list[memoryview | None]) -> Block:
        return self._replace(buffers=buffers)


@dataclass(frozen=True, slots=True)
class Task:
    """What to make, how many, and what to do before the last of them."""

    number: int
    items: int = 3
    act: str = ""


def pickled(task: Task, at: int) -> object:
    return task.number, at


def shared(task: Task, at: int) -> object:
    return Block(task.number, [None, memoryview(b"%d %d" % (task.number, at) * (1 + 100_000 * (at % 2)))])


def written(task: Task, at: int) -> object:
    return Output(b"%d %d\n" % (task.number, at))


def mixed(task: Task, at: int) -> object:
    return (pickled, shared, written)[at % 3](task, at)


MAKERS: dict[str, Callable[[Task, int], object]] = {"pickled": pickled, "shared": shared, "written": written}
EVERY_MAKER = {**MAKERS, "mixed": mixed}


class Broken(Exception):
    """What can't be sent as it is."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


@dataclass(frozen=True, slots=True)
class MakeJob(Job[Task, object]):
    """Makes items in one of the ways."""

    way: str
    parent: int = 0

    portion_bytes: ClassVar[int] = 1
    together_bytes: ClassVar[int] = 0
    groups_ahead: ClassVar[int] = 1
    shares_memory: ClassVar[bool] = True

    def open(self) -> OpenMaking:
        if self.way == "unusable":
            raise ValueError("nothing can be made")
        return OpenMaking(self)

    def bytes_of(self, task: Task) -> int:
        return 1


class OpenMaking(OpenJob[Task, object]):
    def __init__(self, job: MakeJob) -> None:
        self._job = job

    @property
    def _is_in_process(self) -> bool:
        return os.getpid() != self._job.parent

    def do(self, task: Task) -> Iterator[object]:
        _LOG.warning("task %d begins", task.number)
        for at in range(task.items):
            if at == task.items - 1:
                self._act(task.act)
            yield EVERY_MAKER[self._job.way](task, at)
        _LOG.warning("task %d ends", task.number)

    def _act(self, act: str) -> None:
        if act == "die" and self._is_in_process:
            os.kill(os.getpid(), signal.SIGKILL)
        elif act == "raise":
            raise LookupError("as it was asked to")
        elif act == "raise what can't be sent":
            raise Broken(1, 2)
        elif act == "be slow":
            time.sleep(0.05)
        elif act == "wait for processes" and not self._is_in_process:
            _WAIT.wait(20)


#: Set by a test when a thread of its process may go on.
_WAIT = threading.Event()
