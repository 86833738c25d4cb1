"""What a virtual tree offers to whatever serves it: nodes, attributes, listings, bytes.

Nothing here has the shape of a FUSE binding. A front needs four things: find a node by name or
by id, its attributes, the entries of a directory from a resume point on, and bytes of a file.
"""

from __future__ import annotations

import errno
import math
import posixpath
import stat
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar
from weakref import ref

from kfs.errors import KfsError, NotFound

#: A lifetime for what cannot change while its node id is valid.
FOREVER: Final = math.inf
#: A lifetime, in seconds, for what holds until the tree invalidates its own name (:meth:`Tree.invalidations`): a year.
#: A front that can't take back a single name keeps it for :data:`LIVE` seconds.
UNTIL_TOLD: Final = 365 * 86400.0
#: A lifetime, in seconds, for what may change at any moment: an active segment, a live directory.
LIVE: Final = 0.5
_MOST_LINKS: Final = 8
#: How often a name is looked up that leads to the same thing, which is gone before it is looked at.
_MOST_LOOKS: Final = 8
#: For how long, in seconds, it is looked up while it is another thing each time that is gone.
_LOOKING_SECONDS: Final = 1.0
Found = TypeVar("Found")
#: Bytes of a file, as they lie in memory.
Part = bytes | memoryview
#: What a signed 64-bit number of nanoseconds can say: 1677 to 2262.
_FIRST_NS: Final = -(2**63)
_LAST_NS: Final = 2**63 - 1


@dataclass(slots=True)
class Attributes:
    """What ``stat`` shows of a node.

    ``node_id`` is opaque, positive, below 2**63 and stable: it is also ``st_ino``. ``size`` is in
    bytes, exact always. ``mtime_ns`` is nanoseconds since 1970 and may be negative. ``lifetime``
    is for how many seconds the attributes, the name that led here and the contents may be kept
    (:data:`FOREVER` where nothing can change). None is ever changed: it isn't frozen only because
    one is made for every name in a listing, and that would take twice as long.
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

    ``cookie`` resumes the listing after this entry: positive, below 2**63 - 2, ascending. ``attributes`` is
    None where finding them costs a pass over data (an NDJSON file not sized yet): a listing
    doesn't force it, ``node_id`` and ``mode`` (type and permissions) are known all the same.
    """

    name: str
    cookie: int
    node_id: int
    mode: int
    attributes: Attributes | None


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the attributes of all files have in common whose names are numbers: that of ``n`` has ``id_of_zero + n``.

    ``mtime_ns`` is for those that have no time of their own.
    """

    id_of_zero: int
    mode: int
    mtime_ns: int
    uid: int
    gid: int
    lifetime: float = FOREVER

    def attributes(self, number: int, size: int, timestamp: int) -> Attributes:
        """Return the attributes of one of them; ``timestamp`` is in milliseconds, -1 for none."""
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
    """The contents of files, one behind another: that of file ``i`` is ``buffer[starts[i]:starts[i + 1]]``.

    ``offsets``, ascending, are the numbers that the files are called by, and ``timestamps`` theirs in milliseconds, -1
    for none. Nothing of it changes.
    """

    buffer: bytes
    starts: array[int]
    offsets: array[int]
    timestamps: array[int]


class NumberedFiles(NamedTuple):
    """Files of one directory that were found together: a front may answer for them itself.

    A file is called by its number in decimal digits, without leading zeros, and ``suffix``. What is said here holds as
    long as the directory's ``state`` is equal to this one. ``contents`` is kept elsewhere, and not for long.
    """

    state: Hashable
    suffix: str
    stamp: Stamp
    contents: ref[FileContents]


class Node(ABC):
    """Anything in the tree. Nodes are cheap, made on demand, and hold no open file."""

    __slots__ = ()

    @abstractmethod
    def attributes(self) -> Attributes:
        """Return the attributes; raise :class:`~kfs.errors.KfsError` if they can't be had."""


class Directory(Node):
    """A node with names in it."""

    __slots__ = ()

    @abstractmethod
    def lookup(self, name: str) -> Node:
        """Return the child of that name, listed or not; raise :class:`~kfs.errors.NotFound`."""

    def find(self, name: str) -> tuple[Node, Attributes]:
        """Return the child of that name and its attributes: one search where :meth:`lookup` would need two."""
        node = self.lookup(name)
        return node, node.attributes()

    def found_with(self, name: str) -> NumberedFiles | None:
        """Return what was found together with a child that :meth:`find` returned, if it may be answered for."""
        return None

    @abstractmethod
    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        """Yield the listed entries (without ``.`` and ``..``) that follow ``cookie``; 0 is the start.

        Without ``with_attributes`` (a plain readdir, which shows names and types only) an entry may
        leave its attributes out to save the work of finding them.

        Lazy: the first entry costs no more than any other, and memory does not grow with the
        directory. A cookie of an entry that has vanished since goes on behind its place.
        """


class File(Node):
    """A node with bytes."""

    __slots__ = ()

    @property
    def is_exchanged(self) -> bool:
        """Whether, at any moment, its name may lead to another file, as a matter of course."""
        return False

    @property
    def is_new_there(self) -> bool:
        """Whether its name may have led to another file a moment ago: what is kept of the name may be of that."""
        return False

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``: fewer only at the end of the file.

        Raises :class:`~kfs.errors.CorruptData` where the range touches what can't be shown.
        """

    def parts(self, offset: int, size: int) -> Sequence[Part]:
        """Return what :meth:`read` does in parts, one after another: a writer need not join them."""
        return [self.read(offset, size)]


class Symlink(Node):
    """A node that names another, relative to the directory it lies in."""

    __slots__ = ()

    @abstractmethod
    def target(self) -> str:
        """Return the link's text."""


class Invalidation(NamedTuple):
    """A name of which something was promised that no longer holds: of it, or of whatever lies below it.

    ``parent_id`` is the id of the directory that it is or was in.
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
        """Return the node at ``path``, symlinks at its end followed; raises as :meth:`resolve`."""
        for _ in range(_MOST_LINKS):
            node = self.resolve(path)
            if not isinstance(node, Symlink):
                return node
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), node.target()))
        raise NotFound(f"{path}: too many links")

    @abstractmethod
    def totals(self) -> tuple[int, int]:
        """Return the bytes of the source's log files, and how many partitions there are, for ``statfs``."""

    @abstractmethod
    def path(self, node_id: int) -> str:
        """Return the path of the node of an id, as :meth:`resolve` takes it; raise :class:`~kfs.errors.NotFound`."""

    def following(self, node_id: int) -> Iterator[tuple[int, bytes]]:
        """Yield id and content of the files that one who reads a directory in order reads after this one.

        Lazily, and only of those that keep what they have :data:`FOREVER`. None if the node is no such file. Who asks
        for the first one gets :class:`~kfs.errors.NotFound` if the node is gone by then.
        """
        return iter(())

    def invalidations(self) -> frozenset[Invalidation]:
        """Look for change, and return the directories below which a :data:`FOREVER` promise was broken.

        "For ever" holds until a segment is truncated, replaced or deleted; the front asks
        now and then, from a thread of its own, and has the kernel forget what lies below those directories.
        Files that were promised :data:`UNTIL_TOLD` are among them by their own names.
        """
        return frozenset()

    @abstractmethod
    def close(self) -> None:
        """Give back every file descriptor and map; the tree is unusable afterwards."""


def settled(look: Callable[[], Found]) -> Found:
    """Return what ``look`` finds by name; where that goes away before it is wholly found, look again.

    What goes may be another thing each time, as while retention takes many segments: that doesn't say that what the
    name leads to isn't there.

    Raises:
        NotFound: it goes away each time, in the same way; or for :data:`_LOOKING_SECONDS`.
    """
    last, times, until = "", 0, math.inf
    while True:
        try:
            return look()
        except KfsError as error:
            if error.errno != errno.ESTALE:
                raise
            gone = error
        now, reason = time.monotonic(), str(gone)
        last, times = reason, times + 1 if reason == last else 1
        until = min(until, now + _LOOKING_SECONDS)
        if times == _MOST_LOOKS or now > until:
            raise NotFound(reason) from gone


def clock_ns(timestamp: int, otherwise: int) -> int:
    """Return milliseconds as nanoseconds within what a clock can show; ``otherwise`` where there is no timestamp."""
    if timestamp == -1:
        return otherwise
    time_ns = timestamp * 1_000_000
    if _FIRST_NS <= time_ns <= _LAST_NS:
        return time_ns
    return _FIRST_NS if time_ns < 0 else _LAST_NS
