"""Memory that a worker fills and its parent reads: lent for as long as anybody looks at it, then used again.

To use the same pages again is what makes it fast: a page that is new has to be found, cleared and mapped, twice.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kfs.render.arrow_gather import open_room

#: The least that a region can hold; what isn't written to takes no memory.
_LEAST_BYTES: Final = 16 * 1024 * 1024
#: Regions that nobody uses and that are kept, for each worker.
_MOST_FREE: Final = 3
#: Regions that a worker has lent and may have back.
_MOST_LENT: Final = 16
#: The number of a region that its worker doesn't want back.
GIVEN: Final = 0


#: Bytes, and where in a region they belong.
Part = tuple[int, memoryview]


class Region:
    """Memory with a number, which its worker writes to; let go of when nobody has it any more."""

    def __init__(self, number: int, capacity: int) -> None:
        self.number = number
        self.capacity = capacity
        self.descriptor = os.memfd_create("kfs-scan", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, capacity)
            self.memory = mmap.mmap(self.descriptor, capacity)
        except BaseException:
            os.close(self.descriptor)
            raise

    def close_descriptor(self) -> None:
        """Keep only the memory: whoever reads it has a descriptor by now."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Lender:
    """The regions of a worker; its ``room`` lies in one that is lent next, where something uses a room.

    Each costs it a descriptor. So it lends only so many; what is read by somebody who keeps all of it is given away.
    """

    def __init__(self) -> None:
        self.room = open_room()
        self._next = 0
        self._needed = 0
        self._filling: Region | None = None
        self._free: list[Region] = []
        self._lent: dict[int, Region] = {}

    def begin(self) -> None:
        """Use the room from its beginning; what was laid out in it and not lent is lost.

        Raises:
            OSError: there is no memory for it.
        """
        if self.room is None:
            return
        region = self._filling
        if region is None or region.capacity < self._needed:
            if region is not None:
                self._free.append(region)
            region = self._filling = self._region(self._needed)
        self.room.use(memoryview(region.memory))

    def holds(self, size: int) -> bool:
        """Whether what the room lies in is as large as that."""
        return self._filling is not None and size <= self._filling.capacity

    @contextmanager
    def filled(self, parts: Sequence[Part], size: int, *, in_room: bool) -> Iterator[Region]:
        """Lend, or give, a region with ``parts`` where they belong, and a descriptor where it is to be sent.

        That is what the room lies in, which has to hold ``size`` bytes, or another one.

        Raises:
            OSError: there is no memory for it.
        """
        region = self._filling if in_room else None
        if region is None:
            region = self._region(size)
        else:
            self._filling = None
        self._needed = size + size // 4  # so that the next ones are laid out in it, even if they are a bit larger
        with memoryview(region.memory) as memory:
            for at, part in parts:
                memory[at : at + part.nbytes] = part.cast("B")
        try:
            yield region
        finally:
            region.close_descriptor()
            if region.number != GIVEN:
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
                self._free.append(region)
        while len(self._free) > _MOST_FREE:
            self._free.pop(0).close_descriptor()  # of one that was never lent it is open


class Borrower:
    """What the parent of a worker has of its regions, and which it doesn't need any more."""

    def __init__(self) -> None:
        self._regions: dict[int, object] = {}
        self._returned: deque[int] = deque()

    def borrowed(self, number: int, size: int, descriptor: int | None) -> memoryview:
        """Return the first ``size`` bytes of a region, which is returned when nobody has a view of them any more.

        The ``descriptor`` is given the first time, and may be closed then.

        Raises:
            OSError: it can't be mapped.
        """
        try:
            from kfs.render.compiled_arrow import Lease, Mapping
        except ImportError:
            # Python's own mapping keeps a descriptor for each, and a table has more batches than a process has of them.
            return self._copied(number, size, descriptor)
        if number == GIVEN:
            assert descriptor is not None
            return memoryview(Lease(Mapping(descriptor, size), size, None, number))
        if descriptor is not None:
            self._regions[number] = Mapping(descriptor, os.fstat(descriptor).st_size)
        return memoryview(Lease(self._regions[number], size, self._returned, number))

    def _copied(self, number: int, size: int, descriptor: int | None) -> memoryview:
        if number == GIVEN:
            assert descriptor is not None
            return memoryview(os.pread(descriptor, size, 0))
        if descriptor is not None:
            self._regions[number] = os.dup(descriptor)
        kept = self._regions[number]
        assert isinstance(kept, int)
        self._returned.append(number)
        return memoryview(os.pread(kept, size, 0))

    def take_returned(self) -> tuple[int, ...]:
        """Return which regions aren't needed any more, and weren't named before."""
        return tuple(self._returned.popleft() for _ in range(len(self._returned)))

    def close(self) -> None:
        """Let go of all; what is looked at stays."""
        for kept in self._regions.values():
            if isinstance(kept, int):
                os.close(kept)
        self._regions.clear()
        self._returned.clear()
