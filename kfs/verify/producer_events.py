"""The batches of a segment that a replay of producer state needs: few, as a snapshot keeps little per producer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData
from kfs.format.batch_header import BatchHeader
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.layout import CONTROL_MASK, MAX_INT64, TRANSACTIONAL_MASK
from kfs.format.record import Record
from kfs.log.block import Block, Damage
from kfs.log.storage import Storage

_NOT_PLAIN: Final = CONTROL_MASK | TRANSACTIONAL_MASK


@dataclass(frozen=True, slots=True)
class ProducerEvent:
    """A batch for :meth:`~kfs.log.producer_state.ProducerState.append`, and its record if it is a marker."""

    header: BatchHeader
    marker: Record | None = None


class ProducerEvents:
    """Collects the batches that a replay needs.

    Per producer, these are the first batch of each transaction, its marker, and the last batch, which is what a
    producer snapshot describes. ``barriers`` are the offsets of snapshots; the last batches before each are kept too.
    """

    def __init__(self, file: str, storage: Storage, barriers: Iterable[int]) -> None:
        self._file = file
        self._storage = storage
        self._barriers = deque(sorted(barriers))
        self._events: list[ProducerEvent] = []
        self._last: dict[int, BatchHeader] = {}
        self._in_transaction: set[int] = set()

    def rows(self, table: BatchTable) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        if max(table.producer_ids) < 0:
            return
        last: dict[int, int] = {}
        barrier = self._barriers[0] if self._barriers else MAX_INT64
        for row, producer_id in enumerate(table.producer_ids):
            if table.last_offsets[row] >= barrier:
                barrier = self._pass_barriers(table, last, table.last_offsets[row])
            if producer_id < 0:
                continue
            if table.attributes[row] & _NOT_PLAIN or producer_id in self._in_transaction:
                self._add(table, row, last)
            else:
                last[producer_id] = row
        self._remember(table, last)

    def _pass_barriers(self, table: BatchTable, last: dict[int, int], offset: int) -> int:
        """Keep each producer's last batch before a snapshot's offset; return the next snapshot offset."""
        self._remember(table, last)
        self._keep_last()
        while self._barriers and self._barriers[0] <= offset:
            self._barriers.popleft()
        return self._barriers[0] if self._barriers else MAX_INT64

    def _remember(self, table: BatchTable, last: dict[int, int]) -> None:
        for producer_id, row in last.items():
            self._last[producer_id] = table.header(row)
        last.clear()

    def _keep_last(self) -> None:
        self._events += map(ProducerEvent, sorted(self._last.values()))
        self._last.clear()

    def _add(self, table: BatchTable, row: int, last: dict[int, int]) -> None:
        """Add a batch that belongs to a transaction, or comes from a producer with an open one."""
        header = table.header(row)
        producer_id = header.producer_id
        before = last.pop(producer_id, None)
        if before is not None:
            self._last[producer_id] = table.header(before)
        if header.is_transactional and not header.is_control and producer_id in self._in_transaction:
            self._last[producer_id] = header
            return
        known = self._last.pop(producer_id, None)
        if known is not None:
            self._events.append(ProducerEvent(known))
        if not header.is_control:
            self._events.append(ProducerEvent(header))
            if header.is_transactional:
                self._in_transaction.add(producer_id)
            return
        self._in_transaction.discard(producer_id)
        self._events.append(ProducerEvent(header, self._marker(table, row)))

    def _marker(self, table: BatchTable, row: int) -> Record | None:
        try:
            block = Block(table.header(row), table.data(row), self._file)
            columns = block.decode(self._storage.decoder, self._storage.max_batch_bytes)
        except CorruptData:
            return None  # BatchAudit reports the batch
        return columns.record(0) if len(columns) else None

    def messages(self, block: Block, columns: RecordColumns | None) -> None:
        """See :class:`~kfs.verify.observer.Observer`. Messages in formats v0 and v1 have no producer."""

    def damage(self, damage: Damage) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""

    def finish(self) -> tuple[ProducerEvent, ...]:
        """Return the batches to replay; their order gives the same state as a replay of all batches."""
        self._keep_last()
        return tuple(self._events)
