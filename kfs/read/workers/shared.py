"""Memory that a worker fills and its parent reads: lent for as long as it is in use, then used again.

To use the same pages again is what makes it fast: a page that is new has to be found, cleared and mapped, twice.

Memory is free when both have let go of it, so each tells the other. While they work on a request the parent says what
are no longer in use, and the worker what it doesn't keep. Between requests the parent has nothing mapped but what
is still looked at, and the worker at most one region of that: so the memory of a table is free when the table is
dropped. What the worker keeps for the next request, a few regions, it sends again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from weakref import finalize

from kfs.read.workers.job import Arena

if TYPE_CHECKING:
    from kfs.read.workers.compiled_memory import Mapping

#: The least that a region can hold; what isn't written to takes no memory.
_LEAST_BYTES: Final = 16 * 1024 * 1024
#: Regions that are kept although they aren't in use, for each worker.
_MOST_FREE: Final = 3
#: Regions that a worker has lent and may have back.
_MOST_LENT: Final = 16
#: The number of a region that its worker doesn't want back.
GIVEN: Final = 0


#: Bytes, and where in a region they belong.
Part = tuple[int, memoryview]


class Region:
    """Memory with a number, which its worker writes to; let go of when it is closed or dropped, and not in use.

    Raises:
        OSError: there is no memory for it.
    """

    def __init__(self, number: int, capacity: int) -> None:
        self.number = number
        self.capacity = capacity
        self.is_known = False  # to the parent, which has it mapped
        self.descriptor = os.memfd_create("kfs-worker", os.MFD_CLOEXEC)
        self._close = finalize(self, os.close, self.descriptor)
        self._mapping: Mapping | None = None
        try:
            os.ftruncate(self.descriptor, capacity)
        except BaseException:
            self.close()
            raise

    def memory(self) -> memoryview:
        """Return all of it, for what lays out in an arena; raise :class:`OSError` where it can't be mapped."""
        from kfs.read.workers.compiled_memory import Mapping  # Python's own keeps a descriptor

        if self._mapping is None:
            self._mapping = Mapping(self.descriptor, self.capacity, True)
        return memoryview(self._mapping)

    def write(self, at: int, part: memoryview) -> None:
        """Write bytes where they belong; raise :class:`OSError` where there is no memory for them."""
        rest = part.cast("B")
        while rest:
            written = os.pwrite(self.descriptor, rest, at)
            at, rest = at + written, rest[written:]

    def close(self) -> None:
        """Have nothing to do with it any more."""
        self._close()
        self._mapping = None


class WorkerMemory:
    """The regions of a worker; its ``arena``, where it has one, lies in the region that is lent next.

    Each costs it a descriptor. So it lends only a number of them; to a reader that keeps all it gives the rest away.
    """

    def __init__(self) -> None:
        self._arena: Arena | None = None
        self._next = 0
        self._needed = 0
        self._filling: Region | None = None
        self._free: list[Region] = []
        self._lent: dict[int, Region] = {}
        self._dropped: list[int] = []

    @property
    def arena(self) -> Arena | None:
        """Where buffers are laid out; None where each has memory of its own."""
        return self._arena

    @arena.setter
    def arena(self, arena: Arena | None) -> None:
        self._arena = arena if find_spec("kfs.read.workers.compiled_memory") is not None else None

    def begin(self) -> None:
        """Use the arena from its beginning; what was laid out in it and not lent is lost.

        Raises:
            OSError: there is no memory for it.
        """
        if self._arena is None:
            return
        region = self._filling
        if region is None or region.capacity < self._needed:
            self._filling = self._region(self._needed)
            if region is not None:
                self._keep(region)
            region = self._filling
        self._arena.use(region.memory())

    def fits(self, size: int) -> bool:
        """Whether what the arena lies in is as large as that."""
        return self._filling is not None and size <= self._filling.capacity

    @contextmanager
    def filled(self, parts: Sequence[Part], size: int, *, in_arena: bool) -> Iterator[Region]:
        """Lend, or give, a region with ``parts`` where they belong; the parent needs its descriptor to know it.

        That is what the arena lies in, which has to hold ``size`` bytes, or another one.

        Raises:
            OSError: there is no memory for it.
        """
        region = self._filling if in_arena else None
        if region is None:
            region = self._region(size)
        else:
            self._filling = None
        self._needed = size + size // 4  # so that the next ones are laid out in it, even if they are a bit larger
        try:
            for at, part in parts:
                region.write(at, part)
            yield region
        except BaseException:
            self._drop(region)
            raise
        if region.number == GIVEN:
            region.close()
        else:
            region.is_known = True
            self._lent[region.number] = region

    def _region(self, size: int) -> Region:
        fitting = [region for region in self._free if region.capacity >= size]
        if fitting:
            self._free.remove(fitting[-1])
            return fitting[-1]
        capacity = max(_LEAST_BYTES, 1 << (size - 1).bit_length())
        if len(self._lent) >= _MOST_LENT:
            return Region(GIVEN, capacity)
        self._next += 1
        return Region(self._next, capacity)

    def returned(self, numbers: Sequence[int]) -> None:
        """Take regions back."""
        for number in numbers:
            region = self._lent.pop(number, None)
            if region is not None:
                self._keep(region)

    def _keep(self, region: Region) -> None:
        if region.number == GIVEN:
            region.close()
            return
        self._free.append(region)
        if len(self._free) > _MOST_FREE:
            self._drop(self._free.pop(0))

    def _drop(self, region: Region) -> None:
        region.close()
        if region.is_known:
            self._dropped.append(region.number)

    def take_dropped(self) -> tuple[int, ...]:
        """Return which regions the parent knows and won't be sent again, and weren't named before."""
        dropped, self._dropped = tuple(self._dropped), []
        return dropped

    def rest(self, lent: int | None) -> None:
        """Have, of what is lent, no more than that region: the others are the parent's alone, which knows none now."""
        for number in self._lent.keys() - {lent}:
            self._lent.pop(number).close()
        self._dropped.clear()
        for region in (*self._free, *self._lent.values(), self._filling):
            if region is not None:
                region.is_known = False


class ParentMemory:
    """What the parent of a worker has of its regions, and which it doesn't need any more."""

    def __init__(self) -> None:
        self._regions: dict[int, Mapping | int] = {}
        self._lent: dict[int, None] = {}  # those that the worker waits for, in order
        self._returned: deque[int] = deque()

    def borrowed(self, number: int, size: int, descriptor: int | None) -> memoryview:
        """Return the first ``size`` bytes of a region, which is returned when there is no view of them any more.

        The ``descriptor`` is given the first time, and may be closed then.

        Raises:
            OSError: it can't be mapped.
        """
        try:
            from kfs.read.workers.compiled_memory import Lease, Mapping
        except ImportError:
            # Python's own mapping keeps a descriptor for each, and a table has more batches than a process has of them.
            return self._copied(number, size, descriptor)
        if number == GIVEN:
            assert descriptor is not None
            return memoryview(Lease(Mapping(descriptor, size), size, None, number))
        if descriptor is not None:
            self._regions[number] = Mapping(descriptor, os.fstat(descriptor).st_size)
        self._lent[number] = None
        return memoryview(Lease(self._regions[number], size, self._returned, number))

    def _copied(self, number: int, size: int, descriptor: int | None) -> memoryview:
        if number == GIVEN:
            assert descriptor is not None
            return memoryview(os.pread(descriptor, size, 0))
        if descriptor is not None:
            self._regions[number] = os.dup(descriptor)
        self._lent[number] = None
        kept = self._regions[number]
        assert isinstance(kept, int)
        self._returned.append(number)
        return memoryview(os.pread(kept, size, 0))

    def take_returned(self) -> tuple[int, ...]:
        """Return which regions aren't needed any more, and weren't named before."""
        returned = [self._returned.popleft() for _ in range(len(self._returned))]
        for number in (waited_for := [number for number in returned if number in self._lent]):
            del self._lent[number]
        return tuple(waited_for)

    def dropped(self, numbers: Sequence[int]) -> None:
        """Let go of regions that the worker doesn't keep."""
        for number in numbers:
            self._let_go(self._regions.pop(number, None))

    def rest(self) -> int | None:
        """Let go of all but what is looked at; return which of that the worker shall wait for, if any.

        It is the last one: what takes batch after batch still has the last when it asks for the next scan.
        """
        last = next(reversed(self._lent), None)
        self._lent = {} if last is None else {last: None}
        self._let_go_of_all()
        return last

    def keep_lent(self) -> None:
        """Never return what is in use now: a fork of this process may use it for longer.

        Its worker has it as lent until the request is over.
        """
        self._lent = {}

    def close(self) -> None:
        """Let go of all; what is looked at stays, and is never returned."""
        self._lent = {}
        self._let_go_of_all()

    def _let_go_of_all(self) -> None:
        for kept in self._regions.values():
            self._let_go(kept)
        self._regions.clear()

    @staticmethod
    def _let_go(kept: Mapping | int | None) -> None:
        if isinstance(kept, int):
            os.close(kept)
