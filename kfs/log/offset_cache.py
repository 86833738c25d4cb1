"""A cache of objects made from blocks, bounded in bytes, with lookup by any offset in the block."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


class Covering(Protocol):
    """An object that covers all offsets from ``first_offset`` to ``last_offset``, both inclusive."""

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


Value = TypeVar("Value", bound=Covering)
_Key = tuple[int, int]  # slot of the segment's incarnation, first offset


class OffsetCache(Generic[Value]):
    """An LRU cache of at most ``capacity`` bytes; it doesn't keep a value larger than that."""

    def __init__(self, capacity: int) -> None:
        #: The most bytes to hold.
        self.capacity = capacity
        self._values: OrderedDict[_Key, Value] = OrderedDict()  # the most recently used is last
        self._firsts: dict[int, list[int]] = {}  # the first offsets of each slot, in order
        self._lock = threading.Lock()
        #: The bytes held now, and how often :meth:`find` found something, and nothing.
        self.nbytes = self.hits = self.misses = 0

    def find(self, slot: int, offset: int) -> Value | None:
        """Return the value that covers ``offset`` in that segment incarnation."""
        with self._lock:
            firsts = self._firsts.get(slot)
            at = bisect_right(firsts, offset) - 1 if firsts else -1
            if firsts is not None and at >= 0:
                key = slot, firsts[at]
                value = self._values[key]
                if value.last_offset >= offset:
                    self._values.move_to_end(key)
                    self.hits += 1
                    return value
            self.misses += 1
            return None

    def put(self, slot: int, value: Value) -> None:
        """Keep ``value`` unless it covers no offset, or is larger than the cache."""
        size = value.nbytes
        if size > self.capacity or value.first_offset > value.last_offset:
            return
        key = slot, value.first_offset
        with self._lock:
            if key in self._values:
                self._drop(key)
            while self.nbytes + size > self.capacity:
                self._drop(next(iter(self._values)))
            insort(self._firsts.setdefault(slot, []), value.first_offset)
            self._values[key] = value
            self.nbytes += size

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self._firsts.clear()
            self.nbytes = 0

    def _drop(self, key: _Key) -> None:
        self.nbytes -= self._values.pop(key).nbytes
        slot, first = key
        firsts = self._firsts[slot]
        del firsts[bisect_left(firsts, first)]
        if not firsts:
            del self._firsts[slot]
