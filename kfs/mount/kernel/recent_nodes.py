"""Recently used nodes, by id."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from kfs.errors import NotADirectory, NotFound
from kfs.tree.node import LIVE, Directory, Node, Tree

#: How many nodes each of the two generations holds.
GENERATION_SIZE: Final = 1024


class RecentNodes:
    """Finds nodes by id, and remembers them for a moment: a file is read just after its look-up.

    As in :class:`~kfs.mount.libfuse.paths.Paths`, the cache has two generations: bounded, with no bookkeeping at a hit.
    """

    __slots__ = ("_clock", "_old", "_tree", "_young")

    def __init__(self, tree: Tree, clock: Callable[[], float] = time.monotonic) -> None:
        self._tree = tree
        self._clock = clock
        self._young: dict[int, tuple[Node, float]] = {}
        self._old: dict[int, tuple[Node, float]] = {}

    def find(self, node_id: int) -> Node:
        """Return the node of an id; raise ``NotFound`` if it's gone.

        A node whose name is gone (retention deletes segments) is still served to those who have it open, as long as it
        is remembered.
        """
        known = self._young.get(node_id) or self._old.get(node_id)
        if known is not None and known[1] > self._clock():
            return known[0]
        try:
            node = self._tree.node(node_id)
        except NotFound:
            if known is None:
                raise
            node = known[0]
        self.remember(node_id, node)
        return node

    def look_again(self, node_id: int) -> Node:
        """Return the node of an id as the tree has it now; raise ``NotFound`` if it's gone."""
        node = self._tree.node(node_id)
        self.remember(node_id, node)
        return node

    def directory(self, node_id: int) -> Directory:
        """Return the directory of an id; raise ``NotFound``, or ``NotADirectory`` for another kind of node."""
        node = self.find(node_id)
        if not isinstance(node, Directory):
            raise NotADirectory(f"{self._tree.path(node_id)}: not a directory")
        return node

    def remember(self, node_id: int, node: Node) -> None:
        """Keep a node that was just found in another way."""
        if len(self._young) >= GENERATION_SIZE:
            self._old = self._young
            self._young = {}
        self._young[node_id] = node, self._clock() + LIVE
