"""A tree in memory, with everything in it that a front has to get right."""

from __future__ import annotations

import json
import mmap
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from functools import partial
from pathlib import Path
from typing import Final

from kfs.errors import CorruptData, NotADirectory, NotFound
from kfs.tree.node import FOREVER, LIVE, Attributes, Directory, Entry, File, Invalidation, Node, Symlink, Tree

DIRECTORY_MODE: Final = stat.S_IFDIR | 0o555
FILE_MODE: Final = stat.S_IFREG | 0o444
#: How long a read of ``live/appended`` takes: longer than attributes are kept.
SLOW_SECONDS: Final = 1.4 * LIVE
MTIME_NS: Final = 1_606_446_771_205_000_000

#: Names that a shell, a terminal or a codec would rather not see; the last ones aren't UTF-8.
WEIRD_NAMES: Final = (
    "with space",
    "new\nline",
    "tab\tand 'quotes' \"too\"",
    "back\\slash",
    "-rf",
    "*",
    "caf\u00e9",
    "\u65e5\u672c\u8a9e",
    "\u202eevil",
    "\x1b[31mred",
    "%2Ekfs",
    "x" * 255,
    os.fsdecode(b"latin-1 \xe9"),
    os.fsdecode(b"\xff\xfe"),
)


class Slot(IntEnum):
    """What the tests tell the tree, and the tree counts for the tests, through shared memory."""

    GROWTH = 0
    STATIC_ATTRIBUTES = auto()
    LIVE_ATTRIBUTES = auto()
    STATIC_READS = auto()
    VANISHED = auto()
    APPEARED = auto()
    DELETED_BELOW = auto()
    PID = auto()
    CLOSED = auto()
    LISTINGS = auto()
    LOOKUPS = auto()
    STALLED = auto()
    STALLED_RECORD = auto()
    RECORD_READS = auto()
    APPENDED = auto()
    INVALIDATED = auto()


class Control:
    """Numbers shared between a test and the daemon: a small file, mapped by both."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 4096)

    def __getitem__(self, slot: Slot) -> int:
        value: int = struct.unpack_from("q", self._map, slot * 8)[0]
        return value

    def __setitem__(self, slot: Slot, value: int) -> None:
        struct.pack_into("q", self._map, slot * 8, value)

    def count(self, slot: Slot) -> None:
        self[slot] += 1


def static_bytes(size: int) -> bytes:
    """Bytes of which no two aligned groups of eight are the same."""
    return b"".join(struct.pack(">Q", at) for at in range((size + 7) // 8))[:size]


def record_json(number: int) -> bytes:
    """The content of a record: some 300 bytes, made on demand."""
    return b'{"offset":%d,"value":"%s"}\n' % (number, b"%d" % number * (270 // len(str(number))))


@dataclass(slots=True)
class ToyFile(File):
    """A file with given bytes, or whatever ``contents`` says at the moment."""

    own: Attributes
    contents: Callable[[int, int], bytes]
    on_attributes: Callable[[], None] | None = None
    size: Callable[[], int] | None = None
    grows: bool = False

    @property
    def is_exchanged(self) -> bool:
        return self.grows

    def attributes(self) -> Attributes:
        if self.on_attributes is not None:
            self.on_attributes()
        return self.own if self.size is None else replace(self.own, size=self.size())

    def read(self, offset: int, size: int) -> bytes:
        return self.contents(offset, size)


@dataclass(slots=True)
class ToySymlink(Symlink):
    own: Attributes
    text: str

    def attributes(self) -> Attributes:
        return self.own

    def target(self) -> str:
        return self.text


@dataclass(slots=True)
class ToyDirectory(Directory):
    """A directory of given children; ``present`` says which are there at the moment."""

    own: Attributes
    children: Mapping[str, Own]
    present: Callable[[str], bool] = lambda _name: True
    sized: bool = True
    on_attributes: Callable[[], None] = lambda: None

    def attributes(self) -> Attributes:
        self.on_attributes()
        return self.own

    def lookup(self, name: str) -> Node:
        if name not in self.children or not self.present(name):
            raise NotFound(name)
        return self.children[name]

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        for at, (name, node) in enumerate(self.children.items(), 1):
            if at > cookie and self.present(name):
                own = node.attributes()
                yield Entry(name, at, own.node_id, own.mode, own if self.sized else None)


@dataclass(slots=True)
class Records(Directory):
    """So many records, each made when it is asked for; those below ``deleted_below()`` are gone."""

    own: Attributes
    count: int
    deleted_below: Callable[[], int] = lambda: 0
    count_up: Callable[[Slot], None] = lambda _slot: None
    stall: Callable[[int], None] = lambda _number: None

    def attributes(self) -> Attributes:
        return self.own

    def lookup(self, name: str) -> Node:
        self.count_up(Slot.LOOKUPS)
        stem, dot, suffix = name.partition(".")
        if not stem.isascii() or not stem.isdigit() or dot + suffix != ".json" or str(int(stem)) != stem:
            raise NotFound(name)
        number = int(stem)
        if not self.deleted_below() <= number < self.count:
            raise NotFound(name)
        content = record_json(number)
        return ToyFile(self._record_attributes(number, len(content)), partial(self._read, number, content))

    def _read(self, number: int, content: bytes, at: int, size: int) -> bytes:
        self.count_up(Slot.RECORD_READS)
        self.stall(number)
        return content[at : at + size]

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        self.count_up(Slot.LISTINGS)
        number = cookie
        while number < self.count:
            number = max(number, self.deleted_below())
            own = self._record_attributes(number, len(record_json(number))) if with_attributes else None
            yield Entry(f"{number}.json", number + 1, self._node_id(number), FILE_MODE, own)
            number += 1

    def _record_attributes(self, number: int, size: int) -> Attributes:
        mtime_ns = MTIME_NS + number * 1_000_000
        return Attributes(self._node_id(number), FILE_MODE, size, mtime_ns, self.own.uid, self.own.gid)

    def _node_id(self, number: int) -> int:
        return self.own.node_id << 40 | number + 1


#: Every kind of node that the tree is made of.
Own = ToyFile | ToySymlink | ToyDirectory | Records


class ToyTree(Tree):
    """The tree; see ``_build`` for what is in it."""

    def __init__(self, control: Control, records: int = 1000, *, stuck: bool = False) -> None:
        self.control = control
        self._records = records
        self._stuck = stuck
        self._asked = threading.Event()
        self._next_id = 1
        self._root = self._build()
        self._paths = dict(_paths("", self._root))
        control[Slot.PID] = os.getpid()

    @property
    def root(self) -> Directory:
        return self._root

    def node(self, node_id: int) -> Node:
        return self.resolve(self.path(node_id))

    def path(self, node_id: int) -> str:
        if node_id >> 40:
            return f"{self.path(node_id >> 40)}/{(node_id & (1 << 40) - 1) - 1}.json"
        try:
            return self._paths[node_id]
        except KeyError:
            raise NotFound(f"no node {node_id}") from None

    def following(self, node_id: int) -> Iterator[tuple[int, bytes]]:
        if node_id >> 40:
            directory = self.node(node_id >> 40)
            assert isinstance(directory, Records)
            for entry in directory.entries(node_id & (1 << 40) - 1, with_attributes=False):
                yield entry.node_id, record_json(entry.cookie - 1)

    def resolve(self, path: str) -> Node:
        node: Node = self._root
        for name in filter(None, path.split("/")):
            if not isinstance(node, Directory):
                raise NotADirectory(path)
            node = node.lookup(name)
        return node

    def invalidations(self) -> frozenset[Invalidation]:
        name = "stalling/unread"
        directory_id = self._root.lookup("stalling").attributes().node_id
        return frozenset([Invalidation(name, directory_id)] if self.control[Slot.INVALIDATED] else ())

    def await_invalidations(self) -> frozenset[Invalidation]:
        self._asked.wait(LIVE)
        self._asked.clear()
        return self.invalidations()

    def look_now(self) -> None:
        self._asked.set()

    def close(self) -> None:
        self.control[Slot.CLOSED] = 1

    def _build(self) -> ToyDirectory:
        root_attributes = self._attributes(DIRECTORY_MODE, lifetime=LIVE)
        children: dict[str, Own] = {
            "static": self._directory(self._static()),
            "live": self._directory(self._live(), lifetime=LIVE, present=self._is_present),
            "damaged": self._directory(self._damaged()),
            "names": self._directory({name: self._file(os.fsencode(name)) for name in WEIRD_NAMES}),
            "unsized": self._directory({"a": self._file(b"unsized\n")}, sized=False),
            "records": self._big(self._records),
            "shrinking": self._big(self._records, deleted_below=lambda: self.control[Slot.DELETED_BELOW]),
            "stalling": self._stalling(),
            "walked": replace(self._big(self._records), stall=self._stall_record),
            "million": self._big(1_000_000),
            "ten-million": self._big(10_000_000),
            "link": ToySymlink(self._attributes(stat.S_IFLNK | 0o777, size=12), "static/a.txt"),
            "dangling": ToySymlink(self._attributes(stat.S_IFLNK | 0o777, size=10), os.fsdecode(b"nowhere/\xff\n")),
        }
        return ToyDirectory(root_attributes, children, on_attributes=self._on_root)

    def _on_root(self) -> None:
        if self._stuck:
            time.sleep(60)

    def _static(self) -> dict[str, Own]:
        a = self._file(b"alpha\n")
        a.on_attributes = lambda: self.control.count(Slot.STATIC_ATTRIBUTES)
        return {
            "a.txt": a,
            "b.json": self._file(json.dumps({"b": 2}).encode() + b"\n"),
            "empty": self._file(b""),
            "page": self._file(static_bytes(4096)),
            "big.bin": self._file(static_bytes(3 * 1024 * 1024 + 123)),
            "old": self._file(b"1969\n", mtime_ns=-1_500_000_000),
            "ancient": self._file(b"1650\n", mtime_ns=-10_000_000_000 * 10**9 + 1),
            "far": self._file(b"2262\n", mtime_ns=9_223_372_036_854_775_807),
            "private": self._file(b"secret\n", mode=stat.S_IFREG | 0o400, uid=12345, gid=54321, nlink=2),
            "inner": self._directory({"deep": self._directory({"file": self._file(b"deep\n")})}),
        }

    def _appended(self, at: int, size: int) -> bytes:
        """Return what was appended when this was called, and take a while for that."""
        end = self.control[Slot.APPENDED]
        time.sleep(SLOW_SECONDS)
        return b"x" * max(0, min(size, end - at))

    def _live(self) -> dict[str, Own]:
        growing = self._file(b"", lifetime=LIVE)
        growing.size = lambda: self.control[Slot.GROWTH]
        growing.contents = lambda at, size: static_bytes(self.control[Slot.GROWTH])[at : at + size]
        growing.on_attributes = lambda: self.control.count(Slot.LIVE_ATTRIBUTES)
        appended = self._file(b"", lifetime=LIVE)
        appended.grows = True
        appended.size = lambda: self.control[Slot.APPENDED]
        appended.contents = self._appended
        return {
            "growing": growing,
            "appended": appended,
            "vanishing": self._file(static_bytes(300_000), lifetime=LIVE),
            "appearing": self._file(b"here\n", lifetime=LIVE),
        }

    def _is_present(self, name: str) -> bool:
        if name == "vanishing":
            return not self.control[Slot.VANISHED]
        return name != "appearing" or bool(self.control[Slot.APPEARED])

    def _damaged(self) -> dict[str, Own]:
        def corrupt(_offset: int, _size: int) -> bytes:
            raise CorruptData("the checksum is 1 and should be 2", 4711, "/data/t-0/0.log")

        whole = static_bytes(1 << 20)

        def partly(offset: int, size: int) -> bytes:
            if offset <= 602_112 < offset + size:
                raise CorruptData("a page is damaged", 602_112, "/data/t-0/0.log")
            return whole[offset : offset + size]

        def bug(_offset: int, _size: int) -> bytes:
            return b"%d" % (1 // 0)

        def too_much(_offset: int, size: int) -> bytes:
            return bytes(size + 1)

        return {
            name: replace(self._file(bytes(size)), contents=contents)
            for name, size, contents in (
                ("corrupt", 100, corrupt),
                ("partly", len(whole), partly),
                ("bug", 100, bug),
                ("too-much", 5000, too_much),
            )
        }

    def _stalling(self) -> ToyDirectory:
        """Files on a disk that doesn't answer: one can't be read, of the other not even the size is known."""

        def read(offset: int, size: int) -> bytes:
            self._stall()
            return b"at last\n"[offset : offset + size]

        unread, unsized = self._file(b"at last\n"), self._file(b"at last\n")
        unread.contents = read
        unsized.on_attributes = self._stall
        return self._directory({"unread": unread, "unsized": unsized})

    def _stall(self) -> None:
        while self.control[Slot.STALLED]:
            time.sleep(0.01)

    def _stall_record(self, number: int) -> None:
        while number and self.control[Slot.STALLED_RECORD] == number:
            time.sleep(0.01)

    def _big(self, count: int, deleted_below: Callable[[], int] = lambda: 0) -> Records:
        own = self._attributes(DIRECTORY_MODE, lifetime=LIVE)
        return Records(own, count, deleted_below, self.control.count)

    def _file(self, content: bytes, **attributes: int | float) -> ToyFile:
        own = self._attributes(int(attributes.pop("mode", FILE_MODE)), size=len(content), **attributes)
        return ToyFile(own, lambda at, size: content[at : at + size])

    def _directory(
        self,
        children: Mapping[str, Own],
        *,
        lifetime: float = FOREVER,
        present: Callable[[str], bool] = lambda _name: True,
        sized: bool = True,
    ) -> ToyDirectory:
        return ToyDirectory(self._attributes(DIRECTORY_MODE, lifetime=lifetime), children, present, sized)

    def _attributes(self, mode: int, *, size: int = 0, lifetime: float = FOREVER, **other: int | float) -> Attributes:
        node_id = self._next_id
        self._next_id += 1
        return Attributes(
            node_id=node_id,
            mode=mode,
            size=size,
            mtime_ns=int(other.get("mtime_ns", MTIME_NS)),
            uid=int(other.get("uid", os.getuid())),
            gid=int(other.get("gid", os.getgid())),
            nlink=int(other.get("nlink", 1)),
            lifetime=lifetime,
        )


def _paths(path: str, node: Own) -> Iterator[tuple[int, str]]:
    """Yield id and path of a node, and of all below it but records."""
    yield node.own.node_id, path
    if isinstance(node, ToyDirectory):
        for name, child in node.children.items():
            yield from _paths(f"{path}/{name}".lstrip("/"), child)
