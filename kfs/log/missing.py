"""Gaps between two segments: evidence of a lost segment, as opposed to compaction.

A leader begins a segment where the previous one ends. Only two things leave gaps legitimately: the cleaner merges
segments, and a follower of a compacted leader begins a segment with the first batch that it fetches
(``UnifiedLog.maybeRoll``). So offsets are lost if nothing indicates compaction.

The cleaner records what it has compacted in ``cleaner-offset-checkpoint`` (``LogCleanerManager.doneCleaning``). Every
broker since 0.9 with an enabled cleaner has that file, because the constructor of ``OffsetCheckpointFile`` creates it.

A broker also writes a producer snapshot where each segment begins. The cleaner deletes it when it merges the segment
into another one (``UnifiedLog.replaceSegments``). So a snapshot that lies between two segments is evidence of a third
one.
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

#: How many bytes of further segments around a gap, besides the two adjacent ones, are searched for compaction.
SEARCHED_AROUND: Final = 64 * 1024 * 1024


class Evidence(Enum):
    """How strong the evidence is that offsets between two segments are lost."""

    NONE = auto()
    DOUBTFUL = auto()  # a snapshot indicates a segment, but compaction may have merged that
    LIKELY = auto()  # nothing indicates compaction, but it is unknown whether the broker would have recorded it
    PROVEN = auto()


@dataclass(frozen=True, slots=True)
class Gap:
    """The ``offsets`` between the end of the segment at index ``before`` and the base offset of the next one."""

    before: int
    offsets: OffsetRange


def missing_sentence(offsets: OffsetRange) -> str:
    """Return a sentence that the offsets before the base offset of a segment are missing."""
    return f"offsets {offsets.start} to {offsets.end - 1} are missing before the segment with base offset {offsets.end}"


class SegmentFacts(Protocol):
    """Facts about the segments of a log, by the index of the segment.

    Methods that read a segment raise :class:`~kfs.errors.CorruptData` if that fails.
    """

    @property
    def files(self) -> PartitionFiles:
        """All files in the log's directory."""
        ...

    @property
    def snapshots(self) -> Sequence[int]:
        """The offsets of the producer snapshots, in order."""
        ...

    def __len__(self) -> int:
        """Return the number of segments."""
        ...

    def segment(self, at: int) -> SegmentFiles:
        """Return the files of a segment."""
        ...

    def size(self, at: int) -> int:
        """Return the size of a segment's ``.log`` in bytes."""
        ...

    def has_holes(self, at: int) -> bool:
        """Whether the segment omits offsets in a way that only compaction does."""
        ...

    def has_record_batches(self, at: int) -> bool:
        """Whether the segment has, or may have, record batches (v2); without these there are no snapshots."""
        ...

    def epochs(self, at: int) -> tuple[int, int] | None:
        """Return the leader epochs of the first and the last batch, or None if they have none."""
        ...


def evidence_of(gap: Gap, witness: SegmentFacts, *, is_cleaned: bool, has_checkpoint: bool) -> Evidence:
    """Return the evidence that the offsets of a gap are lost.

    ``is_cleaned`` says that the log is known to be compacted. ``has_checkpoint`` says that the cleaner's checkpoint
    would record compaction.

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
    """Return the producer snapshot with the lowest offset in a gap, or None if there is none."""
    start = max(gap.offsets.start, witness.segment(gap.before).base_offset + 1)
    at = bisect_left(witness.snapshots, start)
    if at == len(witness.snapshots) or witness.snapshots[at] >= gap.offsets.end:
        return None
    return witness.files.snapshots[witness.snapshots[at]]


def _is_being_compacted(gap: Gap, witness: SegmentFacts) -> bool:
    """Whether the cleaner is at work on the log; it updates its checkpoint only after it has finished the log.

    The segments that it has merged remain as ``.deleted`` until their removal. Retention deletes only from the start of
    a log.
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
    """Yield the segments next to a gap, then those further away, up to a total size."""
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
    """Whether each segment has a snapshot, as with brokers since 2.8.

    Earlier brokers also keep some snapshots of segments that were merged away.
    """
    count, snapshots = len(witness), witness.files.snapshots
    from_format = next((at for at in range(count) if witness.has_record_batches(at)), count)
    return all(witness.segment(at).base_offset in snapshots for at in range(from_format + 1, count))


def _may_begin_a_segment(snapshot: FoundFile, gap: Gap, witness: SegmentFacts) -> bool:
    """Whether the snapshot can't come from a clean shutdown after which the broker appended to the segment before it.

    In that case the leader epoch may change, and the segment has a later modification time, which compaction keeps.
    """
    before, after = witness.epochs(gap.before), witness.epochs(gap.before + 1)
    if before is not None and after is not None and before[1] != after[0]:
        return False
    try:
        return status_at(witness.segment(gap.before).log.path).mtime_ns <= status_at(snapshot.path).mtime_ns
    except OSError:  # deleted meanwhile
        return False
