"""The layout of records in batches, and the limits of the message formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kfs.format.codecs import Codec
from kfs.format.layout import MAGIC_V0, MAGIC_V2, MAX_INT32, MAX_INT64, NO_TIMESTAMP
from kfs.format.legacy_writer import encode_message_set
from kfs.format.record import Record, TimestampType
from kfs.format.writer import encode_batch

DEFAULT_BATCH_RECORDS: Final = 1000
DEFAULT_BATCH_BYTES: Final = 64 * 1024
#: The leader epoch of all imported batches.
_LEADER_EPOCH: Final = 0
#: The approximate size in bytes of a record without key, value and headers, and of a header without its name and value.
_RECORD_OVERHEAD: Final = 10
_HEADER_OVERHEAD: Final = 4


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """The message format and codec, and the approximate size of a batch: in records, and in bytes before compression.

    Without a ``magic``, the format is v2, but v0 for records without a timestamp type, because only v0 can hold these.
    """

    magic: int | None = None
    codec: Codec = Codec.NONE
    batch_records: int = DEFAULT_BATCH_RECORDS
    batch_bytes: int = DEFAULT_BATCH_BYTES

    def magic_of(self, record: Record) -> int:
        """Return the message format for a record."""
        if self.magic is not None:
            return self.magic
        return MAGIC_V0 if record.timestamp_type is TimestampType.NO_TIMESTAMP else MAGIC_V2

    def refusal(self, record: Record) -> str | None:
        """Return why the format can't hold a record, or None if it can."""
        magic = self.magic_of(record)
        label = f"message format v{magic}"
        if record.timestamp_type is TimestampType.NO_TIMESTAMP:
            if magic > MAGIC_V0:
                return f"the record has no type of timestamp, and {label} has one"
            if record.timestamp != NO_TIMESTAMP:
                return f"timestamp {record.timestamp} of no type"
        elif magic == MAGIC_V0:
            return f"{label} has no timestamps, but the record has: {record.timestamp_type.label}"
        if record.headers and magic < MAGIC_V2:
            return f"{label} has no headers, but the record has"
        if self.codec is Codec.ZSTD and magic < MAGIC_V2:
            return f"{label} has no zstd"
        return None

    def belong_together(self, first: Record, record: Record) -> bool:
        """Whether a record can be in the batch that begins with ``first``: same timestamp type, and deltas that fit."""
        if record.timestamp_type is not first.timestamp_type or record.offset - first.offset > MAX_INT32:
            return False
        if first.timestamp_type is TimestampType.LOG_APPEND_TIME:  # all records of a batch share one append time
            return record.timestamp == first.timestamp
        return abs(record.timestamp - first.timestamp) <= MAX_INT64

    def encode(self, records: Sequence[Record]) -> bytes:
        """Return the batch, or in v0 and v1 the message set, of records that can be in one batch."""
        magic = self.magic_of(records[0])
        timestamp_type = records[0].timestamp_type
        append_time = records[0].timestamp if timestamp_type is TimestampType.LOG_APPEND_TIME else None
        if magic < MAGIC_V2:
            return encode_message_set(
                records, magic=magic, codec=self.codec, timestamp_type=timestamp_type, append_time=append_time
            )
        return encode_batch(
            records,
            codec=self.codec,
            timestamp_type=timestamp_type,
            append_time=append_time,
            partition_leader_epoch=_LEADER_EPOCH,
        )


def size_of(record: Record) -> int:
    """Return the approximate size of a record in an uncompressed batch, in bytes."""
    headers = sum(len(key) + len(value or b"") + _HEADER_OVERHEAD for key, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + _RECORD_OVERHEAD
