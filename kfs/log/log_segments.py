"""The segments of one partition, listed again as its directory changes."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from typing import Final, NamedTuple, NoReturn
from weakref import ref

from kfs.errors import CorruptData, SourceLost
from kfs.log.completion import Completion, OtherCopies
from kfs.log.incarnation import DirectoryIncarnation
from kfs.log.kept_segments import KeptSegments
from kfs.log.log_changes import LogChanges
from kfs.log.offset_range import OffsetRange
from kfs.log.partition_directory import PARTITION_METADATA, PartitionDirectory
from kfs.log.problem import Problem, ProblemKind, Problems
from kfs.log.segment import Segment, SegmentHooks
from kfs.log.segment_files import PartitionFiles, SegmentFiles
from kfs.log.span import DeletedSegments, Span, consecutive_spans
from kfs.log.storage import SegmentHolder, Storage
from kfs.storage.open_files import FileChanged, Patched
from kfs.storage.status import Status, status_at

#: Maximum age, in seconds, of the cached listing of a live directory.
LOOK_AGAIN_SECONDS: Final = 0.25
#: A directory changed this recently, in seconds, may change again within one tick of the file system's clock.
_CLOCK_TICK_SECONDS: Final = 1.0
#: How often a lookup is retried if its target changes meanwhile.
MOST_LOOKS: Final = 8
#: The reason why a completed segment becomes a new incarnation.
_COMPLETED: Final = "its lost offsets are read from another copy"


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


class LogSegments(ABC):
    """The segments of a partition's directory, followed as it changes.

    Creating it reads nothing. ``copies`` is consulted if records are lost. Problems go to ``problems``.

    A mount keeps tens of thousands of them: hence the slots, which take a fifth of the memory.
    """

    __slots__ = (
        "__weakref__",
        "_answered",
        "_asked",
        "_completion",
        "_deleted_segments",
        "_dependents",
        "_frozen_end",
        "_incarnation",
        "_is_lost",
        "_kept",
        "_listed_mtime",
        "_listing",
        "_looked",
        "_lost_then",
        "_made_hooks",
        "_refreshing",
        "_refreshing_thread",
        "changes",
        "directory",
        "incarnation",
        "is_changing",
        "is_frozen",
        "partition",
        "problems",
        "storage",
        "topic",
    )

    def __init__(
        self, directory: PartitionDirectory, storage: Storage, copies: OtherCopies | None, problems: Problems | None
    ) -> None:
        self.directory = directory
        self.topic = directory.name.topic
        self.partition = directory.name.partition
        self.storage = storage
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
        self._is_lost = False
        #: Whether only what was there at one moment is shown; and if it couldn't be read then, why.
        self.is_frozen = False
        self._lost_then = ""
        self._frozen_end: int | None = None
        self._completion = Completion(copies, storage, self.problems.level, fields)
        self._made_hooks: SegmentHooks | None = None

    @abstractmethod
    def _lost_between(self, segment: Segment, gap: OffsetRange) -> OffsetRange | None:
        """Return which of the offsets of ``gap``, which follows ``segment``, are lost; None if none are."""

    @abstractmethod
    def _found_again(self) -> None:
        """Forget what was found while the directory couldn't be listed: its problems are dropped."""

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

    @property
    def known_last_base_offset(self) -> int | None:
        """The base offset of the last segment, as last listed; None if none is known. It lists nothing."""
        kept, bases = self._kept, self._listing.bases
        if kept is not None:
            return kept.last_base_offset
        return bases[-1] if bases else None

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
            self._found_again()
        for listed in self._listing.segments:
            listed.notice_change()
        before = {segment.files.key: segment for segment in self._listing.segments}
        is_another = self._incarnation.is_another(status, self._metadata_path(files_found))
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

    def _metadata_path(self, found: PartitionFiles) -> str | None:
        """Return the path of ``partition.metadata``, or None if the listing shows that there is none."""
        if self.directory.is_whole and PARTITION_METADATA not in found.others:
            return None
        return os.path.join(self.directory.path, PARTITION_METADATA)

    def freeze(self) -> None:
        """Show only what is there now, from now on; what the broker removes of it later is gone for good.

        No other thread may use the log yet. If the directory or its active segment can't be read now, it is lost, as
        :attr:`segments` says.
        """
        try:
            self._freeze_segments()
        except (SourceLost, CorruptData) as error:
            self._lost_then = str(error)
        self.is_frozen = True

    def _freeze_segments(self) -> None:
        """Have all segments keep their present bounds."""
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
            return
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
        is_another_incarnation = bool(gone) or self._has_come_between(before)
        if is_another_incarnation:
            self.incarnation += 1
        self.is_changing = False
        if is_another_incarnation:
            self.storage.on_incarnation(self.directory.path)
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

    def span_from(self, offset: int) -> Span | None:
        """Return the span that contains ``offset``, or the first span if that is above it; None if there is none."""
        listing = self._current()
        at = max(bisect_right(listing.starts, offset) - 1, 0)
        return listing.spans[at] if listing.spans else None

    def size(self) -> int:
        """Return the total size of all segments in bytes; a segment that currently can't be opened counts as 0."""
        return sum(segment.size() for segment in self.segments)


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
