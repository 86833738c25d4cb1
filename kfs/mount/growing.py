"""Files that grow: the sizes that the kernel was told of them, and reads that must not fall short of those.

The kernel reads whole pages. What an answer lacks of the last one it fills with zeros, and these are bytes of the file
as soon as it knows a larger size. That comes about where the answer to a read and a larger size cross on their way
(``fuse_short_read`` in the kernel's ``fs/fuse/file.c``), and where what answers the read knows less of the file than
what answered for its size. So a read that falls short of a size that was told is no answer, and for a moment after one
that ends with the file no larger size is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from cachetools import LRUCache

from kfs.tree.node import LIVE, Attributes, File, Node

#: How long, in seconds, the kernel may take to copy an answer to its reader.
HELD_SECONDS: Final = 0.4
_FILES_KEPT: Final = 16 * 1024
_MOST_HELD: Final = 256


@dataclass(slots=True)
class _Held:
    """Answers that end with the file at one place: ``reads`` are on their way, the last of others until ``until``."""

    reads: int = 0
    until: float = 0.0

    def rest(self, now: float) -> float:
        """For how long, in seconds, somebody may still be given one of them: at least so long."""
        return HELD_SECONDS if self.reads else self.until - now


class GrowingFiles:
    """What the kernel was told of files that grow; threads share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: LRUCache[int, int] = LRUCache(_FILES_KEPT)
        #: By node id, and by where they end.
        self._held: dict[int, dict[int, _Held]] = {}
        self._lock = threading.Lock()

    def told(self, node: Node, attributes: Attributes) -> Attributes:
        """Return what the kernel is to be told of a node that has those attributes."""
        if attributes.lifetime != LIVE or not isinstance(node, File) or not node.is_exchanged:
            return attributes
        node_id = attributes.node_id
        with self._lock:
            known = self._told.get(node_id, 0)
            if node_id in self._held:
                attributes = self._not_beyond(self._held[node_id], known, attributes)
            self._told[node_id] = max(known, attributes.size)
        return attributes

    def _not_beyond(self, held: dict[int, _Held], known: int, attributes: Attributes) -> Attributes:
        """Return attributes with no larger size than the least at which somebody's answer ends."""
        now = self._clock()
        rests = {end: rest for end, each in held.items() if (rest := each.rest(now)) > 0}
        end = max(min(rests, default=attributes.size), known)
        if end >= attributes.size:
            return attributes
        return replace(attributes, size=end, lifetime=min(LIVE, *rests.values()))

    def has(self, node_id: int) -> bool:
        """Whether a file of that id is known to grow."""
        return node_id in self._told

    @contextmanager
    def read(self, node_id: int) -> Iterator[Callable[[int], bool]]:
        """Yield a function for one read: call it with the offset at which a short answer ends.

        It returns False where a larger size was told: read again. Where it returns True, no larger size than that end
        is told until the block is left, and a moment longer.
        """
        ends: list[int] = []

        def ends_at(end: int) -> bool:
            with self._lock:
                known = self._told.get(node_id, 0)
                at = max(end, known)  # where the next attempt has to end, at least
                self._held.setdefault(node_id, {}).setdefault(at, _Held()).reads += 1
                ends.append(at)
            return end >= known

        try:
            yield ends_at
        finally:
            if ends:
                self._release(node_id, ends)

    def _release(self, node_id: int, ends: list[int]) -> None:
        now = self._clock()
        with self._lock:
            held = self._held[node_id]
            for end in ends:
                held[end].reads -= 1
                held[end].until = now + HELD_SECONDS
            self._held[node_id] = {end: each for end, each in held.items() if each.rest(now) > 0}
            if len(self._held) > _MOST_HELD:
                self._held = {
                    key: ends for key, ends in self._held.items() if any(each.rest(now) > 0 for each in ends.values())
                }
