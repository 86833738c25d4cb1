"""The interface of a virtual tree: nodes, attributes, listings, bytes.

It is independent of FUSE bindings. A front needs four things: a node by name or id, its attributes, the entries of a
directory from a resume point on, and bytes of a file.
"""

from __future__ import annotations

import errno
import math
import posixpath
import stat
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar
from weakref import ref

from kfs.errors import KfsError, NotFound
from kfs.metrics import Metric
from kfs.storage.open_files import GoneForGood

#: A lifetime for nodes that cannot change while their id is valid.
FOREVER: Final = math.inf
#: A lifetime, in seconds, until the tree invalidates the name (:meth:`Tree.invalidations`): a year. A front that can't
#: invalidate a single name keeps it for :data:`LIVE` seconds.
UNTIL_TOLD: Final = 365 * 86400.0
#: A lifetime, in seconds, for nodes that may change at any moment: an active segment, a live directory.
LIVE: Final = 0.5
_MOST_LINKS: Final = 8
#: How often to look up a name again that leads to the same node, which is gone before it is used.
_MOST_LOOKS: Final = 8
#: How long, in seconds, to look up a name again that leads to a different node each time.
_LOOKING_SECONDS: Final = 1.0
Found = TypeVar("Found")
#: Bytes of a file, as they lie in memory.
Part = bytes | memoryview
#: The range of a signed 64-bit number of nanoseconds: 1677 to 2262.
_FIRST_NS: Final = -(2**63)
_LAST_NS: Final = 2**63 - 1


@dataclass(slots=True)
class Attributes:
    """The attributes that ``stat`` shows of a node.

    ``node_id`` is opaque, positive, below 2**63 and stable: it is also ``st_ino``. ``size`` is in bytes, always exact.
    ``mtime_ns`` is nanoseconds since 1970 and may be negative. ``lifetime`` is for how many seconds the attributes, the
    name that led here and the contents may be cached (:data:`FOREVER` if nothing can change). Treat it as immutable: it
    isn't frozen only because every name in a listing needs one, and frozen ones take twice as long to create.
    """

    node_id: int
    mode: int
    size: int
    mtime_ns: int
    uid: int
    gid: int
    nlink: int = 1
    lifetime: float = FOREVER

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


class Entry(NamedTuple):
    """One name in a directory listing.

    ``cookie`` resumes the listing after this entry: positive, below 2**63 - 2, ascending. ``attributes`` is None if
    finding them would take a pass over data (an NDJSON file not measured yet), which a listing doesn't force;
    ``node_id`` and ``mode`` (type and permissions) are known all the same.
    """

    name: str
    cookie: int
    node_id: int
    mode: int
    attributes: Attributes | None


@dataclass(frozen=True, slots=True)
class Stamp:
    """The common attributes of all files whose names are numbers: the id of file ``n`` is ``id_of_zero + n``.

    ``mtime_ns`` is for files without a timestamp.
    """

    id_of_zero: int
    mode: int
    mtime_ns: int
    uid: int
    gid: int
    lifetime: float = FOREVER

    def attributes(self, number: int, size: int, timestamp: int) -> Attributes:
        """Return the attributes of one of these files; ``timestamp`` is in milliseconds, -1 for none."""
        return Attributes(
            self.id_of_zero + number,
            self.mode,
            size,
            clock_ns(timestamp, self.mtime_ns),
            self.uid,
            self.gid,
            1,
            self.lifetime,
        )


class FileContents(Protocol):
    """The contents of files, one after another: that of file ``i`` is ``buffer[starts[i]:starts[i + 1]]``.

    ``offsets``, ascending, are the numbers in the files' names; ``timestamps`` are in milliseconds, -1 for none.
    Immutable.
    """

    buffer: bytes
    starts: array[int]
    offsets: array[int]
    timestamps: array[int]


class NumberedFiles(NamedTuple):
    """Files of one directory that were found together: a front may answer for them itself.

    A file's name is its number in decimal digits, without leading zeros, and ``suffix``. All of this is valid while the
    directory's ``state`` is equal to this one. ``contents`` is kept elsewhere, and not for long.
    """

    state: Hashable
    suffix: str
    stamp: Stamp
    contents: ref[FileContents]


class Node(ABC):
    """A node of the tree. Nodes are cheap, made on demand, and hold no open file."""

    __slots__ = ()

    @abstractmethod
    def attributes(self) -> Attributes:
        """Return the attributes; raise :class:`~kfs.errors.KfsError` if they aren't available."""


class Directory(Node):
    """A node with named children."""

    __slots__ = ()

    @abstractmethod
    def lookup(self, name: str) -> Node:
        """Return the child of that name, listed or not; raise :class:`~kfs.errors.NotFound`."""

    def find(self, name: str) -> tuple[Node, Attributes]:
        """Return the child of that name and its attributes, by one search where :meth:`lookup` would need two."""
        node = self.lookup(name)
        return node, node.attributes()

    def found_with(self, name: str) -> NumberedFiles | None:
        """Return the files found together with a child from :meth:`find`, if a front may answer for them."""
        return None

    @abstractmethod
    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        """Yield the listed entries (without ``.`` and ``..``) after ``cookie``; 0 is the start.

        Without ``with_attributes`` (a plain readdir, which shows names and types only) entries may omit their
        attributes to save the work of finding them.

        Lazy: the first entry costs no more than any other, and memory does not grow with the directory. The cookie of
        an entry that is gone resumes after its place.
        """


class File(Node):
    """A node with bytes."""

    __slots__ = ()

    @property
    def is_exchanged(self) -> bool:
        """Whether its name may routinely lead to another file at any moment."""
        return False

    @property
    def is_new_there(self) -> bool:
        """Whether its name may have led to another file a moment ago, so that cached data may be of that one."""
        return False

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``: fewer only at the end of the file.

        Raises :class:`~kfs.errors.CorruptData` if the range touches unreadable data.
        """

    def parts(self, offset: int, size: int) -> Sequence[Part]:
        """Return the same as :meth:`read` in consecutive parts: a writer need not join them."""
        return [self.read(offset, size)]


class Symlink(Node):
    """A node that refers to another, relative to its own directory."""

    __slots__ = ()

    @abstractmethod
    def target(self) -> str:
        """Return the link's text."""


class Invalidation(NamedTuple):
    """A name whose cached data, or that of nodes below it, is no longer valid.

    ``parent_id`` is the id of its present or former directory.
    """

    path: str
    parent_id: int


class Tree(ABC):
    """A tree of nodes, by path and by id."""

    @property
    @abstractmethod
    def root(self) -> Directory:
        """The top directory; its node id is 1."""

    @abstractmethod
    def node(self, node_id: int) -> Node:
        """Return the node of an id that this tree issued; raise :class:`~kfs.errors.NotFound` if it's gone."""

    @abstractmethod
    def resolve(self, path: str) -> Node:
        """Return the node at ``path`` (``/`` separated, no ``.`` or ``..``; symlinks are not followed).

        Raises :class:`~kfs.errors.NotFound` or :class:`~kfs.errors.NotADirectory`.
        """

    def follow(self, path: str) -> Node:
        """Return the node at ``path``, following symlinks at its end; raises as :meth:`resolve`."""
        for _ in range(_MOST_LINKS):
            node = self.resolve(path)
            if not isinstance(node, Symlink):
                return node
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), node.target()))
        raise NotFound(f"{path}: too many links")

    @abstractmethod
    def path(self, node_id: int) -> str:
        """Return the path of a node id, as :meth:`resolve` takes it; raise :class:`~kfs.errors.NotFound`."""

    def following(self, node_id: int) -> Iterator[tuple[int, bytes]]:
        """Yield id and content of the files that a sequential reader of the directory reads after this one.

        Lazy; includes only files whose content is valid :data:`FOREVER`, and none if the node is no such file. The
        first step raises :class:`~kfs.errors.NotFound` if the node is gone by then.
        """
        return iter(())

    def invalidations(self) -> frozenset[Invalidation]:
        """Look for changes; return the directories below which a :data:`FOREVER` promise was broken.

        "For ever" lasts until a segment is truncated, replaced or deleted; the front has a thread of its own for
        :meth:`await_invalidations`, and makes the kernel forget everything below those directories. Files promised
        :data:`UNTIL_TOLD` are included by their own names.
        """
        return frozenset()

    @abstractmethod
    def await_invalidations(self) -> frozenset[Invalidation]:
        """Wait until something may have changed; return what :meth:`invalidations` does of it, perhaps nothing.

        Only one thread may call it. Others end the wait by :meth:`look_now`.
        """

    @abstractmethod
    def look_now(self) -> None:
        """Have :meth:`await_invalidations` look for all changes now."""

    def is_served(self, mountpoint: str, metrics: Callable[[], Iterable[Metric]]) -> None:
        """Note where a front serves the tree, and the function that returns what the front counts, from any thread."""
        return

    @abstractmethod
    def close(self) -> None:
        """Release every file descriptor and map; the tree is unusable afterwards."""


def settled(look: Callable[[], Found]) -> Found:
    """Return the result of ``look``, which finds something by name; look again if that disappears meanwhile.

    A different node may disappear each time, as while retention deletes many segments; this doesn't mean that the name
    leads nowhere.

    Raises:
        NotFound: it disappears each time, in the same way; or for :data:`_LOOKING_SECONDS`.
    """
    last, times, until = "", 0, math.inf
    while True:
        try:
            return look()
        except KfsError as error:
            if error.errno != errno.ESTALE or isinstance(error, GoneForGood):
                raise
            gone = error
        now, reason = time.monotonic(), str(gone)
        last, times = reason, times + 1 if reason == last else 1
        until = min(until, now + _LOOKING_SECONDS)
        if times == _MOST_LOOKS or now > until:
            raise NotFound(reason) from gone


def clock_ns(timestamp: int, otherwise: int) -> int:
    """Return milliseconds as nanoseconds, clamped to the range of a clock; ``otherwise`` if there is no timestamp."""
    if timestamp == -1:
        return otherwise
    time_ns = timestamp * 1_000_000
    if _FIRST_NS <= time_ns <= _LAST_NS:
        return time_ns
    return _FIRST_NS if time_ns < 0 else _LAST_NS
