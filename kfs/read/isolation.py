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
    """Return the offsets that a consumer at that level may see: of those that are visible, the stable ones."""
    visible = log.visible()
    if level is IsolationLevel.READ_UNCOMMITTED:
        return visible
    return _stable(visible, first_undecided(replay_of_open(log, visible.end), visible.end))


def last_stable_offset(log: Log) -> int:
    """Return the offset below which every transaction is over: the first that a ``read_committed`` consumer can't see.

    It is the end of what is visible where no transaction is open.
    """
    return visible_at(log, IsolationLevel.READ_COMMITTED).end


def _stable(offsets: OffsetRange, undecided: int) -> OffsetRange:
    return OffsetRange(offsets.start, max(offsets.start, min(offsets.end, undecided)))


def first_undecided(replay: TransactionReplay, end: int) -> int:
    """Return where the oldest transaction begins that is open where a replay has come to; ``end`` without one."""
    first = replay.state.first_undecided_offset
    return end if first is None else first


def replay_of_open(log: Log, end: int, coordinator_epochs: dict[int, int] | None = None) -> TransactionReplay:
    """Return a replay that has read up to ``end``: as of the last producer snapshot, and on from it.

    ``coordinator_epochs`` is given those of the last markers of producers.
    """
    state = ProducerState()
    start = 0
    needed_from = None
    segments = log.segments
    first = segments[0].base_offset if segments else 0
    for offset, entries in log.producer_snapshots(newest_first=True):
        transactions = [entry for entry in entries if entry.current_txn_first_offset is not None]
        # Of one below the log's start a broker knows nothing: what it says may be over since.
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


class CommittedReader:
    """What a ``read_committed`` consumer gets of a log that may grow or be cut; for several threads, in any order.

    How far the log was read is remembered, and what became of the transactions met lately, in the partitions that were
    read lately.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._incarnation = -1
        self._open: TransactionReplay | None = None
        self._aborted: AbortedTransactions | None = None
        self._lock = threading.Lock()

    def stable(self, offsets: OffsetRange) -> OffsetRange:
        """Return those of some offsets of the log that are below the last stable offset."""
        return _stable(offsets, self.last_stable_offset())

    def last_stable_offset(self) -> int:
        """Return :func:`last_stable_offset`; only what is new of the log is read for it."""
        end = self.log.visible().end
        return self._ask(lambda: first_undecided(self._followed(end), end))

    def hides(self, segment: Segment, header: BatchHeader) -> bool:
        """Whether a batch of messages in a segment, below the last stable offset, is of an aborted transaction.

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
        """Whether a producer's marker is at an offset, and aborts or doesn't abort."""
        producer_id, offset, is_aborted = marker
        try:
            return self._ask(lambda: self._filter().marker_at(producer_id, offset)) is is_aborted
        except CorruptData:
            return False

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        with self._lock:
            if self.log.incarnation != self._incarnation:  # what was read may be of another log
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
        aborted = self._aborted  # which may be forgotten at any moment
        if aborted is None:
            aborted = self._aborted = AbortedTransactions(self.log)
        self.log.storage.note_reader(self, self._forget)
        return aborted

    def _forget(self) -> None:
        self._aborted = None
