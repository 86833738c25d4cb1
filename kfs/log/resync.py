"""Finding the next intact batch behind bytes that make no sense."""

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
from kfs.log.segment_bounds import SegmentBounds
from kfs.log.window import Window
from kfs.storage.holes import next_data
from kfs.storage.open_files import FileChanged, OpenFile

_SCAN_CHUNK: Final = 256 * 1024
#: Checksums computed per search, as a multiple of the bytes searched: hostile data may look like a
#: header at every byte, and each look costs a CRC over what it claims.
_CRC_BUDGET: Final = 64
_CRC_BUDGET_FLOOR: Final = 64 * 1024 * 1024


def is_plausible(window: Window, bounds: SegmentBounds, position: int, after: int) -> bool:
    """Whether a header at ``position`` makes sense as the next one after offset ``after``; its CRC is not looked at."""
    return _plausible_header(window, bounds, position, after) is not None


def find_batch(
    window: Window, bounds: SegmentBounds, position: int, after: int, limit: int, stop: int | None = None
) -> int | None:
    """Return where the next intact batch or message at or after ``position`` begins, or None.

    Its offsets must be ones that can follow ``after`` in this segment, so the high half of its
    offset is one of two: that is what is searched for. ``limit`` bounds a batch's size in bytes;
    it must begin before ``stop``, where that is given.
    """
    stop = window.size if stop is None else stop
    end = min(window.size, stop + HEADER_SIZE_UP_TO_MAGIC - 1)
    patterns = {_pattern(bounds.base_offset), _pattern(min(bounds.base_offset + MAX_INT32, bounds.limit))}
    budget = max((end - position) * _CRC_BUDGET, _CRC_BUDGET_FLOOR)
    while position + HEADER_SIZE_UP_TO_MAGIC <= end:
        # A header may begin with zeros, and those be at the end of a hole.
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
    """Return where ``wanted`` first stands in ``end`` bytes of a file, None where not in the first ``most`` of them."""
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
    """Whether only zero bytes follow: a preallocated or crashed file. Holes are skipped, not read."""
    while (position := next_data(file, position, size)) < size:
        chunk = file.read(position, min(_SCAN_CHUNK, size - position))
        if not chunk or chunk.count(0) != len(chunk):
            return False
        position += len(chunk)
    return True


def _pattern(offset: int) -> re.Pattern[bytes]:
    """What the first 17 bytes look like: the offset's high half, a size of at least 14, a known magic."""
    high = re.escape((offset >> 32).to_bytes(4, "big"))
    return re.compile(high + rb"[\x00-\xff]{4}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x7f][\x00-\xff]{7}[\x00-\x02]")


def _candidates(patterns: set[re.Pattern[bytes]], chunk: bytes) -> list[int]:
    """Return every position in ``chunk`` where a header may begin, overlapping ones included."""
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
