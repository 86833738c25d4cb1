"""What workers are given: a job says what becomes of a task, and what it yields says how that travels."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, Self, TypeGuard, TypeVar

MEBIBYTE: Final = 1024 * 1024
#: What a task costs besides what is read for it, in bytes that could be read meanwhile.
_TASK_BYTES: Final = MEBIBYTE
#: The most small tasks that are given out together.
_MOST_TOGETHER: Final = 64
#: What an item that is pickled counts as, in bytes: some hundred, and the objects that it becomes.
_PICKLED_BYTES: Final = 1024

Task = TypeVar("Task")
Item = TypeVar("Item")


class Arena(Protocol):
    """Memory of the caller's in which buffers are laid out, one behind the other, where they fit.

    A buffer that doesn't has memory of its own. What a view of a buffer is of (:attr:`memoryview.obj`) says by its
    attribute ``place`` where in the arena's memory it lies.
    """

    @property
    def used(self) -> int:
        """How many bytes of the memory have buffers in them."""
        ...

    def use(self, memory: memoryview | None) -> None:
        """Lay out what is made from now on in ``memory``, from its beginning; not before what was begun is taken.

        The memory that was used before stays for as long as its buffers are in use.
        """
        ...


def place_of(buffer: memoryview) -> int | None:
    """Return where in the arena's memory a buffer lies, None where it has memory of its own."""
    place: int | None = getattr(buffer.obj, "place", None)
    return place


class Buffered(Protocol):
    """An item whose bytes travel in shared memory; the rest of it is pickled."""

    @property
    def buffers(self) -> Sequence[memoryview | None]:
        """The bytes."""
        ...

    def with_buffers(self, buffers: list[memoryview | None]) -> Self:
        """Return the item with other buffers."""
        ...


def is_buffered(item: object) -> TypeGuard[Buffered]:
    """Whether an item is :class:`Buffered`; it is asked of every item, and ``isinstance`` of a protocol is slow."""
    return hasattr(item, "with_buffers")


@dataclass(frozen=True, slots=True)
class Output:
    """An item that is written to the request's output, by the process that made it."""

    data: bytes


def write(output: int, data: bytes) -> None:
    """Write all of ``data`` to a descriptor; raise OSError where that fails."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(output, rest) :]


class OpenJob(ABC, Generic[Task, Item]):
    """A job as one process does it: for one thread, task after task."""

    @property
    def arena(self) -> Arena | None:
        """Where the buffers of items are laid out, None where each has memory of its own."""
        return None

    @abstractmethod
    def do(self, task: Task) -> Iterator[Item]:
        """Yield what is made of a task: :class:`Output`, :class:`Buffered`, or anything that can be pickled."""

    def close(self) -> None:
        """Give back what is open."""
        return


class Job(ABC, Generic[Task, Item]):
    """What is to be done with tasks; small, and pickled, as tasks are: it travels to other processes.

    It must be of a module that a new interpreter can import.
    """

    #: Bytes of items that are sent, or written, at once.
    portion_bytes: ClassVar[int] = MEBIBYTE
    #: Bytes that all processes together may have ready, not taken yet.
    ready_bytes: ClassVar[int] = 96 * MEBIBYTE
    #: Bytes to be read below which small tasks are given out together; with 0 each is given out alone.
    together_bytes: ClassVar[int] = 2 * MEBIBYTE
    #: Groups of tasks that a process is given beforehand, besides the one it is at: none where they are few and large.
    groups_ahead: ClassVar[int] = 0
    #: Groups that are given out or done, and whose results were not taken yet, for each process.
    groups_open: ClassVar[int] = 4
    #: Whether the process that asks does tasks as one of those that do, not only until there is another one.
    takes_part: ClassVar[bool] = True
    #: From how many bytes to be read a second thread pays.
    worth_sharing: ClassVar[int] = 16 * MEBIBYTE
    #: From how many bytes starting processes pays.
    worth_processes: ClassVar[int] = 192 * MEBIBYTE
    #: Whether it has :class:`Buffered` items.
    shares_memory: ClassVar[bool] = False

    @abstractmethod
    def open(self) -> OpenJob[Task, Item]:
        """Open what it takes to do it, in the process that calls this; nothing that it opens was opened before."""

    def bytes_of(self, task: Task) -> int:
        """Return about how many bytes are read for a task: large ones are worth the start of a process."""
        return 0


class Group(NamedTuple):
    """Tasks that are given out together, and about how many bytes are read for them."""

    tasks: list[Any]
    bytes: int

    @property
    def size(self) -> int:
        """What the tasks count as, in bytes: what is read for them, and what they cost besides."""
        return len(self.tasks) * _TASK_BYTES + self.bytes


def groups_of(job: Job[Any, Any], tasks: Iterable[Any]) -> Iterator[Group]:
    """Yield tasks in groups: small ones together, below :attr:`Job.together_bytes`."""
    together: list[Any] = []
    size = 0
    for task in tasks:
        task_size = job.bytes_of(task)
        if together and (size + task_size >= job.together_bytes or len(together) == _MOST_TOGETHER):
            yield Group(together, size)
            together, size = [], 0
        together.append(task)
        size += task_size
    if together:
        yield Group(together, size)


def weight_of(item: object) -> int:
    """Return what an item counts as, in bytes."""
    if isinstance(item, Output):
        return len(item.data)
    if is_buffered(item):
        return sum(buffer.nbytes for buffer in item.buffers if buffer is not None)
    return _PICKLED_BYTES


def portions_of(items: Iterable[Item], portion_bytes: int) -> Iterator[tuple[list[Item], int]]:
    """Yield items in portions that are worth to be sent at once, and what each counts as, in bytes.

    Where making the next item fails, those before it are yielded first.
    """
    portion: list[Item] = []
    weight = 0
    try:
        for item in items:
            portion.append(item)
            weight += weight_of(item)
            del item  # its memory may be used again once it is dropped
            if weight >= portion_bytes:
                yield portion, weight
                portion, weight = [], 0
    except Exception:
        if portion:
            yield portion, weight
        raise
    if portion:
        yield portion, weight
