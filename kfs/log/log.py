"""One partition: its segments in order, and the offsets visible to a reader."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeVar, cast
from weakref import ref

from kfs.errors import CorruptData, SourceLost
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader
from kfs.format.checkpoint import EpochEntry, TopicPartition, parse_leader_epoch_checkpoint
from kfs.format.layout import MAX_INT64
from kfs.format.partition_metadata import PartitionMetadata, parse_partition_metadata
from kfs.log.block import Block, Damage
from kfs.log.completion import Completion, OtherCopies
from kfs.log.directory_name import NEVER_TIERED, DirectoryKind
from kfs.log.incarnation import DirectoryIncarnation
from kfs.log.kept_segments import KeptSegments
from kfs.log.log_changes import LogChanges
from kfs.log.log_dir import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kfs.log.offset_range import OffsetRange
from kfs.log.partition_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, PartitionDirectory
from kfs.log.problem import Problem, ProblemKind, Problems
from kfs.log.segment import Segment, SegmentHooks
from kfs.log.segment_files import PartitionFiles, SegmentFiles
from kfs.log.span import DeletedSegments, Span, consecutive_spans
from kfs.log.storage import LoadedBlock, SegmentHolder, Storage
from kfs.storage.open_files import FileChanged, GoneForGood, Patched
from kfs.storage.side_file import read_side_file
from kfs.storage.status import Status, status_at

if TYPE_CHECKING:
    from kfs.format.aborted_txn import AbortedTxn
    from kfs.format.producer_snapshot import ProducerStateEntry
    from kfs.log.lost_segments import LostSegments
    from kfs.log.remote_offsets import RemoteOffsets, Tier

#: Maximum age, in seconds, of the cached listing of a live directory.
LOOK_AGAIN_SECONDS: Final = 0.25
#: A directory changed this recently, in seconds, may change again within one tick of the file system's clock.
_CLOCK_TICK_SECONDS: Final = 1.0
#: How often a lookup is retried if its target changes meanwhile.
MOST_LOOKS: Final = 8
Parsed = TypeVar("Parsed")
#: The reason why a completed segment becomes a new incarnation.
_COMPLETED: Final = "its lost offsets are read from another copy"
#: Offsets in remote storage: not determined yet.
_NOT_LOOKED: Final = ((-1, None), None)


class _Listing(NamedTuple):
    """Segments and their base offsets, replaced as a whole because other threads may be reading."""

    segments: tuple[Segment, ...]
    bases: tuple[int, ...]
    spans: tuple[Span, ...]
    starts: tuple[int, ...]
    files: PartitionFiles

    @classmethod
    def of(cls, segments: Sequence[Segment], spans: tuple[Span, ...], files: PartitionFiles) -> _Listing:
        bases = tuple(segment.base_offset for segment in segments)
        return cls(tuple(segments), bases, spans, tuple(span.start for span in spans), files)


#: The listing of a log that was let go: it is never handed out.
_LET_GO: Final = _Listing((), (), (), (), PartitionFiles())


class Log:
    """A partition's log on disk, followed as it changes.

    Creating it reads nothing. With ``until_high_watermark``, visible offsets end at the high watermark checkpoint, as
    for a consumer, instead of the end of the files. ``tier`` is called if the offsets at the start of the log aren't
    here; without it nothing is known of tiered storage. ``copies`` is consulted if records are lost. Problems go to
    ``problems``.
    """

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
        self.directory = directory
        self.topic = directory.name.topic
        self.partition = directory.name.partition
        self.storage = storage
        self.until_high_watermark = until_high_watermark
        fields = {"topic": self.topic, "partition": self.partition}
        self.problems = Problems(counts=storage.problems, fields=fields) if problems is None else problems
        self.changes = LogChanges(directory, storage.changes, fields)
        self._listing = _Listing((), (), (), (), PartitionFiles())
        #: What is kept of the segments while the listing is let go.
        self._kept: KeptSegments | None = None
        self._dependents: tuple[ref[SegmentHolder], ...] = ()
        self._deleted_segments = DeletedSegments() if directory.is_of_deleted else None
        #: Increases whenever a segment disappears or becomes another file. Results from it are then invalid.
        self.incarnation = 0
        #: Whether the segments may already be those of the next incarnation.
        self.is_changing = False
        self._looked = -1.0
        #: ``_asked`` is a new object whenever the directory must be checked again, even if a check is already running.
        self._asked, self._answered = object(), object()
        self._listed_mtime = (-1, False)
        self._incarnation = DirectoryIncarnation()
        self._refreshing = threading.Lock()
        self._refreshing_thread = -1
        self._tier = tier
        #: The result, with the first base offset and the checkpoint that it is valid for.
        self._remote: tuple[tuple[int, int | None], RemoteOffsets | None] = _NOT_LOOKED
        self._is_lost = False
        #: Whether only what was there at one moment is shown; and if it couldn't be read then, why.
        self.is_frozen = False
        self._lost_then = ""
        self._frozen_end: int | None = None
        self._frozen_files: dict[str, object] = {}
        self._completion = Completion(copies, storage, self.problems.level, fields)
        self._lost_segments: LostSegments | None = None
        self._made_hooks: SegmentHooks | None = None

    @property
    def _hooks(self) -> SegmentHooks:
        """How segments ask this log and tell it; made with the first of them."""
        hooks = self._made_hooks
        if hooks is None:
            hooks = SegmentHooks(self.look_again, self._look_now, self._note_loss, self._lost_between)
            self._made_hooks = hooks
        return hooks

    def other_copies(self) -> Sequence[PartitionDirectory]:
        """Return the directories of the copies that can complete this one."""
        return self._completion.others()

    # -- segments

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments by base offset; listed again if the directory may have changed.

        Raises:
            SourceLost: the directory can't be listed, or its log directory is gone.
            Shortage: no descriptor is available.
        """
        return self._current().segments

    @property
    def files(self) -> PartitionFiles:
        """All files of the directory as last listed by :attr:`segments`; empty before that."""
        listing = self._listing
        return self._current().files if listing is _LET_GO else listing.files

    @property
    def spans(self) -> tuple[Span, ...]:
        """The segments with the offsets that they answer for, in order; the errors are those of :attr:`segments`."""
        return self._current().spans

    @property
    def can_be_listed(self) -> bool:
        """Whether the directory can be listed; if not, the problems and the error of :attr:`segments` say why."""
        try:
            _ = self._current()
        except SourceLost:
            return False
        return True

    def _current(self) -> _Listing:
        now = time.monotonic()
        if self._lost_then:
            raise SourceLost(self._lost_then)
        listing = self._listing  # first: a log that is let go is out of date before its listing goes
        if self._is_out_of_date(now):
            with self._refreshing:
                if self._is_out_of_date(now):  # no other thread refreshed it meanwhile
                    asked, self._refreshing_thread = self._asked, threading.get_ident()
                    try:
                        self._refresh()
                    finally:
                        self._refreshing_thread = -1
                    self._looked, self._answered = time.monotonic(), asked
                listing = self._listing
            self.storage.listed.note(self, len(listing.segments))
        return listing

    def let_go(self) -> None:
        """Let go of the segments, which are listed again at the next query, and then are the same as before.

        Segments of which more is known than can be kept stay, and so does a log that another thread is refreshing, or
        one that is frozen.
        """
        if self.is_frozen or self._deleted_segments is not None or not self._refreshing.acquire(blocking=False):
            return
        try:
            segments = self._listing.segments
            kept = KeptSegments.of(self.directory.path, segments)
            if kept is None or self._listing is _LET_GO:
                return
            self.look_again()
            self._kept, self._listing, self._made_hooks = kept, _LET_GO, None
            in_use = [ref(segment) for segment in segments]
            segment: Segment | None = None
            for segment in segments:
                segment.let_go()
            del segments, segment
            for each in self._dependents:
                if (dependent := each()) is not None:
                    dependent.let_go()
            kept.note_in_use(in_use)
        finally:
            self._refreshing.release()

    def note_dependent(self, dependent: SegmentHolder) -> None:
        """Have ``dependent`` let go of what it knows of the segments whenever the log does."""
        self._dependents = (*(each for each in self._dependents if each() is not None), ref(dependent))

    def is_as_let_go(self) -> bool:
        """Whether the segments were let go, and neither they nor their directory have changed since.

        Some changes to files that were never read don't count. It lists nothing.
        """
        kept = self._kept
        if kept is None:
            return False
        try:
            status = status_at(self.directory.path)
        except OSError:
            return False
        is_same = self._incarnation.has_number_of(status) and self._listed_mtime == (status.mtime_ns, True)
        return is_same and kept.are_unchanged() and self._kept is kept

    def _resume(self, kept: KeptSegments) -> None:
        """Take up the segments that were kept; the directory has to be listed for their other files."""
        make = partial(Segment, storage=self.storage, problems=self.problems, hooks=self._hooks)
        segments = tuple(kept.segments(lambda files, slot: make(files, slot=slot)))
        for segment, following in pairwise(segments):
            segment.next_base_offset = following.base_offset
        self._listing = _Listing.of(segments, consecutive_spans(segments), PartitionFiles())
        self._listed_mtime = (-1, False)
        self._kept = None

    def _is_out_of_date(self, now: float) -> bool:
        if self.is_frozen:
            return False
        return self._answered is not self._asked or now - self._looked >= LOOK_AGAIN_SECONDS

    def _refresh(self) -> None:
        if self._kept is not None:
            self._resume(self._kept)
        try:
            status = status_at(self.directory.path)
        except (FileNotFoundError, NotADirectoryError):
            self.directory.check_source()
            self._replace([], PartitionFiles())
            self._listed_mtime = (-1, False)
            return
        except OSError as error:
            self._lose(error)
        if self._listing.segments:
            self._notice_cut(self._listing.segments[-1])
        mtime_ns, is_same = status.mtime_ns, self._incarnation.has_number_of(status)
        is_stale = any(segment.is_stale for segment in self._listing.segments)
        if is_same and self._listed_mtime == (mtime_ns, True) and not is_stale:
            return
        self._listed_mtime = (-1, False)
        self._listed_mtime = (mtime_ns, self._list(status))

    @property
    def renamed_ns(self) -> int:
        """When a file was last added to or removed from the directory, in nanoseconds; 0 if the directory is gone."""
        try:
            return status_at(self.directory.path).mtime_ns
        except OSError:
            return 0

    def _lose(self, error: OSError) -> NoReturn:
        """Report that the directory can't be listed, and raise: what was known of it is no longer valid."""
        self._is_lost = True
        reason = f"can't be listed: {error.strerror}"
        self.problems.add(Problem(self.directory.path, 0, 0, reason, ProblemKind.SOURCE_LOST))
        raise SourceLost(f"{self.directory.path}: {reason}") from None

    @staticmethod
    def _notice_cut(segment: Segment) -> None:
        with suppress(CorruptData):
            segment.file()

    def _list(self, status: Status) -> bool:
        """List the directory after its ``status`` was read; return whether it wasn't changing meanwhile."""
        try:
            files_found, is_settled = self._found(status.mtime_ns)
        except FileNotFoundError:  # gone just now: the next refresh treats it as missing
            self.directory.check_source()
            files_found, is_settled = PartitionFiles(), False
        except OSError as error:
            self._lose(error)
        if self._is_lost:
            self._is_lost = False
            self.problems.forget_file(self.directory.path)
            self._remote = _NOT_LOOKED  # that call also dropped its problem
        for listed in self._listing.segments:
            listed.notice_change()
        before = {segment.files.key: segment for segment in self._listing.segments}
        is_another = self._incarnation.is_another(status, os.path.join(self.directory.path, PARTITION_METADATA))
        if is_another:
            for files in files_found.segments:
                if (same_number := before.get(files.key)) is not None:
                    same_number.end("another file has its path and inode number")
            before = {}
        known = {key: segment for key, segment in before.items() if not segment.is_stale}
        segments = []
        for files in files_found.segments:
            segment = known.get(files.key)
            if segment is None:
                was = before.get(files.key)
                segment = self._new_segment(files, was)
                self._tell_cut(files, was=was, is_last=files is files_found.segments[-1])
            segment.files = files if segment.patch is None else _without_index(files)
            segments.append(segment)
        self._replace(segments, files_found, is_another=is_another)
        if self._completes_gaps():
            return self._list(status)
        for orphan in files_found.orphans if is_settled else ():
            self.problems.add(Problem(orphan.path, 0, 0, "an index without its .log", ProblemKind.INDEX))
        return is_settled

    def freeze(self) -> None:
        """Show only what is there now, from now on; what the broker removes of it later is gone for good.

        Segments keep their present bounds, and so do the checkpoint files if the log directory is frozen, too. No other
        thread may use the log yet.

        If the directory or its active segment can't be read now, it is lost, as :attr:`segments` says.
        """
        if self.is_frozen:
            return
        last: Segment | None = None
        try:
            last = self._freeze_segments()
        except (SourceLost, CorruptData) as error:
            self._lost_then = str(error)
        self.is_frozen = True
        self.leader_epochs()
        self.partition_metadata()
        for _ in self.aborted_transactions_in(() if last is None else (last,)):
            pass

    def _freeze_segments(self) -> Segment | None:
        """Have all segments keep their bounds; return the active one, None if there is none."""
        for looks in count(1):
            self.look_again()
            segments = self.segments
            try:
                last = segments[-1].bounded() if segments else None
            except FileChanged:
                if looks >= MOST_LOOKS:
                    raise
                continue
            if last is not None:
                segments = (*segments[:-1], last)
                self._frozen_end = max(last.base_offset, last.tail()[1])
                self._listing = self._listing._replace(segments=segments, spans=consecutive_spans(list(segments)))
            for segment in segments:
                segment.is_frozen = True
            return last
        raise AssertionError

    def _new_segment(self, files: SegmentFiles, was: Segment | None) -> Segment:
        self.problems.forget_file(files.log.path)
        if was is not None and was.patch is not None:
            self._completion.forget(files)
        healed = self._completion.of(files)
        if healed is None:
            return Segment(files, self.storage, self.problems, self._hooks)
        for problem in healed.problems:
            self.problems.add(problem, is_settled=True)
        hooks = self._hooks._replace(on_loss=lambda _segment: None)  # what is lost now is lost in all copies
        return Segment(files, self.storage, self.problems, hooks, patch=healed.patch, is_frozen=self.is_frozen)

    def _note_loss(self, segment: Segment) -> None:
        """Search other copies for the lost records of a segment, once for all current segments.

        Raises:
            Patched: something was found, and the segment will be read with it from now on.
        """
        if self._refreshing_thread != threading.get_ident():
            _ = self._current()  # it may have been let go
        there = self._listing.segments
        completed = self._completion.look(segment.files.key, [each.files.key for each in there])
        for each in there:
            if (healed := completed.get(each.files.key)) is not None and each.patch != healed.patch:
                each.end(_COMPLETED, Patched)
        if segment.files.key not in completed:
            return
        segment.end(_COMPLETED, Patched)
        self.look_again()
        if self.is_frozen:
            self._replace_completed()
        raise Patched(_COMPLETED, 0, segment.files.log.path)

    def _lost_between(self, segment: Segment, gap: OffsetRange) -> OffsetRange | None:
        if self._lost_segments is None:
            from kfs.log.lost_segments import LostSegments  # only here: most logs have no gaps

            self._lost_segments = LostSegments(self)
        return self._lost_segments.between(segment, gap)

    def _replace_completed(self) -> None:
        """Replace the segments of a frozen log that are read with a patch from now on."""
        with self._refreshing:
            there = self._listing.segments
            is_completed = [each.is_stale and self._completion.of(each.files) is not None for each in there]
            if any(is_completed):
                self._replace(
                    [
                        self._new_segment(each.files, each) if is_new else each
                        for each, is_new in zip(there, is_completed, strict=True)
                    ],
                    self._listing.files,
                )

    def complete(self, paths: Collection[str]) -> None:
        """Search other copies for the lost records of the segments whose ``.log`` is among ``paths``.

        The outcome is among the problems.
        """
        for segment in self.segments:
            if segment.files.log.path in paths and segment.patch is None:
                with suppress(CorruptData):
                    self._note_loss(segment)
        _ = self.segments

    def _completes_gaps(self) -> bool:
        """Whether other copies have records that belong between segments and have left no other trace here."""
        if not self._completion.others():
            return False
        is_completed = False
        for segment in self._listing.segments:
            try:
                if segment.patch is None and gap_behind(segment) is not None:
                    self._note_loss(segment)
            except Patched:
                is_completed = True
            except CorruptData:  # readers of the segment get this error
                continue
        return is_completed

    def _tell_cut(self, files: SegmentFiles, was: Segment | None, *, is_last: bool) -> None:
        """Report a closed segment that was truncated and is still closed: a broker truncates only the last segment."""
        if was is not None and was.was_cut and not is_last:
            self.problems.add(Problem(files.log.path, 0, 0, was.what_became_of_it()))

    def _found(self, mtime_ns: int) -> tuple[PartitionFiles, bool]:
        """List the directory without missing a file that is renamed meanwhile, or finding it twice.

        One listing may be affected by a rename, but two are hardly affected in the same way. One listing suffices if
        the directory was quiet and still has the modification time ``mtime_ns``. The second value says whether that was
        the case.
        """
        is_quiet = time.time() - mtime_ns / 1e9 > _CLOCK_TICK_SECONDS
        found = self.directory.list(self._next_offset_of)
        is_settled = is_quiet and self.renamed_ns == mtime_ns
        for _ in range(0 if is_settled else MOST_LOOKS):
            again = self.directory.list(self._next_offset_of)
            if again == found:
                break
            found = again
        return found, is_settled

    def _replace(self, segments: list[Segment], files: PartitionFiles, *, is_another: bool = False) -> None:
        before = self._listing
        if self._deleted_segments is not None:
            spans = self._deleted_segments.spans_of(segments)
        else:
            known = dict(pairwise(before.segments))
            for segment, following in pairwise(segments):
                if known.get(segment) is not following:  # recovery sets other bounds; keep them with the neighbors
                    segment.next_base_offset = following.base_offset
            if segments and before.segments[-1:] != (segments[-1],):
                segments[-1].next_base_offset = None
            spans = consecutive_spans(segments)
        kept = set(map(id, segments))
        gone = [segment for segment in before.segments if id(segment) not in kept]
        last_gone = max((segment.base_offset for segment in gone), default=-1)
        # The order matters: a result from a listing counts only if the listing hasn't changed afterwards.
        self.is_changing = bool(gone)
        for segment in gone:
            segment.is_listed = False
        for segment in segments:
            segment.changes_behind += segment.base_offset < last_gone
        self._listing = _Listing.of(segments, spans, files)
        if gone or self._has_come_between(before):
            self.incarnation += 1
        self.is_changing = False
        self.changes.tell(before.segments, segments, is_another=is_another)

    def _has_come_between(self, before: _Listing) -> bool:
        """Whether some offsets now belong to another segment because a new one isn't the last."""
        return self.directory.is_of_deleted and self._listing.bases[: len(before.bases)] != before.bases

    def look_again(self) -> None:
        """Check the directory at the next query, because a change was noticed.

        This also invalidates a check that another thread is running: it may have begun before the change.
        """
        self._asked = object()

    def _look_now(self) -> None:
        """Refresh the segments now, unless this thread is already refreshing them."""
        if self._refreshing_thread != threading.get_ident():
            self.look_again()
            self._current()

    def _next_offset_of(self, files: SegmentFiles) -> int:
        """Return the offset after the last record of a ``.swap`` segment (``LogSegment.readNextOffset``)."""
        try:
            return Segment(files, self.storage, self.problems).tail()[1]
        except FileChanged:  # renamed to its final name meanwhile
            return files.base_offset
        except CorruptData as error:
            self.problems.add_error(error)
            return files.base_offset

    def segment_for(self, offset: int) -> Segment | None:
        """Return the segment in whose range ``offset`` lies, or None if it lies below the first."""
        listing = self._current()
        at = bisect_right(listing.starts, offset) - 1
        return listing.spans[at].segment if at >= 0 else None

    def segment_at(self, base_offset: int) -> Segment | None:
        """Return the segment with base offset ``base_offset``, or None if there is none."""
        listing = self._current()
        at = bisect_left(listing.bases, base_offset)
        return listing.segments[at] if at < len(listing.bases) and listing.bases[at] == base_offset else None

    def index_of(self, segment: Segment) -> int | None:
        """Return the index of a segment in :attr:`segments`, or None if it is no longer in there."""
        listing = self._current()
        at = bisect_left(listing.bases, segment.base_offset)
        return at if at < len(listing.segments) and listing.segments[at] is segment else None

    def size(self) -> int:
        """Return the total size of all segments in bytes; a segment that currently can't be opened counts as 0."""
        return sum(segment.size() for segment in self.segments)

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

    def span_from(self, offset: int) -> Span | None:
        """Return the span that contains ``offset``, or the first span if that is above it; None if there is none."""
        listing = self._current()
        at = max(bisect_right(listing.starts, offset) - 1, 0)
        return listing.spans[at] if listing.spans else None

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


def gap_behind(segment: Segment) -> OffsetRange | None:
    """Return the offsets between the end of a segment and the next one, or None if there is no gap.

    Raises:
        CorruptData: the segment can't be read.
    """
    if segment.next_base_offset is None:
        return None
    end = segment.tail()[1]
    return OffsetRange(end, segment.next_base_offset) if end < segment.next_base_offset else None


def _without_index(files: SegmentFiles) -> SegmentFiles:
    """Return the files of a segment that is read with a patch, without its offset index, which no longer applies."""
    return replace(files, index=None)
