"""Transactions and transactional ids as JSON, for the tree and for ``kfs txn``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from kfs.format.checkpoint import TopicPartition
from kfs.internal.hanging import Judge, Judged, TransactionVerdict, abort_commands
from kfs.internal.message_json import Json
from kfs.internal.transaction_state import TransactionalId, duration_ms
from kfs.read.transaction_replay import ReplayedTxn
from kfs.read.transactions import EndedTransactions
from kfs.render.timestamps import iso_time


def open_json(judged: Judged, bootstrap_server: str) -> dict[str, Json]:
    """Return an open transaction; a hanging one includes the commands that abort it."""
    transaction, owner = judged.transaction, judged.transactional_id
    fields: dict[str, Json] = {
        "state": judged.standing.value,
        "producerId": transaction.producer_id,
        "producerEpoch": transaction.producer_epoch,
        "coordinatorEpoch": transaction.coordinator_epoch,
        "startOffset": transaction.first_offset,
        "lastOffset": transaction.last_offset,
        **_times(startTimestamp=transaction.start_timestamp, lastTimestamp=transaction.last_timestamp),
        "ageMs": judged.age_ms,
        "transactionalId": None if owner is None else owner.name,
        "coordinatorState": None if owner is None else owner.state,
    }
    if judged.standing is TransactionVerdict.HANGING:
        newer, older = abort_commands(judged, bootstrap_server)
        fields |= {"abortCommand": newer, "abortCommandBefore30": older}
    return fields


def ended_json(transaction: ReplayedTxn) -> dict[str, Json]:
    """Return a committed or aborted transaction; ``endOffset`` is the offset of its marker."""
    return {
        "state": "aborted" if transaction.is_aborted else "committed",
        "producerId": transaction.producer_id,
        "producerEpoch": transaction.producer_epoch,
        "coordinatorEpoch": transaction.coordinator_epoch,
        "startOffset": transaction.first_offset,
        "endOffset": transaction.last_offset,
        **_times(startTimestamp=transaction.start_timestamp, endTimestamp=transaction.end_timestamp),
    }


def history_json(
    partition: TopicPartition, history: EndedTransactions, judge: Judge, bootstrap_server: str
) -> dict[str, Json]:
    """Return the transactions of a partition: all open ones, and the number and the latest of the ended ones."""
    judged = [judge.judge(partition, transaction) for transaction in history.open.transactions]
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "lastStableOffset": history.open.last_stable_offset,
        "open": [open_json(each, bootstrap_server) for each in judged],
        "aborted": {"count": history.aborted, "latest": list(map(ended_json, history.latest_aborted))},
        "committed": {"count": history.committed, "latest": list(map(ended_json, history.latest_committed))},
    }


def transactional_id_json(known: TransactionalId, now_ms: int) -> dict[str, Json]:
    """Return a transactional id, with the fields of ``kafka-transactions describe`` and all others."""
    return {
        "transactionalId": known.name,
        "coordinator": known.coordinator,
        "offset": known.offset,
        "state": known.state,
        "producerId": known.producer_id,
        "producerEpoch": known.producer_epoch,
        "previousProducerId": known.previous_producer_id,
        "nextProducerId": known.next_producer_id,
        "nextProducerEpoch": known.next_producer_epoch,
        "timeoutMs": known.timeout_ms,
        **_times(startTimestamp=known.start_timestamp),
        "durationMs": duration_ms(known.start_timestamp, now_ms),
        **_times(lastUpdateTimestamp=known.last_update_timestamp),
        "clientTransactionVersion": known.client_transaction_version,
        "partitions": [
            {"topic": topic, "partitions": [each.partition for each in group]}
            for topic, group in groupby(known.partitions, key=lambda each: each.topic)
        ],
    }


def _times(**timestamps: int) -> Mapping[str, Json]:
    """Return the timestamps, with an ISO time added after each."""
    fields: dict[str, Json] = {}
    for name, timestamp in timestamps.items():
        fields[name] = timestamp
        fields[name.removesuffix("stamp")] = iso_time(timestamp)
    return fields
