"""Comparison of two copies of a partition's log, batch by batch: where they diverge, and what only one of them has.

Followers store their leader's batches unchanged. So copies that agree have the same bytes at the same offsets, although
their segment boundaries may differ. Batches whose bytes differ, for example after compaction, are compared record by
record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kfs.errors import CorruptData
from kfs.format.batch_header import BatchHeader
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.layout import MAX_INT64
from kfs.log.block import Block, Cause, Damage
from kfs.log.bulk import ScannedBatches
from kfs.log.log import Log

_RECORD_FIELDS: Final = ("key", "value", "headers", "timestamp", "timestamp_type")
_BATCH_FIELDS: Final = ("leader_epoch", "producer_id", "producer_epoch", "is_control", "is_transactional")


@dataclass(frozen=True, slots=True)
class Place:
    """The batch at a byte position of a file, and its leader epoch (-1 before v2)."""

    file: str
    position: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """The lowest offset at which two logs differ; a place is None if that log has ended."""

    offset: int
    reason: str
    first: Place | None
    second: Place | None


class LackCause(StrEnum):
    """Why a log lacks a record between the records that it has."""

    DAMAGED = "damaged"
    COMPACTED = "compacted away"
    MISSING = "missing"


@dataclass(slots=True)
class Lack:
    """Records that one log has and the other lacks, for one reason: their number, and the first and last offset.

    ``place`` is the batch of the first of them, in the log that has it.
    """

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1
    place: Place | None = None

    def add(self, offset: int, place: Place) -> None:
        """Count one more record, at a higher offset."""
        if not self.records:
            self.first_offset, self.place = offset, place
        self.records += 1
        self.last_offset = offset

    def merge(self, other: Lack) -> None:
        """Add the records that are lacking for another reason."""
        if other.records and (not self.records or other.first_offset < self.first_offset):
            self.first_offset, self.place = other.first_offset, other.place
        self.records += other.records
        self.last_offset = max(self.last_offset, other.last_offset)


@dataclass(slots=True)
class Comparison:
    """The result of a comparison; ``first_lacks`` and ``second_lacks`` stop at the divergence, if there is one."""

    divergence: Divergence | None
    first_lacks: dict[LackCause, Lack]
    second_lacks: dict[LackCause, Lack]


def compare(first: Log, second: Log) -> Comparison:
    """Compare the records at offsets that both logs reach, up to the first difference.

    A record that only one log has may be compacted away in the other. That is the case if the other log's cleaner has
    passed that offset (``cleaner-offset-checkpoint``), or if the other log has batches that only compaction produces.
    Damage is recorded in each log's problems, as far as the log is read.

    Raises:
        CorruptData: a file changed during the comparison.
    """
    start = max(first.log_start_offset, second.log_start_offset)
    one, other = _Side(first, start), _Side(second, start)
    divergence = _first_difference(one, other, min(first.log_end_offset, second.log_end_offset))
    return Comparison(divergence, one.all_that_it_lacks(), other.all_that_it_lacks())


def _first_difference(one: _Side, other: _Side, stop: int) -> Divergence | None:
    while True:
        if one.is_at_batch and other.is_at_batch and one.data() == other.data():
            one.next_batch()
            other.next_batch()
            continue
        offset = min(one.offset(), other.offset())
        if offset >= stop:
            return None
        if one.offset() > offset:
            one.lacks(offset, other.place())
            other.next_record()
        elif other.offset() > offset:
            other.lacks(offset, one.place())
            one.next_record()
        else:
            differing = _differing_fields(one, other)
            if differing:
                return Divergence(offset, f"they differ in {', '.join(differing)}", one.place(), other.place())
            one.next_record()
            other.next_record()


def _differing_fields(one: _Side, other: _Side) -> list[str]:
    """Return the names, as words, of the fields in which two records at one offset differ; skip broken records."""
    headers, records = (one.header(), other.header()), (one.record(), other.record())
    names = [name for name in _BATCH_FIELDS if getattr(headers[0], name) != getattr(headers[1], name)]
    if records[0] is not None and records[1] is not None:
        names += [name for name in _RECORD_FIELDS if getattr(records[0], name) != getattr(records[1], name)]
    return [name.removeprefix("is_").replace("_", " ") for name in names]


class _Batch:
    """A batch, as a row of a table or as a block."""

    __slots__ = ("_file", "_row", "_table", "block")

    def __init__(self, block: Block | None, table: BatchTable | None = None, row: int = 0, file: str = "") -> None:
        self.block = block
        self._table = table
        self._row = row
        self._file = file

    def data(self) -> bytes:
        if self.block is not None:
            return self.block.data
        assert self._table is not None
        return self._table.data(self._row)

    @property
    def leaves_offsets_out(self) -> bool:
        """Whether the batch lacks records; only compaction removes records from the middle of a batch."""
        if self.block is not None:
            header = self.block.header
            return 0 <= header.record_count <= header.last_offset - header.base_offset
        assert self._table is not None
        span = self._table.last_offsets[self._row] - self._table.base_offsets[self._row]
        return self._table.counts[self._row] <= span

    def as_block(self) -> Block:
        if self.block is None:
            assert self._table is not None
            self.block = Block(self._table.header(self._row), self._table.data(self._row), self._file)
        return self.block


class _Side:
    """A cursor over one of the logs: the current batch and record."""

    def __init__(self, log: Log, start: int) -> None:
        self._log = log
        self._start = start
        self._batches = self._read()
        self._batch: _Batch | None = None
        self._columns: RecordColumns | None = None
        self._row = 0
        self._is_behind_damage = False
        self._is_compacted = False
        self._lacks = {cause: Lack() for cause in LackCause}
        self.next_batch()

    def _read(self) -> Iterator[_Batch | Damage]:
        for segment in self._log.segments:
            if segment.next_base_offset is not None and segment.next_base_offset <= self._start:
                continue
            position, after = segment.position_before(self._start)
            for item in segment.bulk_reader().undecoded(position, after):
                if isinstance(item, ScannedBatches):
                    file = segment.files.log.path
                    yield from (_Batch(None, item.table, row, file) for row in range(item.stop))
                else:
                    yield _Batch(item) if isinstance(item, Block) else item

    # -- the current position

    @property
    def is_at_batch(self) -> bool:
        """Whether the current record is the first of its batch."""
        return self._batch is not None and self._row == 0

    def data(self) -> bytes:
        """Return the bytes of the current batch."""
        assert self._batch is not None
        return self._batch.data()

    def header(self) -> BatchHeader:
        """Return the header of the current batch."""
        assert self._batch is not None
        return self._batch.as_block().header

    def place(self) -> Place:
        """Return the place of the current batch."""
        assert self._batch is not None
        block = self._batch.as_block()
        return Place(block.file, block.position, block.header.leader_epoch)

    def offset(self) -> int:
        """Return the offset of the current record, or the highest possible offset after the last record."""
        while self._batch is not None:
            columns = self._loaded()
            if columns is not None:
                while self._row < len(columns) and columns.offsets[self._row] < self._start:
                    self._row += 1
                if self._row < len(columns):
                    return columns.offsets[self._row]
            if columns is None:
                self._is_behind_damage = True
            elif columns:
                self._is_behind_damage = False
            self._advance()
        return MAX_INT64

    def record(self) -> object | None:
        """Return the current record, or None if it is broken."""
        columns = self._loaded()
        assert columns is not None
        return None if self._row in columns.faults else columns.record(self._row)

    def _loaded(self) -> RecordColumns | None:
        assert self._batch is not None
        if self._columns is None:
            try:
                self._columns = self._log.storage.load(self._batch.as_block(), self._log.problems.add).columns
            except CorruptData:  # already reported
                return None
        return self._columns

    # -- moving forward

    def next_record(self) -> None:
        """Move past the current record."""
        self._row += 1

    def next_batch(self) -> None:
        """Move past the current batch."""
        self._is_behind_damage = False
        self._advance()

    def _advance(self) -> None:
        self._row, self._columns = 0, None
        for item in self._batches:
            if isinstance(item, _Batch):
                self._batch = item
                self._is_compacted |= item.leaves_offsets_out
                return
            self._is_behind_damage |= item.lost is not None and item.cause is not Cause.MISSING
        self._batch = None

    # -- lacking records

    def lacks(self, offset: int, place: Place) -> None:
        """Note that the other log has a record at ``offset``, below this log's current record."""
        in_gap = self._batch is None or self._row == 0
        cause = LackCause.DAMAGED if self._is_behind_damage and in_gap else LackCause.MISSING
        if cause is LackCause.MISSING and offset < (self._log.first_dirty_offset or 0):
            cause = LackCause.COMPACTED
        self._lacks[cause].add(offset, place)

    def all_that_it_lacks(self) -> dict[LackCause, Lack]:
        """Return the noted records by cause, after the whole log was read."""
        if self._is_compacted:
            self._lacks[LackCause.COMPACTED].merge(self._lacks.pop(LackCause.MISSING))
        return {cause: lack for cause, lack in self._lacks.items() if lack.records}
