"""Splits the bulk reader's items, which are several batches or a run of messages, into single batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader, later_sequence, read_header
from kfs.format.batch_table import BatchTable
from kfs.format.codecs import Codec
from kfs.format.columns import RecordColumns
from kfs.format.layout import LEGACY_HEADER, MAGIC_V1, MAGIC_V2
from kfs.log.bulk import DecodedBatches

# The bytes from the start of a message (v0, v1) to its key: log overhead, CRC, magic, attributes, key length.
_TO_KEY = LEGACY_HEADER.size + 4
_TIMESTAMP_SIZE = 8


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A batch or message, and the range of its records in ``columns``, which is None if they can't be decoded."""

    header: BatchHeader
    is_valid: bool = True
    columns: RecordColumns | None = None
    first: int = 0
    stop: int = 0

    def sequence(self, index: int) -> int:
        """Return a record's sequence number, -1 if its producer has none; sequence numbers wrap around at 2^31."""
        assert self.columns is not None
        return later_sequence(self.header.base_sequence, self.columns.offsets[index] - self.header.base_offset)

    def record_crc(self, index: int) -> int:
        """Return the CRC of a message (v0, v1), which may be inside a compressed one."""
        assert self.columns is not None
        at = self.columns.key_starts[index] - _TO_KEY - (_TIMESTAMP_SIZE if self.header.magic == MAGIC_V1 else 0)
        return int(LEGACY_HEADER.unpack_from(self.columns.buffer, at)[2])


def batches_of(records: DecodedBatches) -> Iterator[DumpedBatch]:
    """Yield the single batches, or the messages of a run, of records that were decoded together."""
    columns, table = records.columns, records.table
    start = 0
    for row in range(records.first, records.stop):
        header = table.header(row)
        if header.magic != MAGIC_V2:
            yield from _messages(columns, table)
            return
        yield DumpedBatch(header, True, columns, start, start + header.record_count)
        start += header.record_count


def headers_of(table: BatchTable) -> Iterator[BatchHeader]:
    """Yield the headers of the batches in a table, or of the messages of a run."""
    header = table.header(0)
    if header.magic == MAGIC_V2:
        yield from map(table.header, range(len(table)))
        return
    at, end = table.positions[0] - table.buffer_position, table.end(0) - table.buffer_position
    while at < end:
        header = read_header(table.buffer, at, table.buffer_position + at)
        yield header
        at += header.size


def _messages(columns: RecordColumns, table: BatchTable) -> Iterator[DumpedBatch]:
    header = table.header(0)
    if header.codec_id != Codec.NONE:
        assert header.record_count == UNKNOWN_COUNT
        yield DumpedBatch(header, True, columns, 0, len(columns))
        return
    for index, message in enumerate(headers_of(table)):
        yield DumpedBatch(message, True, columns, index, index + 1)
