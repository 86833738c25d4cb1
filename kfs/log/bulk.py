"""Fast reading of a segment: many batches at a time, in as few sets of columns as possible.

It yields the same records, damage and problems as a walk that decodes every block, in the same order. Ordinary batches
go through :meth:`~kfs.format.decoders.BlockDecoder.scan`, a window at a time. The walk judges everything else, one item
at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.layout import CONTROL_MASK
from kfs.log.block import Block, Damage
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfs.log.storage import Storage
    from kfs.log.walk import SegmentWalk


class Batches:
    """Consecutive batches: rows ``first`` up to, not including, ``stop`` of ``table``."""

    __slots__ = ("end", "first", "position", "stop", "table")

    def __init__(self, table: BatchTable, first: int, stop: int) -> None:
        self.table = table
        self.first = first
        self.stop = stop
        #: Byte position in the segment's file, and the position just after the batches.
        self.position = table.positions[first]
        self.end = table.end(stop - 1)

    @property
    def base_offset(self) -> int:
        """The base offset of the first batch."""
        return self.table.base_offsets[self.first]

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch."""
        return self.table.last_offsets[self.stop - 1]


class ScannedBatches(Batches):
    """Batches that aren't decoded yet."""

    __slots__ = ()

    def of_rows(self, first: int, stop: int) -> ScannedBatches:
        """Return a part of the rows."""
        return ScannedBatches(self.table, first, stop)


class WholeBatches(ScannedBatches):
    """Batches that a reader doesn't decode because all of their records are wanted."""

    __slots__ = ()

    @property
    def count(self) -> int:
        """The number of records in the batches, by their headers."""
        return sum(self.table.counts[self.first : self.stop])


class DecodedBatches(Batches):
    """The records of consecutive batches, decoded together.

    Control records and data records never share one set.
    """

    __slots__ = ("columns", "file", "is_control")

    def __init__(self, columns: RecordColumns, file: str, table: BatchTable, first: int, stop: int) -> None:
        super().__init__(table, first, stop)
        self.columns = columns
        self.file = file
        #: Whether these are control records.
        self.is_control = bool(table.attributes[first] & CONTROL_MASK)

    def of_rows(self, first: int, stop: int) -> DecodedBatches:
        """Return the records of a part of the rows, over the same buffer."""
        if (first, stop) == (self.first, self.stop):
            return self
        offsets, bases = self.columns.offsets, self.table.base_offsets
        begin = 0 if first == self.first else bisect_left(offsets, bases[first])
        end = len(offsets) if stop == self.stop else bisect_left(offsets, bases[stop])
        return DecodedBatches(self.columns.slice(begin, end), self.file, self.table, first, stop)


class Undecodable:
    """An intact block whose records can't be decoded, and the reason."""

    __slots__ = ("block", "error")

    def __init__(self, block: Block, error: CorruptData) -> None:
        self.block = block
        self.error = error

    @property
    def position(self) -> int:
        """Byte position in the segment's file."""
        return self.block.position

    @property
    def end(self) -> int:
        """Byte position just after the block."""
        return self.block.end

    @property
    def lost(self) -> OffsetRange | None:
        """The offsets that its records may have, or None if it can't hold any.

        Only its content tells where a compressed message begins. For some messages that predate relative offsets, the
        header doesn't tell where they end either.
        """
        block, header = self.block, self.block.header
        start, end = max(header.base_offset, block.after + 1), min(header.last_offset + 1, block.before)
        if header.record_count == UNKNOWN_COUNT:
            start, end = block.after + 1, end if header.last_offset else block.before
        return OffsetRange(start, end) if start < end else None

    @property
    def last_offset(self) -> int:
        """The highest offset that the block proves."""
        return self.block.header.last_offset

    @property
    def problem(self) -> Problem:
        """The problem to report."""
        size = self.end - self.position
        return Problem(self.block.file, self.position, size, self.error.reason, ProblemKind.BATCH_RECORDS)


class BulkReader:
    """Reads a segment through ``walk``; ``report`` receives the problems with records."""

    def __init__(self, walk: SegmentWalk, storage: Storage, report: Callable[[Problem], None]) -> None:
        self.walk = walk
        self.storage = storage
        self.report = report

    def items(
        self, position: int = 0, after: int | None = None, end: int | None = None
    ) -> Iterator[DecodedBatches | Undecodable | Damage]:
        """Read from ``position``, a batch boundary, to ``end``, another one, or to the end of the log.

        ``after`` and the errors are those of :meth:`~kfs.log.walk.SegmentWalk.items`.
        """
        for item in self.batches(position, after, end):
            if isinstance(item, ScannedBatches):
                yield from self.decoded(item)
            else:
                yield item

    def batches(
        self, position: int = 0, after: int | None = None, end: int | None = None
    ) -> Iterator[ScannedBatches | DecodedBatches | Undecodable | Damage]:
        """Read like :meth:`items`, but leave ordinary batches undecoded, for :meth:`decoded`."""
        for item in self.undecoded(position, after, end):
            yield self._loaded(item) if isinstance(item, Block) else item

    def count(self, position: int = 0, after: int | None = None, end: int | None = None) -> int:
        """Check every record as :meth:`items` does, report the same problems, and return the number of records.

        The count excludes control records, and records that are broken inside an intact batch.
        """
        messages = 0
        for item in self.undecoded(position, after, end):
            if isinstance(item, ScannedBatches):
                messages += self._counted(item)
            elif isinstance(item, Block):
                messages += self._messages_in(item)
        return messages

    def undecoded(
        self, position: int = 0, after: int | None = None, end: int | None = None
    ) -> Iterator[ScannedBatches | Block | Damage]:
        """Yield the raw items of :meth:`items`, for callers that decide what to do with each."""
        walk = self.walk
        walk.begin(position, after)
        stop = walk.size if end is None else min(end, walk.size)
        while position < stop:
            table = walk.scan(position)
            rows = len(table) if end is None else bisect_left(table.positions, stop)
            if rows:
                yield ScannedBatches(table, 0, rows)
                position = table.end(rows - 1)
                continue
            item = walk.item(position)
            if item is None:
                break
            yield item
            position = item.end
        walk.end = position
        missing = walk.missing_behind() if position >= walk.size else None
        if missing is not None:
            yield missing

    def decoded(self, batches: ScannedBatches) -> Iterator[DecodedBatches | Undecodable]:
        """Decode ordinary batches, together where possible."""
        decoder, limit, file = self.storage.decoder, self.storage.max_batch_bytes, self.walk.file.path
        table, row = batches.table, batches.first
        while row < batches.stop:
            try:
                columns, stop = decoder.decode_rows(table, row, batches.stop, limit)
            except CorruptData:
                yield self._loaded(self.block(table, row))
                row += 1
            else:
                self.storage.decoded.add(stop - row, table.end(stop - 1) - table.positions[row])
                yield DecodedBatches(columns, file, table, row, stop)
                row = stop

    def decoded_before(
        self, batches: ScannedBatches, before: int
    ) -> Iterator[ScannedBatches | DecodedBatches | Undecodable]:
        """Decode like :meth:`decoded` the batches that have a record before a timestamp; leave the others undecoded.

        The records of those are checked all the same, and what can't be decoded is reported.
        """
        decoder, limit, row = self.storage.decoder, self.storage.max_batch_bytes, batches.first
        while row < batches.stop:
            found = decoder.first_before(batches.table, row, batches.stop, limit, before)
            if row < found:
                yield batches.of_rows(row, found)
            if found < batches.stop:
                yield from self.decoded(batches.of_rows(found, found + 1))
            row = found + 1

    def _counted(self, batches: ScannedBatches) -> int:
        decoder, limit = self.storage.decoder, self.storage.max_batch_bytes
        table, row = batches.table, batches.first
        messages = 0
        while row < batches.stop:
            found, row = decoder.count_records(table, row, batches.stop, limit)
            messages += found
            if row < batches.stop:
                messages += self._messages_in(self.block(table, row))
                row += 1
        return messages

    def _messages_in(self, block: Block) -> int:
        item = self._loaded(block)
        if isinstance(item, Undecodable) or item.is_control:
            return 0
        return len(item.columns) - len(item.columns.faults)

    def block(self, table: BatchTable, row: int) -> Block:
        """Return a row of a table as a block."""
        return Block(table.header(row), table.data(row), self.walk.file.path)

    def _loaded(self, block: Block) -> DecodedBatches | Undecodable:
        """Decode a single block, and report its problems."""
        try:
            loaded = self.storage.load(block, self.report)
        except CorruptData as error:
            return Undecodable(block, error)
        return DecodedBatches(loaded.columns, block.file, BatchTable.of(block.header, block.data), 0, 1)
