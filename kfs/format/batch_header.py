"""The header of a record batch (v2) or of a message (v0, v1), parsed and checked, records untouched."""

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

#: The bytes that must be at hand for :func:`read_header`, or the whole of a shorter message.
HEADER_BYTES_NEEDED = BATCH_OVERHEAD
#: ``record_count`` of a compressed v0 or v1 message: known only once it is decompressed.
UNKNOWN_COUNT = -1


class BatchHeader(NamedTuple):
    """What the header of a batch says; nothing of it is verified until :func:`is_intact`.

    ``position`` and ``size`` are bytes in the file, log overhead included. For v0 and v1 a batch is
    one message; ``base_offset`` of a compressed one (a wrapper) is its last offset too, as its
    first is known only inside.
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
        """The codec's number; 5 to 7 name none that Kafka knows."""
        return self.attributes & CODEC_MASK

    @property
    def codec_label(self) -> str:
        """Kafka's name of the codec, or ``unknown(N)``."""
        return Codec(self.codec_id).label if self.codec_id <= Codec.ZSTD else f"unknown({self.codec_id})"

    @property
    def timestamp_type(self) -> TimestampType:
        """Whose clock the timestamps are; v0 has none."""
        if self.magic == MAGIC_V0:
            return TimestampType.NO_TIMESTAMP
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction (v2 only)."""
        return self.magic >= MAGIC_V2 and bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_transaction_marker(self) -> bool:
        """Whether it ends a transaction of its producer; other control batches are of no producer."""
        return self.is_control and self.producer_id > NO_PRODUCER_ID

    @property
    def is_control(self) -> bool:
        """Holds control records, which are not messages (v2 only)."""
        return self.magic >= MAGIC_V2 and bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon(self) -> int | None:
        """KIP-534: when tombstones of this batch may go, in milliseconds, or None."""
        if self.magic >= MAGIC_V2 and self.attributes & DELETE_HORIZON_MASK:
            return self.base_timestamp
        return None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last offset (v2), -1 where its producer counts none."""
        return later_sequence(self.base_sequence, self.last_offset - self.base_offset)

    @property
    def has_unknown_last(self) -> bool:
        """Old librdkafka left the offset of a v1 wrapper at 0: how far it reaches is known only inside."""
        return self.magic == MAGIC_V1 and self.record_count == UNKNOWN_COUNT and self.last_offset == 0

    @property
    def is_dense(self) -> bool:
        """Every offset from base to last is a record, so a listing needs no decoding."""
        return self.record_count == self.last_offset - self.base_offset + 1


def later_sequence(base_sequence: int, offset_delta: int) -> int:
    """Return the sequence that many offsets later; they wrap at 2^31 (``DefaultRecordBatch.incrementSequence``)."""
    if base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    sequence = base_sequence + offset_delta
    return sequence if sequence <= MAX_INT32 else sequence - MAX_INT32 - 1


def read_header(buffer: bytes, at: int, position: int) -> BatchHeader:
    """Parse the header at ``at`` in ``buffer``; ``position`` is its byte position in the file.

    There are :data:`HEADER_BYTES_NEEDED` bytes, or fewer at the end of a file, where a message may be as short as that:
    what a record batch (v2) lacks there counts as zeros. ``ByteBufferLogInputStream.nextBatchSize`` has the checks on
    size and magic; we reject a magic above 2, which Kafka's file reader parses as 2.

    Raises:
        CorruptData: the size is below the format's minimum, the magic is unknown, or counts and
            offsets are impossible; ``position`` is in the file.
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


def _read_v2(buffer: bytes, at: int, position: int) -> BatchHeader:
    if int.from_bytes(buffer[at + 8 : at + 12], "big") < BATCH_MIN_LENGTH:
        raise CorruptData(f"length is below the overhead of a record batch ({BATCH_MIN_LENGTH})", position)
    header = unpack_batch_header(buffer, at, position)
    base_offset, last_offset_delta = header.base_offset, header.last_offset - header.base_offset
    if base_offset < 0 or last_offset_delta < 0:
        last_offset_delta = BATCH_HEADER.unpack_from(buffer, at)[6]  # as it stands there, before the sum wrapped around
        raise CorruptData(f"base offset {base_offset} with last offset delta {last_offset_delta}", position)
    if header.record_count < 0 or header.record_count > last_offset_delta + 1:
        reason = f"{header.record_count} records with a last offset delta of {last_offset_delta}"
        raise CorruptData(reason, position)
    return header


def unpack_batch_header(buffer: bytes, at: int, position: int) -> BatchHeader:
    """Return what the 61 bytes at ``at`` say if they are the header of a record batch (v2); nothing is checked.

    The last offset is a long of Java's, which wraps around.
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
    """Return the CRC of ``data``, the whole batch: CRC-32C from attributes on, in v0 and v1 CRC-32 from magic on."""
    if header.magic == MAGIC_V2:
        return crc32c(memoryview(data)[BATCH_CRC_START : header.size])
    return zlib.crc32(memoryview(data)[LEGACY_CRC_START : header.size])


def is_intact(header: BatchHeader, data: bytes | memoryview) -> bool:
    """Whether the stored CRC is that of the bytes."""
    return computed_crc(header, data) == header.crc


def crc_mismatch(header: BatchHeader, data: bytes | memoryview) -> CorruptData:
    """Return the error of a batch whose CRC doesn't hold."""
    what = "record batch" if header.magic == MAGIC_V2 else "message"
    return CorruptData(f"{what} with stored CRC {header.crc}, computed {computed_crc(header, data)}", header.position)
