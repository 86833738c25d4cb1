"""The transactions of a partition: open, committed and aborted ones."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData
from kfs.format.layout import NO_TIMESTAMP
from kfs.format.producer_snapshot import ProducerStateEntry
from kfs.log.block import Damage
from kfs.log.log import Log
from kfs.read.isolation import first_undecided, replay_of_open
from kfs.read.transaction_replay import ReplayedTxn, TransactionReplay

#: The default of ``transaction.max.timeout.ms``, and of ``kafka-transactions find-hanging``: 15 minutes.
MAX_TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000
#: The number of committed, and of aborted, transactions that are kept, the latest ones; the others are only counted.
MOST_NAMED: Final = 1000


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a marker, with the fields of a ``DescribeProducers`` response.

    ``coordinator_epoch`` is that of the producer's last marker, or -1 if there was none. ``start_timestamp`` is that of
    the first batch, ``last_timestamp`` that of the last one, both in milliseconds, or -1 for none.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_offset: int
    start_timestamp: int
    last_timestamp: int


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The open transactions of a partition, oldest first, and the offset that ``read_committed`` consumers stop at."""

    last_stable_offset: int
    transactions: tuple[OpenTransaction, ...]


def open_transactions(log: Log) -> OpenTransactions:
    """Return the transactions that are open at the end of the visible offsets.

    It reads the log from its last producer snapshot on.

    Raises:
        CorruptData: a segment vanished, or was cut.
    """
    end = log.visible().end
    epochs: dict[int, int] = {}
    return _open_in(log, replay_of_open(log, end, epochs), epochs, end)


def _open_in(log: Log, replay: TransactionReplay, epochs: dict[int, int], end: int) -> OpenTransactions:
    found = sorted(
        (entry.current_txn_first_offset, entry)
        for entry in replay.state.entries()
        if entry.current_txn_first_offset is not None
    )
    transactions = tuple(_open(log, replay, entry, first, epochs) for first, entry in found)
    return OpenTransactions(first_undecided(replay, end), transactions)


def _open(
    log: Log, replay: TransactionReplay, entry: ProducerStateEntry, first: int, epochs: dict[int, int]
) -> OpenTransaction:
    last_offset, last_timestamp = replay.latest(entry.producer_id) or (entry.last_offset, entry.timestamp)
    return OpenTransaction(
        entry.producer_id,
        entry.producer_epoch,
        epochs.get(entry.producer_id, entry.coordinator_epoch),
        first,
        last_offset,
        _timestamp_at(log, first),
        last_timestamp,
    )


def _timestamp_at(log: Log, offset: int) -> int:
    """Return the timestamp of the first record in the batch at ``offset``, or -1 if it can't be read."""
    try:
        loaded = log.find(offset)
    except CorruptData:
        return NO_TIMESTAMP
    return NO_TIMESTAMP if loaded is None or not len(loaded.columns) else loaded.columns.timestamps[0]


def ended_transactions(log: Log) -> Iterator[ReplayedTxn]:
    """Yield the committed and aborted transactions in the order of their markers, from the first segment on.

    A transaction that began earlier begins with its first batch in the log. A damaged marker ends no transaction.

    Raises:
        CorruptData: a segment vanished, or was cut.
    """
    for step in TransactionReplay(log, 0).steps_to(log.visible().end):
        if not isinstance(step, Damage):
            yield from step


class _Ended:
    """The number of transactions that were committed, or aborted, and the latest of them."""

    def __init__(self) -> None:
        self.count = 0
        self.latest: deque[ReplayedTxn] = deque(maxlen=MOST_NAMED)

    def add(self, transaction: ReplayedTxn) -> None:
        self.count += 1
        self.latest.append(transaction)


@dataclass(frozen=True, slots=True)
class EndedTransactions:
    """All transactions of a partition at one moment: the open ones, and the number and the latest of the others."""

    open: OpenTransactions
    committed: int
    latest_committed: tuple[ReplayedTxn, ...]
    aborted: int
    latest_aborted: tuple[ReplayedTxn, ...]


class TransactionHistory:
    """Follows all transactions of a partition, from the first segment on; memory doesn't grow with the log.

    It reads nothing before the first call of :meth:`now`. Thread-safe.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._incarnation = self._log.incarnation
        self._replay = TransactionReplay(self._log, 0)
        self._epochs: dict[int, int] = {}
        self._replay.coordinator_epochs = self._epochs
        self._ended = {False: _Ended(), True: _Ended()}

    def let_go(self) -> None:
        """Let go of the log's segments; see :meth:`CommittedReader.let_go`."""
        if self._lock.acquire(blocking=False):
            try:
                self._replay.pause()
            finally:
                self._lock.release()

    def now(self) -> EndedTransactions:
        """Read the new part of the log, and return the transactions.

        Raises:
            CorruptData: a segment vanished, or was cut.
        """
        with self._lock:
            end = self._log.visible().end
            if self._incarnation != self._log.incarnation or self._replay.read_up_to > end:
                self._forget()
            try:
                for step in self._replay.steps_to(end):
                    self._note(step)
            except CorruptData:
                self._forget()
                self._log.look_again()
                raise
            found = _open_in(self._log, self._replay, self._epochs, end)
            committed, aborted = self._ended[False], self._ended[True]
            return EndedTransactions(
                found, committed.count, tuple(committed.latest), aborted.count, tuple(aborted.latest)
            )

    def _note(self, step: list[ReplayedTxn] | Damage) -> None:
        if not isinstance(step, Damage):
            for transaction in step:
                self._ended[transaction.is_aborted].add(transaction)
