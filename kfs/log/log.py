"""One partition: its segments in order, and the offsets a reader sees."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

from kfs.errors import CorruptData
from kfs.format.aborted_transaction import AbortedTransaction, parse_aborted_transactions
from kfs.format.batch_header import BatchHeader
from kfs.format.checkpoint import EpochEntry, TopicPartition, parse_leader_epoch_checkpoint
from kfs.format.layout import MAX_INT64
from kfs.format.partition_metadata import PartitionMetadata, parse_partition_metadata
from kfs.format.producer_snapshot import ProducerStateEntry, parse_producer_snapshot
from kfs.log.block import Block, Damage
from kfs.log.log_dir import CLEANER_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kfs.log.open_files import FileChanged
from kfs.log.partition_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, PartitionDirectory
from kfs.log.problem import Problem, Problems
from kfs.log.segment import Segment
from kfs.log.segment_files import PartitionFiles, SegmentFiles
from kfs.log.side_file import read_side_file
from kfs.log.storage import LoadedBlock, Storage
from kfs.log.time_lookup import first_offset_at_or_after

#: How old, in seconds, what is known of a live directory may be.
LOOK_AGAIN_SECONDS: Final = 0.25
#: A directory changed this recently, in seconds, may change again within one tick of its clock.
_CLOCK_TICK_SECONDS: Final = 1.0
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from ``start`` up to, not including, ``end``."""

    start: int
    end: int

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end


@dataclass(frozen=True, slots=True)
class _Listing:
    """Segments and their base offsets, replaced as one: other threads may be reading."""

    segments: tuple[Segment, ...]
    bases: tuple[int, ...]


class Log:
    """A partition's log on the disk, followed as it changes.

    Nothing is read when it is made. ``until_high_watermark`` ends what is visible at the high
    watermark checkpoint, as for a consumer, instead of the end of the files.
    """

    def __init__(self, directory: PartitionDirectory, storage: Storage, *, until_high_watermark: bool = False) -> None:
        self.directory = directory
        self.topic = directory.name.topic
        self.partition = directory.name.partition
        self.storage = storage
        self.until_high_watermark = until_high_watermark
        self.problems = Problems()
        self.files = PartitionFiles()
        self._listing = _Listing((), ())
        #: Grows whenever a segment goes, or becomes another file: what was shown of it no longer holds.
        self.incarnation = 0
        self._looked = -1.0
        self._listed_mtime = (-1, False)
        self._refreshing = threading.Lock()

    # -- segments

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, by base offset; looked up again when the directory may have changed."""
        return self._current().segments

    def _current(self) -> _Listing:
        now = time.monotonic()
        if self._looked < 0 or now - self._looked >= LOOK_AGAIN_SECONDS:
            with self._refreshing:
                if self._looked < 0 or now - self._looked >= LOOK_AGAIN_SECONDS:  # nobody was faster
                    self._refresh()
                    self._looked = time.monotonic()
        return self._listing

    def _refresh(self) -> None:
        try:
            mtime_ns = os.stat(self.directory.path).st_mtime_ns
        except OSError:
            self._replace([])
            self._listed_mtime = (-1, False)
            return
        if self._listing.segments:
            self._notice_cut(self._listing.segments[-1])
        settled = time.time() - mtime_ns / 1e9 > _CLOCK_TICK_SECONDS
        if self._listed_mtime == (mtime_ns, True) and not any(segment.is_stale for segment in self._listing.segments):
            return
        self._listed_mtime = (mtime_ns, self._list() and settled)

    @staticmethod
    def _notice_cut(segment: Segment) -> None:
        with suppress(FileChanged):
            segment.file()

    def _list(self) -> bool:
        """List the directory; where that fails, what was known stays and False is returned."""
        try:
            self.files = self.directory.list(self._next_offset_of)
        except OSError as error:
            self.problems.add(Problem(self.directory.path, 0, 0, f"can't be listed: {error.strerror}"))
            return False
        known = {
            (segment.base_offset, segment.files.log): segment
            for segment in self._listing.segments
            if not segment.is_stale
        }
        segments = []
        for files in self.files.segments:
            segment = known.get((files.base_offset, files.log))
            if segment is None:
                self.problems.forget_file(files.log.path)
                segment = Segment(files, self.storage, self.problems)
            segment.files = files
            segments.append(segment)
        for segment, following in pairwise(segments):
            segment.next_base_offset = following.base_offset
        if segments:
            segments[-1].next_base_offset = None
        self._replace(segments)
        for orphan in self.files.orphans:
            self.problems.add(Problem(orphan.path, 0, 0, "an index without its .log"))
        return True

    def _replace(self, segments: list[Segment]) -> None:
        gone = any(segment not in segments for segment in self._listing.segments)
        self._listing = _Listing(tuple(segments), tuple(segment.base_offset for segment in segments))
        if gone:
            self.incarnation += 1

    def look_again(self) -> None:
        """Take nothing for granted at the next question: something was seen to change."""
        self._looked = -1.0

    def _next_offset_of(self, files: SegmentFiles) -> int:
        """The offset after the last record of a ``.swap`` segment (``LogSegment.readNextOffset``)."""
        try:
            return Segment(files, self.storage, self.problems).tail()[1]
        except CorruptData as error:
            self.problems.add_error(error)
            return files.base_offset

    def segment_for(self, offset: int) -> Segment | None:
        """Return the segment in whose range ``offset`` lies, None below the first."""
        listing = self._current()
        at = bisect_right(listing.bases, offset) - 1
        return listing.segments[at] if at >= 0 else None

    def index_of(self, segment: Segment) -> int | None:
        """Return where in :attr:`segments` a segment is, None where it isn't among them any more."""
        listing = self._current()
        at = bisect_left(listing.bases, segment.base_offset)
        return at if at < len(listing.segments) and listing.segments[at] is segment else None

    def size(self) -> int:
        """Return the bytes of all segments; one that can't be opened just now counts as none."""
        return sum(segment.size() for segment in self.segments)

    # -- offsets

    @property
    def topic_partition(self) -> TopicPartition:
        """The key in checkpoint files."""
        return TopicPartition(self.topic, self.partition)

    def _checkpointed(self, name: str) -> int | None:
        log_dir = self.directory.log_dir
        return None if log_dir is None else log_dir.checkpoint(name).get(self.topic_partition)

    @property
    def checkpointed_log_start_offset(self) -> int | None:
        """What the log start offset checkpoint says, None where it says nothing."""
        return self._checkpointed(LOG_START_OFFSET_CHECKPOINT)

    @property
    def high_watermark(self) -> int | None:
        """What the high watermark checkpoint says, None where it says nothing."""
        return self._checkpointed(HIGH_WATERMARK_CHECKPOINT)

    @property
    def first_dirty_offset(self) -> int | None:
        """How far the cleaner checkpoint says that the log is compacted, None where it says nothing of this log."""
        return self._checkpointed(CLEANER_OFFSET_CHECKPOINT)

    @property
    def log_end_offset(self) -> int:
        """The offset after the last intact batch; an empty last segment counts by its base offset."""
        segments = self.segments
        if not segments:
            return self.checkpointed_log_start_offset or 0
        try:
            return segments[-1].tail()[1]
        except FileChanged as error:
            self.problems.add_error(error)
        return segments[-1].base_offset

    @property
    def log_start_offset(self) -> int:
        """The greater of the checkpoint and the first base offset; a checkpoint above the log's end is a problem."""
        segments = self.segments
        first = segments[0].base_offset if segments else 0
        checkpoint = self.checkpointed_log_start_offset
        if checkpoint is None or checkpoint <= first:
            return first
        if segments and checkpoint > self.log_end_offset:
            assert self.directory.log_dir is not None
            path = os.path.join(self.directory.log_dir.path, LOG_START_OFFSET_CHECKPOINT)
            reason = f"log start offset {checkpoint} of {self.topic_partition} is above the log's end; ignored"
            self.problems.add(Problem(path, 0, 0, reason))
            return first
        return checkpoint

    def visible(self) -> OffsetRange:
        """The offsets that are listed: log start to log end, or to the high watermark if that was asked for."""
        end = self.log_end_offset
        if self.until_high_watermark and self.high_watermark is not None:
            end = min(end, self.high_watermark)
        start = self.log_start_offset
        return OffsetRange(start, max(start, end))

    def deleted(self) -> OffsetRange:
        """The offsets below the log start offset whose records are still on the disk (DeleteRecords)."""
        start = self.log_start_offset
        segments = self.segments
        return OffsetRange(min(segments[0].base_offset, start) if segments else start, start)

    # -- records

    def find(self, offset: int, *, keep: bool = True) -> LoadedBlock | None:
        """Return the decoded block that answers for ``offset``; see :meth:`Segment.find`."""
        segment = self.segment_for(offset)
        if segment is None:
            return None
        try:
            return segment.find(offset, keep=keep)
        except FileChanged:
            self.look_again()
            raise

    def locate(
        self,
        offset: int,
        visible: OffsetRange,
        *,
        hides: Callable[[BatchHeader], bool] | None = None,
        keep: bool = True,
    ) -> tuple[Segment, LoadedBlock, int] | None:
        """Return the segment, the decoded block and the index in it of the record at ``offset``.

        None where there is no such record among those that are ``visible``, it is a control record, or in a batch
        that a level of isolation ``hides``. Whoever has no more use for the block has the cache not ``keep`` it.

        Raises:
            CorruptData: it lies in damaged bytes.
        """
        if offset >= visible.end == self.log_end_offset and not self.until_high_watermark:
            self.find(offset)  # raises if damage at the log's end claims to hold it
        if offset not in visible:
            return None
        segment, loaded = self._found(offset, keep)
        if segment is None or loaded is None or loaded.header.is_control:
            return None
        if hides is not None and hides(loaded.header):
            return None
        columns = loaded.columns
        index = bisect_left(columns.offsets, offset)
        if index == len(columns) or columns.offsets[index] != offset:
            return None
        if index in columns.faults:
            raise columns.faults[index].located(loaded.file, loaded.header.position)
        return segment, loaded, index

    def _found(self, offset: int, keep: bool) -> tuple[Segment | None, LoadedBlock | None]:
        """Return a segment and the block in it: what was found in one incarnation is never taken for the next one's."""
        while True:
            segment = self.segment_for(offset)
            loaded = self.find(offset, keep=keep)
            if self.segment_for(offset) is segment:
                return segment, loaded

    def walk(self, offsets: OffsetRange) -> Iterator[tuple[Segment, Block | Damage]]:
        """Yield, segment by segment, every block and damage that may hold some of ``offsets``.

        A segment that vanishes meanwhile is left behind; one that was cut is a problem.
        """
        listing = self._current()
        start = max(bisect_right(listing.bases, offsets.start) - 1, 0)
        for segment in listing.segments[start:]:
            if segment.base_offset >= offsets.end:
                return
            try:
                for item in segment.walk_from(offsets.start):
                    if isinstance(item, Block):
                        if item.header.base_offset >= offsets.end and item.header.record_count >= 0:
                            return
                        if item.header.last_offset < offsets.start and item.header.last_offset:
                            continue
                    elif item.before <= offsets.start:
                        continue
                    yield segment, item
            except FileChanged as error:
                if os.path.exists(segment.files.log.path):
                    self.problems.add_error(error)

    def offset_for_time(self, timestamp: int, offsets: OffsetRange) -> int | None:
        """Return the lowest of ``offsets`` whose record's timestamp is at or after ``timestamp`` (milliseconds)."""
        for segment in self.segments:
            if segment.base_offset >= offsets.end:
                break
            if segment.next_base_offset is not None and segment.next_base_offset <= offsets.start:
                continue
            found = first_offset_at_or_after(segment, timestamp, offsets.start)
            if found is not None:
                return found if found < offsets.end else None
        return None

    # -- what lies beside the segments

    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        """Return ``leader-epoch-checkpoint``; empty where it is missing or, which is a problem, unreadable."""
        return self._side_file(LEADER_EPOCH_CHECKPOINT, parse_leader_epoch_checkpoint) or ()

    def partition_metadata(self) -> PartitionMetadata | None:
        """Return ``partition.metadata``; None where it is missing or, which is a problem, unreadable."""
        return self._side_file(PARTITION_METADATA, parse_partition_metadata)

    def producer_snapshots(self, *, newest_first: bool = False) -> Iterator[tuple[int, tuple[ProducerStateEntry, ...]]]:
        """Yield the offset and the producers of each ``.snapshot`` that can be read, in offset order."""
        _ = self.segments
        for offset, found in sorted(self.files.snapshots.items(), reverse=newest_first):
            entries = self._side_file(os.path.basename(found.path), parse_producer_snapshot)
            if entries is not None:
                yield offset, entries

    def aborted_transactions(self) -> Iterator[tuple[Segment, AbortedTransaction]]:
        """Yield the entries of every ``.txnindex`` that can be read, in the order of their markers."""
        for segment in self.segments:
            found = segment.files.txnindex
            if found is not None:
                parse = partial(parse_aborted_transactions, base_offset=segment.base_offset)
                for entry in self._side_file(os.path.basename(found.path), parse) or ():
                    yield segment, entry

    def _side_file(self, name: str, parse: Callable[[bytes], Parsed]) -> Parsed | None:
        path = os.path.join(self.directory.path, name)
        try:
            return read_side_file(path, parse)
        except CorruptData as error:
            self.problems.add_error(error)
            return None

    def last_leader_epoch(self) -> int:
        """The leader epoch of the log's end, from the checkpoint or else its last batch; -1: not known."""
        epochs = self.leader_epochs()
        if epochs:
            return epochs[-1].epoch
        epoch = -1
        for segment in self.segments[-1:]:
            for item in segment.walk_from(MAX_INT64):
                if isinstance(item, Block):
                    epoch = item.header.leader_epoch
        return epoch

    def standing(self) -> tuple[int, int, int]:
        """What to choose between copies by: the greatest is the one that a broker would go by.

        The last leader epoch counts first, then the log's end, as in an election; then who has more behind that.
        """
        return self.last_leader_epoch(), self.log_end_offset, -self.log_start_offset
