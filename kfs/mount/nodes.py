"""What every front asks of a tree and its nodes in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kfs.errors import IsADirectory
from kfs.tree.node import LIVE, Attributes, File, Node, Part, Tree

#: ``st_blksize`` and ``f_bsize``: a page, the unit in which the kernel reads.
BLOCK_SIZE: Final = 4096
#: The unit of ``st_blocks``, whatever the block size is.
SECTOR_SIZE: Final = 512
#: The longest name that Linux passes on.
NAME_MAX: Final = 255
#: For how long, in seconds, a path that was opened leads to the same file at least: who opens a file asks for its size
#: next, by its path, and then reads it.
OPENED_SECONDS: Final = LIVE / 2


def read(node: Node, offset: int, size: int) -> bytes:
    """Return what a read of ``node`` gives; raise IsADirectory for what isn't a file."""
    return b"".join(read_parts(node, offset, size))


def read_parts(node: Node, offset: int, size: int) -> Sequence[Part]:
    """Return what a read of ``node`` gives, in parts; errors as :func:`read`."""
    if not isinstance(node, File):
        raise IsADirectory("not a file")
    found = node.parts(offset, size)
    if sum(map(len, found)) > size:
        raise ValueError(f"more bytes for a read of {size}")
    return found


def found(node: Node) -> tuple[Node, Attributes]:
    """Return a node with its attributes; raise as those do."""
    return node, node.attributes()


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
