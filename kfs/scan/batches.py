"""Assigns records that were decoded together to their batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby

from kfs.format.batch_header import BatchHeader
from kfs.format.layout import CODEC_MASK, MAGIC_V0, MAGIC_V2, TIMESTAMP_TYPE_MASK
from kfs.format.record import TimestampType
from kfs.log.bulk import DecodedBatches, WholeBatches
from kfs.render.arrow_builder import NO_BATCH
from kfs.render.arrow_columns import BatchFields

#: The position of the key in an uncompressed message (v0, v1): after the offset, size, CRC, magic, attributes, in v1
#: the timestamp, and the key length.
_KEY_START = {MAGIC_V0: 22, 1: 30}


def by_batch(records: DecodedBatches, indexes: Sequence[int]) -> Iterator[tuple[Sequence[int], BatchFields]]:
    """Yield the indexes, which must ascend, batch by batch, each with the fields of its batch.

    In v0 and v1, a message is a batch; a compressed message is one batch with all messages inside.
    """
    table, offsets = records.table, records.columns.offsets
    at = 0
    for row in range(records.first, records.stop):
        header = table.header(row)
        if header.magic < MAGIC_V2:
            yield from _of_messages(records, row, indexes)
            return
        stop = bisect_right(indexes, table.last_offsets[row], at, key=offsets.__getitem__)
        if stop > at:
            yield indexes[at:stop], _fields_of(header)
        at = stop


def in_whole(batches: WholeBatches, *, each: bool) -> Iterator[tuple[int, TimestampType, BatchFields]]:
    """Yield numbers of consecutive records, with their timestamp type and the fields of their batch.

    With ``each``, every batch is counted on its own. Otherwise several are counted together, without their fields.
    """
    table = batches.table
    if each:
        for row in range(batches.first, batches.stop):
            header = table.header(row)
            yield header.record_count, header.timestamp_type, _fields_of(header)
        return
    rows = slice(batches.first, batches.stop)
    counts = zip(table.counts[rows], table.attributes[rows], strict=True)
    for is_append_time, group in groupby(counts, lambda one: bool(one[1] & TIMESTAMP_TYPE_MASK)):
        kind = TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
        yield sum(count for count, _ in group), kind, NO_BATCH


def _fields_of(header: BatchHeader) -> BatchFields:
    return BatchFields(
        header.position,
        header.base_offset,
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        header.codec_id,
        header.magic,
    )


def _of_messages(
    records: DecodedBatches, row: int, indexes: Sequence[int]
) -> Iterator[tuple[Sequence[int], BatchFields]]:
    """Yield the batches of a compressed message, or of a run of uncompressed ones, each of which is its own batch."""
    position, columns = records.table.positions[row], records.columns
    header = records.table.header(row)
    codec = header.attributes & CODEC_MASK
    if codec:
        yield indexes, BatchFields(position, columns.offsets[0], codec=codec, magic=header.magic)
        return
    for at, index in enumerate(indexes):
        start = position + columns.key_starts[index] - _KEY_START[header.magic]
        yield indexes[at : at + 1], BatchFields(start, columns.offsets[index], magic=header.magic)
