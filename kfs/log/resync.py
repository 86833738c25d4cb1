"""Search for the next intact batch after bytes that can't be parsed."""

from __future__ import annotations

import re
from typing import Final

from kfs.errors import CorruptData
from kfs.format.batch_header import BatchHeader, is_intact, read_header
from kfs.format.codecs import Codec
from kfs.format.layout import (
    BATCH_ATTRIBUTES_KNOWN,
    BATCH_OVERHEAD,
    HEADER_SIZE_UP_TO_MAGIC,
    LEGACY_ATTRIBUTES_KNOWN,
    MAGIC_V2,
    MAX_INT32,
)
from kfs.log.offset_range import SegmentBounds
from kfs.log.window import Window
from kfs.storage.holes import next_data
from kfs.storage.open_files import FileChanged, OpenFile

_SCAN_CHUNK: Final = 256 * 1024
#: The maximum number of bytes to checksum per search, as a multiple of the bytes searched. Hostile data may look like a
#: header at every byte, and each such position costs a CRC over the size that it claims.
_CRC_BUDGET: Final = 64
_CRC_BUDGET_FLOOR: Final = 64 * 1024 * 1024


def is_plausible(window: Window, bounds: SegmentBounds, position: int, after: int) -> bool:
    """Whether the header at ``position`` is plausible after offset ``after``; its CRC isn't checked."""
    return _plausible_header(window, bounds, position, after) is not None


def find_batch(
    window: Window, bounds: SegmentBounds, position: int, after: int, limit: int, stop: int | None = None
) -> int | None:
    """Return the position of the next intact batch or message at or after ``position``, or None.

    Its offsets must be able to follow ``after`` in this segment. So the high half of its base offset has one of two
    values, and the search looks for these. ``limit`` bounds a batch's size in bytes. The batch must begin before
    ``stop``, if given.
    """
    stop = window.size if stop is None else stop
    end = min(window.size, stop + HEADER_SIZE_UP_TO_MAGIC - 1)
    patterns = {_pattern(bounds.base_offset), _pattern(min(bounds.base_offset + MAX_INT32, bounds.limit))}
    budget = max((end - position) * _CRC_BUDGET, _CRC_BUDGET_FLOOR)
    while position + HEADER_SIZE_UP_TO_MAGIC <= end:
        # A header may begin with zeros that are the end of a hole.
        position = max(position, next_data(window.file, position, end) - HEADER_SIZE_UP_TO_MAGIC + 1)
        length = min(_SCAN_CHUNK, end - position)
        chunk = window.file.read(position, length)
        if len(chunk) < HEADER_SIZE_UP_TO_MAGIC:
            return None
        for at in _candidates(patterns, chunk):
            header = _plausible_header(window, bounds, position + at, after)
            if header is None or header.size > limit:
                continue
            budget -= header.size
            if budget < 0:
                return None
            if is_intact(header, window.read(header.position, header.size)):
                return header.position
        position += length - HEADER_SIZE_UP_TO_MAGIC + 1
    return None


def find_bytes(file: OpenFile, wanted: bytes, end: int, most: int) -> int | None:
    """Return the first position of ``wanted`` below ``end`` in a file; None if it isn't in the first ``most`` bytes."""
    position = 0
    while position < min(end, most):
        position = max(position, next_data(file, position, end) - len(wanted) + 1)
        chunk = file.read(position, min(_SCAN_CHUNK, end - position))
        at = chunk.find(wanted)
        if at >= 0:
            return position + at
        if len(chunk) <= len(wanted):
            return None
        position += len(chunk) - len(wanted) + 1
    return None


def is_zero_to_end(file: OpenFile, position: int, size: int) -> bool:
    """Whether only zero bytes follow, as in a preallocated or crashed file; holes are skipped without reading."""
    while (position := next_data(file, position, size)) < size:
        chunk = file.read(position, min(_SCAN_CHUNK, size - position))
        if not chunk or chunk.count(0) != len(chunk):
            return False
        position += len(chunk)
    return True


def _pattern(offset: int) -> re.Pattern[bytes]:
    """Return the pattern of the first 17 bytes: the offset's high half, a size of at least 14, and a known magic."""
    high = re.escape((offset >> 32).to_bytes(4, "big"))
    return re.compile(high + rb"[\x00-\xff]{4}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x7f][\x00-\xff]{7}[\x00-\x02]")


def _candidates(patterns: set[re.Pattern[bytes]], chunk: bytes) -> list[int]:
    """Return every position in ``chunk`` where a header may begin, including overlapping ones."""
    found = set()
    for pattern in patterns:
        match = pattern.search(chunk)
        while match:
            found.add(match.start())
            match = pattern.search(chunk, match.start() + 1)
    return sorted(found)


def _plausible_header(window: Window, bounds: SegmentBounds, position: int, after: int) -> BatchHeader | None:
    left = window.size - position
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return None
    try:
        buffer, at = window.at(position, min(left, BATCH_OVERHEAD))
        header = read_header(buffer, at, position)
    except FileChanged:
        raise
    except CorruptData:
        return None
    known = BATCH_ATTRIBUTES_KNOWN if header.magic == MAGIC_V2 else LEGACY_ATTRIBUTES_KNOWN[header.magic]
    if header.attributes & ~known or header.codec_id > Codec.ZSTD:
        return None
    if header.size > left or header.last_offset <= after or header.last_offset >= bounds.limit:
        return None
    return header
