"""Finding nodes by path, as libfuse's high-level interface gives it."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from kfs.errors import KfsError, NotADirectory
from kfs.tree.node import LIVE, Directory, Found, Node, Tree, settled

#: How many nodes each of the two generations holds.
GENERATION_SIZE: Final = 1024

_FOREVER: Final = float("inf")


class Paths:
    """Finds nodes by path and remembers them for a moment.

    Reading a record is a look-up and then a read of the same path, and its siblings share a directory. So a node is
    kept for :data:`~kfs.tree.node.LIVE` seconds, and never longer than its parent directories, so that no node outlives
    its place in the tree.

    The cache is two dictionaries. New nodes go into the young one; when it is full it becomes the old one, and the old
    one is dropped: bounded, with no bookkeeping at a hit.
    """

    __slots__ = ("_clock", "_old", "_tree", "_young")

    def __init__(self, tree: Tree, clock: Callable[[], float] = time.monotonic) -> None:
        self._tree = tree
        self._clock = clock
        self._young: dict[bytes, tuple[Node, float]] = {}
        self._old: dict[bytes, tuple[Node, float]] = {}

    def find(self, path: bytes) -> Node:
        """Return the node at an absolute path; raise ``NotFound`` or ``NotADirectory``."""
        return self._find(path, self._clock())[0]

    def find_directory(self, path: bytes) -> Directory:
        """Return the directory at an absolute path; raise ``NotFound`` or ``NotADirectory``."""
        return _as_directory(path, self._find(path, self._clock())[0])

    def ask(self, path: bytes, question: Callable[[Node], Found], staying: float = 0.0) -> Found:
        """Return ``question`` of the node at an absolute path; a node that is gone meanwhile is looked up again.

        The path leads to the same node for at least ``staying`` more seconds.

        Raises ``NotFound`` or ``NotADirectory``, or as ``question`` does.
        """

        def look() -> Found:
            try:
                return question(self._find(path, self._clock(), staying)[0])
            except KfsError as error:
                if error.errno == errno.ESTALE:
                    self.forget()  # its parents, too, may have been replaced
                raise

        return settled(look)

    def forget(self) -> None:
        """Forget all nodes."""
        self._young, self._old = {}, {}

    def look_again(self, path: bytes) -> Node:
        """Return the node at an absolute path as it is now; raises as :meth:`find`."""
        self._young.pop(path, None)
        self._old.pop(path, None)
        return self.find(path)

    def _find(self, path: bytes, now: float, staying: float = 0.0) -> tuple[Node, float]:
        """Return the node at ``path`` and until when to keep it: at least ``staying`` seconds."""
        found = self._young.get(path) or self._old.get(path)
        if found is not None and found[1] > now + staying:
            return found
        if path == b"/":
            return self._tree.root, _FOREVER
        cut = path.rfind(b"/")
        above = path[:cut] or b"/"
        directory, until = self._find(above, now, staying)
        name = path[cut + 1 :].decode("utf-8", "surrogateescape")
        node = settled(partial(_as_directory(above, directory).lookup, name))
        found = (node, min(until, now + LIVE))
        self._remember(path, found)
        return found

    def _remember(self, path: bytes, found: tuple[Node, float]) -> None:
        if len(self._young) >= GENERATION_SIZE:
            self._old = self._young
            self._young = {}
        self._young[path] = found


def _as_directory(path: bytes, node: Node) -> Directory:
    if not isinstance(node, Directory):
        raise NotADirectory(f"{path.decode('utf-8', 'backslashreplace')}: not a directory")
    return node
