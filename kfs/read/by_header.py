"""Counts the wanted records of batches by their headers, so that the batches needn't be decoded.

Kafka counts in the same way (``DefaultRecordBatch.countOrNull``). The CRC, which was checked, covers the count.
Compaction rewrites a batch with the count of the records that it keeps, 0 if it keeps only the header
(``MemoryRecords.filterTo``, ``DefaultRecordBatch.writeEmptyHeader``). A batch with a count that is impossible with its
offsets is decoded. One case goes unnoticed: a batch with a valid CRC whose records can't be decoded, or are fewer than
its count. No broker appends such a batch (``LogValidator``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from kfs.format.codecs import Codec
from kfs.format.layout import CODEC_MASK, CONTROL_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK
from kfs.log.bulk import ScannedBatches, WholeBatches
from kfs.log.offset_range import OffsetRange
from kfs.log.segment import Segment
from kfs.read.selection import Selection
from kfs.read.sight import IsAborted


def divided(batches: ScannedBatches, offsets: OffsetRange, selection: Selection) -> Iterator[ScannedBatches]:
    """Divide batches that can have wanted records, by their headers, into :class:`WholeBatches` and all others."""
    if selection.looks_into_records:
        yield batches
        return
    table = batches.table
    rows = slice(batches.first, batches.stop)
    start, end = offsets.start, offsets.end
    # With LogAppendTime all records of a batch have the same timestamp, so all of them are wanted, or none.
    needed = TIMESTAMP_TYPE_MASK if selection.has_times else 0
    are_whole = [
        start <= base_offset
        and last_offset < end
        and attributes & needed == needed
        and attributes & CODEC_MASK <= Codec.ZSTD
        and 0 <= count <= last_offset - base_offset + 1
        for base_offset, last_offset, attributes, count in zip(
            *(table.base_offsets[rows], table.last_offsets[rows], table.attributes[rows], table.counts[rows]),
            strict=True,
        )
    ]
    first = batches.first
    for is_whole, group in groupby(are_whole):
        stop = first + sum(1 for _ in group)
        yield WholeBatches(table, first, stop) if is_whole else batches.of_rows(first, stop)
        first = stop


def visible(segment: Segment, batches: WholeBatches, is_aborted: IsAborted | None) -> list[WholeBatches]:
    """Return the batches without control batches and, with ``is_aborted``, without those of aborted transactions.

    Errors are those of :data:`~kfs.read.sight.IsAborted`.
    """
    table = batches.table
    hiding = CONTROL_MASK if is_aborted is None else CONTROL_MASK | TRANSACTIONAL_MASK
    if not any(attributes & hiding for attributes in table.attributes[batches.first : batches.stop]):
        return [batches]
    kept: list[WholeBatches] = []
    first = batches.first
    for row in range(batches.first, batches.stop):
        attributes = table.attributes[row]
        if not attributes & hiding:
            continue
        if not attributes & CONTROL_MASK:
            assert is_aborted is not None
            if not is_aborted(segment, table.producer_ids[row], table.base_offsets[row], table.last_offsets[row]):
                continue
        if first < row:
            kept.append(WholeBatches(table, first, row))
        first = row + 1
    if first < batches.stop:
        kept.append(WholeBatches(table, first, batches.stop))
    return kept
