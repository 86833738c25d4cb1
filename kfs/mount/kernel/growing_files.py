"""Files that grow: the sizes that the kernel was told of them, and pages of it that must not be read beyond their end.

The kernel keeps whole pages. What an answer to a read lacks of the last one it fills with zeros, and these are bytes of
the file as soon as it knows a larger size: it sets that first, and drops pages afterwards (``fuse_change_attributes_i``
in the kernel's ``fs/fuse/inode.c``), so that who reads a page in between gets zeros. So no answer falls short of a size
that was told. The kernel has to drop the last page of an answer as soon as it was given; until a moment later, when
that page is no longer copied, the kernel gets no size beyond its end.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from cachetools import LRUCache

from kfs.tree.node import LIVE, Attributes, File, Node

_LOG: Final = logging.getLogger("kfs.mount")
#: How long, in seconds, the kernel may take to copy a page to its reader.
HELD_SECONDS: Final = 0.25
#: How long, in seconds, the kernel keeps a size while a larger one waits for a page to be dropped.
_SOON_SECONDS: Final = 0.05
_FILES_KEPT: Final = 16 * 1024


@dataclass(slots=True)
class _Dropped:
    """The end of a page that is dropped, and until when it may be copied, in seconds."""

    end: int
    until: float = float("inf")


@dataclass(slots=True)
class _Growing:
    """What the kernel has of a file: the size that it was ``told``, and answers that ended with the file."""

    told: int = 0
    #: The ends of answers that are on their way, each as often as there is one.
    underway: list[int] = field(default_factory=list)
    #: The least end of those that were given, whose page is to be dropped.
    given: int | None = None
    dropped: list[_Dropped] = field(default_factory=list)

    def most(self, now: float) -> int | None:
        """Return the largest size that may be told, None where any may."""
        self.dropped = [each for each in self.dropped if each.until > now]
        ends = [*self.underway, *(each.end for each in self.dropped)]
        if self.given is not None:
            ends.append(self.given)
        return max(self.told, min(ends)) if ends else None

    def drop(self) -> _Dropped | None:
        """Return the page that is dropped from now on, None where there is none to drop."""
        if self.given is None:
            return None
        dropped, self.given = _Dropped(self.given), None  # what is given from now on may be kept in its place
        # It holds the size for longer than those before it, so that they are of use only where theirs is less.
        self.dropped = [*(each for each in self.dropped if each.end < dropped.end), dropped]
        return dropped


class GrowingFiles:
    """What the kernel has of files that grow; threads share it.

    ``drop`` has the kernel drop what pages it has of a node from an offset on. It is called from a thread of its own:
    the kernel may block it until another request is answered.
    """

    def __init__(self, drop: Callable[[int, int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._drop = drop
        self._clock = clock
        self._files: LRUCache[int, _Growing] = LRUCache(_FILES_KEPT)
        self._lock = threading.Lock()
        self._to_drop: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kfs-growing", daemon=True)

    def start(self) -> None:
        """Begin to drop pages."""
        self._thread.start()

    def stop(self) -> None:
        """Drop no more pages; return when that is so."""
        self._to_drop.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def told(self, node: Node, attributes: Attributes) -> Attributes:
        """Return what the kernel is to be told of a node that has those attributes.

        What grew until a moment ago, as a segment that was rolled, has grown once more.
        """
        node_id = attributes.node_id
        grows = attributes.lifetime == LIVE and isinstance(node, File) and node.is_exchanged
        if not grows and not self.has(node_id):
            return attributes
        with self._lock:
            file = self._file(node_id)
            most = file.most(self._clock())
            if most is not None and most < attributes.size:
                attributes = replace(attributes, size=most, lifetime=_SOON_SECONDS)
            file.told = max(file.told, attributes.size)
        return attributes

    def has(self, node_id: int) -> bool:
        """Whether a file of that id is known to grow."""
        return node_id in self._files

    @contextmanager
    def read(self, node_id: int) -> Iterator[Callable[[int], bool]]:
        """Yield a function for one read: call it with the offset at which a short answer ends.

        It returns False where a larger size was told: read again.
        """
        ends: list[int] = []

        def ends_at(end: int) -> bool:
            with self._lock:
                file = self._file(node_id)
                ends.append(max(end, file.told))  # where the next attempt has to end, at least
                file.underway.append(ends[-1])
                return end >= file.told

        try:
            yield ends_at
        finally:
            if ends:
                self._given(node_id, ends)

    def _file(self, node_id: int) -> _Growing:
        file = self._files.get(node_id)
        if file is None:
            file = self._files[node_id] = _Growing()
        return file

    def _given(self, node_id: int, ends: list[int]) -> None:
        with self._lock:
            file = self._file(node_id)
            for end in ends:
                if end in file.underway:
                    file.underway.remove(end)
            if file.given is None:
                self._to_drop.put(node_id)
            file.given = ends[-1] if file.given is None else min(file.given, ends[-1])

    def _run(self) -> None:
        while (node_id := self._to_drop.get()) is not None:
            self.drop_page(node_id)

    def drop_page(self, node_id: int) -> None:
        """Have the page dropped that answers ended with."""
        with self._lock:
            dropped = self._file(node_id).drop()
        if dropped is None:
            return
        try:
            self._drop(node_id, dropped.end)
        except Exception:
            _LOG.exception("dropping the last page of a file that grows")
        with self._lock:
            dropped.until = self._clock() + HELD_SECONDS
