"""Checks of the leader epochs in batch headers, which no CRC covers."""

from __future__ import annotations

from typing import NamedTuple

from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.layout import NO_PARTITION_LEADER_EPOCH
from kfs.log.block import Block, Damage
from kfs.verify.finding import FindingKind, Findings


class EpochRun(NamedTuple):
    """Consecutive batches of one leader epoch: first and last offset, and the first batch's byte position."""

    epoch: int
    first_offset: int
    last_offset: int
    position: int


class EpochAudit:
    """Records where each leader epoch begins, and reports epochs that decrease."""

    def __init__(self, file: str, findings: Findings) -> None:
        self._file = file
        self._findings = findings
        self.runs: list[EpochRun] = []

    def rows(self, table: BatchTable) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        lowest, highest = min(table.leader_epochs), max(table.leader_epochs)
        if lowest == highest and (not self.runs or highest == self.runs[-1].epoch):
            self._go_on(highest, table, 0, len(table) - 1)
            return
        for row, epoch in enumerate(table.leader_epochs):
            self._go_on(epoch, table, row, row)

    def _go_on(self, epoch: int, table: BatchTable, first: int, last: int) -> None:
        if epoch == NO_PARTITION_LEADER_EPOCH:
            return
        current = self.runs[-1] if self.runs else None
        if current is not None and current.epoch == epoch:
            self.runs[-1] = current._replace(last_offset=table.last_offsets[last])
        elif current is None or (epoch > current.epoch):
            run = EpochRun(epoch, table.base_offsets[first], table.last_offsets[last], table.positions[first])
            self.runs.append(run)
        else:
            self._findings.add(
                FindingKind.BATCH_EPOCH,
                self._file,
                f"leader epoch {epoch} after {current.epoch}",
                bytes=(table.positions[first], table.end(last)),
                offsets=(table.base_offsets[first], table.last_offsets[last]),
            )

    def messages(self, block: Block, columns: RecordColumns | None) -> None:
        """See :class:`~kfs.verify.observer.Observer`. Messages in formats v0 and v1 have no leader epoch."""

    def damage(self, damage: Damage) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
