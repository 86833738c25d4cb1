"""Which records a consumer at an isolation level gets: with ``read_committed`` what is over and done.

Nothing at or above the last stable offset, and none of an aborted transaction. A batch is of one producer, and a
producer has one transaction open at a time, so a batch belongs to the transaction that the next marker of its producer
ends: what became of it is found by going on from where it stands, whatever lies before. That takes whole batches in or
out, of any codec, and no more of the log than the transactions reach that a reader meets.

The control records in the log are what is believed. The ``.txnindex`` is asked where they don't tell, or not soon: a
transaction that reaches far, and one whose marker may be lost in damaged bytes. An entry of it counts unless the log
says otherwise at the offset of the marker; that there is none says nothing, as a file may be missing or cut off.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import Final

from kfs.errors import CorruptData, InvalidTransaction
from kfs.format.aborted_transaction import AbortedTransaction
from kfs.format.control_record import AbortMarker, parse_control_record
from kfs.format.layout import CONTROL_MASK, MAX_INT64, TRANSACTIONAL_MASK
from kfs.format.producer_snapshot import ProducerStateEntry
from kfs.format.record import Record
from kfs.log.block import Block, Damage
from kfs.log.bulk import BulkReader, Ordinary, Records
from kfs.log.log import Log, OffsetRange
from kfs.log.producer_state import CompletedTransaction, ProducerState

#: Bytes of log that are searched for the end of a transaction before its index is asked.
_FAR_BYTES: Final = 4 * 1024 * 1024


class IsolationLevel(StrEnum):
    """``IsolationLevel.java``."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


def visible_at(log: Log, level: IsolationLevel) -> OffsetRange:
    """Return the offsets that a consumer at that level may see: of those that are visible, the stable ones."""
    visible = log.visible()
    if level is IsolationLevel.READ_UNCOMMITTED:
        return visible
    return OffsetRange(visible.start, max(visible.start, min(visible.end, _first_undecided(log, visible.end))))


def last_stable_offset(log: Log) -> int:
    """Return the offset below which every transaction is over: the first that a ``read_committed`` consumer can't see.

    It is the end of what is visible where no transaction is open.
    """
    return visible_at(log, IsolationLevel.READ_COMMITTED).end


def _first_undecided(log: Log, end: int) -> int:
    """Where the oldest transaction begins that is open at ``end``: as of the last producer snapshot, and on from it."""
    state = ProducerState()
    start = 0
    for offset, entries in log.producer_snapshots(newest_first=True):
        transactions = [entry for entry in entries if entry.current_txn_first_offset is not None]
        if offset <= end and all(_begins_in(log, entry) for entry in transactions):
            state.load(transactions, offset, now=0)  # open transactions don't expire
            start = offset
            break
    replay = _Replay(log, start, end, state)
    while start < end and replay.step() is not None:
        pass
    first = state.first_undecided_offset
    return end if first is None else first


def _begins_in(log: Log, entry: ProducerStateEntry) -> bool:
    """Whether the log agrees that a transaction begins there, as far as it can be asked."""
    offset = entry.current_txn_first_offset
    segments = log.segments
    if offset is None or not segments or offset < max(segments[0].base_offset, log.log_start_offset):
        return True
    try:
        loaded = log.find(offset)
    except CorruptData:
        return True
    if loaded is None or loaded.header.base_offset != offset:
        return False
    return loaded.header.is_transactional and loaded.header.producer_id == entry.producer_id


class _Replay:
    """The transactions of a log, batch by batch from an offset on; the state knows only those that are open.

    Damage is stepped over in silence: it is for those to report who read it.
    """

    def __init__(self, log: Log, start: int, end: int = MAX_INT64, state: ProducerState | None = None) -> None:
        """Begin at ``start``; no batch counts that begins below it, or at ``end`` or above."""
        self.state = state or ProducerState()
        self.start = start
        #: What lies below (and not below the start) has been read.
        self.read_up_to = start
        self.bytes_read = 0
        self._end = end
        self._log = log
        self._opened_at: dict[int, int] = {}  # by producer, what had been read when its transaction began
        self._steps = self._read()

    def step(self) -> list[CompletedTransaction] | Damage | None:
        """Read on; return the transactions that ended, or what is damaged; None at the end of the log.

        Raises:
            CorruptData: a segment vanished, or was cut.
        """
        return next(self._steps, None)

    def open_from(self, producer_id: int) -> int | None:
        """Return where the open transaction of a producer begins, None without one."""
        entry = self.state.entry(producer_id)
        return None if entry is None else entry.current_txn_first_offset

    def bytes_since_opened(self, producer_id: int) -> int:
        """Return how much was read since the open transaction of a producer began."""
        return self.bytes_read - self._opened_at.get(producer_id, self.bytes_read)

    def forget(self, producer_id: int) -> None:
        """Take the transaction of a producer for over."""
        self.state.forget(producer_id)
        self._opened_at.pop(producer_id, None)

    def _read(self) -> Iterator[list[CompletedTransaction] | Damage]:
        for segment in self._log.segments:
            if segment.base_offset >= self._end:
                return
            if segment.next_base_offset is not None and segment.next_base_offset <= self.start:
                continue
            reader = segment.bulk_reader(report=lambda problem: None)
            position, seen = segment.position_before(max(self.start, segment.base_offset))
            for piece in reader.pieces(position, seen):
                if isinstance(piece, Damage):
                    self.bytes_read += piece.end - piece.position
                    yield piece
                    continue
                blocks, last_offset, size = _transactional(reader, piece, self.state)
                completed = [done for block in blocks if (done := self._append(block)) is not None]
                self.read_up_to = max(self.read_up_to, last_offset + 1)
                self.bytes_read += size
                yield completed
                if self.read_up_to >= self._end:
                    return

    def _append(self, block: Block) -> CompletedTransaction | None:
        header = block.header
        if not self.start <= header.base_offset < self._end:
            return None
        producer_id = header.producer_id
        try:
            completed = self.state.append(header, self._control_record(block) if header.is_control else None)
        except (CorruptData, InvalidTransaction):  # a marker that isn't one
            return None
        if not header.is_control:
            self._opened_at.setdefault(producer_id, self.bytes_read)
        elif self.open_from(producer_id) is None:
            self.forget(producer_id)
        return completed

    def _control_record(self, block: Block) -> Record | None:
        storage = self._log.storage
        columns = block.decode(storage.decoder, storage.max_batch_bytes)
        return columns.record(0) if len(columns) else None


def _transactional(
    reader: BulkReader, piece: Ordinary | Block, state: ProducerState
) -> tuple[Iterator[Block], int, int]:
    """Return the batches that begin or end a transaction, the last offset of all, and their size in bytes."""
    if isinstance(piece, Block):
        header = piece.header
        return iter((piece,) if header.is_transactional else ()), header.last_offset, header.size
    table, rows = piece
    rows_of_interest = [row for row, bits in enumerate(table.attributes[:rows]) if bits & TRANSACTIONAL_MASK]
    blocks = (
        reader.block(table, row)
        for row in rows_of_interest
        if table.attributes[row] & CONTROL_MASK or not state.is_open(table.producer_ids[row])
    )
    return blocks, table.last_offsets[rows - 1], table.end(rows - 1) - table.positions[0]


def _marker_offset(transaction: AbortedTransaction) -> int:
    return transaction.last_offset


class AbortedTransactions:
    """Tells which batches of a log are of aborted transactions; ask in the order of the log, it reads ahead.

    Memory grows with the transactions that are open or were aborted, not with the log. Not for several threads.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._replay: _Replay | None = None
        #: By producer: first offset and marker of the transactions that were seen to be aborted, in order.
        self._aborted: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._damaged_from = -1
        self._entries: dict[int, list[AbortedTransaction]] | None = None
        self._markers: dict[AbortedTransaction, bool | None] = {}

    def kept_ranges(self, records: Records, first: int, stop: int) -> list[range]:
        """Return which of the records ``first`` to ``stop`` of decoded batches are of no aborted transaction.

        There is at least one. Raises as :meth:`is_aborted`.
        """
        table, offsets = records.table, records.columns.offsets
        kept: list[range] = []
        for row in range(records.first, records.stop):
            if not table.attributes[row] & TRANSACTIONAL_MASK:
                continue
            base_offset, last_offset = table.base_offsets[row], table.last_offsets[row]
            if last_offset < offsets[first] or base_offset > offsets[stop - 1]:
                continue
            if self.is_aborted(table.producer_ids[row], base_offset, last_offset):
                left_out = bisect_left(offsets, base_offset, first, stop)
                kept.append(range(first, left_out))
                first = bisect_left(offsets, last_offset + 1, left_out, stop)
                if first == stop:
                    break
        kept.append(range(first, stop))
        return [some for some in kept if some]

    def is_aborted(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Whether a transactional batch of messages, of these offsets, is of an aborted transaction.

        Raises:
            CorruptData: a segment vanished, or was cut.
        """
        replay = self._replay_at(base_offset)
        while replay.read_up_to <= last_offset and self._step(replay):
            pass
        while (first := replay.open_from(producer_id)) is not None and first <= last_offset:
            is_far = replay.bytes_since_opened(producer_id) >= _FAR_BYTES
            if is_far and self._entry_over(producer_id, base_offset, last_offset) is not None:
                return True
            if not self._step(replay):  # below the last stable offset it has ended: how, only the index can know
                return self._entry_over(producer_id, base_offset, last_offset) is not None
        aborted = self._aborted.get(producer_id, [])
        at = bisect_left(aborted, base_offset, key=lambda transaction: transaction[1])
        return at < len(aborted) and aborted[at][0] <= last_offset

    def _replay_at(self, offset: int) -> _Replay:
        """Return a replay that has read what begins at ``offset`` or reads it next; what lies before is forgotten."""
        replay = self._replay
        if replay is None or not replay.start <= offset <= replay.read_up_to:
            self._aborted.clear()
            self._damaged_from = -1
            replay = self._replay = _Replay(self.log, offset)
        return replay

    def _step(self, replay: _Replay) -> bool:
        try:
            done = replay.step()
        except CorruptData:
            self._replay = None
            raise
        if done is None:
            return False
        if isinstance(done, Damage):
            self._damaged_from = replay.read_up_to
            self._decide_by_index(replay)
        else:
            for completed in done:
                self._note(completed)
        return True

    def _note(self, completed: CompletedTransaction) -> None:
        if not completed.is_aborted:
            return
        producer_id, first, last = completed.producer_id, completed.first_offset, completed.last_offset
        if first < self._damaged_from:  # the marker of an earlier one may have been lost
            entry = next(self._entries_from(producer_id, last), None)
            first = entry.first_offset if entry is not None and entry.last_offset == last else first
        self._aborted[producer_id].append((first, last))

    def _decide_by_index(self, replay: _Replay) -> None:
        """Of transactions whose marker is known to be damaged the index tells."""
        for open_now in replay.state.entries():
            first = open_now.current_txn_first_offset
            if first is None:
                continue
            entry = self._entry_over(open_now.producer_id, first, first)
            if entry is not None and self._has_marker(entry) is None:
                self._aborted[open_now.producer_id].append((first, entry.last_offset))
                replay.forget(open_now.producer_id)

    # -- the transaction index

    def _entries_from(self, producer_id: int, offset: int) -> Iterator[AbortedTransaction]:
        """Yield the entries of a producer whose marker is at ``offset`` or above."""
        if self._entries is None:
            self._entries = defaultdict(list)
            for _, entry in self.log.aborted_transactions():
                insort(self._entries[entry.producer_id], entry, key=_marker_offset)
        entries = self._entries.get(producer_id, [])
        return islice(entries, bisect_left(entries, offset, key=_marker_offset), None)

    def _entry_over(self, producer_id: int, first: int, last: int) -> AbortedTransaction | None:
        """Return what the index says of a batch, where the log doesn't contradict."""
        for entry in self._entries_from(producer_id, first):
            if entry.first_offset > last:
                break
            if self._has_marker(entry) is not False:
                return entry
        return None

    def _has_marker(self, entry: AbortedTransaction) -> bool | None:
        """Whether the ABORT of an entry is where it says; None where that is damaged."""
        if entry not in self._markers:
            self._markers[entry] = self._look_for_marker(entry)
        return self._markers[entry]

    def _look_for_marker(self, entry: AbortedTransaction) -> bool | None:
        try:
            loaded = self.log.find(entry.last_offset)
            if loaded is None or not loaded.header.is_control or loaded.header.producer_id != entry.producer_id:
                return False
            record = loaded.columns.record(loaded.columns.offsets.index(entry.last_offset))
            return isinstance(parse_control_record(record.key, record.value), AbortMarker)
        except CorruptData:
            return None
        except ValueError:  # no such offset in the batch
            return False
