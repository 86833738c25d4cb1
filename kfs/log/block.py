"""What a walk over a segment's bytes yields: blocks that are intact, and damage."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import Enum, auto

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader
from kfs.format.columns import RecordColumns
from kfs.format.decode import BlockDecoder
from kfs.format.layout import MAX_INT64
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem


@dataclass(slots=True)
class Block:
    """A record batch, a compressed message, or a run of uncompressed messages, with its CRCs verified.

    ``header`` is the batch's; of a run it is made up: base and last offset of the run, ``count``
    messages, ``size`` their bytes. Records at or below ``after`` were seen earlier in the log, and
    those at or above ``before`` belong to the next segment: neither are records of this block.
    """

    header: BatchHeader
    data: bytes
    file: str
    after: int = -1
    before: int = MAX_INT64

    @property
    def position(self) -> int:
        """Byte position in the segment's file."""
        return self.header.position

    @property
    def end(self) -> int:
        """Byte position of what follows."""
        return self.header.position + self.header.size

    @property
    def is_trimmed(self) -> bool:
        """Whether some of the batch's records aren't records of this block, as far as its header tells."""
        return self.after >= self.header.base_offset or self.before <= self.header.last_offset

    @property
    def dense_range(self) -> range | None:
        """The offsets of all records, where the header alone tells them; None where it doesn't."""
        header = self.header
        if header.is_control:
            return range(0)
        if not header.is_dense:
            return None
        return range(max(header.base_offset, self.after + 1), min(header.last_offset + 1, self.before))

    def decode(self, decoder: BlockDecoder, limit: int) -> RecordColumns:
        """Decode the records that are this block's.

        Raises:
            CorruptData: they are not what the header says; file and position are the batch's.
        """
        try:
            columns = decoder.decode(self.header, self.data, limit)
        except CorruptData as error:
            inside = f" (at {error.position} in the batch)" if error.position else ""
            raise type(error)(error.reason + inside, self.header.position, self.file) from None
        if not self.is_trimmed and self.header.record_count != UNKNOWN_COUNT:
            return columns
        start = bisect_right(columns.offsets, self.after)
        return columns.slice(start, max(start, bisect_left(columns.offsets, self.before)))


class Cause(Enum):
    """What makes bytes damage."""

    HEADER = auto()  # a size, magic or count that can't be
    CHECKSUM = auto()
    SIZE_LIMIT = auto()  # larger than a limit of ours; not looked at
    TRUNCATED = auto()  # the file ends inside, and something intact follows, or another segment
    REPEATED = auto()  # offsets that occurred before
    MISPLACED = auto()  # offsets that can't be in this place
    READ_ERROR = auto()
    MISSING = auto()  # no bytes: those of the offsets below the next segment are gone, with their segment or cut off


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that hold no records, and why.

    What they held has offsets above ``after`` and below ``before``: the last offset before the bytes, and the first of
    the next intact batch behind them, the next segment's base offset, or :data:`MAX_INT64` where the log ends in damage
    and nothing bounds it. No header that fails its CRC is believed. What only repeats records that stand earlier in the
    log, has lost none. ``claimed_last`` is the last offset that the broken header claims, where that
    is possible at all, else ``after``: a hint for verify and recover; no view decides by it. Of a patched file the walk
    is ``shift`` bytes further on than the problem's position, which is that in the file.
    """

    problem: Problem
    cause: Cause
    after: int
    claimed_last: int
    before: int = MAX_INT64
    shift: int = 0

    @property
    def position(self) -> int:
        """Byte position in the segment, as the walk goes."""
        return self.problem.position + self.shift

    @property
    def end(self) -> int:
        """Byte position of what follows."""
        return self.position + self.problem.size

    @property
    def last_offset(self) -> int:
        """The highest offset up to its end that is known from it: none, -1."""
        return -1

    @property
    def lost(self) -> OffsetRange | None:
        """The offsets that records lost here may have had, None where none is lost.

        It ends at :data:`MAX_INT64` where the log ends in damage, and nothing behind bounds it.
        """
        return OffsetRange(self.after + 1, self.before) if self.after + 1 < self.before else None
