"""A partition's state files as JSON, with the same names in ``meta/`` and ``kfs dump``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfs.format.aborted_txn import AbortedTxn
    from kfs.format.checkpoint import EpochEntry
    from kfs.format.producer_snapshot import ProducerStateEntry


def leader_epoch_fields(entry: EpochEntry) -> Mapping[str, int]:
    """Return the fields of a leader epoch checkpoint entry."""
    return {"leaderEpoch": entry.leader_epoch, "startOffset": entry.start_offset}


def producer_fields(producer: ProducerStateEntry) -> Mapping[str, int | None]:
    """Return the fields of a snapshot's producer: None for those of its last batch, or its transaction, without one."""
    has_batch = producer.has_batch
    return {
        "producerId": producer.producer_id,
        "producerEpoch": producer.producer_epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "currentTxnFirstOffset": producer.current_txn_first_offset,
        "lastTimestamp": producer.timestamp,
        "firstSequence": producer.first_sequence if has_batch else None,
        "lastSequence": producer.last_sequence if has_batch else None,
        "lastOffset": producer.last_offset if has_batch else None,
        "offsetDelta": producer.offset_delta if has_batch else None,
    }


def aborted_txn_fields(transaction: AbortedTxn) -> Mapping[str, int]:
    """Return the fields of a transaction index entry."""
    return {
        "producerId": transaction.producer_id,
        "firstOffset": transaction.first_offset,
        "lastOffset": transaction.last_offset,
        "lastStableOffset": transaction.last_stable_offset,
    }
