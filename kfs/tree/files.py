"""The simple kinds of nodes: fixed directories, generated files, symlinks."""

from __future__ import annotations

import stat
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from kfs.errors import NotFound, Stale
from kfs.tree.context import Generated, Owner, TreeContext, status_of
from kfs.tree.node import LIVE, Attributes, Directory, Entry, File, Node, Symlink, settled


@dataclass(slots=True)
class GeneratedFile(File):
    """A file whose content is made in memory at once: for what doesn't grow with the log.

    ``mtime_ns`` is the time of what it is made from. It is what it was when it was first looked at, or that with more
    at its end: what is made later at ``path`` is another file, of another ``node_id``.
    """

    context: TreeContext
    path: str
    owner: Owner
    mtime_ns: int
    produce: Callable[[], bytes]
    node_id: int = 0

    def attributes(self) -> Attributes:
        return _attributes(self._made())

    @property
    def is_exchanged(self) -> bool:
        """See :attr:`kfs.tree.node.File.is_exchanged`."""
        return True

    def read(self, offset: int, size: int) -> bytes:
        kept = self.context.generated_as(self.node_id)
        made = kept if kept is not None and offset + size <= len(kept.content) else self._made()
        return made.content[offset : offset + size]

    def _made(self) -> Generated:
        kept = self.context.generated_as(self.node_id)
        try:
            made = self.context.generated(self.path, self.produce, self.mtime_ns, self.owner)
        except NotFound:
            if kept is None:
                raise
            return kept
        if not self.node_id:
            self.node_id = made.node_id
        if made.node_id == self.node_id:
            return made
        if kept is None:
            raise Stale(f"{self.path}: was made anew")
        return kept


@dataclass(frozen=True, slots=True)
class KeptFile(File):
    """What was made of a generated file, for who has it though another was made since."""

    made: Generated

    def attributes(self) -> Attributes:
        return _attributes(self.made)

    def read(self, offset: int, size: int) -> bytes:
        return self.made.content[offset : offset + size]


def _attributes(made: Generated) -> Attributes:
    mode = stat.S_IFREG | (made.owner.permissions & 0o444)
    size, owner = len(made.content), made.owner
    return Attributes(made.node_id, mode, size, made.mtime_ns, owner.uid, owner.gid, lifetime=LIVE)


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
        yield from list_nodes(self._listed, cookie, with_attributes=with_attributes)


class CostlyFile(File):
    """A file whose size costs a pass over data: a listing doesn't ask for it."""

    __slots__ = ()

    @abstractmethod
    def identity(self) -> tuple[int, int]:
        """Return the node id and the mode, without a pass."""


@dataclass(slots=True)
class CostlyGeneratedFile(GeneratedFile, CostlyFile):
    """A generated file for which logs may have to be read."""

    def identity(self) -> tuple[int, int]:
        node_id = self.node_id or self.context.ids.last_of(self.path)
        return node_id, stat.S_IFREG | (self.owner.permissions & 0o444)


def list_nodes(names: Mapping[str, Maker], cookie: int, *, with_attributes: bool) -> Iterator[Entry]:
    """Yield entries of a few names, in their order, from a cookie that counts them; what isn't there is left out."""
    for number, name in enumerate(names, 1):
        make = names.get(name) if number > cookie else None
        if make is not None:
            with suppress(NotFound):
                yield settled(partial(_made_entry, name, number, make, with_attributes))


def _made_entry(name: str, cookie: int, make: Maker, with_attributes: bool) -> Entry:
    return entry_of(name, cookie, make(), with_attributes=with_attributes)


def entry_of(name: str, cookie: int, node: Node, *, with_attributes: bool) -> Entry:
    """Return a node's entry; the attributes of one that is costly to size, or may grow, are left out.

    A size that grows is given one step at a time: :mod:`kfs.mount.kernel.growing_files` says why.
    """
    if isinstance(node, CostlyFile):
        return Entry(name, cookie, *node.identity(), None)
    attributes = node.attributes()
    is_kept = with_attributes and not (isinstance(node, File) and node.is_exchanged)
    return Entry(name, cookie, attributes.node_id, attributes.mode, attributes if is_kept else None)
