"""The interfaces of jobs, which turn tasks into items, and of items, whose type decides how they travel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, Self, TypeGuard, TypeVar

MEBIBYTE: Final = 1024 * 1024
#: The fixed cost of a task, in bytes that could be read in the same time.
_TASK_BYTES: Final = MEBIBYTE
#: The maximum number of small tasks in a group.
_MOST_TOGETHER: Final = 64
#: The weight of a pickled item, in bytes: about a hundred bytes of pickle, and the objects that it becomes.
_PICKLED_BYTES: Final = 1024

Task = TypeVar("Task")
Item = TypeVar("Item")


class Arena(Protocol):
    """Memory of the caller in which buffers are laid out one after another, as far as they fit.

    A buffer that doesn't fit has its own memory. The object under a view of a buffer (:attr:`memoryview.obj`) has an
    attribute ``place``, the buffer's position in the arena's memory.
    """

    @property
    def used(self) -> int:
        """The number of bytes that the buffers occupy."""
        ...

    def use(self, memory: memoryview | None) -> None:
        """Lay out new buffers in ``memory``, from its beginning; items that were begun before must be finished.

        The memory that was used before stays allocated as long as its buffers are in use.
        """
        ...


def place_of(buffer: memoryview) -> int | None:
    """Return the position of a buffer in the arena's memory, or None if it has its own memory."""
    place: int | None = getattr(buffer.obj, "place", None)
    return place


class Buffered(Protocol):
    """An item whose buffers travel in shared memory; the rest of it is pickled."""

    @property
    def buffers(self) -> Sequence[memoryview | None]:
        """The buffers."""
        ...

    def with_buffers(self, buffers: list[memoryview | None]) -> Self:
        """Return the item with other buffers."""
        ...


def is_buffered(item: object) -> TypeGuard[Buffered]:
    """Whether an item is :class:`Buffered`; called for each item, and ``isinstance`` with a protocol is slow."""
    return hasattr(item, "with_buffers")


@dataclass(frozen=True, slots=True)
class Output:
    """An item that the process which made it writes to the request's output."""

    data: bytes


class OpenJob(ABC, Generic[Task, Item]):
    """A job that is open in one process; for one thread, one task at a time."""

    @property
    def arena(self) -> Arena | None:
        """The arena for the buffers of items, or None if each has its own memory."""
        return None

    @abstractmethod
    def do(self, task: Task) -> Iterator[Item]:
        """Yield the items of a task: :class:`Output`, :class:`Buffered`, or anything that can be pickled."""

    def close(self) -> None:
        """Release what is open."""
        return


class Job(ABC, Generic[Task, Item]):
    """The work to be done on tasks; like tasks it is small, because it is pickled and sent to other processes.

    A new interpreter must be able to import its module.
    """

    #: Bytes of items that are sent, or written, at once.
    portion_bytes: ClassVar[int] = MEBIBYTE
    #: Bytes of finished items, not taken yet, that all processes together may have.
    ready_bytes: ClassVar[int] = 96 * MEBIBYTE
    #: Bytes to read below which small tasks are grouped; with 0 each task is a group.
    together_bytes: ClassVar[int] = 2 * MEBIBYTE
    #: Groups of tasks that a process gets in advance, besides its current one: none if groups are few and large.
    groups_ahead: ClassVar[int] = 0
    #: Groups per process that are given out or done, but whose results aren't all taken yet.
    groups_open: ClassVar[int] = 4
    #: Whether the requesting process works on tasks throughout, instead of only until another process is ready.
    takes_part: ClassVar[bool] = True
    #: The number of bytes to read from which a second thread pays off.
    worth_sharing: ClassVar[int] = 16 * MEBIBYTE
    #: The number of bytes to read from which starting new interpreters pays off.
    worth_processes: ClassVar[int] = 192 * MEBIBYTE
    #: The same for forks of this process.
    worth_forks: ClassVar[int] = 16 * MEBIBYTE
    #: Whether the job yields :class:`Buffered` items.
    shares_memory: ClassVar[bool] = False

    @abstractmethod
    def open(self) -> OpenJob[Task, Item]:
        """Open the job in the calling process; it shares nothing with other open jobs."""

    def bytes_of(self, task: Task) -> int:
        """Return the approximate number of bytes to read for a task: large tasks are worth starting a process."""
        return 0


class Group(NamedTuple):
    """Tasks that are given out together, and the approximate number of bytes to read for them."""

    tasks: list[Any]
    bytes: int

    @property
    def size(self) -> int:
        """The cost of the tasks, in bytes: the bytes to read, plus the fixed cost of each task."""
        return len(self.tasks) * _TASK_BYTES + self.bytes


def groups_of(job: Job[Any, Any], tasks: Iterable[Any]) -> Iterator[Group]:
    """Yield tasks in groups: small tasks together, with less than :attr:`Job.together_bytes`."""
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
    """Return the weight of an item, in bytes."""
    if isinstance(item, Output):
        return len(item.data)
    if is_buffered(item):
        return sum(buffer.nbytes for buffer in item.buffers if buffer is not None)
    return _PICKLED_BYTES


def portions_of(items: Iterable[Item], portion_bytes: int) -> Iterator[tuple[list[Item], int]]:
    """Yield items in portions that are large enough to be sent, with the weight of each portion in bytes.

    If making the next item raises an error, the items before it are yielded first.
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
