"""Checks of a segment's batches: whether their records decode and match the batch header."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kfs.errors import CorruptData, LimitExceeded
from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.control_record import AbortMarker, CommitMarker, parse_control_record
from kfs.format.layout import CONTROL_MASK, MAGIC_V2, MAX_INT64
from kfs.log.block import Block, Cause, Damage
from kfs.log.storage import Storage
from kfs.verify.finding import FindingKind, Findings

_KINDS: Final = {
    Cause.HEADER: FindingKind.BATCH_HEADER,
    Cause.CHECKSUM: FindingKind.BATCH_CRC,
    Cause.SIZE_LIMIT: FindingKind.BATCH_TOO_LARGE,
    Cause.TRUNCATED: FindingKind.BATCH_TRUNCATED,
    Cause.REPEATED: FindingKind.OFFSETS_REPEATED,
    Cause.MISPLACED: FindingKind.OFFSETS_MISPLACED,
    Cause.READ_ERROR: FindingKind.READ_ERROR,
}


class BatchAudit:
    """Checks every record. ``records`` counts messages without control records, ``batches`` counts all batches."""

    def __init__(self, file: str, storage: Storage, findings: Findings) -> None:
        self._file = file
        self._storage = storage
        self._findings = findings
        self.records = 0
        self.batches = 0
        #: Whether any offsets are missing, as compaction leaves them out.
        self.has_holes = False
        #: The message format versions seen.
        self.magics: set[int] = set()
        #: Type and offset of the first control record and of the last one.
        self.controls: tuple[tuple[int, int] | None, tuple[int, int] | None] = (None, None)

    def rows(self, table: BatchTable) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        rows = len(table)
        self.batches += rows
        self.magics.add(MAGIC_V2)
        storage = self._storage
        row = 0
        while row < rows:
            found, row = storage.decoder.count_records(table, row, rows, storage.max_batch_bytes, True)
            self.records += found
            if row < rows:
                self._judge(Block(table.header(row), table.data(row), self._file))
                row += 1
        if any(attributes & CONTROL_MASK for attributes in set(table.attributes)):
            for row in range(rows):
                if table.attributes[row] & CONTROL_MASK:
                    self._check_control(Block(table.header(row), table.data(row), self._file))
        self.has_holes |= sum(table.counts) != table.last_offsets[-1] - table.base_offsets[0] + 1

    def _judge(self, block: Block) -> None:
        """Report what is wrong with a batch that the bulk count stopped at, and count its records."""
        columns = self._decoded(block)
        if columns is None:
            return
        header = block.header
        self.records += 0 if header.is_control else len(columns)
        latest = max(columns.timestamps)
        at = columns.timestamps.index(latest)
        relation = "above" if latest > header.max_timestamp else "below"
        self._add(
            FindingKind.BATCH_TIMESTAMP,
            block,
            f"the latest timestamp is {latest} (offset {columns.offsets[at]}), {relation} the {header.max_timestamp}"
            " in the header",
        )

    def _decoded(self, block: Block) -> RecordColumns | None:
        try:
            return block.decode(self._storage.decoder, self._storage.max_batch_bytes)
        except LimitExceeded as error:
            self._add(FindingKind.BATCH_TOO_LARGE, block, error.reason)
        except CorruptData as error:
            self._add(FindingKind.BATCH_RECORDS, block, error.reason)
        return None

    def _check_control(self, block: Block) -> None:
        try:
            columns = block.decode(self._storage.decoder, self._storage.max_batch_bytes)
        except CorruptData:
            return  # reported already, when the records were counted
        for index, offset in enumerate(columns.offsets):
            try:
                control = parse_control_record(columns.key(index), columns.value(index))
            except CorruptData as error:
                self._add(FindingKind.CONTROL_RECORD, block, f"offset {offset}: {error.reason}")
                continue
            if block.header.producer_id >= 0 and not isinstance(control, AbortMarker | CommitMarker):
                reason = f"type {control.type} of producer {block.header.producer_id}, not ABORT or COMMIT"
                self._add(FindingKind.CONTROL_RECORD, block, f"offset {offset}: {reason}")
            self.controls = (self.controls[0] or (control.type, offset), (control.type, offset))

    def messages(self, block: Block, columns: RecordColumns | None) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        self.magics.add(block.header.magic)
        if columns is None:
            self.batches += 1
            return
        self.batches += max(block.header.record_count, 1)
        self.records += len(columns) - len(columns.faults)
        for index, fault in columns.faults.items():
            self._add(FindingKind.BATCH_RECORDS, block, f"offset {columns.offsets[index]}: {fault.reason}")
        if len(columns):
            self.has_holes |= len(columns) != columns.offsets[-1] - columns.offsets[0] + 1
            if block.header.codec_id:
                self._check_wrapper_timestamp(block, columns)

    def _check_wrapper_timestamp(self, block: Block, columns: RecordColumns) -> None:
        latest = max(columns.timestamps)
        if latest > block.header.max_timestamp:
            reason = f"the latest timestamp inside is {latest}, above the {block.header.max_timestamp} of the wrapper"
            self._add(FindingKind.BATCH_TIMESTAMP, block, reason)

    def load(self, block: Block) -> RecordColumns | None:
        """Return the records of a v0 or v1 block, None if it can't be decoded; report that, and foreign offsets."""
        if block.header.record_count != UNKNOWN_COUNT:
            return self._decoded(block)
        columns = self._decoded(replace(block, after=-1, before=MAX_INT64))
        if columns is None or not len(columns):
            return columns
        first, last = columns.offsets[0], columns.offsets[-1]
        if first > block.after and last < block.before:
            return columns
        self.misplaced(block, first, last)
        return self._decoded(block)

    def misplaced(self, block: Block, first: int, last: int) -> None:
        """Report a batch with offsets that belong to another part of the log."""
        reason = f"offsets {first} to {last}, but only those above {block.after} and below {block.before} can be here"
        self._add(FindingKind.OFFSETS_MISPLACED, block, reason)

    def damage(self, damage: Damage) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        self._findings.add(
            _KINDS[damage.cause],
            self._file,
            damage.problem.reason,
            bytes=(damage.position, damage.end),
            offsets=(damage.after + 1, damage.claimed_last) if damage.claimed_last > damage.after else None,
        )

    def _add(self, kind: FindingKind, block: Block, reason: str) -> None:
        header = block.header
        self._findings.add(
            kind,
            self._file,
            reason,
            bytes=(block.position, block.end),
            offsets=(header.base_offset, header.last_offset),
        )
