"""Everything that a tree lists, found by listing it."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass

from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import Directory, Entry, Node


@dataclass(frozen=True, slots=True)
class Listed:
    """A node with the path that leads to it, and the entry that its directory lists it as."""

    path: str
    entry: Entry
    node: Node


def every_node(tree: KafkaTree, below: str = "") -> Iterator[Listed]:
    """Yield every node that is listed at or below a path, a directory before what is in it."""
    directory = tree.resolve(below)
    assert isinstance(directory, Directory)
    for entry in directory.entries():
        path = f"{below}/{entry.name}" if below else entry.name
        node = directory.lookup(entry.name)
        yield Listed(path, entry, node)
        if isinstance(node, Directory):
            yield from every_node(tree, path)


def every_directory(tree: KafkaTree, below: str = "") -> Iterator[Directory]:
    """Yield every directory below a path; nothing but directories is looked up."""
    parent = tree.resolve(below)
    assert isinstance(parent, Directory)
    for entry in parent.entries(with_attributes=False):
        if stat.S_ISDIR(entry.mode):
            path = f"{below}/{entry.name}" if below else entry.name
            directory = parent.lookup(entry.name)
            assert isinstance(directory, Directory)
            yield directory
            yield from every_directory(tree, path)
