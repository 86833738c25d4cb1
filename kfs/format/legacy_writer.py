"""Encoding of records in the message formats before v2: message sets of v0 and v1 (``LegacyRecord.java``).

Offsets and timestamps are laid out as in ``MemoryRecordsBuilder``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

from kfs.format.codecs import Codec, compress
from kfs.format.layout import (
    LEGACY_CRC_OFFSET,
    LEGACY_CRC_START,
    LEGACY_HEADER,
    LOG_OVERHEAD,
    MAGIC_V0,
    MAGIC_V1,
    TIMESTAMP_TYPE_MASK,
)
from kfs.format.record import Record, TimestampType
from kfs.format.writer import batch_timestamp, check_offsets

_CRC: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">i")
_TIMESTAMP: Final = struct.Struct(">q")
_NULL_LENGTH: Final = _LENGTH.pack(-1)


def encode_message_set(
    records: Sequence[Record],
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time: int | None = None,
) -> bytes:
    """Return one or more records as messages of format v0 or v1, including log overheads.

    Without a codec each record becomes a message. With a codec, a single wrapper message holds all records. The wrapper
    has the last record's offset and, in v1, the latest timestamp or the append time. The inner offsets are absolute in
    v0, and relative to the first offset in v1. ``append_time`` (milliseconds; default: the latest timestamp of the
    records) applies to ``LOG_APPEND_TIME``. v0 has no timestamps, so those of the records are dropped.

    Raises:
        ValueError: there are no records, their offsets do not ascend or lie more than an int32 apart, a record has
            headers, or ``magic`` doesn't support an option (zstd; a timestamp type in v0).
    """
    if magic not in (MAGIC_V0, MAGIC_V1):
        raise ValueError(f"magic {magic}, expected 0 or 1")
    if not records:
        raise ValueError("a message set needs a record")
    if magic == MAGIC_V0 and (timestamp_type == TimestampType.LOG_APPEND_TIME or append_time is not None):
        raise ValueError("message format v0 has no timestamps")
    if magic == MAGIC_V1 and timestamp_type == TimestampType.NO_TIMESTAMP:
        raise ValueError("message format v1 has timestamps")
    check_offsets(records, records[0].offset, records[-1].offset)
    set_timestamp = batch_timestamp(records, timestamp_type, append_time)
    if codec != Codec.NONE:
        return _wrap(records, magic, codec, timestamp_type, set_timestamp)
    is_append_time = timestamp_type == TimestampType.LOG_APPEND_TIME
    return b"".join(
        _encode_record(
            record, record.offset, magic, set_timestamp if is_append_time else record.timestamp, timestamp_type
        )
        for record in records
    )


def _wrap(
    records: Sequence[Record], magic: int, codec: Codec, timestamp_type: TimestampType, set_timestamp: int
) -> bytes:
    relative_to = records[0].offset if magic == MAGIC_V1 else 0
    inner = b"".join(
        _encode_record(record, record.offset - relative_to, magic, record.timestamp, timestamp_type)
        for record in records
    )
    value = compress(codec, inner, magic=magic)
    attributes = codec | _timestamp_type_bit(timestamp_type)
    return _encode_message(records[-1].offset, magic, attributes, set_timestamp, None, value)


def _encode_record(record: Record, offset: int, magic: int, timestamp: int, timestamp_type: TimestampType) -> bytes:
    if record.headers:
        raise ValueError(f"message format v{magic} has no headers, but the record at offset {record.offset} has")
    return _encode_message(offset, magic, _timestamp_type_bit(timestamp_type), timestamp, record.key, record.value)


def _timestamp_type_bit(timestamp_type: TimestampType) -> int:
    return TIMESTAMP_TYPE_MASK if timestamp_type == TimestampType.LOG_APPEND_TIME else 0


def _encode_message(
    offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    """Encode ``LegacyRecord.write`` after its log overhead."""
    try:
        fields = [_TIMESTAMP.pack(timestamp)] if magic == MAGIC_V1 else []
    except struct.error:
        raise ValueError(f"timestamp {timestamp} does not fit an int64") from None
    fields += (_encode_nullable(key), _encode_nullable(value))
    size = LEGACY_HEADER.size - LOG_OVERHEAD + sum(map(len, fields))
    message = bytearray(LEGACY_HEADER.pack(offset, size, 0, magic, attributes))
    message += b"".join(fields)
    _CRC.pack_into(message, LEGACY_CRC_OFFSET, zlib.crc32(memoryview(message)[LEGACY_CRC_START:]))
    return bytes(message)


def _encode_nullable(data: bytes | None) -> bytes:
    return _NULL_LENGTH if data is None else _LENGTH.pack(len(data)) + data
