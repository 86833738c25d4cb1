"""A cache of what was made from blocks, bounded in bytes, found by any offset inside."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from typing import Generic, Protocol, TypeVar

from cachetools import LRUCache


class Covering(Protocol):
    """Something that answers for all offsets from ``first_offset`` to ``last_offset``."""

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


Value = TypeVar("Value", bound=Covering)
_Key = tuple[int, int]  # slot of the segment's incarnation, first offset


class OffsetCache(Generic[Value]):
    """Least recently used first out; never more than ``capacity`` bytes: a value larger than that isn't kept."""

    def __init__(self, capacity: int) -> None:
        self._values: _Evicting[Value] = _Evicting(capacity)
        self._lock = threading.Lock()

    def find(self, slot: int, offset: int) -> Value | None:
        """Return the value of that segment incarnation that covers ``offset``."""
        with self._lock:
            firsts = self._values.firsts.get(slot)
            if not firsts:
                return None
            at = bisect_right(firsts, offset) - 1
            if at < 0:
                return None
            value = self._values[slot, firsts[at]]
            return value if value.last_offset >= offset else None

    def put(self, slot: int, value: Value) -> None:
        """Keep ``value`` unless it alone is larger than the cache."""
        with self._lock:
            if value.nbytes > self._values.maxsize:
                return
            key = (slot, value.first_offset)
            if key in self._values:
                del self._values[key]  # or it might be what is driven out to make room for itself
            insort(self._values.firsts.setdefault(slot, []), value.first_offset)
            self._values[key] = value

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()

    @property
    def nbytes(self) -> int:
        """The bytes held now."""
        return int(self._values.currsize)


class _Evicting(LRUCache[_Key, Value]):
    """Keeps ``firsts``, the first offsets held of each slot in order, true as values are evicted."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, getsizeof=lambda value: value.nbytes)
        self.firsts: dict[int, list[int]] = {}

    def clear(self) -> None:
        super().clear()
        self.firsts.clear()

    def __delitem__(self, key: _Key) -> None:
        super().__delitem__(key)
        slot, first = key
        firsts = self.firsts[slot]
        del firsts[bisect_left(firsts, first)]
        if not firsts:
            del self.firsts[slot]
