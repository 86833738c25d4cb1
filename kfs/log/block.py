"""What a walk over a segment yields: intact blocks and damage."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader
from kfs.format.layout import MAX_INT64
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem, ProblemKind

if TYPE_CHECKING:
    from kfs.format.columns import RecordColumns
    from kfs.format.decoders import BlockDecoder


@dataclass(slots=True)
class Block:
    """A record batch, a compressed message, or a run of uncompressed messages, with its CRCs verified.

    ``header`` is the batch's header. For a run it is synthetic: it has the base and last offset of the run, ``count``
    is the number of messages, and ``size`` is their total size in bytes. Records at or below ``after`` occur earlier in
    the log. Records at or above ``before`` belong to the next segment. Neither belong to this block.
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
        """Byte position just after the block."""
        return self.header.position + self.header.size

    @property
    def is_trimmed(self) -> bool:
        """Whether some records of the batch don't belong to this block, judging by the header alone."""
        return self.after >= self.header.base_offset or self.before <= self.header.last_offset

    @property
    def dense_range(self) -> range | None:
        """The offsets of all records, or None if the header alone doesn't determine them."""
        header = self.header
        if header.is_control:
            return range(0)
        if not header.is_dense:
            return None
        return range(max(header.base_offset, self.after + 1), min(header.last_offset + 1, self.before))

    def decode(self, decoder: BlockDecoder, limit: int) -> RecordColumns:
        """Decode the records that belong to this block.

        Raises:
            CorruptData: the records don't match the header; file and position are the batch's.
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
    """Why bytes count as damage; the value is the kind of the problem."""

    HEADER = ProblemKind.BATCH_HEADER  # a size, magic or count that is impossible
    CHECKSUM = ProblemKind.BATCH_CRC
    SIZE_LIMIT = ProblemKind.BATCH_TOO_LARGE  # larger than a limit of ours; not read
    TRUNCATED = ProblemKind.BATCH_TRUNCATED  # the file ends inside it, and an intact batch or another segment follows
    REPEATED = ProblemKind.OFFSETS_REPEATED  # offsets that already occurred
    MISPLACED = ProblemKind.OFFSETS_MISPLACED  # offsets that are impossible at this position
    READ_ERROR = ProblemKind.READ_ERROR
    MISSING = ProblemKind.OFFSET_GAP  # no bytes: a lost segment or a truncation took the offsets below the next segment


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that hold no readable records, and the reason.

    The records that they held have offsets above ``after`` and below ``before``. ``after`` is the last offset before
    the bytes. ``before`` is the first offset of the next intact batch, or the next segment's base offset, or
    :data:`MAX_INT64` if the log ends in damage and nothing bounds it. A header that fails its CRC never sets these
    bounds. Bytes that only repeat earlier records lose nothing.

    ``claimed_last`` is the last offset that the broken header claims, if that is possible, else ``after``. It is a hint
    for verify and recover; no view depends on it. In a patched file the position in the walk is ``shift`` bytes higher
    than the problem's position in the file.
    """

    problem: Problem
    cause: Cause
    after: int
    claimed_last: int
    before: int = MAX_INT64
    shift: int = 0

    @property
    def position(self) -> int:
        """Byte position in the segment, as the walk counts it."""
        return self.problem.position + self.shift

    @property
    def end(self) -> int:
        """Byte position just after the damage."""
        return self.position + self.problem.size

    @property
    def last_offset(self) -> int:
        """The highest offset that the damage proves: none, so -1."""
        return -1

    @property
    def lost(self) -> OffsetRange | None:
        """The offsets that lost records may have had, or None if nothing is lost.

        The range ends at :data:`MAX_INT64` if the log ends in damage, because nothing after it bounds the range.
        """
        return OffsetRange(self.after + 1, self.before) if self.after + 1 < self.before else None
