"""The common part of the directories in a partition's directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfs.tree.context import status_of
from kfs.tree.node import Attributes, Directory

if TYPE_CHECKING:
    from kfs.tree.partition_view import PartitionView


def partition_directory_attributes(partition: PartitionView, node_id: int) -> Attributes:
    """Return the attributes of a directory of a partition."""
    owner, _ = status_of(partition.log.directory.path)
    return partition.context.directory_attributes(node_id, owner, partition.mtime_ns)


class PartitionSubdirectory(Directory):
    """A directory at ``path`` of the tree with one view of a partition, such as ``offset/``."""

    __slots__ = ("node_id", "partition", "path")

    def __init__(self, partition: PartitionView, path: str) -> None:
        self.partition = partition
        self.path = path
        self.node_id = partition.context.ids.of_path(path)

    def attributes(self) -> Attributes:
        """See :meth:`kfs.tree.node.Node.attributes`."""
        return partition_directory_attributes(self.partition, self.node_id)
