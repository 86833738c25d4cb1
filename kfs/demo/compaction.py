"""The log cleaner's effect on batches (``Cleaner.cleanInto`` and ``MemoryRecords.filterTo``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from kfs.demo.topic import ProducedBatch, Producer


def compacted(
    batches: Iterable[ProducedBatch], *, still_active: Collection[Producer], delete_horizon: int
) -> list[ProducedBatch]:
    """Return the batches with only the latest record of each key; each batch keeps its offset range.

    A batch without remaining records is removed, unless it is its producer's last: then it stays as an empty batch,
    which keeps the sequence number. The producers ``still_active`` have their last batch in a segment that isn't
    cleaned. A batch with tombstones gets ``delete_horizon``, the time in milliseconds from which they may be removed.
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
