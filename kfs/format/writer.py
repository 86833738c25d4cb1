"""Encoding of records in record batches (v2), laid out as by Kafka's own writer.

The layout is that of ``DefaultRecordBatch.writeHeader`` and ``DefaultRecord.writeTo``. The base timestamp, the maximum
timestamp and the offset deltas are those that ``MemoryRecordsBuilder`` computes. Uncompressed bytes are identical to
Kafka's. Compressed bytes depend on the version of the compression library, as they do in Kafka.

:mod:`kfs.format.legacy_writer` writes the older formats.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from kfs.format.codecs import Codec, compress
from kfs.format.crc import crc32c
from kfs.format.layout import (
    BATCH_CRC_OFFSET,
    BATCH_CRC_START,
    BATCH_HEADER,
    BATCH_MIN_LENGTH,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    MAGIC_V2,
    MAX_INT32,
    MAX_INT64,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kfs.format.record import Header, Record, TimestampType
from kfs.format.varint import encode_varint, encode_varlong

_CRC: Final = struct.Struct(">I")
_NULL_LENGTH: Final = encode_varint(-1)
_RECORD_ATTRIBUTES: Final = b"\x00"  # unused in Kafka so far


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time: int | None = None,
    delete_horizon: int | None = None,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Return a record batch (v2) of at least one record, including the log overhead.

    ``base_offset`` and ``last_offset`` default to those of the records. After compaction a batch may extend further on
    either side, and have gaps between its records. ``append_time`` (milliseconds; default: the latest timestamp of the
    records) applies to ``LOG_APPEND_TIME``: readers see it in place of the records' own timestamps, which are stored
    anyway, as by a broker. ``delete_horizon`` (milliseconds, KIP-534) takes the place of the base timestamp.

    Raises:
        ValueError: there are no records, their offsets do not ascend or lie more than an int32 above the base offset,
            or a value does not fit its field.
    """
    if not records:
        raise ValueError("a batch without records is written by encode_empty_batch")
    base_offset = records[0].offset if base_offset is None else base_offset
    last_offset = records[-1].offset if last_offset is None else last_offset
    check_offsets(records, base_offset, last_offset)
    base_timestamp = records[0].timestamp if delete_horizon is None else delete_horizon
    body = b"".join(_encode_record(record, base_offset, base_timestamp) for record in records)
    return _seal(
        base_offset,
        partition_leader_epoch,
        _attributes(codec, timestamp_type, transactional, control, delete_horizon is not None),
        last_offset - base_offset,
        base_timestamp,
        batch_timestamp(records, timestamp_type, append_time),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
        body=compress(codec, body, magic=MAGIC_V2),
    )


def encode_empty_batch(
    base_offset: int,
    last_offset: int,
    *,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    max_timestamp: int = NO_TIMESTAMP,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Return the empty batch (v2) that compaction keeps for the producer's state, after removing all its records.

    The layout is that of ``DefaultRecordBatch.writeEmptyHeader``. ``max_timestamp`` (milliseconds) is that of the
    original batch.

    Raises:
        ValueError: the offsets are not in order or too far apart, or a value does not fit its field.
    """
    check_offsets((), base_offset, last_offset)
    return _seal(
        base_offset,
        partition_leader_epoch,
        _attributes(Codec.NONE, timestamp_type, transactional, control, has_delete_horizon=False),
        last_offset - base_offset,
        NO_TIMESTAMP,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        0,
        body=b"",
    )


def check_offsets(records: Sequence[Record], base_offset: int, last_offset: int) -> None:
    """Raise :class:`ValueError` unless offsets ascend from ``base_offset`` to ``last_offset``, within an int32."""
    if not 0 <= base_offset <= last_offset <= MAX_INT64 or last_offset - base_offset > MAX_INT32:
        raise ValueError(f"a batch cannot span offsets {base_offset} to {last_offset}")
    for record, following in pairwise(records):
        if following.offset <= record.offset:
            raise ValueError(f"offset {following.offset} follows offset {record.offset}")
    if records and not base_offset <= records[0].offset <= records[-1].offset <= last_offset:
        first, last = records[0].offset, records[-1].offset
        raise ValueError(f"offsets {first} to {last} lie outside of the batch, {base_offset} to {last_offset}")


def batch_timestamp(records: Sequence[Record], timestamp_type: TimestampType, append_time: int | None) -> int:
    """Return the timestamp, in milliseconds, of a whole batch or wrapper message.

    It is the latest timestamp of the records (at least -1), or the append time for ``LOG_APPEND_TIME``
    (``MemoryRecordsBuilder``). Raises :class:`ValueError` for an append time with another type.
    """
    if append_time is None:
        return max(NO_TIMESTAMP, max(record.timestamp for record in records))
    if timestamp_type != TimestampType.LOG_APPEND_TIME:
        raise ValueError(f"an append time, but timestamps are {timestamp_type.label}")
    return append_time


def _attributes(
    codec: Codec, timestamp_type: TimestampType, transactional: bool, control: bool, has_delete_horizon: bool
) -> int:
    if timestamp_type == TimestampType.NO_TIMESTAMP:
        raise ValueError("message format v2 has timestamps")
    return (
        codec
        | (TIMESTAMP_TYPE_MASK if timestamp_type == TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_MASK if transactional else 0)
        | (CONTROL_MASK if control else 0)
        | (DELETE_HORIZON_MASK if has_delete_horizon else 0)
    )


def _seal(base_offset: int, partition_leader_epoch: int, *from_attributes: int, body: bytes) -> bytes:
    """Pack the header, with ``from_attributes`` as the fields after the CRC, before ``body``, and set the CRC."""
    length = BATCH_MIN_LENGTH + len(body)
    try:
        header = BATCH_HEADER.pack(base_offset, length, partition_leader_epoch, MAGIC_V2, 0, *from_attributes)
    except struct.error as error:
        raise ValueError(f"a value does not fit its field in the batch header: {error}") from None
    batch = bytearray(header + body)
    _CRC.pack_into(batch, BATCH_CRC_OFFSET, crc32c(memoryview(batch)[BATCH_CRC_START:]))
    return bytes(batch)


def _encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Encode a record as ``DefaultRecord.writeTo`` does."""
    parts = [
        _RECORD_ATTRIBUTES,
        encode_varlong(record.timestamp - base_timestamp),
        encode_varint(record.offset - base_offset),
        _encode_nullable(record.key),
        _encode_nullable(record.value),
        encode_varint(len(record.headers)),
    ]
    for header in record.headers:
        parts += _encode_header(header)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _encode_header(header: Header) -> tuple[bytes, bytes]:
    key, value = header
    if key is None:
        raise ValueError("the key of a header cannot be null")
    return _encode_nullable(key), _encode_nullable(value)


def _encode_nullable(data: bytes | None) -> bytes:
    return _NULL_LENGTH if data is None else encode_varint(len(data)) + data
