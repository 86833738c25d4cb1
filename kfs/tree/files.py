"""The plain kinds of nodes: fixed directories, generated files, symlinks."""

from __future__ import annotations

import stat
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from kfs.errors import NotFound
from kfs.tree.context import Owner, TreeContext, status_of
from kfs.tree.node import LIVE, Attributes, Directory, Entry, File, Node, Symlink


@dataclass(frozen=True, slots=True)
class GeneratedFile(File):
    """A file whose content is made in memory at once: for what doesn't grow with the log.

    ``mtime_ns`` is the time of what it is made from.
    """

    context: TreeContext
    node_id: int
    owner: Owner
    mtime_ns: int
    produce: Callable[[], bytes]

    def attributes(self) -> Attributes:
        content, mtime_ns = self._content()
        mode = stat.S_IFREG | (self.owner.permissions & 0o444)
        return Attributes(self.node_id, mode, len(content), mtime_ns, self.owner.uid, self.owner.gid, lifetime=LIVE)

    def read(self, offset: int, size: int) -> bytes:
        return self._content()[0][offset : offset + size]

    def _content(self) -> tuple[bytes, int]:
        return self.context.generated(self.node_id, self.produce, self.mtime_ns)


@dataclass(frozen=True, slots=True)
class Link(Symlink):
    """A symlink; its size is the length of its target."""

    node_id: int
    text: str
    owner: Owner
    mtime_ns: int
    lifetime: float = LIVE

    def target(self) -> str:
        return self.text

    def attributes(self) -> Attributes:
        size = len(self.text.encode(errors="surrogateescape"))
        mode = stat.S_IFLNK | 0o777
        return Attributes(
            self.node_id, mode, size, self.mtime_ns, self.owner.uid, self.owner.gid, lifetime=self.lifetime
        )


#: Makes a node; raises :class:`~kfs.errors.NotFound` where there is nothing to show just now.
Maker = Callable[[], Node]


class FixedDirectory(Directory):
    """A directory whose names are known: ``listed`` ones are shown, ``unlisted`` ones only resolve."""

    __slots__ = ("_listed", "_source", "_unlisted", "context", "node_id")

    def __init__(
        self,
        context: TreeContext,
        path: str,
        source: str,
        listed: Mapping[str, Maker],
        unlisted: Mapping[str, Maker] | None = None,
    ) -> None:
        self.context = context
        self.node_id = context.ids.of_path(path)
        self._source = source
        self._listed = listed
        self._unlisted = unlisted or {}

    def attributes(self) -> Attributes:
        owner, mtime_ns = status_of(self._source)
        return self.context.directory_attributes(self.node_id, owner, mtime_ns)

    def lookup(self, name: str) -> Node:
        make = self._listed.get(name) or self._unlisted.get(name)
        if make is None:
            raise NotFound(f"no {name!r} here")
        return make()

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        yield from list_nodes(self._listed.items(), cookie, with_attributes=with_attributes)


class CostlyFile(File):
    """A file whose size costs a pass over data: a listing doesn't ask for it."""

    __slots__ = ()

    @abstractmethod
    def identity(self) -> tuple[int, int]:
        """Return the node id and the mode, without a pass."""


@dataclass(frozen=True, slots=True)
class CostlyGeneratedFile(GeneratedFile, CostlyFile):
    """A generated file for which logs may have to be read."""

    def identity(self) -> tuple[int, int]:
        return self.node_id, stat.S_IFREG | (self.owner.permissions & 0o444)


def list_nodes(names: Iterable[tuple[str, Maker]], cookie: int, *, with_attributes: bool) -> Iterator[Entry]:
    """Yield entries of a few names, in their order, from a cookie that counts them; what isn't there is left out."""
    for number, (name, make) in enumerate(names, 1):
        if number > cookie:
            with suppress(NotFound):
                yield entry_of(name, number, make(), with_attributes=with_attributes)


def entry_of(name: str, cookie: int, node: Node, *, with_attributes: bool) -> Entry:
    """Return a node's entry; the attributes of one that is costly to size are left out."""
    if isinstance(node, CostlyFile):
        return Entry(name, cookie, *node.identity(), None)
    attributes = node.attributes()
    return Entry(name, cookie, attributes.node_id, attributes.mode, attributes if with_attributes else None)
