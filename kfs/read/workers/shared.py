"""Memory that a worker fills and its parent reads: lent to the parent while that uses it, then used again.

Reusing pages makes it fast: a new page must be found, cleared and mapped, twice.

A region's memory is freed when both processes have let go of it, so they inform each other. During a request, the
parent reports the regions that it no longer uses, and the worker those that it has dropped. Between requests, the
parent maps only regions that still have views, and the worker keeps at most one of those. So the memory of a table is
freed when the table is dropped. The worker keeps a few free regions for the next request, and sends their descriptors
again.
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

#: The minimum capacity of a region; pages that aren't written to take no memory.
_LEAST_BYTES: Final = 16 * 1024 * 1024
#: The maximum number of free regions that a worker keeps.
_MOST_FREE: Final = 3
#: The maximum number of regions that a worker has lent out and expects back.
_MOST_LENT: Final = 16
#: The number of a region that its worker gives away and doesn't expect back.
GIVEN: Final = 0


#: A position in a region, and the bytes that belong there.
Part = tuple[int, memoryview]


class Region:
    """Numbered memory that a worker writes to; freed once it is closed or dropped, and no longer in use.

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
        """Return the region's memory, for an arena; raise :class:`OSError` if it can't be mapped."""
        from kfs.read.workers.compiled_memory import Mapping  # mmap.mmap would keep a descriptor open

        if self._mapping is None:
            self._mapping = Mapping(self.descriptor, self.capacity, True)
        return memoryview(self._mapping)

    def write(self, at: int, part: memoryview) -> None:
        """Write bytes at a position; raise :class:`OSError` if there is no memory for them."""
        rest = part.cast("B")
        while rest:
            written = os.pwrite(self.descriptor, rest, at)
            at, rest = at + written, rest[written:]

    def close(self) -> None:
        """Close the descriptor, and drop the mapping."""
        self._close()
        self._mapping = None


class WorkerMemory:
    """The regions of a worker; its ``arena``, if it has one, lies in the region that is lent next.

    Each region takes a descriptor, so the worker lends only a limited number of them. If the parent keeps them all, the
    worker gives further ones away.
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
        """The arena for buffers, or None if each has its own memory."""
        return self._arena

    @arena.setter
    def arena(self, arena: Arena | None) -> None:
        self._arena = arena if find_spec("kfs.read.workers.compiled_memory") is not None else None

    def begin(self) -> None:
        """Use the arena from its beginning; buffers that it has and that weren't lent are lost.

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
        """Whether the arena's region has at least ``size`` bytes."""
        return self._filling is not None and size <= self._filling.capacity

    @contextmanager
    def filled(self, parts: Sequence[Part], size: int, *, in_arena: bool) -> Iterator[Region]:
        """Write ``parts`` to a region, and lend or give it to the parent, which needs its descriptor if it is new.

        With ``in_arena`` it is the arena's region, which must have ``size`` bytes; otherwise it is another one.

        Raises:
            OSError: there is no memory for it.
        """
        region = self._filling if in_arena else None
        if region is None:
            region = self._region(size)
        else:
            self._filling = None
        self._needed = size + size // 4  # so that the next buffers fit in the arena even if they are a bit larger
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
        """Return the numbers of dropped regions that the parent knows, each once."""
        dropped, self._dropped = tuple(self._dropped), []
        return dropped

    def rest(self, lent: int | None) -> None:
        """Keep none of the lent regions except ``lent``; the parent has forgotten all regions by now."""
        for number in self._lent.keys() - {lent}:
            self._lent.pop(number).close()
        self._dropped.clear()
        for region in (*self._free, *self._lent.values(), self._filling):
            if region is not None:
                region.is_known = False


class ParentMemory:
    """The parent's side of a worker's regions: maps them, and tracks which ones it no longer needs."""

    def __init__(self) -> None:
        self._regions: dict[int, Mapping | int] = {}
        self._lent: dict[int, None] = {}  # the regions that the worker expects back, in order
        self._returned: deque[int] = deque()

    def borrowed(self, number: int, size: int, descriptor: int | None) -> memoryview:
        """Return the first ``size`` bytes of a region; the region is returned once they have no view any more.

        The first time, the region comes with its ``descriptor``, which the caller may close afterwards.

        Raises:
            OSError: the region can't be mapped.
        """
        try:
            from kfs.read.workers.compiled_memory import Lease, Mapping
        except ImportError:
            # mmap.mmap keeps a descriptor per mapping, and a table has more batches than a process has descriptors.
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
        """Return the numbers of the regions that are no longer needed, each once."""
        returned = [self._returned.popleft() for _ in range(len(self._returned))]
        for number in (waited_for := [number for number in returned if number in self._lent]):
            del self._lent[number]
        return tuple(waited_for)

    def dropped(self, numbers: Sequence[int]) -> None:
        """Release regions that the worker has dropped."""
        for number in numbers:
            self._let_go(self._regions.pop(number, None))

    def rest(self) -> int | None:
        """Release all regions without views; return the number of the one that the worker shall keep as lent, if any.

        It is the last one: a consumer that reads batch by batch still has the last batch when it begins the next scan.
        """
        last = next(reversed(self._lent), None)
        self._lent = {} if last is None else {last: None}
        self._let_go_of_all()
        return last

    def keep_lent(self) -> None:
        """Never return the regions that are in use now: a fork of this process may use them for longer.

        The worker treats them as lent until the request is over.
        """
        self._lent = {}

    def close(self) -> None:
        """Release all regions; those that have views stay mapped, and are never returned."""
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
