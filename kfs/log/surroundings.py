"""Looks at the bytes around a broken batch, for a walk that has to find out where it ends and what follows it."""

from __future__ import annotations

from typing import Final

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader, claimed_size, is_intact
from kfs.format.layout import (
    HEADER_SIZE_UP_TO_MAGIC,
    LEGACY_TIMESTAMP_OFFSET,
    MAGIC_V1,
)
from kfs.log.offset_range import SegmentBounds
from kfs.log.resync import find_batch, is_plausible, is_zero_to_end
from kfs.log.window import Window
from kfs.storage.open_files import FileChanged

#: A torn batch may end in this many zero bytes of a preallocated log that aren't part of it.
_TORN_BYTES: Final = 8
#: How many batches inside a broken one are checked before its size is trusted.
_MOST_TRIED: Final = 16


class Surroundings:
    """The bytes of one segment, as headers and batches that may begin at any position.

    ``limit`` is the maximum size of a batch in bytes. ``after`` is, in each method, the highest offset before the
    position that it is asked about: only a higher offset is possible there.
    """

    def __init__(self, window: Window, bounds: SegmentBounds, limit: int) -> None:
        self._window = window
        self._bounds = bounds
        self._limit = limit
        self._size = window.size

    def intact_at(self, position: int, after: int) -> BatchHeader | None:
        """Return the header at ``position`` if the batch there is intact and can be the next one, else None."""
        if not is_plausible(self._window, self._bounds, position, after):
            return None
        header = self._window.header(position)
        if header.size > min(self._limit, self._size - position):
            return None
        return header if is_intact(header, self._window.read(position, header.size)) else None

    def intact_from(self, position: int, after: int) -> BatchHeader | None:
        """Return the header of the intact batch at ``position``, or of the next one after some broken batches."""
        for _ in range(_MOST_TRIED):
            header = self.intact_at(position, after)
            left = self._size - position
            if header is not None or left < HEADER_SIZE_UP_TO_MAGIC:
                return header
            size = claimed_size(*self._window.at(position, HEADER_SIZE_UP_TO_MAGIC))
            if not HEADER_SIZE_UP_TO_MAGIC <= size < left:
                return None
            position += size
        return None

    def _begin_of(self, position: int) -> int | None:
        """Return the base offset of the batch at ``position``; None if it is a wrapper or there is no batch."""
        try:
            header = self._window.header(position)
        except FileChanged:
            raise
        except CorruptData:
            return None
        return None if header.record_count == UNKNOWN_COUNT else header.base_offset

    def ends_log(self, position: int) -> bool:
        """Whether this is the last segment and only zeros follow."""
        return self._bounds.is_last and is_zero_to_end(self._window.file, position, self._size)

    def may_end_at(self, position: int, after: int) -> bool:
        """Whether a batch can end at ``position``, judging by the bytes that follow."""
        if position == self._size or is_plausible(self._window, self._bounds, position, after):
            return True
        # Fewer zeros than a header has may be part of a batch that was cut.
        return self._size - position >= HEADER_SIZE_UP_TO_MAGIC and self.ends_log(position)

    def is_begun(self, header: BatchHeader) -> bool:
        """Whether a partial compressed message is valid so far: its key and value lengths match its size."""
        at = LEGACY_TIMESTAMP_OFFSET + (8 if header.magic == MAGIC_V1 else 0)
        left = self._size - header.position
        for _ in range(2):
            if at + 4 > left:
                return False
            length = int.from_bytes(self._window.read(header.position + at, 4), "big", signed=True)
            at += 4 + max(length, 0)
        return at == header.size

    def swallowed(self, header: BatchHeader, behind: int, after: int) -> int | None:
        """Return where intact batches begin inside a broken one, if they show that its size is wrong; else None.

        They show it if they reach the end of the broken batch or go beyond it, or if only zeros follow them to the end
        of the log. A batch in the value of a message doesn't count: it has its own offsets, and more of the message
        follows it.

        If the broken batch claims an impossible offset, or one above those that follow it, that offset doesn't help to
        judge the batches inside. They then count only if they go beyond its end, if the log continues their offsets
        there, or, if the offset is impossible, if a plausible header follows them. If its size ends within the zeros at
        the end of the log, the batch is torn, and its size proves nothing.
        """
        following = self._begin_of(behind) if behind < self._size else None
        if following == header.last_offset + 1 and self.intact_at(behind, after) is not None:
            return None
        is_possible = header.last_offset < self._bounds.limit
        is_believed = is_possible and (following is None or header.last_offset < following)
        is_torn = self.ends_log(max(behind - _TORN_BYTES, header.position))
        highest = max(after, header.last_offset) if is_believed else after
        position = header.position
        for _ in range(_MOST_TRIED):
            found = find_batch(self._window, self._bounds, position + 1, highest, self._limit, behind)
            if found is None:
                return None
            end, last = self._end_of_chain(found, behind, after)
            if end > behind or (is_believed and (end == behind or self.ends_log(end))):
                return found
            if end == behind and self._begin_of(behind) == last + 1:
                return found
            goes_on = end < behind and is_plausible(self._window, self._bounds, end, last)
            if is_torn or (goes_on and not is_possible):
                return found
            position = found
        return None

    def _end_of_chain(self, position: int, stop: int, after: int) -> tuple[int, int]:
        """Return where consecutive intact batches end that start at ``position`` and begin before ``stop``.

        Also returns the last offset of the last one.
        """
        last = after
        while position < stop:
            try:
                header = self._window.header(position)
            except FileChanged:
                raise
            except CorruptData:
                break
            if header.size > min(self._limit, self._size - position):
                break
            if not is_intact(header, self._window.read(position, header.size)):
                break
            position, last = position + header.size, header.last_offset
        return position, last
