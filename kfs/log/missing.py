"""Offsets between two segments that neither has: lost with a segment, or what compaction leaves.

A leader begins a segment where the one before it ends. Only the cleaner merges segments, and a follower of a compacted
leader begins one with the first batch that it gets (``UnifiedLog.maybeRoll``). So offsets are missing where nothing
tells of compaction. What is compacted stands in ``cleaner-offset-checkpoint`` (``LogCleanerManager.doneCleaning``), a
file that every broker since 0.9 has whose cleaner is on (the constructor of ``OffsetCheckpointFile`` makes it). And a
producer snapshot is written where each segment begins, and goes with it when the cleaner merges it into another
(``UnifiedLog.replaceSegments``): one that lies between two segments tells of a third.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from kfs.log.offset_range import OffsetRange
from kfs.log.segment_files import PartitionFiles, SegmentFiles
from kfs.storage.listing import FoundFile
from kfs.storage.status import status_at

#: How many bytes of the segments around a gap, besides the two next to it, are searched for signs of compaction.
SEARCHED_AROUND: Final = 64 * 1024 * 1024


class Evidence(Enum):
    """What tells that offsets between two segments are lost."""

    NONE = auto()
    DOUBTFUL = auto()  # a snapshot tells of a segment, and compaction may have merged that
    LIKELY = auto()  # nothing tells of compaction, but it isn't known whether the broker would have said so
    PROVEN = auto()


@dataclass(frozen=True, slots=True)
class Gap:
    """The ``offsets`` between the end of the ``before``-th segment of a log and the base offset of the next one."""

    before: int
    offsets: OffsetRange


def missing_sentence(offsets: OffsetRange) -> str:
    """Say that the offsets below the base offset of a segment are missing."""
    return f"offsets {offsets.start} to {offsets.end - 1} are missing before the segment of base offset {offsets.end}"


class SegmentFacts(Protocol):
    """What is known of the segments of a log, which go by their number in it.

    What reads one raises :class:`~kfs.errors.CorruptData` where that fails.
    """

    @property
    def files(self) -> PartitionFiles:
        """All that lies in the log's directory."""
        ...

    @property
    def snapshots(self) -> Sequence[int]:
        """The offsets of the producer snapshots in it, in order."""
        ...

    def __len__(self) -> int:
        """Return how many segments there are."""
        ...

    def segment(self, at: int) -> SegmentFiles:
        """Return the files of one."""
        ...

    def size(self, at: int) -> int:
        """Return the bytes of its ``.log``."""
        ...

    def has_holes(self, at: int) -> bool:
        """Whether it lacks offsets as only compaction leaves them out."""
        ...

    def has_record_batches(self, at: int) -> bool:
        """Whether there are, or may be, record batches (v2) in it: without them there are no snapshots."""
        ...

    def epochs(self, at: int) -> tuple[int, int] | None:
        """Return the leader epochs of its first and its last batch, None where they name none."""
        ...


def evidence_of(gap: Gap, witness: SegmentFacts, *, is_cleaned: bool, has_checkpoint: bool) -> Evidence:
    """Return what tells that the offsets of a gap are lost.

    ``is_cleaned`` says that the log is known to be compacted, ``has_checkpoint`` that the cleaner's checkpoint would
    say so.

    Raises:
        CorruptData: a segment can't be read.
    """
    told = snapshot_in(gap, witness)
    if told is None and is_cleaned:
        return Evidence.NONE
    if not (is_cleaned or _is_being_compacted(gap, witness) or _has_holes_around(gap, witness)):
        return Evidence.PROVEN if told is not None or has_checkpoint else Evidence.LIKELY
    if told is None:
        return Evidence.NONE
    is_sure = _has_all_snapshots(witness) and _may_begin_a_segment(told, gap, witness)
    return Evidence.PROVEN if is_sure else Evidence.DOUBTFUL


def snapshot_in(gap: Gap, witness: SegmentFacts) -> FoundFile | None:
    """Return the producer snapshot of the lowest offset in a gap, None where there is none."""
    start = max(gap.offsets.start, witness.segment(gap.before).base_offset + 1)
    at = bisect_left(witness.snapshots, start)
    if at == len(witness.snapshots) or witness.snapshots[at] >= gap.offsets.end:
        return None
    return witness.files.snapshots[witness.snapshots[at]]


def _is_being_compacted(gap: Gap, witness: SegmentFacts) -> bool:
    """Whether the cleaner is at work, which says so in its checkpoint when it is done with all of a log.

    What it has merged waits as ``.deleted`` for its removal. Retention deletes only from the start of a log.
    """
    files = witness.files
    if any(segment.base_offset in gap.offsets for segment in files.deleted):
        return True
    if any(found.name.endswith(".cleaned") for found in files.superseded):
        return True
    return any(witness.segment(at).log.name.endswith(".swap") for at in range(len(witness)))


def _has_holes_around(gap: Gap, witness: SegmentFacts) -> bool:
    return any(witness.has_holes(at) for at in _around(gap, witness))


def _around(gap: Gap, witness: SegmentFacts) -> Iterator[int]:
    """Yield the segments at a gap, and then those further away, as far as they are small enough."""
    before, after, left = gap.before, gap.before + 1, SEARCHED_AROUND
    yield from (before, after)
    for distance in range(1, len(witness)):
        for at in (before - distance, after + distance):
            if 0 <= at < len(witness):
                left -= witness.size(at)
                if left < 0:
                    return
                yield at


def _has_all_snapshots(witness: SegmentFacts) -> bool:
    """Whether each segment has one, as with brokers since 2.8; earlier ones also leave some of segments merged away."""
    count, snapshots = len(witness), witness.files.snapshots
    from_format = next((at for at in range(count) if witness.has_record_batches(at)), count)
    return all(witness.segment(at).base_offset in snapshots for at in range(from_format + 1, count))


def _may_begin_a_segment(snapshot: FoundFile, gap: Gap, witness: SegmentFacts) -> bool:
    """Whether it can't be that of a clean stop, after which the segment before it was appended to.

    The leader epoch may be another one then, and the segment's time, which compaction keeps, is a later one.
    """
    before, after = witness.epochs(gap.before), witness.epochs(gap.before + 1)
    if before is not None and after is not None and before[1] != after[0]:
        return False
    try:
        return status_at(witness.segment(gap.before).log.path).mtime_ns <= status_at(snapshot.path).mtime_ns
    except OSError:  # gone meanwhile
        return False
