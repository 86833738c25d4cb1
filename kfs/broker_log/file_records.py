"""The batches of a ``.log`` as a broker's own code reads them (``FileRecords.java``, ``FileLogInputStream.java``).

Readers of messages use :mod:`kfs.log.walk`, which steps over damage and trusts nothing. This module does the opposite.
Recovery and appends depend on what Kafka accepts as a batch, so this module accepts the same: any magic above 1 is
format v2, counts and offsets aren't checked, and an incomplete batch at the end is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader, crc_mismatch, is_intact, unpack_batch_header
from kfs.format.decoders import BlockDecoder, default_decoder
from kfs.format.layout import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    HEADER_SIZE_UP_TO_MAGIC,
    LEGACY_HEADER,
    LEGACY_TIMESTAMP_OFFSET,
    LOG_OVERHEAD,
    LOG_OVERHEAD_STRUCT,
    MAGIC_OFFSET,
    MAGIC_V0,
    MAGIC_V1,
    MAGIC_V2,
    MIN_MESSAGE_SIZE,
    NO_TIMESTAMP,
)
from kfs.format.record import Record
from kfs.format.wrapper import first_inner_offset
from kfs.log.storage import DEFAULT_MAX_BATCH_BYTES
from kfs.log.time_index import TimestampOffset
from kfs.log.window import Window
from kfs.storage.open_files import OpenFile

_LEGACY_V1_HEADER_SIZE = LEGACY_TIMESTAMP_OFFSET + 8


@dataclass(frozen=True, slots=True)
class LogOffsetPosition:
    """The batch found by a search: its base offset, byte position and size."""

    offset: int
    position: int
    size: int


class FileRecords:
    """The batches in the first ``size`` bytes of an open ``.log``."""

    def __init__(self, file: OpenFile, size: int, decoder: BlockDecoder | None = None) -> None:
        self.file = file
        self.size = size
        self._window = Window(file, size)
        self._decoder = decoder or default_decoder()

    def headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """Yield the headers of the batches from ``position`` on, unverified.

        Raises:
            CorruptData: a size is below a message's minimum.
        """
        while position < self.size - HEADER_SIZE_UP_TO_MAGIC:
            header = self._header(position)
            if header is None:
                return
            yield header
            position += header.size

    def _header(self, position: int) -> BatchHeader | None:
        left = self.size - position
        buffer, at = self._window.at(position, min(BATCH_OVERHEAD, left))
        offset, length = LOG_OVERHEAD_STRUCT.unpack_from(buffer, at)
        if length < MIN_MESSAGE_SIZE[MAGIC_V0]:
            reason = f"size {length} is below the least a message can have ({MIN_MESSAGE_SIZE[MAGIC_V0]})"
            raise CorruptData(reason, position, self.file.path)
        size = LOG_OVERHEAD + length
        if size > left:
            return None
        magic = int.from_bytes(buffer[at + MAGIC_OFFSET : at + MAGIC_OFFSET + 1], "big", signed=True)
        if magic < MAGIC_V2:
            return self._legacy_header(buffer[at : at + _LEGACY_V1_HEADER_SIZE], position, size, magic)
        if left < BATCH_OVERHEAD:
            # Too short for a batch, which verified() reports; until then it counts as one.
            return BatchHeader(position, size, MAGIC_V2, 0, 0, offset, offset, 0, NO_TIMESTAMP, NO_TIMESTAMP)
        return unpack_batch_header(buffer, at, position)

    @staticmethod
    def _legacy_header(head: bytes, position: int, size: int, magic: int) -> BatchHeader:
        offset, _, crc, _, attributes = LEGACY_HEADER.unpack_from(head)
        timestamp = NO_TIMESTAMP
        if magic != MAGIC_V0 and len(head) == _LEGACY_V1_HEADER_SIZE:
            timestamp = int.from_bytes(head[LEGACY_TIMESTAMP_OFFSET:], "big", signed=True)
        count = UNKNOWN_COUNT if attributes & CODEC_MASK else 1
        magic = MAGIC_V0 if magic == MAGIC_V0 else MAGIC_V1
        return BatchHeader(position, size, magic, attributes & 0xFF, crc, offset, offset, count, timestamp, timestamp)

    def data(self, header: BatchHeader) -> bytes:
        """Return the bytes of a batch."""
        return self._window.read(header.position, header.size)

    def verified(self, header: BatchHeader) -> bytes:
        """Return the bytes of a batch after checking its CRC (``RecordBatch.ensureValid``), without decoding it.

        Raises:
            CorruptData: the batch is too short, its CRC doesn't match, or the device fails to read it.
        """
        data = self.data(header)
        failure = self.file.read_error(header.position, header.size)
        if failure is not None:
            raise CorruptData(failure, header.position, self.file.path)
        if header.magic == MAGIC_V2 and header.size < BATCH_OVERHEAD:
            reason = f"{header.size} bytes, a record batch has at least {BATCH_OVERHEAD}"
            raise CorruptData(reason, header.position, self.file.path)
        if not is_intact(header, data):
            raise crc_mismatch(header, data).located(self.file.path)
        return data

    def first_record(self, header: BatchHeader) -> Record | None:
        """Return the first record of a batch, or None if it has none.

        Raises:
            CorruptData: it can't be decoded.
        """
        try:
            return first_record(header, self.data(header), self._decoder)
        except CorruptData as error:
            raise error.located(self.file.path) from None

    def first_offset(self, header: BatchHeader) -> int:
        """Return the offset of a batch's first record; a compressed message must be decompressed for it.

        Raises:
            CorruptData: it can't be decompressed, or isn't valid.
        """
        if header.record_count != UNKNOWN_COUNT:
            return header.base_offset
        try:
            return first_inner_offset(header, self.data(header), DEFAULT_MAX_BATCH_BYTES)
        except CorruptData as error:
            raise error.located(self.file.path) from None

    def search_for_offset(self, target: int, position: int = 0) -> LogOffsetPosition | None:
        """Return the batch that holds ``target``, or else the first above it, from ``position`` on; None if none."""
        previous: BatchHeader | None = None
        for header in self.headers(position):
            first = self.first_offset(header)
            if first >= target:
                if first > target and previous is not None and previous.last_offset >= target:
                    return self._found(previous)
                return LogOffsetPosition(first, header.position, header.size)
            previous = header
        if previous is not None and previous.last_offset >= target:
            return self._found(previous)
        return None

    def _found(self, header: BatchHeader) -> LogOffsetPosition:
        return LogOffsetPosition(self.first_offset(header), header.position, header.size)

    def largest_timestamp_after(self, position: int) -> TimestampOffset:
        """Return the latest timestamp from ``position`` on, and the last offset of the first batch that has it.

        Both are -1 if no batch has a timestamp.
        """
        largest = TimestampOffset(NO_TIMESTAMP, -1)
        for header in self.headers(position):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest


def first_record(header: BatchHeader, data: bytes, decoder: BlockDecoder | None = None) -> Record | None:
    """Return the first record of a batch of any format, or None if it has none.

    Raises:
        CorruptData: it can't be decoded; the position is in the batch.
    """
    if header.magic == MAGIC_V2 and not 0 <= header.record_count <= header.last_offset - header.base_offset + 1:
        raise CorruptData(f"a record count of {header.record_count}", header.position)
    columns = (decoder or default_decoder()).decode(header, data, DEFAULT_MAX_BATCH_BYTES)
    return columns.record(0) if len(columns) else None
