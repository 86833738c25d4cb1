"""What the log cleaner leaves of batches (``Cleaner.cleanInto`` and ``MemoryRecords.filterTo``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from kfs.demo.topic import ProducedBatch, Producer


def compacted(
    batches: Iterable[ProducedBatch], *, still_active: Collection[Producer], delete_horizon: int
) -> list[ProducedBatch]:
    """Return the batches with only the latest record of each key; each keeps the offsets it spanned.

    A batch that loses all of them goes, unless it is its producer's last: that one stays empty, for its sequence
    number, except of the producers ``still_active``, whose last batches are in segments not cleaned. Tombstones
    stay, marked with ``delete_horizon``: when they may go (milliseconds).
    """
    batches = list(batches)
    latest = {record.key: record.offset for batch in batches for record in batch.records}
    last_of_producer = {batch.producer: batch for batch in batches}
    kept = []
    for batch in batches:
        records = [record for record in batch.records if latest[record.key] == record.offset]
        has_tombstone = any(record.value is None for record in records)
        if records:
            horizon = delete_horizon if has_tombstone else None
            kept.append(dataclasses.replace(batch, records=records, delete_horizon=horizon))
        elif last_of_producer[batch.producer] is batch and batch.producer not in still_active:
            timestamp = max(record.timestamp for record in batch.records)
            kept.append(dataclasses.replace(batch, records=(), emptied_timestamp=timestamp))
    return kept
