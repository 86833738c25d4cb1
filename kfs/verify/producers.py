"""Checks of producer snapshots and transaction indexes against the batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kfs.errors import CorruptData, InvalidTransaction
from kfs.format.aborted_txn import ABORTED_TRANSACTION_SIZE, AbortedTxn
from kfs.format.control_record import AbortMarker, parse_control_record
from kfs.format.layout import MAGIC_V2
from kfs.format.producer_snapshot import (
    PRODUCER_ENTRY,
    SNAPSHOT_HEADER,
    ProducerStateEntry,
    parse_producer_snapshot,
)
from kfs.log.producer_state import NO_COORDINATOR_EPOCH, CompletedTxn, ProducerState
from kfs.log.remote_offsets import RemoteOffsets
from kfs.storage.listing import FoundFile
from kfs.verify.finding import FindingKind, Findings, Severity
from kfs.verify.producer_events import ProducerEvent
from kfs.verify.segment import SegmentReport
from kfs.verify.side_files import parse_file

#: The fields in which a snapshot and a replay must agree; others may have been forgotten.
_FIELDS: Final = ("producer_epoch", "last_sequence", "last_offset", "offset_delta", "timestamp")
_NO_EXPIRATION: Final = 0  # with the clock at 1970, no producer has expired


class ProducerCheck:
    """Replays a partition's segments in order, and checks each producer snapshot and transaction index on the way.

    The state is unknown where the log begins above offset 0 or damage hides batches. As a broker does, the check then
    loads the next intact snapshot, and reports nothing before it. Compaction removes batches and whole transactions, so
    in a log with holes only contradictions to existing batches are reported. Snapshots of ``remote`` offsets date from
    an earlier stop; they remain after tiered storage has moved the segments away.
    """

    def __init__(
        self, snapshots: Mapping[int, FoundFile], findings: Findings, remote: RemoteOffsets | None = None
    ) -> None:
        self._remote = remote
        self._files = snapshots
        self._findings = findings
        self._snapshots: dict[int, tuple[ProducerStateEntry, ...]] = {}
        for offset, found in sorted(snapshots.items()):
            entries = parse_file(found.path, parse_producer_snapshot, FindingKind.SNAPSHOT_FORMAT, findings)
            if entries is not None:
                self._snapshots[offset] = entries
        self._state = ProducerState()
        self._is_known = False
        self._has_holes = False
        self._known_from = 0
        self._waiting = sorted(self._snapshots, reverse=True)

    def check(self, reports: Iterable[SegmentReport]) -> None:
        """Replay and check all segments, then report snapshots past the log's end."""
        next_offset = 0
        for number, report in enumerate(reports):
            base_offset = report.task.files.base_offset
            if number == 0:
                self._begin(base_offset)
            elif base_offset > next_offset:
                self._is_known = False  # the offsets in between are lost or compacted away
            self._compare_up_to(base_offset)
            if not self._is_known and base_offset in self._snapshots:
                self._load(base_offset)
            self._has_holes |= report.has_holes and not report.is_damaged
            self._is_known &= not report.is_damaged
            self._replay(report)
            next_offset = report.next_offset
        self._compare_up_to(next_offset)
        for offset in self._waiting:
            reason = f"the snapshot is at offset {offset}, the log ends at {next_offset}"
            self._findings.add(
                FindingKind.SNAPSHOT_MISPLACED, self._files[offset].path, reason, offsets=(offset, offset)
            )

    def _begin(self, base_offset: int) -> None:
        while self._waiting and self._waiting[-1] < base_offset:
            offset = self._waiting.pop()
            if self._remote is not None and offset in self._remote:
                continue
            reason = f"the snapshot is at offset {offset}, the log begins at {base_offset}"
            self._findings.add(FindingKind.SNAPSHOT_MISPLACED, self._files[offset].path, reason, severity=Severity.INFO)
        if base_offset == 0:
            self._is_known = True
        elif base_offset in self._snapshots:
            self._load(base_offset)

    def _load(self, offset: int) -> None:
        self._state.clear()
        self._state.load(self._snapshots[offset], offset, _NO_EXPIRATION)
        self._is_known = True
        self._known_from = offset

    def _replay(self, report: SegmentReport) -> None:
        completed: list[CompletedTxn] = []
        aborts: dict[tuple[int, int], bool] = {}
        for event in report.producers:
            self._compare_up_to(event.header.base_offset)
            if event.marker is not None and _is_abort(event):
                aborts[event.header.producer_id, event.header.base_offset] = True
            transaction = self._append(event, report)
            if transaction is not None and transaction.is_aborted:
                completed.append(transaction)
        self._check_index(report, completed, aborts)

    def _append(self, event: ProducerEvent, report: SegmentReport) -> CompletedTxn | None:
        header = event.header
        try:
            return self._state.append(header, event.marker)
        except CorruptData:
            return None  # BatchAudit reports the batch
        except InvalidTransaction as error:
            if self._is_known:
                self._findings.add(
                    FindingKind.TRANSACTION_STATE,
                    report.task.files.log.path,
                    str(error),
                    bytes=(header.position, header.position + header.size),
                    offsets=(header.base_offset, header.last_offset),
                )
            return None

    # -- transaction indexes

    def _check_index(
        self, report: SegmentReport, completed: list[CompletedTxn], aborts: Mapping[tuple[int, int], bool]
    ) -> None:
        found = report.task.files.txnindex
        wanted = {(one.producer_id, one.last_offset): one for one in completed}
        if found is None:
            if wanted:
                self._say_missing(report, completed)
            return
        if report.aborted is None:
            return  # unreadable; reported already
        for number, entry in enumerate(report.aborted):
            key = entry.producer_id, entry.last_offset
            reason = self._difference(entry, wanted.pop(key, None), is_abort=key in aborts)
            if reason and not (report.is_damaged and key not in aborts):
                self._findings.add(
                    FindingKind.TXNINDEX_ENTRY_WRONG,
                    found.path,
                    f"entry {number}, producer {entry.producer_id}: {reason}",
                    bytes=(number * ABORTED_TRANSACTION_SIZE, (number + 1) * ABORTED_TRANSACTION_SIZE),
                    offsets=(entry.first_offset, entry.last_offset),
                )
        for one in wanted.values():
            reason = f"no entry for the transaction of producer {one.producer_id} that was aborted at {one.last_offset}"
            offsets = (one.first_offset, one.last_offset)
            self._findings.add(FindingKind.TXNINDEX_ENTRY_MISSING, found.path, reason, offsets=offsets)

    def _say_missing(self, report: SegmentReport, completed: list[CompletedTxn]) -> None:
        log = report.task.files.log.path
        self._findings.add(
            FindingKind.TXNINDEX_MISSING,
            log.removesuffix(".log") + ".txnindex",
            f"missing, and {len(completed)} transactions were aborted in the segment",
            offsets=(min(one.first_offset for one in completed), completed[-1].last_offset),
        )

    def _difference(self, entry: AbortedTxn, one: CompletedTxn | None, *, is_abort: bool) -> str:
        """Return what is wrong with an entry, or an empty string."""
        if not is_abort:
            return f"there is no ABORT marker at offset {entry.last_offset}"
        if not self._is_known or self._has_holes:
            return ""
        if one is None:
            return f"no transaction was open at its ABORT marker, offset {entry.last_offset}"
        if entry.first_offset != one.first_offset:
            return f"first offset {entry.first_offset}, the transaction began at {one.first_offset}"
        if entry.last_stable_offset != one.last_stable_offset:
            return f"last stable offset {entry.last_stable_offset}, it was {one.last_stable_offset}"
        return ""

    # -- snapshots

    def _compare_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[-1] <= offset:
            self._compare(self._waiting.pop())

    def _compare(self, offset: int) -> None:
        """Compare the snapshot of ``offset`` with the replayed state."""
        entries = self._snapshots[offset]
        for number, entry in enumerate(entries):
            reason = self._contradiction(entry, offset)
            if reason:
                start = SNAPSHOT_HEADER.size + number * PRODUCER_ENTRY.size
                where = start, start + PRODUCER_ENTRY.size
                self._contradicts(offset, f"producer {entry.producer_id}: {reason}", where)
        if not self._is_known:
            return
        named = {entry.producer_id for entry in entries}
        for mine in self._state.entries():
            # A producer expires after a day without batches, but never with an open transaction.
            if mine.current_txn_first_offset is not None and mine.producer_id not in named:
                began = f"has a transaction open from {mine.current_txn_first_offset}"
                self._contradicts(offset, f"producer {mine.producer_id} is missing, but {began}", None)

    def _contradiction(self, entry: ProducerStateEntry, offset: int) -> str:
        if entry.last_offset >= offset:
            return f"last offset {entry.last_offset}, not below the snapshot's offset {offset}"
        mine = self._state.entry(entry.producer_id)
        if mine is None:
            if self._is_known and not self._has_holes and entry.last_offset >= self._known_from:
                return f"last offset {entry.last_offset}, but the log has no batch of it"
            return ""
        if self._has_holes or not self._is_known:
            if mine.has_batch and entry.has_batch and mine.last_offset > entry.last_offset:
                return f"last offset {entry.last_offset}, but it wrote offset {mine.last_offset}"
            return ""
        for field in _FIELDS:
            said, is_so = getattr(entry, field), getattr(mine, field)
            if said != is_so:
                return f"{field.replace('_', ' ')} {said}, in the log {is_so}"
        if entry.current_txn_first_offset != mine.current_txn_first_offset:
            said, is_so = entry.current_txn_first_offset, mine.current_txn_first_offset
            return f"transaction open from {said}, in the log from {is_so}"
        if entry.coordinator_epoch not in (mine.coordinator_epoch, NO_COORDINATOR_EPOCH):
            return f"coordinator epoch {entry.coordinator_epoch}, in the log {mine.coordinator_epoch}"
        return ""

    def _contradicts(self, offset: int, reason: str, where: tuple[int, int] | None) -> None:
        path = self._files[offset].path
        self._findings.add(FindingKind.SNAPSHOT_CONTRADICTION, path, reason, bytes=where, offsets=(offset, offset))


def check_presence(
    directory: str,
    reports: Sequence[SegmentReport],
    snapshots: Mapping[int, FoundFile],
    findings: Findings,
    *,
    is_from_broker: bool,
) -> None:
    """Report missing snapshots: brokers since 0.11 keep at least the one at the last segment's base offset.

    In a log that no such broker wrote and that has no producers, a missing snapshot is only ``INFO``.
    """
    last = reports[-1]
    # No snapshot is needed where the log begins, or in segments that brokers before 0.11 wrote.
    from_magic = next((at for at, report in enumerate(reports) if MAGIC_V2 in report.magics), len(reports))
    bases = [report.task.files.base_offset for report in reports[from_magic + 1 :]]
    needed = bases[-1:]
    if last.task.is_stopped and MAGIC_V2 in last.magics:
        needed.append(last.next_offset)
    has_producers = any(report.producers for report in reports)
    severity = None if snapshots or has_producers or is_from_broker else Severity.INFO
    for offset in needed:
        if offset not in snapshots:
            reason = "missing; a broker reads the whole log to rebuild it"
            path = os.path.join(directory, f"{offset:020d}.snapshot")
            findings.add(FindingKind.SNAPSHOT_MISSING, path, reason, offsets=(offset, offset), severity=severity)
    missing = [base for base in bases[:-1] if base not in snapshots]
    if missing:
        findings.add(
            FindingKind.SNAPSHOT_MISSING,
            os.path.join(directory, f"{missing[0]:020d}.snapshot"),
            f"{len(missing)} segments have none; brokers before 2.8 keep only the last ones",
            offsets=(missing[0], missing[-1]),
            severity=Severity.INFO,
        )


def _is_abort(event: ProducerEvent) -> bool:
    assert event.marker is not None
    try:
        return isinstance(parse_control_record(event.marker.key, event.marker.value), AbortMarker)
    except CorruptData:
        return False
