"""Writing a whole file of the tree."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import BinaryIO, Final

from kfs.errors import CorruptData, IsADirectory
from kfs.tree.node import Directory, File, Node, Tree, settled

_CHUNK: Final = 1024 * 1024
_PAGE: Final = 4096


def write_file(tree: Tree, path: str, out: BinaryIO) -> None:
    """Write the file at a path; of a damaged file everything before the first unreadable page, as on a mount.

    Raises:
        CorruptData: that page can't be read.
        IsADirectory: the path leads to a directory.
        NotFound: or to nothing.
    """
    node = settled(partial(_measured, tree, path))
    if isinstance(node, Directory):
        raise IsADirectory(f"{path} is a directory")
    assert isinstance(node, File)
    try:
        for data in _chunks(node):
            out.write(data)
    finally:
        out.flush()


def _measured(tree: Tree, path: str) -> Node:
    """Return the node at a path after its size is known: damage found by measuring may make it another file."""
    node = tree.follow(path)
    node.attributes()
    return node


def _chunks(file: File) -> Iterator[bytes]:
    position, size, most = 0, file.attributes().size, _CHUNK
    while position < size:
        try:
            data = file.read(position, min(most, size - position))
        except CorruptData:
            if most == _PAGE:
                raise
            most = _PAGE
            continue
        if not data:
            return
        yield data
        position += len(data)
