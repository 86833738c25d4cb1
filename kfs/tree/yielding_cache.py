"""An LRU cache of bytes that may have to give way to other memory."""

from __future__ import annotations

from typing import TypeVar

from cachetools import LRUCache

Key = TypeVar("Key")
Value = TypeVar("Value")


class YieldingCache(LRUCache[Key, Value]):
    """An LRU cache that can be left a share of its size; not thread-safe, as any other."""

    #: How much of the size is left, from 0 to 1. One value is kept, however large.
    share = 1.0

    @property
    def room(self) -> int:
        """The most bytes that it keeps, but for one larger value."""
        return int(self.share * self.maxsize)

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        while len(self) > 1 and self.currsize > self.room:
            self.popitem()
