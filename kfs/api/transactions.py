"""Transactions and transactional ids in Python."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from kfs.api.by_name import ByName
from kfs.errors import NotFound
from kfs.internal.hanging import Judge, Judged
from kfs.internal.transaction_state import TransactionalId
from kfs.internal.transaction_state import TransactionalIds as TransactionalIdState
from kfs.log.log import Log
from kfs.read.transaction_replay import ReplayedTxn
from kfs.read.transactions import ended_transactions, open_transactions

TransactionState = Literal["open", "hanging", "unknown", "committed", "aborted"]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction in one partition.

    ``state`` is ``"committed"`` or ``"aborted"`` if there is a marker, which is at ``end_offset``. Without a marker it
    is ``"open"``; ``"hanging"`` if it will never end, because its coordinator doesn't know it; or ``"unknown"`` if the
    coordinator's state isn't here. ``last_timestamp`` is that of the last batch or of the marker. Timestamps are in
    milliseconds, -1 if there is none. ``transactional_id`` is None if its owner is unknown.
    """

    topic: str
    partition: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    end_offset: int | None
    start_timestamp: int
    last_timestamp: int
    transactional_id: str | None


def transactions_of(
    logs: Iterable[Log], ids: TransactionalIdState, max_timeout_ms: int, *, ended: bool
) -> Iterator[Transaction]:
    """Yield the transactions in some logs: per log, with ``ended`` the ended ones, then the open ones.

    Raises:
        CorruptData: a segment was deleted or truncated.
    """
    judge = Judge(ids, time.time_ns() // 1_000_000, max_timeout_ms)
    for log in logs:
        if ended:
            for each in ended_transactions(log):
                yield _ended(log, each)
        for transaction in open_transactions(log).transactions:
            yield _open(judge.judge(log.topic_partition, transaction))


def _ended(log: Log, each: ReplayedTxn) -> Transaction:
    return Transaction(
        log.topic,
        log.partition,
        "aborted" if each.is_aborted else "committed",
        each.producer_id,
        each.producer_epoch,
        each.coordinator_epoch,
        each.first_offset,
        each.last_offset,
        each.start_timestamp,
        each.end_timestamp,
        None,
    )


def _open(judged: Judged) -> Transaction:
    each, owner = judged.transaction, judged.transactional_id
    return Transaction(
        judged.partition.topic,
        judged.partition.partition,
        judged.standing.value,
        each.producer_id,
        each.producer_epoch,
        each.coordinator_epoch,
        each.first_offset,
        None,
        each.start_timestamp,
        each.last_timestamp,
        None if owner is None else owner.name,
    )


class TransactionalIds(ByName[TransactionalId, TransactionalIdState]):
    """The transactional ids, with what their coordinators know of them; each access reads the current state.

    >>> broker = kfs.open("broker")
    >>> known = broker.transactional_ids()["d-3"]
    >>> known.state, known.producer_id, [str(each) for each in known.partitions]
    ('Ongoing', 3, ['__consumer_offsets-2', 'ledger-0'])
    """

    def __getitem__(self, name: str) -> TransactionalId:
        """Return what is known of an id; raise :class:`~kfs.errors.NotFound` (a ``KeyError``) if it is unknown."""
        known = self._state.get(name)
        if known is None:
            why = self._state.why_not_found(name)
            raise NotFound(f"no transactional id {name!r}" + (f": {why}" if why is not None else ""))
        return known
