"""The header of a record batch (v2) or of a message (v0, v1): parsing and validation, without the records."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from kfs.errors import CorruptData
from kfs.format.codecs import Codec
from kfs.format.crc import crc32c
from kfs.format.layout import (
    BATCH_CRC_START,
    BATCH_HEADER,
    BATCH_MIN_LENGTH,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LEGACY_CRC_START,
    LEGACY_HEADER,
    LEGACY_TIMESTAMP_OFFSET,
    LOG_OVERHEAD,
    LOG_OVERHEAD_STRUCT,
    MAGIC_OFFSET,
    MAGIC_V0,
    MAGIC_V1,
    MAGIC_V2,
    MAX_INT32,
    MAX_INT64,
    MIN_MESSAGE_SIZE,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kfs.format.record import TimestampType

#: The number of bytes that :func:`read_header` needs; a shorter message must be complete.
HEADER_BYTES_NEEDED = BATCH_OVERHEAD
#: ``record_count`` of a compressed v0 or v1 message, which is known only after decompression.
UNKNOWN_COUNT = -1


class BatchHeader(NamedTuple):
    """The fields of a batch header; they are unverified until :func:`is_intact`.

    ``position`` and ``size`` are bytes in the file, including the log overhead. In v0 and v1 a batch is one message.
    For a compressed one (a wrapper), ``base_offset`` equals its last offset, because only its content tells the first
    one.
    """

    position: int
    size: int
    magic: int
    attributes: int
    crc: int
    base_offset: int
    last_offset: int
    record_count: int
    base_timestamp: int
    max_timestamp: int
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE

    @property
    def codec_id(self) -> int:
        """The number of the codec; Kafka has no codecs 5 to 7."""
        return self.attributes & CODEC_MASK

    @property
    def codec_label(self) -> str:
        """Kafka's name of the codec, or ``unknown(N)``."""
        return Codec(self.codec_id).label if self.codec_id <= Codec.ZSTD else f"unknown({self.codec_id})"

    @property
    def timestamp_type(self) -> TimestampType:
        """The type of the timestamps; v0 has none."""
        if self.magic == MAGIC_V0:
            return TimestampType.NO_TIMESTAMP
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction (v2 only)."""
        return self.magic >= MAGIC_V2 and bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_transaction_marker(self) -> bool:
        """Whether it ends a transaction of its producer; other control batches have no producer."""
        return self.is_control and self.producer_id > NO_PRODUCER_ID

    @property
    def is_control(self) -> bool:
        """Whether it holds control records, which are not messages (v2 only)."""
        return self.magic >= MAGIC_V2 and bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon(self) -> int | None:
        """The time in milliseconds from which tombstones of this batch may be deleted (KIP-534), or None."""
        if self.magic >= MAGIC_V2 and self.attributes & DELETE_HORIZON_MASK:
            return self.base_timestamp
        return None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last offset (v2), or -1 if the producer doesn't use sequences."""
        return later_sequence(self.base_sequence, self.last_offset - self.base_offset)

    @property
    def has_unknown_last(self) -> bool:
        """Whether its last offset is unknown: old librdkafka left the offset of a v1 wrapper at 0."""
        return self.magic == MAGIC_V1 and self.record_count == UNKNOWN_COUNT and self.last_offset == 0

    @property
    def is_dense(self) -> bool:
        """Whether every offset from base to last has a record, so that a listing needs no decoding."""
        return self.record_count == self.last_offset - self.base_offset + 1


def later_sequence(base_sequence: int, offset_delta: int) -> int:
    """Return ``base_sequence`` plus ``offset_delta``, wrapped at 2^31 (``DefaultRecordBatch.incrementSequence``)."""
    if base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    sequence = base_sequence + offset_delta
    return sequence if sequence <= MAX_INT32 else sequence - MAX_INT32 - 1


def read_header(buffer: bytes, at: int, position: int) -> BatchHeader:
    """Parse the header at ``at`` in ``buffer``; ``position`` is its byte position in the file.

    The buffer must have :data:`HEADER_BYTES_NEEDED` bytes there, or fewer only at the end of the file, where a short
    message may end. Missing bytes of a record batch (v2) count as zeros. The checks of size and magic are those of
    ``ByteBufferLogInputStream.nextBatchSize``, except that a magic above 2 is rejected, which Kafka's file reader
    parses as 2.

    Raises:
        CorruptData: the size is below the format's minimum, the magic is unknown, or counts and offsets are impossible;
            ``position`` is in the file.
    """
    if len(buffer) - at < HEADER_BYTES_NEEDED:
        buffer, at = buffer[at:].ljust(HEADER_BYTES_NEEDED, b"\0"), 0
    offset, length = LOG_OVERHEAD_STRUCT.unpack_from(buffer, at)
    if length < MIN_MESSAGE_SIZE[MAGIC_V0]:
        raise CorruptData(f"size {length} is below the least a message can have (14)", position)
    magic = buffer[at + MAGIC_OFFSET]
    if magic == MAGIC_V2:
        return _read_v2(buffer, at, position)
    if magic > MAGIC_V2:
        raise CorruptData(f"unknown magic {magic}, expected 0, 1 or 2", position)
    if length < MIN_MESSAGE_SIZE[magic]:
        raise CorruptData(
            f"message size {length} is below the least of format v{magic} ({MIN_MESSAGE_SIZE[magic]})", position
        )
    if offset < 0:
        raise CorruptData(f"negative offset {offset}", position)
    _, _, crc, _, attributes = LEGACY_HEADER.unpack_from(buffer, at)
    timestamp = NO_TIMESTAMP
    if magic == MAGIC_V1:
        timestamp = int.from_bytes(
            buffer[at + LEGACY_TIMESTAMP_OFFSET : at + LEGACY_TIMESTAMP_OFFSET + 8], "big", signed=True
        )
    count = UNKNOWN_COUNT if attributes & CODEC_MASK else 1
    return BatchHeader(
        position, length + LOG_OVERHEAD, magic, attributes & 0xFF, crc, offset, offset, count, timestamp, timestamp
    )


def claimed_size(buffer: bytes, at: int) -> int:
    """Return the size in bytes that the batch or message at ``at`` claims."""
    return int.from_bytes(buffer[at + 8 : at + 12], "big", signed=True) + LOG_OVERHEAD


def _read_v2(buffer: bytes, at: int, position: int) -> BatchHeader:
    if int.from_bytes(buffer[at + 8 : at + 12], "big") < BATCH_MIN_LENGTH:
        raise CorruptData(f"length is below the overhead of a record batch ({BATCH_MIN_LENGTH})", position)
    header = unpack_batch_header(buffer, at, position)
    base_offset, last_offset_delta = header.base_offset, header.last_offset - header.base_offset
    if base_offset < 0 or last_offset_delta < 0:
        last_offset_delta = BATCH_HEADER.unpack_from(buffer, at)[6]  # the raw value, before the sum wrapped around
        raise CorruptData(f"base offset {base_offset} with last offset delta {last_offset_delta}", position)
    if header.record_count < 0 or header.record_count > last_offset_delta + 1:
        reason = f"{header.record_count} records with a last offset delta of {last_offset_delta}"
        raise CorruptData(reason, position)
    return header


def unpack_batch_header(buffer: bytes, at: int, position: int) -> BatchHeader:
    """Unpack the 61 bytes at ``at`` as the header of a record batch (v2), without any check.

    The last offset wraps around like a Java long.
    """
    (
        base_offset,
        length,
        leader_epoch,
        _,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = BATCH_HEADER.unpack_from(buffer, at)
    last_offset = base_offset + last_offset_delta
    if last_offset > MAX_INT64:
        last_offset -= 2 * (MAX_INT64 + 1)
    return BatchHeader(
        position,
        length + LOG_OVERHEAD,
        MAGIC_V2,
        attributes & 0xFFFF,
        crc,
        base_offset,
        last_offset,
        count,
        base_timestamp,
        max_timestamp,
        leader_epoch,
        producer_id,
        producer_epoch,
        base_sequence,
    )


def computed_crc(header: BatchHeader, data: bytes | memoryview) -> int:
    """Return the CRC of ``data``, a whole batch: v2: CRC-32C from attributes on; v0 and v1: CRC-32 from magic on."""
    if header.magic == MAGIC_V2:
        return crc32c(memoryview(data)[BATCH_CRC_START : header.size])
    return zlib.crc32(memoryview(data)[LEGACY_CRC_START : header.size])


def is_intact(header: BatchHeader, data: bytes | memoryview) -> bool:
    """Whether the stored CRC matches the bytes."""
    return computed_crc(header, data) == header.crc


def crc_mismatch(header: BatchHeader, data: bytes | memoryview) -> CorruptData:
    """Return the error for a batch whose CRC doesn't match."""
    what = "record batch" if header.magic == MAGIC_V2 else "message"
    return CorruptData(f"{what} with stored CRC {header.crc}, computed {computed_crc(header, data)}", header.position)
