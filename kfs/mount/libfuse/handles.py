"""Open files, for fronts that identify a file by its path in each request.

libfuse's high-level interface works with paths: for the kernel, everything that a path ever led to is one inode, with
one size and one set of pages. So handles tell open files apart: each stands for the node that its path led to at open.

The kernel may open a file from an old look-up or a listing. If it may have another node's size, the open fails with
ESTALE, and the kernel looks the path up and opens it again, unnoticed by the reader. The last node told for a path is
remembered. For any other path, the kernel has the current node's size, unless replaced by something else a moment ago
(:attr:`~kfs.tree.node.File.is_new_there`).

The kernel's pages of a path belong to one node at a time: while that node is open, reads of another node at the same
path bypass the page cache. Once the kernel knows the size of a newer node, readers of the older one get ESTALE. Files
that are exchanged routinely are always read past the page cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from kfs.errors import NotFound, Stale
from kfs.mount.nodes import read
from kfs.tree.node import Attributes, File, Node

#: For how many paths to remember whose pages the kernel has, though they are not open.
_PATHS_KEPT: Final = 4096


class Pages(Enum):
    """How an open treats the kernel's pages of the path."""

    KEPT = auto()
    DROPPED = auto()
    PASSED_BY = auto()


@dataclass(slots=True)
class _Opened:
    """The node that a path led to when it was opened."""

    path: bytes
    node_id: int
    node: Node


@dataclass(slots=True)
class _Place:
    """A path: whose pages the kernel has (id, size, time), which node it was told last, how often each node is open.

    ``is_refused``: it has to be looked up before it is opened; ``is_looked_up``: it has been since.
    """

    pages_of: tuple[int, int, int] | None = None
    told: int = 0
    open_as: dict[int, int] = field(default_factory=dict)
    is_refused: bool = False
    is_looked_up: bool = False

    def is_open_as_another(self, node_id: int) -> bool:
        """Return whether another node is open at this path."""
        return any(other != node_id for other in self.open_as)


class Handles:
    """Issues handles and finds their nodes; for one thread."""

    def __init__(self) -> None:
        self._opened: dict[int, _Opened] = {}
        self._places: dict[bytes, _Place] = {}
        self._last = 0

    def open(self, path: bytes, node: Node, attributes: Attributes) -> tuple[int, Pages]:
        """Return a handle for the node at a path, and how to treat the kernel's pages.

        Raises:
            Stale: the kernel may know another node's size, and has to look the path up first. If it did, and the node
                has changed again, the file is opened and read past the page cache.
        """
        node_id = attributes.node_id
        place = self._place(path)
        is_exchanged = isinstance(node, File) and node.is_exchanged
        if place.told:
            is_known = place.told == node_id
        else:
            is_known = not is_exchanged and not (isinstance(node, File) and node.is_new_there)
        if not is_known and not place.is_looked_up:
            place.is_refused = True
            raise Stale(f"{path.decode('utf-8', 'backslashreplace')}: replaced by something else")
        place.is_refused, place.is_looked_up, place.told = False, False, node_id
        shape = node_id, attributes.size, attributes.mtime_ns
        if not is_known or is_exchanged or place.is_open_as_another(node_id):
            # Such an open keeps no pages, and those that sendfile and mmap leave behind may be of any node.
            place.pages_of, pages = None, Pages.PASSED_BY
        elif place.pages_of == shape:
            pages = Pages.KEPT
        else:
            place.pages_of, pages = shape, Pages.DROPPED
        place.open_as[node_id] = place.open_as.get(node_id, 0) + 1
        self._last += 1
        self._opened[self._last] = _Opened(path, node_id, node)
        return self._last, pages

    def _place(self, path: bytes) -> _Place:
        place = self._places.get(path)
        if place is None:
            if len(self._places) >= _PATHS_KEPT:
                self._places = {each: known for each, known in self._places.items() if known.open_as}
            place = self._places[path] = _Place()
        return place

    def node(self, handle: int) -> Node:
        """Return the node of a handle.

        Raises:
            Stale: its path leads to another node by now, and the kernel knows.
        """
        opened = self._opened.get(handle)
        if opened is None:
            raise Stale(f"no handle {handle}")
        if self._places[opened.path].told != opened.node_id:
            raise Stale(f"{opened.path.decode('utf-8', 'backslashreplace')}: replaced by something else")
        return opened.node

    def attributes(self, handle: int) -> Attributes:
        """Return the attributes of a handle's node; raise :class:`Stale` as :meth:`node`, or if the node is gone."""
        node = self.node(handle)
        try:
            return node.attributes()
        except NotFound as error:
            raise Stale(str(error)) from error

    def read(self, handle: int, offset: int, size: int) -> bytes:
        """Return bytes of a handle's node; raise :class:`Stale` as :meth:`attributes`."""
        node = self.node(handle)
        try:
            return read(node, offset, size)
        except NotFound as error:
            raise Stale(str(error)) from error

    def tell(self, path: bytes, attributes: Attributes) -> None:
        """Note the attributes that the kernel gets for a path."""
        place = self._place(path)
        place.told, place.is_looked_up = attributes.node_id, place.is_refused

    def release(self, handle: int) -> None:
        """Forget a handle."""
        opened = self._opened.pop(handle, None)
        if opened is not None:
            place = self._places[opened.path]
            place.open_as[opened.node_id] -= 1
            if not place.open_as[opened.node_id]:
                del place.open_as[opened.node_id]
