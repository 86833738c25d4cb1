"""The scan over ordinary batches, in Python."""

from __future__ import annotations

from array import array

from kfs.errors import CorruptData
from kfs.format.batch_header import BatchHeader, is_intact, read_header
from kfs.format.batch_table import BatchTable
from kfs.format.layout import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    MIN_MESSAGE_SIZE,
    NO_TIMESTAMP,
)


def scan_batches(buffer: bytes, at: int, position: int, after: int, limit: int, max_size: int) -> BatchTable:
    """See :meth:`kfs.format.decoders.BlockDecoder.scan`."""
    rows: list[BatchHeader] = []
    buffer_position = position - at
    view = memoryview(buffer)
    header = _header(buffer, at, buffer_position)
    is_checked = False

    def is_whole(header: BatchHeader, at: int) -> bool:
        return header.size <= min(len(buffer) - at, max_size) and is_intact(header, view[at : at + header.size])

    while header is not None and (is_checked or is_whole(header, at)):
        following = _header(buffer, at + header.size, buffer_position)
        if header.base_offset <= after or header.last_offset >= limit:
            break
        is_leap = header.base_offset > after + 1
        if is_leap:  # what follows decides whether it is believed, so that has to be intact
            if following is None or following.base_offset <= header.last_offset:
                break
            if not is_whole(following, at + header.size):
                break
        is_checked = is_leap
        rows.append(header)
        after = header.last_offset
        at += header.size
        header = following
    return BatchTable(
        buffer,
        buffer_position,
        array("q", [row.position for row in rows]),
        array("q", [row.size for row in rows]),
        array("i", [row.attributes for row in rows]),
        array("q", [row.base_offset for row in rows]),
        array("q", [row.last_offset for row in rows]),
        array("i", [row.record_count for row in rows]),
        array("q", [row.base_timestamp for row in rows]),
        array("q", [row.max_timestamp for row in rows]),
        array("q", [row.producer_id for row in rows]),
        array("i", [row.leader_epoch for row in rows]),
    )


def scan_messages(buffer: bytes, at: int, end: int, header: BatchHeader, last: int, limit: int) -> tuple[int, int, int]:
    """See :meth:`kfs.format.decoders.BlockDecoder.scan_messages`."""
    view = memoryview(buffer)
    latest = NO_TIMESTAMP
    while end - at >= LOG_OVERHEAD + MIN_MESSAGE_SIZE[header.magic] and buffer[at + MAGIC_OFFSET] == header.magic:
        try:
            message = read_header(buffer, at, at)
        except CorruptData:
            break
        if (
            message.attributes != header.attributes
            or message.last_offset != last + 1
            or message.last_offset >= limit
            or message.size > end - at
            or not is_intact(message, view[at : at + message.size])
        ):
            break
        last += 1
        latest = max(latest, message.max_timestamp)
        at += message.size
    return at, last, latest


def _header(buffer: bytes, at: int, buffer_position: int) -> BatchHeader | None:
    """Return the header of a record batch at ``at``, or None if there is none, or it is incomplete."""
    if len(buffer) - at < BATCH_OVERHEAD or buffer[at + MAGIC_OFFSET] != MAGIC_V2:
        return None
    try:
        return read_header(buffer, at, buffer_position + at)
    except CorruptData:
        return None
