"""The files of single records (``offset/``, ``value/``, ``key/``) and their directories."""

from __future__ import annotations

import stat
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from weakref import ref

from kfs.errors import CorruptData, NotFound
from kfs.format.layout import MAX_INT64
from kfs.log.block import Block
from kfs.log.segment import Segment
from kfs.log.storage import LoadedBlock
from kfs.render.record_json import RenderedLines
from kfs.tree.node import Attributes, Entry, File, Node, NumberedFiles, Stamp
from kfs.tree.node_ids import View
from kfs.tree.partition_subdirectory import PartitionSubdirectory
from kfs.tree.partition_view import PartitionView

#: Longer lines are rendered again on reading rather than kept with the found record.
_AT_HAND_BYTES: Final = 4096


@dataclass(slots=True)
class RecordFile(File):
    """One record as a line of JSON, of one incarnation of its segment.

    ``content`` is the line if it is available: a look-up is mostly followed by a read.
    """

    partition: PartitionView
    offset: int
    segment: Segment
    content: bytes | None = None

    def attributes(self) -> Attributes:
        lines, index = self._line()
        return _stamp_of(self.partition, self.segment, View.RECORD).attributes(
            self.offset, lines.size(index), lines.timestamps[index]
        )

    def read(self, offset: int, size: int) -> bytes:
        if self.content is not None:
            return self.content[offset : offset + size]
        lines, index = self._line()
        start = lines.starts[index]
        return lines.buffer[start + offset : min(start + offset + size, lines.starts[index + 1])]

    @property
    def is_new_there(self) -> bool:
        """See :attr:`kfs.tree.node.File.is_new_there`."""
        return self.partition.is_in_doubt

    def _line(self) -> tuple[RenderedLines, int]:
        return self.partition.records.rendered_of(self.segment, self.offset)


@dataclass(frozen=True, slots=True)
class FieldFile(File):
    """The raw bytes of a record's value or key; a null one has no file."""

    partition: PartitionView
    offset: int
    segment: Segment
    view: View

    @property
    def is_new_there(self) -> bool:
        """See :attr:`kfs.tree.node.File.is_new_there`."""
        return self.partition.is_in_doubt

    def _field(self) -> tuple[bytes, int]:
        loaded, index = self.partition.records.loaded_of(self.segment, self.offset)
        columns = loaded.columns
        data = columns.value(index) if self.view is View.VALUE else columns.key(index)
        if data is None:
            raise NotFound(f"the {self.view.name.lower()} of offset {self.offset} is null")
        return data, columns.timestamps[index]

    def attributes(self) -> Attributes:
        data, timestamp = self._field()
        return _stamp_of(self.partition, self.segment, self.view).attributes(self.offset, len(data), timestamp)

    def read(self, offset: int, size: int) -> bytes:
        data, _ = self._field()
        return data[offset : offset + size]


def _stamp_of(partition: PartitionView, segment: Segment, view: View) -> Stamp:
    """Return the stamp of a segment's records: always the same one for a closed segment, which keeps it."""
    stamps = None if segment.is_last else partition.stamps.get(segment.slot)
    stamp = None if stamps is None else stamps.get(view)
    if stamp is None:
        owner, mtime_ns = partition.owner(segment)
        id_of_zero = partition.context.ids.first_of(view, segment, partition) - segment.base_offset
        mode = stat.S_IFREG | (owner.permissions & 0o444)
        stamp = Stamp(id_of_zero, mode, mtime_ns, owner.uid, owner.gid, partition.lifetime(segment))
        if not segment.is_last:
            partition.stamps.put(segment.slot, segment, {})[view] = stamp
    return stamp


class OffsetDirectory(PartitionSubdirectory):
    """A directory with a name for each offset that has a record."""

    __slots__ = ()
    suffix = ""
    view = View.RECORD

    def lookup(self, name: str) -> Node:
        return self.find(name)[0]

    def find(self, name: str) -> tuple[Node, Attributes]:
        offset = parse_offset(name, self.suffix)
        if offset is None:
            raise NotFound(f"{name!r} is not the name of an offset")
        return self._find(offset)  # the name exists only if the record does

    @abstractmethod
    def _find(self, offset: int) -> tuple[Node, Attributes]: ...

    @abstractmethod
    def _entries_of(self, segment: Segment, block: Block, start: int, end: int, full: bool) -> Iterator[Entry]: ...

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        """Yield the offsets in order; the cookie of an offset is the one after it."""
        end = self.partition.offsets.end
        for span, block in self.partition.reader.blocks(cookie):
            shown = span.within(max(cookie, self.partition.offsets.start), end)
            try:
                yield from self._entries_of(span.segment, block, *shown, with_attributes)
            except CorruptData:  # reported; go on behind it
                continue


class RecordDirectory(OffsetDirectory):
    """``offset/``: every record as ``<offset>.json``."""

    __slots__ = ()
    suffix = ".json"

    def _find(self, offset: int) -> tuple[Node, Attributes]:
        segment, lines, index = self.partition.records.rendered(offset)
        start, end = lines.starts[index], lines.starts[index + 1]
        size = end - start
        content = lines.buffer[start:end] if size <= _AT_HAND_BYTES else None
        attributes = _stamp_of(self.partition, segment, View.RECORD).attributes(offset, size, lines.timestamps[index])
        return RecordFile(self.partition, offset, segment, content), attributes

    def found_with(self, name: str) -> NumberedFiles | None:
        """See :meth:`kfs.tree.node.Directory.found_with`: the other records of the block."""
        offset = parse_offset(name, self.suffix)
        state = self.partition.state  # first, so that a later change differs from it
        segment = self.partition.log.segment_for(offset) if offset is not None else None
        if offset is None or segment is None or segment.is_last:
            return None
        lines = self.partition.context.rendered.find(self.partition.cache_slot(segment), offset)
        if lines is None or lines.faults or not lines.offsets:
            return None
        shown = self.partition.offsets
        if lines.offsets[0] not in shown or lines.offsets[-1] not in shown:
            return None
        return NumberedFiles(state, self.suffix, _stamp_of(self.partition, segment, self.view), ref(lines))

    def _entries_of(self, segment: Segment, block: Block, start: int, end: int, full: bool) -> Iterator[Entry]:
        stamp = _stamp_of(self.partition, segment, View.RECORD)
        dense = block.dense_range
        if not full and dense is not None:
            for offset in range(max(dense.start, start), min(dense.stop, end)):
                yield Entry(f"{offset}.json", offset + 1, stamp.id_of_zero + offset, stamp.mode, None)
            return
        try:
            lines = self.partition.records.render(segment, segment.load(block))
        except CorruptData:
            # The CRC is valid, so the header's offsets are: list them, though reading them fails.
            for offset in dense or ():
                if start <= offset < end:
                    yield Entry(f"{offset}.json", offset + 1, stamp.id_of_zero + offset, stamp.mode, None)
            return
        for index, offset in enumerate(lines.offsets):
            if start <= offset < end:
                attributes = None
                if index not in lines.faults:
                    attributes = stamp.attributes(offset, lines.size(index), lines.timestamps[index])
                yield Entry(f"{offset}.json", offset + 1, stamp.id_of_zero + offset, stamp.mode, attributes)


class FieldDirectory(OffsetDirectory):
    """``value/`` or ``key/``: the raw bytes of each record that has any."""

    __slots__ = ("view",)

    def __init__(self, partition: PartitionView, path: str, view: View) -> None:
        super().__init__(partition, path)
        self.view = view

    def _find(self, offset: int) -> tuple[Node, Attributes]:
        segment, _, _ = self.partition.records.loaded(offset)
        file = FieldFile(self.partition, offset, segment, self.view)
        return file, file.attributes()

    def _entries_of(self, segment: Segment, block: Block, start: int, end: int, full: bool) -> Iterator[Entry]:
        stamp = _stamp_of(self.partition, segment, self.view)
        columns = segment.load(block).columns
        lengths = columns.value_lengths if self.view is View.VALUE else columns.key_lengths
        for index, offset in enumerate(columns.offsets):
            if start <= offset < end and lengths[index] >= 0 and index not in columns.faults:
                attributes = stamp.attributes(offset, lengths[index], columns.timestamps[index])
                yield Entry(str(offset), offset + 1, attributes.node_id, attributes.mode, attributes)


def contents_from(partition: PartitionView, view: View, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield id and content of the files of a view, from offset ``start`` to the start of the active segment."""
    for span, block in partition.reader.blocks(start):
        segment = span.segment
        if segment.is_last or view not in (View.RECORD, View.VALUE, View.KEY):
            return
        difference = partition.context.ids.first_of(view, segment, partition) - segment.base_offset
        try:
            loaded = segment.load(block)
            contents = _contents(partition, segment, loaded, view)
        except CorruptData:
            continue
        offsets = loaded.columns.offsets
        for index in range(*(bisect_left(offsets, at) for at in span.within(start, partition.offsets.end))):
            content = None if index in loaded.columns.faults else contents(index)
            if content is not None:
                yield difference + offsets[index], content


def _contents(
    partition: PartitionView, segment: Segment, loaded: LoadedBlock, view: View
) -> Callable[[int], bytes | None]:
    if view is View.RECORD:
        return partition.records.render(segment, loaded).line
    return loaded.columns.value if view is View.VALUE else loaded.columns.key


def parse_offset(name: str, suffix: str) -> int | None:
    """Return the offset in a canonical name (no sign, no leading zeros), None for any other name."""
    stem = name.removesuffix(suffix)
    if len(stem) + len(suffix) != len(name) or len(stem) > 19:
        return None
    try:
        offset = int(stem)
    except ValueError:
        return None
    return offset if 0 <= offset <= MAX_INT64 and str(offset) == stem else None
