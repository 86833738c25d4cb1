"""The simple kinds of nodes: fixed directories, generated files, symlinks."""

from __future__ import annotations

import stat
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from kfs.errors import NotFound, Stale
from kfs.storage.open_files import GoneForGood
from kfs.tree.context import Generated, Owner, TreeContext
from kfs.tree.node import LIVE, Attributes, Directory, Entry, File, Node, Symlink, settled


@dataclass(slots=True)
class GeneratedFile(File):
    """A file whose content is generated in memory at once: for content that doesn't grow with the log.

    ``mtime_ns`` is the time of its source. Its content is that of the first look, or that with more at its end: any
    other content generated later at ``path`` is another file, with another ``node_id``.
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
            raise Stale(f"{self.path}: was re-created")
        return kept


@dataclass(frozen=True, slots=True)
class KeptFile(File):
    """The content of a generated file, for those who have it open though another was generated since."""

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


#: The node id, in a listing, of a name that can't be looked up (``FUSE_UNKNOWN_INO``).
_UNKNOWN_ID: Final = 0xFFFFFFFF
#: Makes a node; raises :class:`~kfs.errors.NotFound` if there is nothing to show now.
Maker = Callable[[], Node]


class FixedDirectory(Directory):
    """A directory of known names: ``listed`` ones are shown, ``unlisted`` ones only resolve."""

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
        owner, mtime_ns = self.context.status_of(self._source)
        return self.context.directory_attributes(self.node_id, owner, mtime_ns)

    def lookup(self, name: str) -> Node:
        make = self._listed.get(name) or self._unlisted.get(name)
        if make is None:
            raise NotFound(f"no {name!r} here")
        return make()

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        yield from list_nodes(self._listed, cookie, with_attributes=with_attributes)


class CostlyFile(File):
    """A file whose size takes a pass over data: a listing doesn't ask for it."""

    __slots__ = ()

    @abstractmethod
    def identity(self) -> tuple[int, int]:
        """Return the node id and the mode, without a pass over data."""


@dataclass(slots=True)
class CostlyGeneratedFile(GeneratedFile, CostlyFile):
    """A generated file that may have to read logs."""

    def identity(self) -> tuple[int, int]:
        node_id = self.node_id or self.context.ids.last_of(self.path)
        return node_id, stat.S_IFREG | (self.owner.permissions & 0o444)


def list_nodes(names: Mapping[str, Maker], cookie: int, *, with_attributes: bool) -> Iterator[Entry]:
    """Yield entries of a few names, in order, from a cookie that counts them; names without a node are left out.

    A name whose node is gone for good is listed, as of an unknown kind; looking it up raises the error.
    """
    for number, name in enumerate(names, 1):
        make = names.get(name) if number > cookie else None
        if make is not None:
            try:
                entry = settled(partial(_made_entry, name, number, make, with_attributes))
            except NotFound:
                continue
            except GoneForGood:
                entry = Entry(name, number, _UNKNOWN_ID, 0, None)
            yield entry


def _made_entry(name: str, cookie: int, make: Maker, with_attributes: bool) -> Entry:
    return entry_of(name, cookie, make(), with_attributes=with_attributes)


def entry_of(name: str, cookie: int, node: Node, *, with_attributes: bool) -> Entry:
    """Return a node's entry, without attributes if its size is costly or may grow.

    The kernel gets a growing size one step at a time: see :mod:`kfs.mount.kernel.growing_files`.
    """
    if isinstance(node, CostlyFile):
        return Entry(name, cookie, *node.identity(), None)
    attributes = node.attributes()
    is_kept = with_attributes and not (isinstance(node, File) and node.is_exchanged)
    return Entry(name, cookie, attributes.node_id, attributes.mode, attributes if is_kept else None)
