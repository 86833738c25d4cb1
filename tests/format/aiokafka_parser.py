"""Records as aiokafka's parser reads them: written by others, it checks our writer and our reader alike."""

from __future__ import annotations

from collections.abc import Iterator

from aiokafka.errors import UnsupportedCodecError
from aiokafka.record.memory_records import MemoryRecords

from kfs.format.layout import (
    LEGACY_HEADER,
    LOG_OVERHEAD,
    LOG_OVERHEAD_STRUCT,
    MAGIC_OFFSET,
    MAGIC_V0,
    MAGIC_V1,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
)
from kfs.format.record import Record, TimestampType


def read_by_aiokafka(data: bytes) -> list[Record]:
    """Return every record in ``data``, whose batches must be complete and have the right CRC.

    aiokafka reads no lz4 in format v0, and only header keys in UTF-8.
    """
    return [record for batch in _split(data) for record in _records(batch)]


def messages_by_aiokafka(data: bytes) -> tuple[list[Record], int]:
    """Return the records in ``data`` but control records, and how many batches were of a codec that aiokafka lacks."""
    found: list[Record] = []
    unsupported = 0
    for batch in _split(data):
        if MemoryRecords(batch).next_batch().is_control_batch:
            continue
        try:
            found += _records(batch)
        except UnsupportedCodecError:
            unsupported += 1
    return found, unsupported


def _split(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        _, length = LOG_OVERHEAD_STRUCT.unpack_from(data, position)
        start, position = position, position + LOG_OVERHEAD + length
        assert position <= len(data)
        yield data[start:position]


def _records(data: bytes) -> Iterator[Record]:
    batch = MemoryRecords(data).next_batch()
    assert batch.validate_crc()
    for record in batch:
        yield Record(
            offset=record.offset,
            timestamp=NO_TIMESTAMP if record.timestamp is None else record.timestamp,
            key=record.key,
            value=record.value,
            headers=tuple((key.encode(), value) for key, value in record.headers),
            timestamp_type=_timestamp_type(data, record.timestamp_type),
        )


def _timestamp_type(data: bytes, said_by_aiokafka: int | None) -> TimestampType:
    if data[MAGIC_OFFSET] == MAGIC_V0:
        assert said_by_aiokafka is None
        return TimestampType.NO_TIMESTAMP
    if said_by_aiokafka is None:
        assert data[MAGIC_OFFSET] == MAGIC_V1
        # It takes the timestamp -1 in v1 as one without a type, too.
        *_, attributes = LEGACY_HEADER.unpack_from(data)
        return TimestampType(bool(attributes & TIMESTAMP_TYPE_MASK))
    return TimestampType(said_by_aiokafka)
