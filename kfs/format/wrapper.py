"""Compressed messages of formats v0 and v1: a wrapper whose value is a message set."""

from __future__ import annotations

from collections.abc import Iterator

from kfs.errors import CorruptData
from kfs.format.batch_header import BatchHeader
from kfs.format.codecs import Codec, decompress
from kfs.format.layout import (
    CODEC_MASK,
    LEGACY_HEADER,
    LEGACY_TIMESTAMP_OFFSET,
    LOG_OVERHEAD,
    MAGIC_V0,
    MAGIC_V1,
    MIN_MESSAGE_SIZE,
)


def wrapped_messages(header: BatchHeader, data: bytes, limit: int) -> bytes:
    """Return the decompressed message set in a wrapper.

    Raises:
        CorruptData: the value is null, doesn't have its declared length, or can't be decompressed.
        LimitExceeded: it decompresses to more than ``limit`` bytes.
    """
    at = LEGACY_TIMESTAMP_OFFSET + (8 if header.magic == MAGIC_V1 else 0)
    key_length = int.from_bytes(data[at : at + 4], "big", signed=True)
    at += 4 + max(key_length, 0)
    value_length = int.from_bytes(data[at : at + 4], "big", signed=True)
    at += 4
    if value_length < 0:
        raise CorruptData("a compressed message with a null value", min(at - 4, len(data)))
    if at + value_length != len(data):
        raise CorruptData(f"value of {value_length} bytes where {len(data) - at} are left in the message", at - 4)
    return decompress(Codec.of(header.attributes), memoryview(data)[at:], magic=header.magic, limit=limit)


def first_inner_offset(header: BatchHeader, data: bytes, limit: int) -> int:
    """Return the offset of the first message in a wrapper, determined as a broker does, with few checks.

    As in ``AbstractLegacyRecordBatch.DeepRecordsIterator``, the inner offsets of v0 are absolute, and the wrapper's
    offset is ignored. Those of v1 are relative to the last one, whose offset is the wrapper's, unless that is 0.

    Raises:
        CorruptData: it can't be decompressed, or a broker would reject it.
        LimitExceeded: it decompresses to more than ``limit`` bytes.
    """
    offsets = list(_inner_offsets(wrapped_messages(header, data, limit)))
    if not offsets:
        raise CorruptData("a compressed message with no inner messages")
    if header.magic == MAGIC_V0 or not header.last_offset:
        return offsets[0]
    if header.last_offset < offsets[-1]:
        raise CorruptData(f"last inner offset {offsets[-1]} in a wrapper of offset {header.last_offset}")
    return header.last_offset - offsets[-1] + offsets[0]


def _inner_offsets(buffer: bytes) -> Iterator[int]:
    """Yield the offset of each complete message (``DataLogInputStream``)."""
    at, end = 0, len(buffer)
    while at + LEGACY_HEADER.size <= end:
        offset, size, _, _, attributes = LEGACY_HEADER.unpack_from(buffer, at)
        if size < MIN_MESSAGE_SIZE[MAGIC_V0]:
            raise CorruptData(f"an inner message of {size} bytes", at)
        if at + LOG_OVERHEAD + size > end:
            return
        if not at and attributes & CODEC_MASK:
            raise CorruptData("a compressed message inside a compressed message (decompressed)", at)
        yield offset
        at += LOG_OVERHEAD + size
