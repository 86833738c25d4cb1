"""What every front asks of a tree and its nodes in the same way."""

from __future__ import annotations

from typing import Final

from kfs.errors import IsADirectory
from kfs.tree.node import File, Node, Tree

#: ``st_blksize`` and ``f_bsize``: a page, the unit in which the kernel reads.
BLOCK_SIZE: Final = 4096
#: The unit of ``st_blocks``, whatever the block size is.
SECTOR_SIZE: Final = 512
#: The longest name that Linux passes on.
NAME_MAX: Final = 255


def read(node: Node, offset: int, size: int) -> bytes:
    """Return what a read of ``node`` gives; raise IsADirectory for what isn't a file."""
    if not isinstance(node, File):
        raise IsADirectory("not a file")
    data = node.read(offset, size)
    if len(data) > size:
        raise ValueError(f"{len(data)} bytes for a read of {size}")
    return data


def blocks(size: int) -> int:
    """Return ``st_blocks`` of a file of ``size`` bytes, so that ``du`` agrees with ``ls``."""
    return -(-size // SECTOR_SIZE)


def totals_in_blocks(tree: Tree) -> dict[str, int]:
    """Return the fields of ``struct statvfs``: as large as the source's log files, and full."""
    size, _partitions = tree.totals()
    return {
        "f_bsize": BLOCK_SIZE,
        "f_frsize": BLOCK_SIZE,
        "f_blocks": -(-size // BLOCK_SIZE),
        "f_bfree": 0,
        "f_bavail": 0,
        "f_namemax": NAME_MAX,
    }
