"""Decoding of batches to columns, in Python."""

from __future__ import annotations

import zlib
from array import array

from kfs.errors import CorruptData
from kfs.format.batch_header import BatchHeader
from kfs.format.batch_table import BatchTable
from kfs.format.codecs import Codec, decompress
from kfs.format.columns import NO_FAULTS, RecordColumns
from kfs.format.layout import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    LEGACY_CRC_START,
    LEGACY_HEADER,
    LEGACY_TIMESTAMP_OFFSET,
    LOG_OVERHEAD,
    MAGIC_V1,
    MAGIC_V2,
    MIN_MESSAGE_SIZE,
    NO_TIMESTAMP,
)
from kfs.format.record import TimestampType
from kfs.format.scan import scan_batches, scan_messages
from kfs.format.varint import decode_varint, decode_varlong
from kfs.format.wrapper import wrapped_messages

# The shortest v2 record: length, attributes, timestamp delta, offset delta, null key, null value, no headers.
_LEAST_RECORD_BYTES = 7
_INT64_SPAN = 1 << 64
_INT64_HALF = 1 << 63


class PythonDecoder:
    """The :class:`~kfs.format.decoders.BlockDecoder` in Python, which is always available."""

    name = "python"

    def decode(self, header: BatchHeader, data: bytes, limit: int) -> RecordColumns:
        """See :meth:`~kfs.format.decoders.BlockDecoder.decode`."""
        if header.magic == MAGIC_V2:
            return _decode_v2(header, data, limit)
        if header.codec_id:
            return _decode_wrapper(header, data, limit)
        return _MessageSet(header.magic, header.timestamp_type).columns(data)

    def scan(self, buffer: bytes, at: int, position: int, after: int, limit: int, max_size: int) -> BatchTable:
        """See :meth:`~kfs.format.decoders.BlockDecoder.scan`."""
        return scan_batches(buffer, at, position, after, limit, max_size)

    def scan_messages(
        self, buffer: bytes, at: int, end: int, header: BatchHeader, last: int, limit: int
    ) -> tuple[int, int, int]:
        """See :meth:`~kfs.format.decoders.BlockDecoder.scan_messages`."""
        return scan_messages(buffer, at, end, header, last, limit)

    def decode_rows(self, table: BatchTable, first: int, stop: int, limit: int) -> tuple[RecordColumns, int]:
        """See :meth:`~kfs.format.decoders.BlockDecoder.decode_rows`."""
        return self.decode(table.header(first), table.data(first), limit), first + 1

    def count_records(
        self, table: BatchTable, first: int, stop: int, limit: int, exact_timestamps: bool = False
    ) -> tuple[int, int]:
        """See :meth:`~kfs.format.decoders.BlockDecoder.count_records`."""
        messages = 0
        for row in range(first, stop):
            header = table.header(row)
            try:
                timestamps = self.decode(header, table.data(row), limit).timestamps
            except CorruptData:
                return messages, row
            if exact_timestamps and timestamps and max(timestamps) != header.max_timestamp:
                return messages, row
            messages += 0 if header.is_control else len(timestamps)
        return messages, stop

    def first_before(self, table: BatchTable, first: int, stop: int, limit: int, before: int) -> int:
        """See :meth:`BlockDecoder.first_before`."""
        for row in range(first, stop):
            try:
                timestamps = self.decode(table.header(row), table.data(row), limit).timestamps
            except CorruptData:
                return row
            if timestamps and min(timestamps) < before:
                return row
        return stop


def _decode_v2(header: BatchHeader, data: bytes, limit: int) -> RecordColumns:
    codec = Codec.of(header.attributes)
    if codec is Codec.NONE:
        buffer, start = data, BATCH_OVERHEAD
    else:
        buffer, start = b"", 0
        if header.record_count:  # an empty batch has no stream (MemoryRecords.writeEmptyHeader)
            buffer = decompress(codec, memoryview(data)[BATCH_OVERHEAD:], magic=MAGIC_V2, limit=limit)
    where = "" if codec is Codec.NONE else " (decompressed)"
    if header.record_count * _LEAST_RECORD_BYTES > len(buffer) - start:
        raise CorruptData(f"{header.record_count} records can't fit into {len(buffer) - start} bytes")
    try:
        return _RecordParser(header, buffer).parse(start)
    except IndexError:
        raise CorruptData(f"a record runs past the end of its batch{where}", len(buffer)) from None
    except CorruptData as error:
        raise type(error)(error.reason + where, error.position) from None


class _RecordParser:
    """A parser of the records of one v2 batch, with ``DefaultRecord.readFrom`` for each."""

    def __init__(self, header: BatchHeader, buffer: bytes) -> None:
        self.header = header
        self.buffer = buffer

    def parse(self, position: int) -> RecordColumns:
        header, buffer = self.header, self.buffer
        end = len(buffer)
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        offsets: list[int] = []
        timestamps: list[int] = []
        key_starts, key_lengths, value_starts, value_lengths, header_starts = (array("i") for _ in range(5))
        for _ in range(header.record_count):
            record_start = position
            size, position = decode_varint(buffer, position, end)
            record_end = position + size
            if size < 0 or record_end > end:
                raise CorruptData(f"record of {size} bytes with {end - position} left in its batch", record_start)
            delta, position = decode_varlong(buffer, position + 1, record_end)  # + 1: the unused attributes
            timestamps.append(base_timestamp + delta)
            delta, position = decode_varint(buffer, position, record_end)
            offsets.append(base_offset + delta)

            length, position = decode_varint(buffer, position, record_end)
            key_starts.append(position)
            if length > record_end - position:
                raise CorruptData(f"key of {length} bytes where {record_end - position} are left", record_start)
            if length >= 0:
                position += length
                key_lengths.append(length)
            else:
                key_lengths.append(-1)
            length, position = decode_varint(buffer, position, record_end)
            value_starts.append(position)
            if length > record_end - position:
                raise CorruptData(f"value of {length} bytes where {record_end - position} are left", record_start)
            if length >= 0:
                position += length
                value_lengths.append(length)
            else:
                value_lengths.append(-1)

            if position + 1 == record_end and not buffer[position]:
                header_starts.append(-1)
                position = record_end
                continue
            header_starts.append(position)
            position = self._walk_headers(position, record_end)
            if position != record_end:
                raise CorruptData(f"record ends at {position}, its length says {record_end}", record_start)
        if position != end:
            raise CorruptData(f"{end - position} bytes left after {header.record_count} records", position)
        return RecordColumns(
            buffer,
            self._checked_offsets(offsets),
            self._timestamps(timestamps),
            header.timestamp_type,
            key_starts,
            key_lengths,
            value_starts,
            value_lengths,
            header_starts,
        )

    def _walk_headers(self, position: int, end: int) -> int:
        """Check the headers of a record and return the position after them."""
        buffer = self.buffer
        start = position
        count, position = decode_varint(buffer, position, end)
        if count < 0 or count * 2 > end - position:
            raise CorruptData(f"{count} headers in {end - position} bytes", start)
        for _ in range(count):
            start = position
            length, position = decode_varint(buffer, position, end)
            if length < 0:
                raise CorruptData(f"header key of {length} bytes", start)
            position += length
            length, position = decode_varint(buffer, position, end)
            position += max(length, 0)
        if position > end:
            raise CorruptData("a header runs past the end of its record", start)
        return position

    def _checked_offsets(self, offsets: list[int]) -> array[int]:
        previous = self.header.base_offset - 1
        for offset in offsets:
            if offset <= previous:
                raise CorruptData(f"record offset {offset} after {previous}")
            previous = offset
        if previous > self.header.last_offset:
            raise CorruptData(f"record offset {previous} above the batch's last offset {self.header.last_offset}")
        return array("q", offsets)

    def _timestamps(self, timestamps: list[int]) -> array[int]:
        if self.header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return array("q", [self.header.max_timestamp]) * len(timestamps)
        try:
            return array("q", timestamps)
        except OverflowError:  # Java's long arithmetic wraps around
            return array("q", [(t + _INT64_HALF) % _INT64_SPAN - _INT64_HALF for t in timestamps])


class _MessageSet:
    """A decoder of consecutive uncompressed messages of one magic to columns (``LegacyRecord``)."""

    def __init__(self, magic: int, timestamp_type: TimestampType) -> None:
        self.magic = magic
        self.timestamp_type = timestamp_type
        self.offsets, self.timestamps = array("q"), array("q")
        self.key_starts, self.key_lengths, self.value_starts, self.value_lengths = (array("i") for _ in range(4))
        self.faults: dict[int, CorruptData] = {}

    def columns(self, buffer: bytes) -> RecordColumns:
        """Parse all of ``buffer``; the caller has checked the CRC of each message."""
        position = 0
        while position < len(buffer):
            position = self._message(buffer, position, len(buffer))
        return self._columns(buffer)

    def inner_columns(self, buffer: bytes, wrapper: BatchHeader) -> RecordColumns:
        """Parse the inner messages of a wrapper, and convert their offsets and timestamps to absolute ones."""
        position = 0
        while position < len(buffer):
            start = position
            position = self._message(buffer, position, len(buffer))
            self._check_inner(buffer, start, position)
        if not self.offsets:
            raise CorruptData("a compressed message with no inner messages")
        self._make_absolute(wrapper)
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            self.timestamps = array("q", [wrapper.max_timestamp]) * len(self.offsets)
        return self._columns(buffer)

    def _message(self, buffer: bytes, position: int, end: int) -> int:
        """Append the message at ``position``; return the position after it."""
        if end - position < LOG_OVERHEAD + MIN_MESSAGE_SIZE[self.magic]:
            raise CorruptData(f"{end - position} bytes left, fewer than a message has", position)
        offset, size, _, magic, _ = LEGACY_HEADER.unpack_from(buffer, position)
        stop: int = position + LOG_OVERHEAD + size
        if size < MIN_MESSAGE_SIZE[self.magic] or stop > end:
            raise CorruptData(f"message of {size} bytes with {end - position - LOG_OVERHEAD} left", position)
        if magic != self.magic:
            raise CorruptData(f"message of magic {magic} among those of magic {self.magic}", position)
        at = position + LEGACY_TIMESTAMP_OFFSET
        timestamp = NO_TIMESTAMP
        if magic == MAGIC_V1:
            timestamp = int.from_bytes(buffer[at : at + 8], "big", signed=True)
            at += 8
        key_length, at = self._bytes_field(buffer, at, stop)
        self.key_starts.append(at)
        self.key_lengths.append(key_length)
        value_length, at = self._bytes_field(buffer, at + max(key_length, 0), stop)
        if at + max(value_length, 0) != stop:
            raise CorruptData(f"value of {value_length} bytes where {stop - at} are left in the message", at - 4)
        self.value_starts.append(at)
        self.value_lengths.append(value_length)
        self.offsets.append(offset)
        self.timestamps.append(timestamp)
        return stop

    @staticmethod
    def _bytes_field(buffer: bytes, at: int, stop: int) -> tuple[int, int]:
        """Return an int32 length (-1: null) and the position after it."""
        length = int.from_bytes(buffer[at : at + 4], "big", signed=True)
        at += 4
        if at > stop or length > stop - at:
            raise CorruptData(f"a key or value of {length} bytes runs past its message", at - 4)
        return max(length, -1), at

    def _check_inner(self, buffer: bytes, start: int, stop: int) -> None:
        _, _, crc, _, attributes = LEGACY_HEADER.unpack_from(buffer, start)
        if attributes & CODEC_MASK:
            raise CorruptData("a compressed message inside a compressed message (decompressed)", start)
        computed = zlib.crc32(memoryview(buffer)[start + LEGACY_CRC_START : stop])
        if computed != crc:
            reason = f"stored CRC {crc}, computed {computed}, in an inner message (position after decompression)"
            self.faults[len(self.offsets) - 1] = CorruptData(reason, start)

    def _make_absolute(self, wrapper: BatchHeader) -> None:
        """Convert a wrapper's inner offsets to absolute ones (``AbstractLegacyRecordBatch.DeepRecordsIterator``).

        They are already absolute in v0, and relative in v1. The offset of the wrapper is that of its last inner
        message. Old librdkafka left 0 instead, and then the inner offsets count from 0.
        """
        previous = -1
        for offset in self.offsets:
            if offset <= previous:
                raise CorruptData(f"inner offset {offset} after {previous}")
            previous = offset
        base = wrapper.last_offset - previous
        if wrapper.magic == MAGIC_V1 and wrapper.last_offset and base > 0:
            self.offsets = array("q", [base + offset for offset in self.offsets])
        elif base and (wrapper.last_offset or wrapper.magic != MAGIC_V1):
            raise CorruptData(f"last inner offset {previous} in a wrapper of offset {wrapper.last_offset}")

    def _columns(self, buffer: bytes) -> RecordColumns:
        return RecordColumns(
            buffer,
            self.offsets,
            self.timestamps,
            self.timestamp_type,
            self.key_starts,
            self.key_lengths,
            self.value_starts,
            self.value_lengths,
            array("i", [-1]) * len(self.offsets),
            self.faults or NO_FAULTS,
        )


def _decode_wrapper(header: BatchHeader, data: bytes, limit: int) -> RecordColumns:
    """Decode a compressed v0 or v1 message, whose value is a message set."""
    inner = wrapped_messages(header, data, limit)
    return _MessageSet(header.magic, header.timestamp_type).inner_columns(inner, header)
