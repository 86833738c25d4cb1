"""Transactional ids and their transactions: ``__transaction_state``, replayed as in ``TransactionStateManager.scala``.

A record has the whole state of one transactional id. The latest counts, and one without a value deletes it. The logs
are read on demand. The state is kept, and updated when the logs have grown.
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
    """The coordinator's state of a transactional id (``TransactionMetadata``).

    ``partitions`` are those of the current transaction that don't have its marker yet. Timestamps and the timeout are
    in milliseconds. ``start_timestamp`` is -1 while no transaction has begun. A producer id of -1 means none.
    ``coordinator`` is the partition of ``__transaction_state`` that has the record, at ``offset``.
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
        """Whether the coordinator has yet to write a marker in the partition."""
        return partition in self.partitions

    @property
    def is_listed(self) -> bool:
        """Whether ``kafka-transactions`` lists it, which it doesn't if the id is about to expire."""
        return self.state != _DEAD


class TransactionLog(RecordByRecord):
    """The state of one partition of ``__transaction_state``, by transactional id."""

    def _forget(self) -> None:
        self.ids: dict[str, tuple[int, bytes]] = {}  # offset and value; objects would take several times the memory
        self.by_producer: dict[int, str] = {}

    def coordinated(self) -> Iterable[str]:
        """Return the transactional ids; see :meth:`TopicState.coordinated`."""
        return self.ids

    def _apply(self, key: bytes, value: bytes | None, offset: int) -> None:
        name = str(TRANSACTION_KINDS.decode(key, None).key["transactionalId"])
        known = self.ids.pop(name, None)  # the previous state is obsolete even if this record is invalid
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
        """Return a transactional id, or None if it is unknown."""
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


#: Any key of the type: the decoding of a value depends on nothing else.
_KEY: Final = bytes(4)


def _fields_of(key: bytes, value: bytes) -> Mapping[str, Any]:
    """Return the fields of a value.

    Raises:
        Malformed: it doesn't match its version, or has an unknown state.
    """
    record = TRANSACTION_KINDS.decode(key, value).value
    assert record is not None
    fields: Mapping[str, Any] = record.fields
    if fields["transactionStatus"] not in STATES:
        raise Malformed(f"transaction state {fields['transactionStatus']}, expected one of 0 to {max(STATES)}")
    return fields


class TransactionalIds:
    """The transactional ids of a data directory, updated as the logs grow; thread-safe."""

    def __init__(self, data_dir: DataDir) -> None:
        self._logs = TopicStates(data_dir, TRANSACTION_STATE_TOPIC, TransactionLog)
        self._lock = threading.RLock()
        self._complete = (-1, False)  # the version of the logs that it is valid for

    @property
    def are_here(self) -> bool:
        """Whether a partition with transactional ids is here."""
        return self._logs.are_here

    def check_here(self) -> None:
        """Raise :class:`UnusableSource` if no partition with transactional ids is here."""
        if not self.are_here:
            raise self._logs.not_here("transactional ids are")

    @property
    def may_be_elsewhere(self) -> bool:
        """Whether an id that isn't here may exist elsewhere, or may have been lost.

        That is the case unless all partitions are here, from their beginning on and intact.
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
        """Return a transactional id, or None if it is unknown."""
        with self._lock:
            found = (log.id(name) for log in self._logs.now() if name in log.ids)
            return max(filter(None, found), key=lambda each: each.last_update_timestamp, default=None)

    def why_not_found(self, name: str) -> str | None:
        """Return why a transactional id that isn't found may exist elsewhere, or None if it would have been found."""
        with self._lock:
            return self._logs.coverage().why_not_found(name)

    def of_producer(self, producer_id: int) -> TransactionalId | None:
        """Return the transactional id with a producer id, or None if there is none."""
        with self._lock:
            for log in self._logs.now():
                name = log.by_producer.get(producer_id)
                found = log.id(name) if name is not None else None
                if found is not None and found.is_listed:
                    return found
        return None

    def state_problems(self) -> StateProblems:
        """Return the problems of their logs."""
        with self._lock:
            return self._logs.state_problems()


def duration_ms(since: int, now_ms: int) -> int | None:
    """Return the milliseconds since a timestamp, or None without a timestamp."""
    return None if since == NO_TIMESTAMP else now_ms - since
