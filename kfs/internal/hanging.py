"""Detection of hanging transactions, which never end (``TransactionsCommand.FindHangingTransactionsCommand``)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum

from kfs.format.checkpoint import TopicPartition
from kfs.internal.transaction_state import TransactionalId, TransactionalIds, duration_ms
from kfs.read.transactions import MAX_TRANSACTION_TIMEOUT_MS, OpenTransaction


class TransactionVerdict(StrEnum):
    """The verdict on an open transaction."""

    OPEN = "open"  # its coordinator will end it, or it is too young to judge
    HANGING = "hanging"  # its coordinator doesn't know of it
    UNKNOWN = "unknown"  # its coordinator's state isn't here


@dataclass(frozen=True, slots=True)
class Judged:
    """An open transaction with its verdict and, if known, its transactional id."""

    partition: TopicPartition
    transaction: OpenTransaction
    standing: TransactionVerdict
    age_ms: int | None
    transactional_id: TransactionalId | None


class Judge:
    """Distinguishes hanging transactions from others at one moment, ``now_ms``.

    It applies the rule of ``find-hanging`` to the data on disk. A transaction hangs if two conditions hold. First, its
    last record is older than the maximum timeout that a producer may request. Second, its producer id has no
    transactional id, or that id's transaction in ``__transaction_state`` has no marker to write in this partition. If a
    part of that topic isn't here, an unknown producer id proves nothing.
    """

    def __init__(self, ids: TransactionalIds, now_ms: int, max_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS) -> None:
        self._ids = ids
        self._now_ms = now_ms
        self._max_timeout_ms = max_timeout_ms

    def judge(self, partition: TopicPartition, transaction: OpenTransaction) -> Judged:
        """Return the verdict on an open transaction of a partition."""
        owner = self._ids.of_producer(transaction.producer_id)
        age_ms = duration_ms(transaction.last_timestamp, self._now_ms)
        return Judged(partition, transaction, self._standing(partition, owner, age_ms), age_ms, owner)

    def _standing(
        self, partition: TopicPartition, owner: TransactionalId | None, age_ms: int | None
    ) -> TransactionVerdict:
        is_young = age_ms is not None and age_ms <= self._max_timeout_ms
        if is_young or (owner is not None and owner.has(partition)):
            return TransactionVerdict.OPEN
        if owner is None and self._ids.may_be_elsewhere:
            return TransactionVerdict.UNKNOWN
        return TransactionVerdict.HANGING


def abort_commands(judged: Judged, bootstrap_server: str) -> tuple[str, str]:
    """Return the command lines that abort a transaction: for brokers from 3.0 on, and for older ones.

    The command for older brokers has coordinator epoch 0 if the producer has no marker yet.
    """
    transaction, partition = judged.transaction, judged.partition
    common = ["kafka-transactions.sh", "--bootstrap-server", bootstrap_server, "abort"]
    common += ["--topic", partition.topic, "--partition", str(partition.partition)]
    older = ["--producer-id", str(transaction.producer_id), "--producer-epoch", str(transaction.producer_epoch)]
    older += ["--coordinator-epoch", str(max(transaction.coordinator_epoch, 0))]
    newer = ["--start-offset", str(transaction.first_offset)]
    return shlex.join(common + newer), shlex.join(common + older)
