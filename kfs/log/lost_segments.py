"""Detection of lost offsets between the segments of a log, based on the current files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader
from kfs.format.layout import MAGIC_V2, MAX_INT64
from kfs.log.block import Block, Damage
from kfs.log.bulk import ScannedBatches
from kfs.log.directory_name import NEVER_TIERED, DirectoryKind
from kfs.log.log_dir import CLEANER_OFFSET_CHECKPOINT
from kfs.log.missing import Evidence, Gap, evidence_of
from kfs.log.offset_range import OffsetRange
from kfs.log.segment_files import PartitionFiles, SegmentFiles

if TYPE_CHECKING:
    from kfs.log.bulk import BulkReader
    from kfs.log.partition_directory import PartitionDirectory
    from kfs.log.problem import Problem
    from kfs.log.remote_offsets import RemoteOffsets
    from kfs.log.segment import Segment


class ListedLog(Protocol):
    """A log with known segments, and the facts that tell where its records should begin."""

    directory: PartitionDirectory
    topic: str

    @property
    def files(self) -> PartitionFiles:
        """All files of the directory."""
        ...

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, by base offset."""
        ...

    @property
    def log_start_offset(self) -> int:
        """The log start offset."""
        ...

    @property
    def remote(self) -> RemoteOffsets | None:
        """The offsets that tiered storage may have."""
        ...

    @property
    def first_dirty_offset(self) -> int | None:
        """The offset up to which the cleaner has compacted the log."""
        ...


class LostSegments:
    """Finds offsets between two segments of a log that are provably lost; see :mod:`kfs.log.missing`.

    It reads nothing until there is a gap between segments. Threads share it.
    """

    __slots__ = ("_log", "_searches", "_snapshots")

    def __init__(self, log: ListedLog) -> None:
        self._log = log
        self._searches: WeakKeyDictionary[Segment, _Search] | None = None
        self._snapshots: tuple[PartitionFiles, Sequence[int]] = (PartitionFiles(), ())

    def between(self, segment: Segment, gap: OffsetRange) -> OffsetRange | None:
        """Return the lost offsets of ``gap``, the offsets between the end of a segment and the next one.

        Offsets below the log start offset aren't lost, nor are offsets that tiered storage may have. If a file changes
        meanwhile, nothing is proven.

        Raises:
            SourceLost: the log's directory is gone.
        """
        log = self._log
        if not log.directory.is_whole or log.directory.name.kind is not DirectoryKind.CURRENT:
            return None
        start = log.log_start_offset
        if start >= gap.end:
            return None
        with suppress(CorruptData):
            is_tiered = log.remote is not None and log.remote.is_likely
            if not is_tiered and self._evidence(segment, gap) is Evidence.PROVEN:
                return OffsetRange(max(start, gap.start), gap.end)
        return None

    def _evidence(self, segment: Segment, gap: OffsetRange) -> Evidence:
        log = self._log
        segments, files = log.segments, log.files
        at = bisect_left(segments, segment.base_offset, key=lambda each: each.base_offset)
        is_there = segment in segments[at : at + 1] and segment.next_base_offset == gap.end
        is_last = at + 1 >= len(segments)  # recovery sets bounds of segments without those that follow
        if not is_there or is_last or len(segments) != len(files.segments):  # the log is changing
            return Evidence.NONE
        log_dir = log.directory.log_dir
        searches = self._searches
        if searches is None:
            searches = self._searches = WeakKeyDictionary()
        return evidence_of(
            Gap(at, gap),
            _LogWitness(segments, files, self._snapshot_offsets(files), searches),
            is_cleaned=log.first_dirty_offset is not None or log.topic in NEVER_TIERED,
            has_checkpoint=log_dir is not None and log_dir.has_checkpoint(CLEANER_OFFSET_CHECKPOINT),
        )

    def _snapshot_offsets(self, files: PartitionFiles) -> Sequence[int]:
        known, offsets = self._snapshots
        if known is not files:
            offsets = sorted(files.snapshots)
            self._snapshots = files, offsets
        return offsets


@dataclass(frozen=True, slots=True)
class _LogWitness:
    """The segments of a log as listed; see :class:`~kfs.log.missing.SegmentFacts`."""

    _segments: Sequence[Segment]
    files: PartitionFiles
    snapshots: Sequence[int]
    _searches: WeakKeyDictionary[Segment, _Search]

    def __len__(self) -> int:
        return len(self._segments)

    def segment(self, at: int) -> SegmentFiles:
        return self._segments[at].files

    def size(self, at: int) -> int:
        return self._segments[at].size()

    def has_holes(self, at: int) -> bool:
        segment = self._segments[at]
        return self._searches.setdefault(segment, _Search(segment.base_offset)).goes_on_in(segment)

    def has_record_batches(self, at: int) -> bool:
        """Whether the segment may hold record batches.

        Message formats only move forward, so the first batch of the next segment limits the format of this segment's
        last batch.
        """
        headers = (segment.header_at(0) for segment in self._segments[at : at + 2])
        return any(header is not None and header.magic >= MAGIC_V2 for header in headers)

    def epochs(self, at: int) -> tuple[int, int] | None:
        segment = self._segments[at]
        first, last = segment.header_at(0), _last_header(segment)
        if first is None or last is None or min(first.leader_epoch, last.leader_epoch) < 0:
            return None
        return first.leader_epoch, last.leader_epoch


def _last_header(segment: Segment) -> BatchHeader | None:
    header: BatchHeader | None = None
    for item in _quiet(segment).undecoded(*segment.position_before(MAX_INT64)):
        if isinstance(item, ScannedBatches):
            header = item.table.header(item.stop - 1)
        elif isinstance(item, Block):
            header = item.header
    return header


def _quiet(segment: Segment) -> BulkReader:
    """Return a reader that reports nothing, because readers of the records report the problems."""
    return segment.bulk_reader(_ignore, tells_missing=False)


def _ignore(problem: Problem) -> None:
    """Drop a problem: the reader also yields it as damage."""


class _Search:
    """Searches a segment for omitted offsets; until it finds some, it reads each byte only once.

    It checks CRCs, because a broken header proves nothing. It ignores gaps next to damage, because records may be lost
    there.
    """

    def __init__(self, base_offset: int) -> None:
        self._position = 0
        #: The expected next offset; None after damage.
        self._next: int | None = base_offset
        self._has_found = False
        self._lock: Final = Lock()

    def goes_on_in(self, segment: Segment) -> bool:
        """Whether the segment omits offsets, up to its current end."""
        with self._lock:
            if not self._has_found and self._position < segment.size():
                after = None if self._next is None else self._next - 1
                for item in _quiet(segment).undecoded(self._position, after):
                    self._has_found = self._is_at_hole(item, segment)
                    self._position = item.end
                    if self._has_found:
                        break
            return self._has_found

    def _is_at_hole(self, item: ScannedBatches | Block | Damage, segment: Segment) -> bool:
        if isinstance(item, Damage):
            self._next = self._next if item.lost is None else None
            return False
        if isinstance(item, ScannedBatches):
            table = item.table
            rows = range(item.first, item.stop)
            return any(
                self._leaves_out(table.base_offsets[at], table.last_offsets[at], table.counts[at]) for at in rows
            )
        header = item.header
        if header.record_count != UNKNOWN_COUNT:
            if item.is_trimmed:
                self._next = None
                return False
            return self._leaves_out(header.base_offset, header.last_offset, header.record_count)
        try:
            offsets = item.decode(segment.storage.decoder, segment.storage.max_batch_bytes).offsets
        except CorruptData:
            self._next = None
            return False
        return bool(offsets) and self._leaves_out(offsets[0], offsets[-1], len(offsets))

    def _leaves_out(self, first: int, last: int, count: int) -> bool:
        is_hole = count != last - first + 1 or (self._next is not None and first > self._next)
        self._next = last + 1
        return is_hole
