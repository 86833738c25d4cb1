"""Operations on a tree and its nodes that all fronts share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kfs.errors import IsADirectory
from kfs.tree.node import LIVE, Attributes, File, Node, Part

#: ``st_blksize`` and ``f_bsize``: a page, the unit in which the kernel reads.
BLOCK_SIZE: Final = 4096
#: The unit of ``st_blocks``, independent of the block size.
SECTOR_SIZE: Final = 512
#: The longest name that Linux passes on.
NAME_MAX: Final = 255
#: How long, in seconds, an opened path leads to the same file at least: after an open, a reader stats the path and then
#: reads it.
OPENED_SECONDS: Final = LIVE / 2


def read(node: Node, offset: int, size: int) -> bytes:
    """Return the bytes of a read of ``node``; raise IsADirectory if it isn't a file."""
    return b"".join(read_parts(node, offset, size))


def read_parts(node: Node, offset: int, size: int) -> Sequence[Part]:
    """Return the bytes of a read of ``node``, in parts; errors as :func:`read`."""
    if not isinstance(node, File):
        raise IsADirectory("not a file")
    found = node.parts(offset, size)
    if sum(map(len, found)) > size:
        raise ValueError(f"more bytes for a read of {size}")
    return found


def found(node: Node) -> tuple[Node, Attributes]:
    """Return a node with its attributes; raises as ``attributes`` does."""
    return node, node.attributes()


def blocks(size: int) -> int:
    """Return ``st_blocks`` of a file of ``size`` bytes, so that ``du`` agrees with ``ls``."""
    return -(-size // SECTOR_SIZE)


#: The fields of ``struct statvfs``: no blocks at all, as of other filesystems without a device. With the size of the
#: source and nothing free, ``df`` and whatever watches disks would call the mount 100 % full. Of one without blocks
#: ``df`` says ``-``, if it lists it at all.
STATVFS: Final = {
    "f_bsize": BLOCK_SIZE,
    "f_frsize": BLOCK_SIZE,
    "f_blocks": 0,
    "f_bfree": 0,
    "f_bavail": 0,
    "f_namemax": NAME_MAX,
}
