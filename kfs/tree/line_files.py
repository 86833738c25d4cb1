"""The files with many records: ``segment/<base>.jsonl``, ``records.jsonl``, ``meta/batches.jsonl``."""

from __future__ import annotations

import stat
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from kfs.errors import NotFound
from kfs.log.segment import Segment
from kfs.tree.context import status_of
from kfs.tree.files import CostlyFile, entry_of
from kfs.tree.lines.text import LogText, SegmentText
from kfs.tree.names import segment_name, segment_names
from kfs.tree.node import LIVE, UNTIL_TOLD, Attributes, Entry, Node, Part
from kfs.tree.partition_subdirectory import PartitionSubdirectory, partition_directory_attributes
from kfs.tree.partition_view import PartitionView
from kfs.tree.record_files import parse_offset


class TextFile(CostlyFile):
    """A file whose bytes are a text."""

    __slots__ = ()

    @abstractmethod
    def parts(self, offset: int, size: int) -> list[Part]: ...

    def read(self, offset: int, size: int) -> bytes:
        return b"".join(self.parts(offset, size))


@dataclass(frozen=True, slots=True)
class SegmentLinesFile(TextFile):
    """Every shown record of a segment, from offset ``start`` on, one line each."""

    partition: PartitionView
    segment: Segment
    start: int
    text: SegmentText

    @classmethod
    def of(cls, partition: PartitionView, segment: Segment, start: int | None = None) -> SegmentLinesFile:
        """Return the file with the segment's visible records, or with those from offset ``start`` on."""
        if start is None:
            start = partition.first_shown(segment)
        return cls(partition, segment, start, partition.lines.segment_text(segment, start))

    def identity(self) -> tuple[int, int]:
        owner, _ = self.partition.owner(self.segment)
        return self.partition.lines.lines_id(self.segment, self.start), stat.S_IFREG | (owner.permissions & 0o444)

    def attributes(self) -> Attributes:
        node_id, mode = self.identity()
        owner, mtime_ns = self.partition.owner(self.segment)
        self.partition.lines.size_ahead(self.segment)
        size = self.text.size
        # Not for ever, although its bytes are: the name of an open file outlives the kernel's invalidation of its
        # directory, and has to go when the segment does.
        lifetime = LIVE
        base_offset = self.segment.base_offset
        if self.partition.lines.lasting_file(base_offset) == node_id:
            self.partition.lines.promised_files[base_offset] = node_id
            lifetime = UNTIL_TOLD
        return Attributes(node_id, mode, size, mtime_ns, owner.uid, owner.gid, lifetime=lifetime)

    @property
    def is_exchanged(self) -> bool:
        """See :attr:`kfs.tree.node.File.is_exchanged`."""
        return self.partition.lines.grows(self.segment)

    @property
    def is_new_there(self) -> bool:
        """See :attr:`kfs.tree.node.File.is_new_there`."""
        return self.partition.is_in_doubt

    def parts(self, offset: int, size: int) -> list[Part]:
        return self.text.parts(offset, size)


@dataclass(frozen=True, slots=True)
class LogFile(TextFile):
    """A text over all segments of a partition; it grows with the log.

    A text that begins elsewhere, or has another segment inside, is another file.
    """

    partition: PartitionView
    node_id: int
    text: LogText

    @classmethod
    def of(cls, partition: PartitionView, path: str, text: LogText) -> LogFile:
        """Return the file at ``path`` with the present state of a text."""
        return cls(partition, partition.context.ids.of_path(path, text.incarnation), text)

    def identity(self) -> tuple[int, int]:
        owner, _ = status_of(self.partition.log.directory.path)
        return self.node_id, stat.S_IFREG | (owner.permissions & 0o444)

    def attributes(self) -> Attributes:
        node_id, mode = self.identity()
        whole = partition_directory_attributes(self.partition, node_id)
        return Attributes(node_id, mode, self.text.size, whole.mtime_ns, whole.uid, whole.gid, lifetime=LIVE)

    @property
    def is_exchanged(self) -> bool:
        """See :attr:`kfs.tree.node.File.is_exchanged`."""
        return True

    def parts(self, offset: int, size: int) -> list[Part]:
        return self.text.parts(offset, size)


class SegmentDirectory(PartitionSubdirectory):
    """``segment/``: a file of lines for each segment, named like its ``.log``; the bare number resolves too."""

    __slots__ = ()

    def lookup(self, name: str) -> Node:
        base_offset = _parse_base(name)
        if base_offset is not None:
            segment = self.partition.log.segment_at(base_offset)
            if segment is not None and self.partition.shows(segment):
                return SegmentLinesFile.of(self.partition, segment)
        raise NotFound(f"no segment {name!r}")

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        for segment in self.partition.shown_segments():
            if segment.base_offset >= cookie:
                file = SegmentLinesFile.of(self.partition, segment)
                name = segment_name(segment.base_offset)
                yield entry_of(name, segment.base_offset + 1, file, with_attributes=with_attributes)


def _parse_base(name: str) -> int | None:
    stem = name.removesuffix(".jsonl")
    base_offset = parse_offset(stem.lstrip("0") or "0", "")
    if base_offset is None or name not in segment_names(base_offset):
        return None
    return base_offset
