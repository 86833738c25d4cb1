"""The check of a segment: its ``.log`` and its indexes, in one pass."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from kfs.errors import CorruptData
from kfs.format.aborted_txn import AbortedTxn, parse_aborted_transactions
from kfs.format.batch_header import UNKNOWN_COUNT, read_header
from kfs.format.batch_table import BatchTable
from kfs.format.layout import BATCH_OVERHEAD, HEADER_SIZE_UP_TO_MAGIC, MAGIC_V0, MAGIC_V2
from kfs.log.block import Block
from kfs.log.bulk import BulkReader, ScannedBatches
from kfs.log.offset_range import SegmentBounds
from kfs.log.problem import Problem
from kfs.log.resync import is_zero_to_end
from kfs.log.storage import Storage
from kfs.log.walk import SegmentWalk
from kfs.storage.listing import FoundFile
from kfs.storage.open_files import open_listed
from kfs.verify import offset_index, time_index
from kfs.verify.batches import BatchAudit
from kfs.verify.epoch_runs import EpochAudit, EpochRun
from kfs.verify.finding import Finding, FindingKind, Findings, Severity
from kfs.verify.index_entries import IndexEntries, IndexLayout, read_entries
from kfs.verify.kraft_snapshot import check_kraft_snapshot
from kfs.verify.log_ends import LogEndAudit
from kfs.verify.observer import Observer
from kfs.verify.offset_index import IndexLength, OffsetIndexAudit
from kfs.verify.producer_events import ProducerEvent, ProducerEvents
from kfs.verify.segment_task import SegmentTask
from kfs.verify.side_files import parse_file, severity_of
from kfs.verify.time_index import TimeIndexAudit


class SegmentReport(NamedTuple):
    """The findings about a segment, and what the partition's checks need; ``next_offset`` follows the last batch.

    ``aborted`` is the transaction index. It is None if the file can't be read or doesn't exist, as when no transaction
    was aborted. ``index_length`` and ``time_entries`` serve to judge whether an index is too short.
    """

    task: SegmentTask
    findings: tuple[Finding, ...]
    size: int = 0
    records: int = 0
    batches: int = 0
    next_offset: int = 0
    has_holes: bool = False
    is_damaged: bool = False
    magics: frozenset[int] = frozenset()
    epochs: tuple[EpochRun, ...] = ()
    producers: tuple[ProducerEvent, ...] = ()
    aborted: tuple[AbortedTxn, ...] | None = None
    index_length: IndexLength | None = None
    time_entries: int = 0


def check_segment(task: SegmentTask, storage: Storage) -> SegmentReport:
    """Read a segment's ``.log`` and its indexes once, and report what is wrong with them."""
    findings = Findings()
    try:
        return _SegmentCheck(task, storage, findings).run()
    except CorruptData as error:  # deleted, replaced or truncated meanwhile, or unreadable
        path = error.file or task.files.log.path
        findings.add(FindingKind.READ_ERROR, path, error.reason, severity=severity_of(error, path))
        return SegmentReport(task, tuple(findings.all()), next_offset=task.files.base_offset, is_damaged=True)


class _SegmentCheck:
    """The audits of a segment, and the state that they share."""

    def __init__(self, task: SegmentTask, storage: Storage, findings: Findings) -> None:
        self.task = task
        self.storage = storage
        self.findings = findings
        files, base_offset = task.files, task.files.base_offset
        self.file = open_listed(files.log.path, files.log.inode)
        offsets = self._entries(files.index, offset_index.LAYOUT)
        times = self._entries(files.timeindex, time_index.LAYOUT)
        self.batches = BatchAudit(files.log.path, storage, findings)
        self.offset_audit = OffsetIndexAudit(offsets, base_offset, findings) if offsets is not None else None
        self.time_audit = TimeIndexAudit(times, base_offset, findings)
        self.epochs = EpochAudit(files.log.path, findings)
        self.producers = ProducerEvents(files.log.path, storage, task.snapshot_offsets)
        self.observers: list[Observer] = [self.batches, self.time_audit, self.epochs, self.producers]
        if self.offset_audit is not None:
            self.observers.append(self.offset_audit)
        if task.ends:
            self.observers.append(LogEndAudit(files.log.path, task.ends, findings))
        self.next_offset = base_offset
        self.is_damaged = False

    def _entries(self, found: FoundFile | None, layout: IndexLayout) -> IndexEntries | None:
        if found is None:
            return None
        return read_entries(found, layout, self.findings, may_be_preallocated=not self.task.is_closed)

    def run(self) -> SegmentReport:
        task = self.task
        bounds = SegmentBounds(task.files.base_offset, task.next_base_offset)
        walk = SegmentWalk(self.file, bounds, self.storage.max_batch_bytes, _ignore, self.storage.decoder)
        for item in BulkReader(walk, self.storage, _ignore).undecoded():
            if isinstance(item, ScannedBatches):
                self._rows(item.table)
            elif isinstance(item, Block):
                self._block(item)
            else:
                self.is_damaged = True
                for observer in self.observers:
                    observer.damage(item)
        if walk.end < walk.size:
            self._tail(walk.end, walk.size)
        self._finish(walk.end)
        aborted = self._transaction_index()
        return SegmentReport(
            task,
            tuple(self.findings.all()),
            size=walk.size,
            records=self.batches.records,
            batches=self.batches.batches,
            next_offset=self.next_offset,
            has_holes=self.batches.has_holes,
            is_damaged=self.is_damaged,
            magics=frozenset(self.batches.magics),
            epochs=tuple(self.epochs.runs),
            producers=self.producers.finish(),
            aborted=aborted,
            index_length=self.offset_audit.length() if self.offset_audit is not None else None,
            time_entries=self.time_audit.count,
        )

    def _rows(self, table: BatchTable) -> None:
        for observer in self.observers:
            observer.rows(table)
        self.batches.has_holes |= table.base_offsets[0] > self.next_offset
        self.next_offset = table.last_offsets[-1] + 1

    def _block(self, block: Block) -> None:
        """Process a block outside a table: v0 or v1 messages, or a batch too large for one."""
        header = block.header
        is_trimmed = block.is_trimmed and header.record_count != UNKNOWN_COUNT
        if is_trimmed:
            self.is_damaged = True
            self.batches.misplaced(block, header.base_offset, header.last_offset)
        if header.magic < MAGIC_V2:
            columns = self.batches.load(block)
            for observer in self.observers:
                observer.messages(block, columns)
            last = columns.offsets[-1] if columns is not None and len(columns) else header.last_offset
            self.next_offset = max(self.next_offset, min(last + 1, block.before))
        elif is_trimmed:
            self.next_offset = max(self.next_offset, min(header.last_offset + 1, block.before))
        else:
            self._rows(BatchTable.of(header, block.data))

    def _tail(self, end: int, size: int) -> None:
        """Report the bytes after the log's end in the last segment."""
        task, path = self.task, self.task.files.log.path
        if is_zero_to_end(self.file, end, size):
            severity = Severity.WARNING if task.is_stopped else None
            reason = f"{size - end} bytes of zeros after the last batch: preallocated, or lost"
            self.findings.add(FindingKind.ZERO_TAIL, path, reason, bytes=(end, size), severity=severity)
            return
        severity = Severity.ERROR if task.is_stopped else None
        reason, offsets = f"{size - end} bytes left, fewer than a header", None
        head = self.file.read(end, min(BATCH_OVERHEAD, size - end))
        if len(head) >= HEADER_SIZE_UP_TO_MAGIC:
            header = read_header(head, 0, end)
            reason = f"the last batch has a size of {header.size} bytes, of which {size - end} are there"
            if len(head) == BATCH_OVERHEAD and header.base_offset >= self.next_offset:
                offsets = header.base_offset, header.last_offset
        self.findings.add(FindingKind.TORN_TAIL, path, reason, bytes=(end, size), offsets=offsets, severity=severity)

    def _finish(self, end: int) -> None:
        task = self.task
        self.time_audit.finish(self.next_offset, is_closed=task.is_closed)
        if self.offset_audit is not None:
            self.offset_audit.finish(end, self.next_offset)
        if task.is_kraft_snapshot:
            check_kraft_snapshot(self.batches, self.next_offset, self.file.path, self.findings)
        self._check_present(task.files.index, ".index", offset_index.LAYOUT, is_needed=end > 0)
        has_timestamps = bool(self.batches.magics - {MAGIC_V0})
        self._check_present(task.files.timeindex, ".timeindex", time_index.LAYOUT, is_needed=has_timestamps)

    def _check_present(self, found: FoundFile | None, suffix: str, layout: IndexLayout, *, is_needed: bool) -> None:
        log = self.task.files.log.path
        if found is None and is_needed and log.endswith(".log"):
            self.findings.add(layout.missing, log.removesuffix(".log") + suffix, "missing; a broker rebuilds it")

    def _transaction_index(self) -> tuple[AbortedTxn, ...] | None:
        found = self.task.files.txnindex
        if found is None:
            return None
        parse = partial(parse_aborted_transactions, base_offset=self.task.files.base_offset)
        return parse_file(found.path, parse, FindingKind.TXNINDEX_FORMAT, self.findings)


def _ignore(problem: Problem) -> None:
    """Drop a problem; it is also yielded as :class:`~kfs.log.block.Damage`."""
