"""The kernel's FUSE protocol on ``/dev/fuse``, from ``include/uapi/linux/fuse.h``.

Structures and constants have the names they have there, in the machine's byte order. A request is a ``fuse_in_header``
and the structure of its opcode; a reply, or a notification (whose ``unique`` is 0), is a ``fuse_out_header`` and its
payload.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final

from kfs.mount.nodes import BLOCK_SIZE, SECTOR_SIZE, blocks
from kfs.tree.node import FOREVER, Attributes

FUSE_KERNEL_VERSION: Final = 7
#: The protocol version we use: Linux 5.4 and later. Newer kernels support it, too.
FUSE_KERNEL_MINOR_VERSION: Final = 31
#: The highest position in a file: Linux' ``loff_t`` is signed.
MAX_OFFSET: Final = 2**63 - 1
#: The first protocol version with the notification ``INC_EPOCH``: Linux 6.16.
INC_EPOCH_MINOR_VERSION: Final = 44
#: A read of the device fails with a smaller buffer; our requests are all smaller.
FUSE_MIN_READ_BUFFER: Final = 8192

#: The lifetime, in seconds, of immutable nodes: a year.
FOREVER_SECONDS: Final = 365 * 86400


class Opcode(IntEnum):
    """``enum fuse_opcode``."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    COPY_FILE_RANGE = 47
    TMPFILE = 51


class Notify(IntEnum):
    """``enum fuse_notify_code``."""

    INVAL_INODE = 2
    INVAL_ENTRY = 3
    STORE = 4
    INC_EPOCH = 8


class InitFlag(IntFlag):
    """The ``FUSE_`` flags that INIT negotiates: the kernel offers, and we choose."""

    ASYNC_READ = 1 << 0
    AUTO_INVAL_DATA = 1 << 12
    DO_READDIRPLUS = 1 << 13
    NO_OPEN_SUPPORT = 1 << 17
    PARALLEL_DIROPS = 1 << 18
    MAX_PAGES = 1 << 22


class OpenFlag(IntFlag):
    """``FOPEN_`` flags of the reply to an open."""

    KEEP_CACHE = 1 << 1
    CACHE_DIR = 1 << 3


#: ``struct fuse_in_header``: len, opcode, unique, nodeid; uid, gid, pid and extensions are ignored.
IN_HEADER: Final = Struct("=IIQQ16x")
#: ``struct fuse_out_header``: len, error, unique.
OUT_HEADER: Final = Struct("=IiQ")
#: ``struct fuse_init_in``: major, minor, max_readahead, flags.
INIT_IN: Final = Struct("=IIII")
#: ``struct fuse_init_out``: major, minor, max_readahead, flags, max_background, congestion_threshold,
#: max_write, time_gran, max_pages.
INIT_OUT: Final = Struct("=IIIIHHIIH34x")
#: ``struct fuse_read_in``, for READ, READDIR and READDIRPLUS: fh, offset, size.
READ_IN: Final = Struct("=QQI20x")
#: ``struct fuse_interrupt_in``: unique.
INTERRUPT_IN: Final = Struct("=Q")
#: ``struct fuse_open_out``: fh, open_flags.
OPEN_OUT: Final = Struct("=QI4x")
#: ``struct fuse_statfs_out``: blocks, bfree, bavail, files, ffree, bsize, namelen, frsize.
STATFS_OUT: Final = Struct("=QQQQQIII28x")
#: ``struct fuse_notify_inval_entry_out``: parent, namelen, flags.
NOTIFY_INVAL_ENTRY_OUT: Final = Struct("=QII")
#: ``struct fuse_notify_inval_inode_out``: ino, offset, length.
NOTIFY_INVAL_INODE_OUT: Final = Struct("=Qqq")
#: ``struct fuse_out_header`` and ``struct fuse_notify_store_out``: nodeid, offset, size.
NOTIFY_STORE: Final = Struct("=IiQQQI4x")

# struct fuse_attr: ino, size, blocks, atime, mtime, ctime, their nanoseconds, mode, nlink, uid, gid, rdev, blksize. The
# times are declared unsigned there, but the kernel reads them as signed.
_ATTR: Final = "QQQqqqIIIIIIIII4x"
# struct fuse_entry_out without its attr: nodeid, generation, entry_valid, attr_valid, and their nanoseconds.
_ENTRY: Final = "QQQQII"
# struct fuse_dirent: ino, off, namelen, type.
_DIRENT: Final = "QQII"

_ENTRY_REPLY: Final = Struct(f"=IiQ{_ENTRY}{_ATTR}")
# struct fuse_attr_out: attr_valid, its nanoseconds, padding, attr.
_ATTR_REPLY: Final = Struct(f"=IiQQI4x{_ATTR}")
_DIRENT_HEAD: Final = Struct(f"={_DIRENT}")
_DIRENTPLUS_HEAD: Final = Struct(f"={_ENTRY}{_ATTR}{_DIRENT}")
_NO_ENTRY: Final = bytes(_DIRENTPLUS_HEAD.size - _DIRENT_HEAD.size)
#: Directory entries are aligned to 8 bytes (``FUSE_DIRENT_ALIGN``).
_PADDING: Final = tuple(bytes(-length % 8) for length in range(8))

IN_HEADER_SIZE: Final = IN_HEADER.size
OUT_HEADER_SIZE: Final = OUT_HEADER.size


def entry_reply(unique: int, attributes: Attributes) -> bytes:
    """Return the reply to LOOKUP: header, ``struct fuse_entry_out``. Called as often as :func:`direntplus`."""
    own, size, lifetime = attributes.node_id, attributes.size, attributes.lifetime
    valid, valid_nanoseconds = (FOREVER_SECONDS, 0) if lifetime == FOREVER else _validity(lifetime)
    seconds, nanoseconds = divmod(attributes.mtime_ns, 1_000_000_000)
    # fmt: off
    return _ENTRY_REPLY.pack(
        _ENTRY_REPLY.size, 0, unique,
        own, 0, valid, valid, valid_nanoseconds, valid_nanoseconds,
        own, size, -(-size // SECTOR_SIZE), seconds, seconds, seconds, nanoseconds, nanoseconds, nanoseconds,
        attributes.mode, attributes.nlink, attributes.uid, attributes.gid, 0, BLOCK_SIZE,
    )
    # fmt: on


def attr_reply(unique: int, attributes: Attributes) -> bytes:
    """Return the reply to GETATTR: header, ``struct fuse_attr_out``."""
    return _ATTR_REPLY.pack(_ATTR_REPLY.size, 0, unique, *_validity(attributes.lifetime), *_attr(attributes))


def dirent(name: bytes, cookie: int, node_id: int, mode: int) -> bytes:
    """Return ``struct fuse_dirent``: a name, a type (as in ``st_mode``), the cookie to resume from."""
    length = len(name)
    return _DIRENT_HEAD.pack(node_id, cookie, length, mode >> 12) + name + _PADDING[length & 7]


def direntplus_without_entry(name: bytes, cookie: int, node_id: int, mode: int) -> bytes:
    """Return ``struct fuse_direntplus`` with nodeid 0: name and type only; the kernel has to ask for attributes."""
    return _NO_ENTRY + dirent(name, cookie, node_id, mode)


def direntplus(name: bytes, cookie: int, attributes: Attributes) -> bytes:
    """Return ``struct fuse_direntplus``: a name with everything that LOOKUP would return.

    A large listing spends nearly all its time here: hence no calls in it.
    """
    own, mode, size = attributes.node_id, attributes.mode, attributes.size
    length = len(name)
    lifetime = attributes.lifetime
    valid, valid_nanoseconds = (FOREVER_SECONDS, 0) if lifetime == FOREVER else _validity(lifetime)
    seconds, nanoseconds = divmod(attributes.mtime_ns, 1_000_000_000)
    # fmt: off
    head = _DIRENTPLUS_HEAD.pack(
        own, 0, valid, valid, valid_nanoseconds, valid_nanoseconds,
        own, size, -(-size // SECTOR_SIZE), seconds, seconds, seconds, nanoseconds, nanoseconds, nanoseconds,
        mode, attributes.nlink, attributes.uid, attributes.gid, 0, BLOCK_SIZE,
        own, cookie, length, mode >> 12,
    )
    # fmt: on
    return head + name + _PADDING[length & 7]


def _validity(lifetime: float) -> tuple[int, int]:
    """Return a lifetime as seconds and nanoseconds."""
    if lifetime == FOREVER:
        return FOREVER_SECONDS, 0
    return int(lifetime), int(lifetime % 1 * 1e9)


def _attr(attributes: Attributes) -> tuple[int, ...]:
    seconds, nanoseconds = divmod(attributes.mtime_ns, 1_000_000_000)
    size = attributes.size
    return (
        *(attributes.node_id, size, blocks(size)),
        *(seconds, seconds, seconds, nanoseconds, nanoseconds, nanoseconds),
        *(attributes.mode, attributes.nlink, attributes.uid, attributes.gid, 0, BLOCK_SIZE),
    )
