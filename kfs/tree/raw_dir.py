"""``raw/``: Kafka's own files of a partition, read through."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from kfs.errors import NotFound, SourceLost
from kfs.log.descriptors import BUDGET
from kfs.log.open_files import FileChanged
from kfs.tree.context import Owner, status_of
from kfs.tree.files import entry_of
from kfs.tree.node import LIVE, Attributes, Directory, Entry, File, Node
from kfs.tree.partition_view import PartitionView


@dataclass(frozen=True, slots=True)
class RawFile(File):
    """A file of the source as it is; never a symlink's target, which could lie anywhere."""

    partition: PartitionView
    node_id: int
    path: str

    def attributes(self) -> Attributes:
        try:
            status = os.lstat(self.path)
        except OSError:
            raise NotFound(f"{self.path}: gone") from None
        owner = Owner.of(status)
        mode = stat.S_IFREG | (owner.permissions & 0o444)
        return Attributes(self.node_id, mode, status.st_size, status.st_mtime_ns, owner.uid, owner.gid, lifetime=LIVE)

    def read(self, offset: int, size: int) -> bytes:
        try:
            inode = os.lstat(self.path).st_ino
        except OSError:
            raise NotFound(f"{self.path}: gone") from None
        file = self.partition.log.storage.files.open(self.path, inode)
        size = min(size, max(file.size() - offset, 0))
        data = file.read(offset, size)
        reason = file.read_error(offset, size)
        if reason is not None:
            raise FileChanged(reason, offset, self.path)
        return data


class RawDirectory(Directory):
    """The regular files of the partition's directory, under their own names."""

    __slots__ = ("node_id", "partition", "path")

    def __init__(self, partition: PartitionView, path: str) -> None:
        self.partition = partition
        self.path = path
        self.node_id = partition.context.ids.of_path(path)

    def attributes(self) -> Attributes:
        owner, mtime_ns = status_of(self.partition.log.directory.path)
        return self.partition.context.directory_attributes(self.node_id, owner, mtime_ns)

    def _names(self) -> list[str]:
        directory = self.partition.log.directory
        if directory.loose:
            return [os.path.basename(path) for path in directory.loose]
        try:
            with BUDGET.scandir(directory.path) as entries:
                return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"{directory.path}: {error.strerror}") from None
        except OSError as error:
            raise SourceLost(f"{directory.path}: {error.strerror}") from None

    def _file(self, name: str) -> RawFile:
        path = os.path.join(self.partition.log.directory.path, name)
        return RawFile(self.partition, self.partition.context.ids.of_path(f"{self.path}/{name}"), path)

    def lookup(self, name: str) -> Node:
        if name not in self._names():
            raise NotFound(f"no file {name!r}")
        return self._file(name)

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        for number, name in enumerate(self._names(), 1):
            if number > cookie:
                try:
                    yield entry_of(name, number, self._file(name), with_attributes=with_attributes)
                except NotFound:
                    continue
