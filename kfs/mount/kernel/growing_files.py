"""Growing files: the sizes that the kernel knows, and pages that must not be read beyond the file's end.

The kernel caches whole pages, and fills the rest of a short read's last page with zeros. These become bytes of the file
when it learns a larger size: it sets the size first and drops pages afterwards (``fuse_change_attributes_i`` in the
kernel's ``fs/fuse/inode.c``), so a reader in between gets zeros. So no reply may end before a size that the kernel
knows. After each reply that ends with the file, the kernel has to drop the last page; until a moment later, when that
page is no longer being copied, it gets no size beyond that page's end.
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
    """The end of a dropped page, and until when, in seconds, it may still be copied."""

    end: int
    until: float = float("inf")


@dataclass(slots=True)
class _Growing:
    """The kernel's state of a file: the size that it was ``told``, and replies that ended with the file."""

    told: int = 0
    #: The ends of replies in progress, one for each reply.
    underway: list[int] = field(default_factory=list)
    #: The least end of the replies given, whose page has to be dropped.
    given: int | None = None
    dropped: list[_Dropped] = field(default_factory=list)

    def most(self, now: float) -> int | None:
        """Return the largest size that the kernel may get, None for any."""
        self.dropped = [each for each in self.dropped if each.until > now]
        ends = [*self.underway, *(each.end for each in self.dropped)]
        if self.given is not None:
            ends.append(self.given)
        return max(self.told, min(ends)) if ends else None

    def drop(self) -> _Dropped | None:
        """Return the page to drop now, None if there is none."""
        if self.given is None:
            return None
        dropped, self.given = _Dropped(self.given), None  # pages given from now on may be cached in its place
        # It limits the size for longer than earlier ones, so these matter only if their end is less.
        self.dropped = [*(each for each in self.dropped if each.end < dropped.end), dropped]
        return dropped


class GrowingFiles:
    """The kernel's state of growing files; shared by threads.

    ``drop`` makes the kernel drop its pages of a node from an offset on. A separate thread calls it: the kernel may
    block it until another request is answered.
    """

    def __init__(self, drop: Callable[[int, int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._drop = drop
        self._clock = clock
        self._files: LRUCache[int, _Growing] = LRUCache(_FILES_KEPT)
        self._lock = threading.Lock()
        self._to_drop: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kfs-growing", daemon=True)

    def start(self) -> None:
        """Start dropping pages."""
        self._thread.start()

    def stop(self) -> None:
        """Stop dropping pages; return when that is done."""
        self._to_drop.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def told(self, node: Node, attributes: Attributes) -> Attributes:
        """Return the attributes to tell the kernel of a node that has these.

        A file that grew until a moment ago, such as a rolled segment, is handled as growing once more.
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
        """Return whether a file of that id is known to grow."""
        return node_id in self._files

    @contextmanager
    def read(self, node_id: int) -> Iterator[Callable[[int], bool]]:
        """Yield a function for one read: call it with the offset at which a short reply ends.

        It returns False if the kernel knows a larger size: read again.
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
        """Make the kernel drop the page with which replies ended."""
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
