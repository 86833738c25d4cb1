"""What our own front answers to single requests: byte for byte, with this test in the place of the kernel."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kfs.mount.kernel.protocol import (
    FOREVER_SECONDS,
    FUSE_KERNEL_MINOR_VERSION,
    FUSE_KERNEL_VERSION,
    INIT_OUT,
    OPEN_OUT,
    InitFlag,
    Opcode,
    OpenFlag,
)
from kfs.mount.kernel.session import Session
from kfs.tree.node import LIVE
from tests.mount.toy_tree import FILE_MODE, MTIME_NS, Control, Slot, ToyTree, record_json

UNIQUE: Final = 4712
ROOM: Final = 4096
#: What a kernel offers that this front must not take: it would have to keep promises that it doesn't know of.
UNKNOWN: Final = set(range(32)) - {flag.bit_length() - 1 for flag in InitFlag}
ENTRY_SIZE: Final = 128
#: ``struct fuse_entry_out``: nodeid, generation, entry_valid, attr_valid, both in nanoseconds; then ino, size, blocks,
#: three times, their nanoseconds, mode.
ENTRY: Final = struct.Struct("=QQQQIIQQQqqqIIII")


class Kernel:
    """Asks as the kernel does, one request at a time."""

    def __init__(self, tree: ToyTree) -> None:
        self.tree = tree
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self.session = Session(tree, self._theirs.fileno())

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    def send(self, opcode: int, node_id: int = 1, body: bytes = b"") -> bytes | None:
        """Return the whole reply, None where there is none."""
        request = struct.pack("=IIQQIIII", 40 + len(body), opcode, UNIQUE, node_id, 0, 0, 0, 0) + body
        self.session.answer(opcode, UNIQUE, node_id, request)
        try:
            return self._ours.recv(1 << 20)
        except BlockingIOError:
            return None

    def ask(self, opcode: int, node_id: int = 1, body: bytes = b"") -> bytes | int:
        """Return what is behind the header of the reply, or the errno in it."""
        reply = self.send(opcode, node_id, body)
        assert reply is not None
        length, error, unique = struct.unpack_from("=IiQ", reply)
        assert (length, unique) == (len(reply), UNIQUE)
        return -error if error else reply[16:]

    def id_of(self, path: str) -> int:
        return self.tree.resolve(path).attributes().node_id

    def init(self, major: int = 7, minor: int = 45, offered: int = 0xFFFFFFFF) -> bytes | int:
        return self.ask(Opcode.INIT, 0, struct.pack("=IIII48x", major, minor, 1 << 20, offered))

    def list(self, opcode: Opcode, path: str, offset: int = 0) -> list[ListedEntry]:
        """Return one reply of a listing, taken apart."""
        data = self.ask(opcode, self.id_of(path), read_in(offset))
        assert isinstance(data, bytes)
        assert len(data) <= ROOM
        return list(entries_of(data, plus=opcode == Opcode.READDIRPLUS))


class ListedEntry(NamedTuple):
    name: str
    node_id: int  # that of the entry: 0 where the attributes are to be asked for
    ino: int
    cookie: int
    kind: int
    size: int


def entries_of(data: bytes, *, plus: bool) -> Iterator[ListedEntry]:
    at = 0
    while at < len(data):
        node_id = size = 0
        if plus:
            entry = ENTRY.unpack_from(data, at)
            node_id, size = entry[0], entry[7]
            at += ENTRY_SIZE
        ino, cookie, length, kind = struct.unpack_from("=QQII", data, at)
        name = data[at + 24 : at + 24 + length]
        yield ListedEntry(os.fsdecode(name), node_id, ino, cookie, kind, size)
        at += 24 + (length + 7) // 8 * 8


def read_in(offset: int, size: int = ROOM) -> bytes:
    """``struct fuse_read_in``."""
    return struct.pack("=QQIIQII", 0, offset, size, 0, 0, 0, 0)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    asking = Kernel(ToyTree(Control(tmp_path / "control")))
    yield asking
    asking.close()


# -- INIT


def test_only_what_is_offered_is_taken(kernel: Kernel) -> None:
    for offered in (0, *InitFlag, InitFlag.DO_READDIRPLUS | InitFlag.MAX_PAGES):
        reply = kernel.init(offered=offered)
        assert isinstance(reply, bytes)
        assert INIT_OUT.unpack(reply)[3] & ~offered == 0


def test_of_all_that_is_offered_only_what_is_known_is_taken(kernel: Kernel) -> None:
    reply = kernel.init(offered=0xFFFFFFFF)
    assert isinstance(reply, bytes)
    taken = INIT_OUT.unpack(reply)[3]
    assert taken & InitFlag.DO_READDIRPLUS
    assert taken & InitFlag.NO_OPEN_SUPPORT
    assert not any(taken & 1 << bit for bit in UNKNOWN)


@pytest.mark.parametrize("minor", [31, 32, 40, 45, 99])
def test_newer_protocols_are_answered_with_ours(kernel: Kernel, minor: int) -> None:
    reply = kernel.init(minor=minor)
    assert isinstance(reply, bytes)
    assert len(reply) == 64
    assert INIT_OUT.unpack(reply)[:2] == (FUSE_KERNEL_VERSION, FUSE_KERNEL_MINOR_VERSION) == (7, 31)


@pytest.mark.parametrize(("major", "minor"), [(7, 30), (7, 8), (6, 99)])
def test_older_protocols_are_refused(kernel: Kernel, major: int, minor: int) -> None:
    assert kernel.init(major, minor) == errno.EPROTO


# -- what needs no answer, and what the kernel is to ask no more


@pytest.mark.parametrize("opcode", [Opcode.FORGET, Opcode.BATCH_FORGET])
def test_forgetting_has_no_reply(kernel: Kernel, opcode: Opcode) -> None:
    assert kernel.send(opcode, body=struct.pack("=QQ", 1, 1)) is None


def test_an_interrupt_of_what_is_answered_has_no_reply(kernel: Kernel) -> None:
    assert kernel.send(Opcode.INTERRUPT, body=struct.pack("=Q", 17)) is None


@pytest.mark.parametrize(
    "opcode",
    [
        *(Opcode.OPEN, Opcode.RELEASE, Opcode.FLUSH, Opcode.GETXATTR, Opcode.LISTXATTR, Opcode.ACCESS),
        *(20, 30, 31, 37, 39, 40, 46, 48, 49, 52, 4096),  # of later protocols, or of none
    ],
)
def test_what_saves_every_further_call_is_not_implemented(kernel: Kernel, opcode: int) -> None:
    assert kernel.ask(opcode, kernel.id_of("static/a.txt"), bytes(64)) == errno.ENOSYS


@pytest.mark.parametrize("opcode", [Opcode.SETATTR, Opcode.WRITE, Opcode.CREATE, Opcode.UNLINK, Opcode.RENAME2])
def test_writes_are_refused(kernel: Kernel, opcode: Opcode) -> None:
    assert kernel.ask(opcode, kernel.id_of("static/a.txt"), bytes(64)) == errno.EROFS


def test_only_a_directory_that_cannot_change_is_kept(kernel: Kernel) -> None:
    def flags(path: str) -> int:
        reply = kernel.ask(Opcode.OPENDIR, kernel.id_of(path), bytes(8))
        assert isinstance(reply, bytes)
        return int(OPEN_OUT.unpack(reply)[1])

    assert flags("static") == OpenFlag.CACHE_DIR | OpenFlag.KEEP_CACHE
    assert flags("live") == 0


# -- nodes


@pytest.mark.parametrize(
    ("name", "seconds", "nanoseconds"), [("static/a.txt", FOREVER_SECONDS, 0), ("live/growing", 0, int(LIVE * 1e9))]
)
def test_every_inode_has_a_lifetime_of_its_own(kernel: Kernel, name: str, seconds: int, nanoseconds: int) -> None:
    above, _, own = name.partition("/")
    reply = kernel.ask(Opcode.LOOKUP, kernel.id_of(above), own.encode() + b"\0")
    assert isinstance(reply, bytes)
    assert len(reply) == ENTRY_SIZE
    node_id, generation, entry_valid, attr_valid, entry_ns, attr_ns, ino, *_ = ENTRY.unpack_from(reply)
    assert (node_id, generation, ino) == (kernel.id_of(name), 0, kernel.id_of(name))
    assert (entry_valid, entry_ns) == (attr_valid, attr_ns) == (seconds, nanoseconds)
    attributes = kernel.ask(Opcode.GETATTR, node_id, bytes(16))
    assert isinstance(attributes, bytes)
    assert struct.unpack_from("=QI", attributes) == (seconds, nanoseconds)
    assert attributes[16:] == reply[40:]


def test_attributes_are_those_of_the_node(kernel: Kernel) -> None:
    reply = kernel.ask(Opcode.LOOKUP, kernel.id_of("records"), b"7.json\0")
    assert isinstance(reply, bytes)
    *_, size, blocks, _, mtime, _, _, mtime_ns, _, mode = ENTRY.unpack_from(reply)
    assert (size, blocks, mode) == (len(record_json(7)), 1, FILE_MODE)
    assert mtime * 1_000_000_000 + mtime_ns == MTIME_NS + 7_000_000


def test_names_and_ids_that_are_not_there(kernel: Kernel) -> None:
    assert kernel.ask(Opcode.LOOKUP, kernel.id_of("static"), b"nothing\0") == errno.ENOENT
    assert kernel.ask(Opcode.LOOKUP, kernel.id_of("static/a.txt"), b"b\0") == errno.ENOTDIR
    assert kernel.ask(Opcode.GETATTR, 1 << 39, bytes(16)) == errno.ESTALE
    assert kernel.ask(Opcode.READ, kernel.id_of("static"), read_in(0)) == errno.EISDIR
    assert kernel.ask(Opcode.READLINK, kernel.id_of("static")) == errno.EINVAL
    assert kernel.ask(Opcode.READLINK, kernel.id_of("link")) == b"static/a.txt"


def test_any_range_can_be_read(kernel: Kernel) -> None:
    big = kernel.id_of("static/big.bin")
    whole = b"".join(struct.pack(">Q", at) for at in range(200_000))
    for offset, size in ((0, 10), (4096, 4096), (8192, 131_072), (3, 100_000)):
        assert kernel.ask(Opcode.READ, big, read_in(offset, size)) == whole[offset : offset + size]
    assert kernel.ask(Opcode.READ, big, read_in(3 * 1024 * 1024 + 123)) == b""


# -- listings


def test_a_listing_brings_attributes_along(kernel: Kernel) -> None:
    listed = {entry.name: entry for entry in kernel.list(Opcode.READDIRPLUS, "static")}
    for name in ("a.txt", "page", "big.bin", "inner"):
        own = kernel.tree.resolve(f"static/{name}").attributes()
        assert listed[name][1:] == (own.node_id, own.node_id, listed[name].cookie, own.mode >> 12, own.size)
    # The kernel wants no node of these two.
    assert listed["."].node_id == listed[".."].node_id == 0


def test_what_has_no_size_yet_is_left_out_by_node_id_0(kernel: Kernel) -> None:
    (entry,) = [entry for entry in kernel.list(Opcode.READDIRPLUS, "unsized") if not entry.name.startswith(".")]
    own = kernel.tree.resolve("unsized/a").attributes()
    assert (entry.name, entry.node_id, entry.size) == ("a", 0, 0)
    assert (entry.ino, entry.kind) == (own.node_id, stat.S_IFREG >> 12)


@pytest.mark.parametrize("opcode", [Opcode.READDIR, Opcode.READDIRPLUS])
def test_a_listing_goes_on_at_every_cookie(kernel: Kernel, opcode: Opcode) -> None:
    names: list[str] = []
    offset = 0
    while entries := kernel.list(opcode, "records", offset):
        names += [entry.name for entry in entries]
        offset = entries[-1].cookie
    assert names == [".", "..", *(f"{number}.json" for number in range(1000))]
    for entry in kernel.list(opcode, "records")[:5]:
        following = kernel.list(opcode, "records", entry.cookie)[0].name
        assert names[names.index(entry.name) + 1] == following


def test_a_listing_without_attributes_asks_the_tree_for_none(kernel: Kernel) -> None:
    before = kernel.tree.control[Slot.LOOKUPS]
    entries = kernel.list(Opcode.READDIR, "records")
    assert all(entry.node_id == entry.size == 0 for entry in entries)
    assert kernel.tree.control[Slot.LOOKUPS] == before
