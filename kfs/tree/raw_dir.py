"""``raw/``: Kafka's own files of a partition, passed through."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from kfs.errors import CorruptData, NotFound, SourceLost
from kfs.log.segment import Segment
from kfs.storage.listing import list_files
from kfs.storage.open_files import FileChanged, OpenFile
from kfs.storage.status import PathKind, Status, Version, kind_of_error, link_status_at
from kfs.tree.context import Owner, status_of
from kfs.tree.files import Maker, list_nodes
from kfs.tree.node import LIVE, Attributes, Entry, File, Node
from kfs.tree.node_ids import Exactly
from kfs.tree.partition_subdirectory import PartitionSubdirectory
from kfs.tree.partition_view import PartitionView
from kfs.tree.record_files import parse_offset


@dataclass(frozen=True, slots=True)
class RawFile(File):
    """A file of the source as it is; never through a symlink, whose target could lie anywhere.

    The file of a ``segment`` is a ``.log``, which may grow. Any other becomes another file as soon as it is written to.
    """

    partition: PartitionView
    node_id: int
    path: str
    version: Version
    segment: Segment | None

    def attributes(self) -> Attributes:
        status = self._status()
        owner = Owner.of(status)
        mode = stat.S_IFREG | (owner.permissions & 0o444)
        return Attributes(self.node_id, mode, status.size, status.mtime_ns, owner.uid, owner.gid, lifetime=LIVE)

    def _status(self) -> Status:
        """Return the file's status, without opening it while it has its name."""
        if self.segment is not None and self.segment.is_frozen:
            return self._open().status()
        try:
            status = link_status_at(self.path)
        except OSError:
            return self._open().status()
        if status.inode != self.version.inode or (self.segment is not None and self.segment.is_stale):
            return self._open().status()
        if self.segment is None and status.version != self.version:
            raise FileChanged("written to", 0, self.path)
        return status

    def _open(self) -> OpenFile:
        """Return the open file; raise :class:`FileChanged` if the file was replaced or changed."""
        if self.segment is not None:
            return self.segment.file()
        file = self.partition.log.storage.files.open(self.path, self.version.inode)
        if file.version() != self.version:
            raise FileChanged("written to", 0, self.path)
        return file

    @property
    def is_exchanged(self) -> bool:
        """See :attr:`kfs.tree.node.File.is_exchanged`."""
        return True

    def read(self, offset: int, size: int) -> bytes:
        file = self._open()
        size = min(size, max(file.size() - offset, 0))
        data = file.read(offset, size)
        self._open()  # the bytes read may be of a changed file
        reason = file.read_error(offset, size)
        if reason is not None:
            raise CorruptData(reason, offset, self.path)
        return data


class RawDirectory(PartitionSubdirectory):
    """The regular files of the partition's directory, under their own names."""

    __slots__ = ()

    def attributes(self) -> Attributes:
        owner, mtime_ns = status_of(self.partition.log.directory.path)
        return self.partition.context.directory_attributes(self.node_id, owner, mtime_ns)

    def _names(self) -> list[str]:
        directory = self.partition.log.directory
        if directory.is_of_deleted:
            return [os.path.basename(segment.files.log.path) for segment in self.partition.log.segments]
        if directory.loose:
            return [os.path.basename(path) for path in directory.loose]
        try:
            return sorted(list_files(directory.path))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"{directory.path}: {error.strerror}") from None
        except OSError as error:
            raise SourceLost(f"{directory.path}: {error.strerror}") from None

    def _file(self, name: str) -> RawFile:
        """Return a file.

        Raises:
            NotFound: it doesn't exist, or is no regular file.
            CorruptData: its status can't be read.
        """
        path = os.path.join(self.partition.log.directory.path, name)
        try:
            status = link_status_at(path)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and kind_of_error(error) is PathKind.UNKNOWN:
                raise CorruptData(error.strerror or str(error), 0, path) from None
            raise NotFound(f"{path}: gone") from None
        if status.kind is not PathKind.FILE:
            raise NotFound(f"{path}: not a regular file")
        version = status.version
        segment = self._segment_of(path, version.inode)
        found = Exactly(version if segment is None else segment.slot)
        node_id = self.partition.context.ids.of_path(f"{self.path}/{name}", found)
        self.partition.raw_names.note(name, self._names)
        return RawFile(self.partition, node_id, path, version, segment)

    def _segment_of(self, path: str, inode: int) -> Segment | None:
        """Return the segment whose ``.log`` has this path."""
        stem, _, suffix = os.path.basename(path).partition(".")
        base_offset = parse_offset(stem.lstrip("0") or "0", "") if suffix in ("log", "log.deleted") else None
        segment = self.partition.log.segment_at(base_offset) if base_offset is not None else None
        if segment is None or (segment.files.log.path, segment.files.log.inode) != (path, inode):
            return None
        return segment

    def lookup(self, name: str) -> Node:
        directory = self.partition.log.directory
        has_it = os.path.basename(name) == name if directory.is_whole else name in self._names()
        if not has_it:
            raise NotFound(f"no file {name!r}")
        return self._file(name)

    def _listed_file(self, name: str) -> RawFile:
        """Return a file for a listing, which omits a file whose status can't be read and reports a problem."""
        try:
            return self._file(name)
        except CorruptData as error:
            self.partition.log.problems.add_error(error)
            raise NotFound(str(error)) from None

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        files: dict[str, Maker] = {name: partial(self._listed_file, name) for name in self._names()}
        yield from list_nodes(files, cookie, with_attributes=with_attributes)
