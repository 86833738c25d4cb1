"""Determines which records a consumer gets at an isolation level.

With ``read_committed``, it gets no records at or above the last stable offset, and none of aborted transactions. A
batch has one producer, and a producer has at most one open transaction. So a batch belongs to the transaction that the
next marker of its producer ends, and its outcome is found by reading on from the batch, whatever lies before. Whole
batches are shown or hidden, with any codec. No more of the log is read than the transactions span.

The control records in the log are authoritative. The ``.txnindex`` is consulted if they don't decide, or not soon: for
a long transaction, or one whose marker may be lost in damaged bytes. An index entry counts unless the log contradicts
it at the offset of the marker. A missing entry proves nothing, as an index file may be missing or cut off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from kfs.errors import CorruptData
from kfs.format.batch_header import BatchHeader
from kfs.format.producer_snapshot import ProducerStateEntry
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.producer_state import ProducerState
from kfs.log.segment import Segment
from kfs.read.aborted_transactions import AbortedTransactions
from kfs.read.isolation_level import IsolationLevel
from kfs.read.transaction_replay import TransactionReplay

Answer = TypeVar("Answer")


def visible_at(log: Log, level: IsolationLevel) -> OffsetRange:
    """Return the visible offsets of a log, with ``read_committed`` only those below the last stable offset."""
    visible = log.visible()
    if level is IsolationLevel.READ_UNCOMMITTED:
        return visible
    return _stable(visible, first_undecided(replay_of_open(log, visible.end), visible.end))


def last_stable_offset(log: Log) -> int:
    """Return the last stable offset: the first offset that a ``read_committed`` consumer can't see.

    Below it, all transactions have ended. If no transaction is open, it is the end of the visible offsets.
    """
    return visible_at(log, IsolationLevel.READ_COMMITTED).end


def _stable(offsets: OffsetRange, undecided: int) -> OffsetRange:
    return OffsetRange(offsets.start, max(offsets.start, min(offsets.end, undecided)))


def first_undecided(replay: TransactionReplay, end: int) -> int:
    """Return the first offset of the oldest open transaction at the position of a replay, or ``end`` without one."""
    first = replay.state.first_undecided_offset
    return end if first is None else first


def replay_of_open(log: Log, end: int, coordinator_epochs: dict[int, int] | None = None) -> TransactionReplay:
    """Return a replay that has read up to ``end``, from the newest usable producer snapshot on.

    It fills ``coordinator_epochs`` with the coordinator epoch of each producer's last marker.
    """
    state = ProducerState()
    start = 0
    needed_from = None
    segments = log.segments
    first = segments[0].base_offset if segments else 0
    for offset, entries in log.producer_snapshots(newest_first=True):
        transactions = [entry for entry in entries if entry.current_txn_first_offset is not None]
        # A broker ignores a snapshot below the log's start: its transactions may have ended since.
        if first <= offset <= end and all(_begins_in(log, entry) for entry in transactions):
            state.load(transactions, offset, now=0)  # open transactions don't expire
            start = offset
            needed_from = offset if segments else None
            if coordinator_epochs is not None:
                coordinator_epochs.update((entry.producer_id, entry.coordinator_epoch) for entry in entries)
            break
    replay = TransactionReplay(log, start, end, state, needed_from=needed_from)
    replay.coordinator_epochs = coordinator_epochs
    replay.go_on_to(end)
    return replay


def _begins_in(log: Log, entry: ProducerStateEntry) -> bool:
    """Whether the log has the beginning of a snapshot's open transaction; True if that can't be checked."""
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


class CommittedReader:
    """Determines what a ``read_committed`` consumer gets from a log that may grow or be cut.

    Thread-safe; requests can come in any order. It remembers how far it has read the log. As long as the partition is
    among those that were read recently, it also remembers the outcomes of recent transactions.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._incarnation = -1
        self._open: TransactionReplay | None = None
        self._aborted: AbortedTransactions | None = None
        self._lock = threading.Lock()

    def stable(self, offsets: OffsetRange) -> OffsetRange:
        """Return the part of ``offsets`` that lies below the last stable offset."""
        return _stable(offsets, self.last_stable_offset())

    def last_stable_offset(self) -> int:
        """Return :func:`last_stable_offset`; this reads only the new part of the log."""
        end = self.log.visible().end
        return self._ask(lambda: first_undecided(self._followed(end), end))

    def hides(self, segment: Segment, header: BatchHeader) -> bool:
        """Whether a batch of messages below the last stable offset belongs to an aborted transaction.

        Errors are those of :meth:`is_aborted`.
        """
        if not header.is_transactional:
            return False
        return self.is_aborted(segment, header.producer_id, header.base_offset, header.last_offset)

    def is_aborted(self, segment: Segment, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Return :meth:`AbortedTransactions.is_aborted`, errors too."""
        with self._lock:
            return self._filter().is_aborted(segment, producer_id, base_offset, last_offset)

    def has_marker(self, marker: tuple[int, int, bool]) -> bool:
        """Whether the log has a marker: its producer id, its offset, and whether it is an ABORT marker."""
        producer_id, offset, is_aborted = marker
        try:
            return self._ask(lambda: self._filter().marker_at(producer_id, offset)) is is_aborted
        except CorruptData:
            return False

    def let_go(self) -> None:
        """Let go of the log's segments, and of what was read, which is read again when it is asked for.

        While another thread asks, nothing is let go of.
        """
        if self._lock.acquire(blocking=False):
            try:
                if self._open is not None:
                    self._open.pause()
                self._open = None
            finally:
                self._lock.release()

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        with self._lock:
            if self.log.incarnation != self._incarnation:  # the segments that were read may be gone
                self._incarnation = self.log.incarnation
                self._open = None
            try:
                return question()
            except CorruptData:  # a segment is gone, or was cut
                self._open = None
                self.log.look_again()
                return question()

    def _followed(self, end: int) -> TransactionReplay:
        if self._open is None or self._open.read_up_to > end:
            self._open = replay_of_open(self.log, end)
        else:
            self._open.go_on_to(end)
        return self._open

    def _filter(self) -> AbortedTransactions:
        aborted = self._aborted  # another thread may call _forget at any moment
        if aborted is None:
            aborted = self._aborted = AbortedTransactions(self.log)
        self.log.storage.note_reader(self, self._forget)
        return aborted

    def _forget(self) -> None:
        self._aborted = None
