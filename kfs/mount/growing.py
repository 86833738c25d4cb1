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
HELD_SECONDS: Final = 0.2
_FILES_KEPT: Final = 16 * 1024
_MOST_HELD: Final = 256


@dataclass(slots=True)
class _Held:
    """A file that ``reads`` were answered to end at ``end``: no larger size is told before ``until``, in seconds."""

    end: int
    until: float = 0.0
    reads: int = 0


class GrowingFiles:
    """What the kernel was told of files that grow; threads share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: LRUCache[int, int] = LRUCache(_FILES_KEPT)
        self._held: dict[int, _Held] = {}
        self._lock = threading.Lock()

    def told(self, node: Node, attributes: Attributes) -> Attributes:
        """Return what the kernel is to be told of a node that has those attributes."""
        if attributes.lifetime != LIVE or not isinstance(node, File) or not node.is_exchanged:
            return attributes
        node_id = attributes.node_id
        with self._lock:
            known = self._told.get(node_id, 0)
            held = self._held.get(node_id)
            if held is not None and attributes.size > max(known, held.end):
                rest = HELD_SECONDS if held.reads else held.until - self._clock()
                if rest > 0:
                    attributes = replace(attributes, size=max(known, held.end), lifetime=min(rest, LIVE))
            self._told[node_id] = max(known, attributes.size)
        return attributes

    def has(self, node_id: int) -> bool:
        """Whether a file of that id is known to grow."""
        return node_id in self._told

    @contextmanager
    def read(self, node_id: int) -> Iterator[Callable[[int], bool]]:
        """Yield a function for one read: call it with the offset at which a short answer ends.

        It returns False where a larger size was told: read again. From then on no larger size is told until the end of
        the block, and a moment longer.
        """
        is_held = False

        def ends_at(end: int) -> bool:
            nonlocal is_held
            with self._lock:
                known = self._told.get(node_id, 0)
                held = self._held.setdefault(node_id, _Held(end))
                held.end = max(held.end, end, known)
                held.reads += not is_held
                is_held = True
            return end >= known

        try:
            yield ends_at
        finally:
            if is_held:
                self._release(node_id)

    def _release(self, node_id: int) -> None:
        now = self._clock()
        with self._lock:
            held = self._held[node_id]
            held.reads -= 1
            held.until = now + HELD_SECONDS
            if len(self._held) > _MOST_HELD:
                self._held = {key: each for key, each in self._held.items() if each.reads or each.until > now}
