"""Transactional ids and their transactions: ``__transaction_state`` replayed as ``TransactionStateManager.scala`` does.

A record says all there is to know of one transactional id, the latest counts, and one without a value deletes it.
Nothing is read before it is asked for. What was read is kept and brought up to date when the logs have grown.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import NO_TIMESTAMP
from kfs.internal.schema import Malformed
from kfs.internal.state_problems import StateProblems
from kfs.internal.topic_state import RecordByRecord, TopicStates
from kfs.internal.topics import TRANSACTION_KINDS
from kfs.log.data_dir import DataDir

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
#: ``TransactionState.id`` and ``name``.
STATES: Final[Mapping[int, str]] = {
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
    6: "Dead",
    7: "PrepareEpochFence",
}
_DEAD: Final = "Dead"


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """What the coordinator knows of a transactional id (``TransactionMetadata``).

    ``partitions`` are those of the transaction that is going on or has no markers in them yet. Timestamps and the
    timeout are milliseconds; ``start_timestamp`` is -1 while no transaction has begun. A producer id of -1 is none.
    ``coordinator`` is the partition of ``__transaction_state`` that said so, at ``offset``.
    """

    name: str
    coordinator: int
    offset: int
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    next_producer_epoch: int
    timeout_ms: int
    state: str
    partitions: tuple[TopicPartition, ...]
    start_timestamp: int
    last_update_timestamp: int
    client_transaction_version: int

    def has(self, partition: TopicPartition) -> bool:
        """Whether the coordinator is still to write a marker there."""
        return partition in self.partitions

    @property
    def is_listed(self) -> bool:
        """Whether ``kafka-transactions`` shows it: not while it is about to expire."""
        return self.state != _DEAD


class TransactionLog(RecordByRecord):
    """What one partition of ``__transaction_state`` says, by transactional id."""

    def _forget(self) -> None:
        self.ids: dict[str, tuple[int, bytes]] = {}  # offset and value: objects would take several times as much
        self.by_producer: dict[int, str] = {}

    def coordinated(self) -> Iterable[str]:
        """See :meth:`TopicState.coordinated`: transactional ids."""
        return self.ids

    def _apply(self, key: bytes, value: bytes | None, offset: int) -> None:
        name = str(TRANSACTION_KINDS.decode(key, None).key["transactionalId"])
        known = self.ids.pop(name, None)  # whatever it was, it isn't any more
        if known is not None:
            self._drop_producer(name, known[1])
        if value is None:
            return
        fields = _fields_of(key, value)
        self.ids[name] = offset, value
        self.by_producer[fields["producerId"]] = name

    def _drop_producer(self, name: str, value: bytes) -> None:
        producer_id = _fields_of(_KEY, value)["producerId"]
        if self.by_producer.get(producer_id) == name:
            del self.by_producer[producer_id]

    def id(self, name: str) -> TransactionalId | None:
        """Return what is known of a transactional id, None where nothing is."""
        known = self.ids.get(name)
        if known is None:
            return None
        offset, value = known
        fields = _fields_of(_KEY, value)
        topics = fields["transactionPartitions"] or ()
        partitions = (TopicPartition(each["topic"], number) for each in topics for number in each["partitionIds"])
        return TransactionalId(
            name,
            self.log.partition,
            offset,
            fields["producerId"],
            fields["previousProducerId"],
            fields["nextProducerId"],
            fields["producerEpoch"],
            fields["nextProducerEpoch"],
            fields["transactionTimeoutMs"],
            STATES[fields["transactionStatus"]],
            tuple(sorted(partitions)),
            fields["transactionStartTimestampMs"],
            fields["transactionLastUpdateTimestampMs"],
            fields["clientTransactionVersion"],
        )


#: Any key: of the type alone depends how a value is read.
_KEY: Final = bytes(4)


def _fields_of(key: bytes, value: bytes) -> Mapping[str, Any]:
    """Return the fields of a value.

    Raises:
        Malformed: it isn't what its version promises, or names a state that Kafka didn't have when this was written.
    """
    record = TRANSACTION_KINDS.decode(key, value).value
    assert record is not None
    fields: Mapping[str, Any] = record.fields
    if fields["transactionStatus"] not in STATES:
        raise Malformed(f"transaction state {fields['transactionStatus']}, expected one of 0 to {max(STATES)}")
    return fields


class TransactionalIds:
    """The transactional ids of a data directory, followed as the logs grow. Threads may share it."""

    def __init__(self, data_dir: DataDir) -> None:
        self._logs = TopicStates(data_dir, TRANSACTION_STATE_TOPIC, TransactionLog)
        self._lock = threading.RLock()
        self._complete = (-1, False)  # at which version of the logs that was found

    @property
    def are_here(self) -> bool:
        """Whether there is anything that they are kept in."""
        return self._logs.are_here

    def check_here(self) -> None:
        """Raise :class:`UnusableSource` where there is nothing that they are kept in."""
        if not self.are_here:
            raise self._logs.not_here("transactional ids are")

    @property
    def may_be_elsewhere(self) -> bool:
        """Whether what isn't known here may be known elsewhere, or have been lost.

        That is so unless all partitions are here, from their beginning on and intact.
        """
        with self._lock:
            logs = self._logs.now()
            if self._complete[0] != self._logs.version:
                are_whole = not any(log.log.log_start_offset or log.damaged or log.unread for log in logs)
                self._complete = self._logs.version, are_whole and bool(logs) and self._logs.coverage().is_complete
            return not self._complete[1]

    def names(self) -> list[str]:
        """Return all transactional ids, sorted."""
        with self._lock:
            return sorted({name for log in self._logs.now() for name in log.ids})

    def get(self, name: str) -> TransactionalId | None:
        """Return what is known of a transactional id, None where nothing is."""
        with self._lock:
            found = (log.id(name) for log in self._logs.now() if name in log.ids)
            return max(filter(None, found), key=lambda each: each.last_update_timestamp, default=None)

    def why_not_found(self, name: str) -> str | None:
        """Return why a transactional id that isn't found may exist all the same, None where it would have been."""
        with self._lock:
            return self._logs.coverage().why_not_found(name)

    def of_producer(self, producer_id: int) -> TransactionalId | None:
        """Return the transactional id whose producer id that is, None where none has it."""
        with self._lock:
            for log in self._logs.now():
                name = log.by_producer.get(producer_id)
                found = log.id(name) if name is not None else None
                if found is not None and found.is_listed:
                    return found
        return None

    def state_problems(self) -> StateProblems:
        """Return what is wrong with what they are kept in."""
        with self._lock:
            return self._logs.state_problems()


def duration_ms(since: int, now_ms: int) -> int | None:
    """Return how long ago a timestamp was, in milliseconds; None where there is no timestamp."""
    return None if since == NO_TIMESTAMP else now_ms - since
