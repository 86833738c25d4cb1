"""Files that are open, for fronts that name a file by its path at each request.

libfuse's high-level interface knows paths, and to the kernel everything that a path has led to is one inode, with one
size and one set of pages. So what is open is told apart here, by handles: each stands for the node that its path led
to when it was opened, and no other.

The kernel may open what it has looked up long before, or what came with a listing. So nothing is opened of which it
has another one's size: that is ESTALE, which has it look the path up and open it again, unseen by the reader. What it
was told lately of a path is remembered. Of any other path it has what it was told of the node that is there, unless
something else was there a moment ago (:attr:`~kfs.tree.node.File.is_new_there`).

What the kernel's pages of a path hold is of one node at a time: as long as that is open, another one of the same path
is read past the pages. Once the kernel was told the size of a newer node,
readers of the older one get ESTALE. What is exchanged as a matter of course is always read past the pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from kfs.errors import NotFound, Stale
from kfs.mount.nodes import read
from kfs.tree.node import Attributes, File, Node

#: Of how many paths it is remembered what the kernel's pages are of, though nothing has them open.
_PATHS_KEPT: Final = 4096


class Pages(Enum):
    """What becomes of the pages that the kernel has of a path when it is opened."""

    KEPT = auto()
    DROPPED = auto()
    PASSED_BY = auto()


@dataclass(slots=True)
class _Opened:
    """What a path led to, for one who has it open."""

    path: bytes
    node_id: int
    node: Node


@dataclass(slots=True)
class _Place:
    """A path: what the kernel's pages are of (id, size, time), of which node it was told last, how often it is open.

    ``is_refused`` if it is to be looked up before it is opened, ``is_looked_up`` if it was then.
    """

    pages_of: tuple[int, int, int] | None = None
    told: int = 0
    open_as: dict[int, int] = field(default_factory=dict)
    is_refused: bool = False
    is_looked_up: bool = False

    def is_open_as_another(self, node_id: int) -> bool:
        """Whether something else is open there than a node."""
        return any(other != node_id for other in self.open_as)


class Handles:
    """Issues handles, and finds what they stand for; for one thread."""

    def __init__(self) -> None:
        self._opened: dict[int, _Opened] = {}
        self._places: dict[bytes, _Place] = {}
        self._last = 0

    def open(self, path: bytes, node: Node, attributes: Attributes) -> tuple[int, Pages]:
        """Return a handle for what a path leads to now, and what is to become of the kernel's pages.

        Raises:
            Stale: the kernel may know another one's size, and is to look the path up first. Where it did, and there is
                something else again, that is opened, and read past the pages.
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
            raise Stale(f"{path.decode('utf-8', 'backslashreplace')}: something else was there")
        place.is_refused, place.is_looked_up, place.told = False, False, node_id
        shape = node_id, attributes.size, attributes.mtime_ns
        if not is_known or is_exchanged or place.is_open_as_another(node_id):
            # None are kept when it is opened, and those that sendfile and mmap leave behind may be of any node.
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
        """Return what a handle stands for.

        Raises:
            Stale: its path leads to something else by now, and the kernel knows.
        """
        opened = self._opened.get(handle)
        if opened is None:
            raise Stale(f"no handle {handle}")
        if self._places[opened.path].told != opened.node_id:
            raise Stale(f"{opened.path.decode('utf-8', 'backslashreplace')}: something else is in its place")
        return opened.node

    def attributes(self, handle: int) -> Attributes:
        """Return the attributes of what a handle stands for; raise :class:`Stale` as :meth:`node`, or if it is gone."""
        node = self.node(handle)
        try:
            return node.attributes()
        except NotFound as error:
            raise Stale(str(error)) from error

    def read(self, handle: int, offset: int, size: int) -> bytes:
        """Return bytes of what a handle stands for; raise :class:`Stale` as :meth:`attributes`."""
        node = self.node(handle)
        try:
            return read(node, offset, size)
        except NotFound as error:
            raise Stale(str(error)) from error

    def tell(self, path: bytes, attributes: Attributes) -> None:
        """Note that the kernel is told of what a path leads to."""
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
