"""Files that are open, for fronts that name a file by its path at each request.

libfuse's high-level interface knows paths, and to the kernel everything that a path has led to is one inode, with one
size and one set of pages. So what is open is told apart here, by handles: each stands for the node that its path led
to when it was opened, and no other. What the kernel's pages of a path hold is of one node at a time: as long as that is
open, another one of the same path is read past the pages. What is exchanged as a matter of course always is: its
readers don't go by the kernel's size. Once the kernel was told the size of a newer node, readers of the older one get
ESTALE.
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
    """A path: what the kernel's pages are of (id, size, time), of which node it was told last, how often it is open."""

    pages_of: tuple[int, int, int] = (0, 0, 0)
    told: int = 0
    open_as: dict[int, int] = field(default_factory=dict)


class Handles:
    """Issues handles, and finds what they stand for; for one thread."""

    def __init__(self) -> None:
        self._opened: dict[int, _Opened] = {}
        self._places: dict[bytes, _Place] = {}
        self._last = 0

    def open(self, path: bytes, node: Node) -> tuple[int, Pages]:
        """Return a handle for what a path leads to now, and what is to become of the kernel's pages."""
        attributes = node.attributes()
        node_id, shape = attributes.node_id, (attributes.size, attributes.mtime_ns)
        place = self._place(path)
        told, place.told = place.told, node_id
        if (isinstance(node, File) and node.is_exchanged) or told not in (0, node_id):  # the kernel has another's size
            pages = Pages.PASSED_BY
        elif place.pages_of == (node_id, *shape):
            pages = Pages.KEPT
        elif place.pages_of[0] != node_id and place.open_as.get(place.pages_of[0]):
            pages = Pages.PASSED_BY
        else:
            place.pages_of, pages = (node_id, *shape), Pages.DROPPED
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

    @property
    def any_open(self) -> bool:
        """Whether anything is open."""
        return bool(self._opened)

    def tell(self, path: bytes, attributes: Attributes) -> bool:
        """Note that the kernel is told of what a path leads to; return whether something else is open there."""
        place = self._place(path)
        place.told = attributes.node_id
        return any(node_id != attributes.node_id for node_id in place.open_as)

    def release(self, handle: int) -> None:
        """Forget a handle."""
        opened = self._opened.pop(handle, None)
        if opened is not None:
            place = self._places[opened.path]
            place.open_as[opened.node_id] -= 1
            if not place.open_as[opened.node_id]:
                del place.open_as[opened.node_id]
