"""A file of the tree, written as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import BinaryIO, Final

from kfs.errors import CorruptData, IsADirectory
from kfs.tree.node import Directory, File, Node, Tree, settled

_CHUNK: Final = 1024 * 1024
_PAGE: Final = 4096


def write_file(tree: Tree, path: str, out: BinaryIO) -> None:
    """Write what a path leads to; of a damaged file all that comes before the page that can't be read, as on a mount.

    Raises:
        CorruptData: that page can't be read.
        IsADirectory: it leads to a directory.
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
    """Return what a path leads to, of which the size is known: what is found damaged then may be another file."""
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
