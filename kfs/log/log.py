"""One partition: its segments in order, and the offsets visible to a reader."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar, cast

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader
from kfs.format.checkpoint import EpochEntry, TopicPartition, parse_leader_epoch_checkpoint
from kfs.format.layout import MAX_INT64
from kfs.format.partition_metadata import PartitionMetadata, parse_partition_metadata
from kfs.log.block import Block, Damage
from kfs.log.completion import OtherCopies
from kfs.log.directory_name import NEVER_TIERED, DirectoryKind
from kfs.log.log_dir import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kfs.log.log_segments import MOST_LOOKS, LogSegments
from kfs.log.offset_range import OffsetRange
from kfs.log.partition_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, PartitionDirectory
from kfs.log.problem import Problem, Problems
from kfs.log.segment import Segment
from kfs.log.span import Span
from kfs.log.storage import LoadedBlock, Storage
from kfs.storage.open_files import FileChanged, GoneForGood
from kfs.storage.side_file import read_side_file

if TYPE_CHECKING:
    from kfs.format.aborted_txn import AbortedTxn
    from kfs.format.producer_snapshot import ProducerStateEntry
    from kfs.log.lost_segments import LostSegments
    from kfs.log.remote_offsets import RemoteOffsets, Tier

Parsed = TypeVar("Parsed")
#: Offsets in remote storage: not determined yet.
_NOT_LOOKED: Final = ((-1, None), None)


class Log(LogSegments):
    """A partition's log on disk, followed as it changes.

    Creating it reads nothing. With ``until_high_watermark``, visible offsets end at the high watermark checkpoint, as
    for a consumer, instead of the end of the files. ``tier`` is called if the offsets at the start of the log aren't
    here; without it nothing is known of tiered storage. ``copies`` is consulted if records are lost. Problems go to
    ``problems``.
    """

    __slots__ = ("_frozen_files", "_lost_segments", "_remote", "_tier", "until_high_watermark")

    def __init__(
        self,
        directory: PartitionDirectory,
        storage: Storage,
        *,
        until_high_watermark: bool = False,
        tier: Callable[[PartitionDirectory], Tier] | None = None,
        copies: OtherCopies | None = None,
        problems: Problems | None = None,
    ) -> None:
        super().__init__(directory, storage, copies, problems)
        self.until_high_watermark = until_high_watermark
        self._tier = tier
        #: The result, with the first base offset and the checkpoint that it is valid for.
        self._remote: tuple[tuple[int, int | None], RemoteOffsets | None] = _NOT_LOOKED
        self._frozen_files: dict[str, object] = {}
        self._lost_segments: LostSegments | None = None

    def freeze(self) -> None:
        """Show only what is there now, from now on; what the broker removes of it later is gone for good.

        Segments keep their present bounds, and so do the checkpoint files if the log directory is frozen, too. No other
        thread may use the log yet.

        If the directory or its active segment can't be read now, it is lost, as :attr:`segments` says.
        """
        if self.is_frozen:
            return
        super().freeze()
        self.leader_epochs()
        self.partition_metadata()
        for _ in self.aborted_transactions_in(self._listing.segments[-1:]):
            pass

    def _found_again(self) -> None:
        self._remote = _NOT_LOOKED

    def _lost_between(self, segment: Segment, gap: OffsetRange) -> OffsetRange | None:
        if self._lost_segments is None:
            from kfs.log.lost_segments import LostSegments  # only here: most logs have no gaps

            self._lost_segments = LostSegments(self)
        return self._lost_segments.between(segment, gap)

    # -- offsets

    @property
    def topic_partition(self) -> TopicPartition:
        """The log's key in checkpoint files."""
        return TopicPartition(self.topic, self.partition)

    def _checkpointed(self, name: str) -> int | None:
        log_dir = self.directory.log_dir
        return None if log_dir is None else log_dir.checkpoint(name).get(self.topic_partition)

    @property
    def checkpointed_log_start_offset(self) -> int | None:
        """The offset in the log start offset checkpoint, or None if it has no entry."""
        return self._checkpointed(LOG_START_OFFSET_CHECKPOINT)

    @property
    def high_watermark(self) -> int | None:
        """The offset in the high watermark checkpoint, or None if it has no entry."""
        return self._checkpointed(HIGH_WATERMARK_CHECKPOINT)

    @property
    def first_dirty_offset(self) -> int | None:
        """The offset in the cleaner checkpoint, below which the log is compacted; None if it has no entry."""
        return self._checkpointed(CLEANER_OFFSET_CHECKPOINT)

    @property
    def recovery_point(self) -> int | None:
        """The offset in the recovery point checkpoint, up to which the log is flushed; None if it has no entry."""
        return self._checkpointed(RECOVERY_POINT_CHECKPOINT)

    @property
    def log_end_offset(self) -> int:
        """The offset after the last intact batch, or the base offset of an empty last segment."""
        listing = self._current()
        if self._frozen_end is not None:
            return self._frozen_end
        for looks in count(1):
            if not listing.spans:
                return self.checkpointed_log_start_offset or 0
            try:
                return max(listing.bases[-1], listing.spans[-1].segment.tail()[1])
            except CorruptData as error:
                if not isinstance(error, FileChanged) or looks >= MOST_LOOKS:
                    self.problems.add_error(error)
                    break
            listing = self._current()  # the current listing
        return listing.bases[-1]

    @property
    def log_start_offset(self) -> int:
        """The greater of the checkpoint and the first base offset; a checkpoint above the log end offset is a problem.

        Missing offsets between a lower checkpoint and the first base offset are a problem too, unless they are known to
        be deleted: see :attr:`remote`.
        """
        segments = self.segments
        first = segments[0].base_offset if segments else 0
        checkpoint = self.checkpointed_log_start_offset
        if checkpoint is None or checkpoint <= first:
            self._look_for_remote(first, checkpoint)
            return first
        if segments and checkpoint > self.log_end_offset:
            assert self.directory.log_dir is not None
            path = os.path.join(self.directory.log_dir.path, LOG_START_OFFSET_CHECKPOINT)
            reason = f"log start offset {checkpoint} of {self.topic_partition} is above the log's end; ignored"
            self.problems.add(Problem(path, 0, 0, reason))
            return first
        return checkpoint

    @property
    def remote(self) -> RemoteOffsets | None:
        """The offsets between the log start offset and the first segment here, or None if there are none.

        The checkpoint has the log start offset. It has an entry for every tiered log. For other logs it has one only
        while the log start offset is above the first base offset (``LogManager.checkpointLogStartOffsetsInDir``). In a
        directory without checkpoint files, the start offset of the first leader epoch takes its place.
        """
        _ = self.log_start_offset
        return self._remote[1]

    def _look_for_remote(self, first: int, checkpoint: int | None) -> None:
        if self._remote[0] == (first, checkpoint):
            return
        found = self._find_remote(first, checkpoint) if first and self.topic not in NEVER_TIERED else None
        if self._remote[1] is not None:
            self.problems.forget_file(self.directory.path)
        self._remote = (first, checkpoint), found
        if found is not None:
            self.problems.add(found.problem())

    def has_all_from(self, first: int) -> bool:
        """Whether the checkpoint alone tells that :attr:`remote` is None if ``first`` is the first base offset."""
        if not first or self.topic in NEVER_TIERED:
            return True
        checkpoint = self.checkpointed_log_start_offset
        if checkpoint is not None:
            return checkpoint >= first
        return bool(self._checkpoint_of_starts())

    def _checkpoint_of_starts(self) -> Mapping[TopicPartition, int]:
        log_dir = self.directory.log_dir
        return {} if log_dir is None else log_dir.checkpoint(LOG_START_OFFSET_CHECKPOINT)

    def _find_remote(self, first: int, checkpoint: int | None) -> RemoteOffsets | None:
        if (
            not self.directory.is_whole or self.directory.name.kind is not DirectoryKind.CURRENT
        ):  # some files, or an older log
            return None
        start = checkpoint
        if start is None and not self._checkpoint_of_starts():
            start = next((entry.start_offset for entry in self.leader_epochs()), None)
        if start is None or not 0 <= start < first:
            return None
        from kfs.log.remote_offsets import RemoteOffsets, Tier  # only here: few logs lack offsets

        tier = Tier.UNKNOWN if self._tier is None else self._tier(self.directory)
        if tier is Tier.NONE:
            return None
        return RemoteOffsets(start, first, self.directory.path, tier)

    def visible(self) -> OffsetRange:
        """The listed offsets: from the log start offset to the log end offset, or to the high watermark on request."""
        end = self.log_end_offset
        if self.until_high_watermark and self.high_watermark is not None:
            end = min(end, self.high_watermark)
        start = self.log_start_offset
        return OffsetRange(start, max(start, end))

    def deleted(self) -> OffsetRange:
        """The offsets below the log start offset whose records are still on disk (DeleteRecords)."""
        start = self.log_start_offset
        segments = self.segments
        return OffsetRange(min(segments[0].base_offset, start) if segments else start, start)

    # -- records

    def find(self, offset: int) -> LoadedBlock | None:
        """Return the decoded block that covers ``offset``; see :meth:`Segment.find`."""
        return self.find_with_segment(offset)[1]

    def find_with_segment(
        self, offset: int, *, keep: bool = True, shows: Callable[[Segment, BatchHeader], bool] | None = None
    ) -> tuple[Segment | None, LoadedBlock | None]:
        """Return the segment and the block in it that cover ``offset``, if ``shows`` accepts the block.

        It never returns a block of one segment incarnation for another. With ``keep`` the cache keeps the block. It
        raises the errors of :meth:`Segment.find`.
        """
        for looks in count(1):
            segment = self.segment_for(offset)
            try:
                loaded = segment.find(offset, keep=keep) if segment is not None else None
                if shows is not None and segment is not None and loaded is not None:
                    loaded = loaded if shows(segment, loaded.header) else None
            except FileChanged:
                if looks >= MOST_LOOKS:
                    raise
                continue
            if self.segment_for(offset) is segment:
                return segment, loaded
        raise AssertionError

    def walk(self, offsets: OffsetRange) -> Iterator[tuple[Segment, Block | Damage]]:
        """Yield, segment by segment, every block and damage that may hold some of ``offsets``.

        If a segment disappears or becomes another file, the walk continues in the current segments, after what it has
        already yielded. If a batch there overlaps that point, its block covers only the rest.
        """
        reached = 0
        for span, item in self.walk_spans(offsets):
            if isinstance(item, Block):
                item.after = max(item.after, reached - 1)
                reached = max(reached, min(item.header.last_offset + 1, item.before))
            yield span.segment, item

    def walk_spans(self, offsets: OffsetRange) -> Iterator[tuple[Span, Block | Damage]]:
        """Like :meth:`walk`, with the segment's span: offsets of a block outside the span don't count."""
        reached, looks = offsets.start, 0
        while (span := self.span_from(reached)) is not None and span.start < offsets.end:
            segment, start, end = span
            if start < reached:  # a block of messages may have been several before, and some of them already yielded
                span, start = Span(segment, reached, end), reached
            end = MAX_INT64 if end is None else end
            try:
                for item in segment.walk_from(start):
                    if isinstance(item, Block):
                        header = item.header
                        if header.base_offset >= offsets.end and header.record_count >= 0:
                            return
                        if header.base_offset >= end and header.record_count >= 0:
                            break
                        if header.last_offset < start and (header.last_offset or header.record_count != UNKNOWN_COUNT):
                            continue
                        yield span, item
                        reached = start = max(start, min(header.last_offset + 1, item.before, end))
                    elif (item.before > start or item.after >= start - 1) and item.after < end:
                        yield span, item
            except CorruptData as error:
                looks += 1
                if isinstance(error, GoneForGood):
                    raise
                if isinstance(error, FileChanged) and looks < MOST_LOOKS:
                    continue
                self.problems.add_error(error)
            looks = 0
            if span.end is None:
                return
            reached = max(reached, span.end)

    def offset_for_time(self, timestamp: int, offsets: OffsetRange) -> int | None:
        """Return the lowest of ``offsets`` whose record's timestamp is at or after ``timestamp`` (milliseconds)."""
        from kfs.log.time_lookup import first_offset_at_or_after  # a local import: few commands look up a time

        for segment, start, end in self.spans:
            if start >= offsets.end:
                break
            if end is not None and end <= offsets.start:
                continue
            found = first_offset_at_or_after(segment, timestamp, max(start, offsets.start))
            if found is not None and (end is None or found < end):
                return found if found < offsets.end else None
        return None

    # -- the other files of the partition

    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        """Return ``leader-epoch-checkpoint``; empty if it is missing or unreadable; the latter is a problem."""
        return self._side_file(LEADER_EPOCH_CHECKPOINT, parse_leader_epoch_checkpoint) or ()

    def partition_metadata(self) -> PartitionMetadata | None:
        """Return ``partition.metadata``; None if it is missing or unreadable; the latter is a problem."""
        return self._side_file(PARTITION_METADATA, parse_partition_metadata)

    def producer_snapshots(self, *, newest_first: bool = False) -> Iterator[tuple[int, tuple[ProducerStateEntry, ...]]]:
        """Yield the offset and the producers of each readable ``.snapshot``, in offset order."""
        from kfs.format.producer_snapshot import parse_producer_snapshot  # only here: readers of records need none

        _ = self.segments
        for offset, found in sorted(self.files.snapshots.items(), reverse=newest_first):
            entries = self._side_file(os.path.basename(found.path), parse_producer_snapshot)
            if entries is not None:
                yield offset, entries

    def aborted_transactions(self) -> Iterator[tuple[Segment, AbortedTxn]]:
        """Yield the entries of every readable ``.txnindex``, in the order of their markers."""
        yield from self.aborted_transactions_in(self.segments)

    def aborted_transactions_in(self, segments: Sequence[Segment]) -> Iterator[tuple[Segment, AbortedTxn]]:
        """Yield the entries of the ``.txnindex`` of some segments."""
        from kfs.format.aborted_txn import parse_aborted_transactions  # only here: readers of records need none

        for segment in segments:
            found = segment.files.txnindex
            if found is not None:
                parse = partial(parse_aborted_transactions, base_offset=segment.base_offset)
                for entry in self._side_file(os.path.basename(found.path), parse) or ():
                    yield segment, entry

    def _side_file(self, name: str, parse: Callable[[bytes], Parsed]) -> Parsed | None:
        path = os.path.join(self.directory.path, name)
        if name in self._frozen_files:
            return cast("Parsed | None", self._frozen_files[name])
        found: Parsed | None = None
        try:
            found = read_side_file(path, parse)
        except CorruptData as error:
            self.problems.add_error(error)
        if self.is_frozen:
            self._frozen_files[name] = found
        return found

    def last_leader_epoch(self) -> int:
        """The leader epoch at the end of the log, from the checkpoint or else the last batch; -1 if unknown."""
        epochs = self.leader_epochs()
        if epochs:
            return epochs[-1].leader_epoch
        for _ in range(MOST_LOOKS):
            with suppress(FileChanged):  # lost records at the end may now come from another copy
                return self._last_epoch_in_batches()
            self.look_again()
        return self._last_epoch_in_batches()

    def _last_epoch_in_batches(self) -> int:
        epoch = -1
        for segment in self.segments[-1:]:
            for item in segment.walk_from(MAX_INT64):
                if isinstance(item, Block):
                    epoch = item.header.leader_epoch
        return epoch

    def standing(self) -> tuple[int, int, int]:
        """The rank of this copy: a broker would follow the copy with the greatest one.

        As in an election, the last leader epoch counts first, then the log end offset. If both are equal, the copy with
        the lowest log start offset wins.
        """
        return self.last_leader_epoch(), self.log_end_offset, -self.log_start_offset
