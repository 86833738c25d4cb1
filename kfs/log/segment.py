"""One segment: a ``.log`` file, with its indexes and other means of lookup."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader, is_intact, read_header
from kfs.format.layout import BATCH_OVERHEAD, HEADER_SIZE_UP_TO_MAGIC, MAX_INT64
from kfs.log.block import Block, Damage
from kfs.log.incarnation import IncarnationState, LogIncarnation, SizeAndTime
from kfs.log.offset_range import OffsetRange, SegmentBounds
from kfs.log.problem import Problem, Problems
from kfs.log.segment_files import SegmentFiles
from kfs.log.segment_indexes import SegmentIndexes
from kfs.log.storage import LoadedBlock, Storage
from kfs.log.walk import SegmentWalk
from kfs.log.window import FIRST_READ, WINDOW_BYTES, Window
from kfs.storage.open_files import FileChanged, FileGone, GoneForGood, OpenFile, Patched
from kfs.storage.status import PathKind, kind_at, status_at

if TYPE_CHECKING:
    from kfs.log.bulk import BulkReader, DecodedBatches, Undecodable
    from kfs.log.offset_index import OffsetPosition
    from kfs.storage.patched_file import Extent, Patch

#: The distance in bytes between the marks that walks set for later lookups.
_MARK_INTERVAL: Final = 64 * 1024
#: The end of a segment up to this size in bytes is found by a walk over all of it: its index would take longer to open.
_WHOLE_BYTES: Final = 128 * 1024
#: A segment up to this size in bytes is looked through from its beginning, for the same reason: one read has all of it.
_SCANNED_BYTES: Final = FIRST_READ
#: If a segment has grown by more bytes than this since the last search for its end, the search starts at an index
#: entry.
_WALKED_BYTES: Final = 4 * 1024 * 1024


class SegmentHooks(NamedTuple):
    """How the segments of a log ask it and tell it: the same for all of them.

    ``on_change`` is called when a segment's file is found to be another one, ``look_now`` refreshes the list of
    segments, ``on_loss`` is called when a walk finds lost records, and ``missing`` returns which of the offsets between
    a segment's end and the next segment are lost.
    """

    on_change: Callable[[], None] = lambda: None
    look_now: Callable[[], None] = lambda: None
    on_loss: Callable[[Segment], None] = lambda _segment: None
    missing: Callable[[Segment, OffsetRange], OffsetRange | None] = lambda _segment, _gap: None


_NO_HOOKS: Final = SegmentHooks()


class Segment:
    """One incarnation of a segment, identified by its base offset and its file.

    ``slot`` numbers the incarnation. A segment that is truncated, swapped or recreated becomes another incarnation.
    This object then raises :class:`FileChanged`, and calls ``hooks.on_change``.

    Lookups begin at an index entry, or, if the index isn't usable, at one of the marks that walks set.

    When a walk finds lost records, it calls ``look_now`` once, and then ``on_loss``. A segment that is to be read with
    a ``patch`` is another incarnation. If the answer of ``missing`` changes, the segment becomes another incarnation.

    A directory may have hundreds of thousands of them, so what isn't always needed is made on demand.
    """

    __slots__ = (
        "__weakref__",
        "_hooks",
        "_incarnation",
        "_indexes",
        "_lock",
        "_marks",
        "_tail",
        "_told_missing",
        "base_offset",
        "changes_behind",
        "files",
        "is_frozen",
        "is_listed",
        "is_pinned",
        "next_base_offset",
        "patch",
        "problems",
        "slot",
        "storage",
    )

    def __init__(
        self,
        files: SegmentFiles,
        storage: Storage,
        problems: Problems,
        hooks: SegmentHooks = _NO_HOOKS,
        *,
        patch: Patch | None = None,
        slot: int | None = None,
        is_frozen: bool = False,
    ) -> None:
        self.files = files
        self.base_offset = files.base_offset
        self.next_base_offset: int | None = None
        #: Whether its log still lists it. Open files can still be read after that.
        self.is_listed = True
        #: How often a later segment disappeared from the log, or became another file.
        self.changes_behind = 0
        self.slot = storage.new_slot() if slot is None else slot
        #: Whether more than its slot is known of it elsewhere, so that its log can't let go of it.
        self.is_pinned = False
        self.storage = storage
        self.problems = problems
        #: Extents of other copies that replace the lost parts of the file.
        self.patch = patch
        #: Whether only what it was at one moment is shown: if it changes, that is gone for good.
        self.is_frozen = is_frozen
        self._hooks = hooks
        #: The last answer about missing offsets after it; None before the first query.
        self._told_missing: tuple[OffsetRange | None] | None = None
        self._incarnation = LogIncarnation()
        #: Batch boundaries that walks have left: offsets and byte positions; None while there is only the beginning.
        self._marks: tuple[array[int], array[int]] | None = None
        self._indexes: SegmentIndexes | None = None
        #: Held briefly to change the marks, the tail or the indexes.
        self._lock = Lock()
        self._tail: tuple[int, int, int] | None = None  # (file size, end position, next offset)

    @property
    def indexes(self) -> SegmentIndexes:
        """The offset and the time index."""
        indexes = self._indexes
        if indexes is None:
            with self._lock:
                indexes = self._indexes = self._indexes or SegmentIndexes(self)
        return indexes

    @property
    def incarnation_state(self) -> IncarnationState | None:
        """What is known of its file, for :meth:`resume`; None if it can't be told in numbers, or the file changed."""
        if self._told_missing is not None and self._told_missing[0] is not None:
            return None
        return self._incarnation.state

    @property
    def was_told_complete(self) -> bool:
        """Whether it was found that no offsets are lost behind it."""
        return self._told_missing == (None,)

    def resume(self, state: IncarnationState, changes_behind: int, *, was_told_complete: bool) -> None:
        """Go on as a segment of which this was known when its log let go of it."""
        self._incarnation.resume(state)
        self.changes_behind = changes_behind
        self._told_missing = (None,) if was_told_complete else None

    def let_go(self) -> None:
        """Drop what is made on demand: who doesn't have the segment in use can free it."""
        self._indexes = None  # it refers to the segment

    @property
    def was_read(self) -> bool:
        """Whether anything was read from it yet."""
        return self._incarnation.was_seen

    @property
    def is_stale(self) -> bool:
        """Whether its file was found to be a different one, which belongs to another incarnation."""
        return self._incarnation.end_reason != ""

    @property
    def is_last(self) -> bool:
        """Whether this is the log's last (active) segment."""
        return self.next_base_offset is None

    def file(self) -> OpenFile:
        """Return the ``.log``, open.

        Raises:
            FileChanged: it is gone, or was replaced, truncated, or written to although closed. A segment that its log
                no longer lists is readable only while its file stays open, because another file may take its path and
                inode number.
        """
        return self._sized_file()[0]

    def size_and_time(self) -> SizeAndTime:
        """Return the size of the ``.log`` in bytes, and its mtime in nanoseconds; errors are those of :meth:`file`."""
        return self._checked_file()[1]

    def _sized_file(self) -> tuple[OpenFile, int]:
        """Return :meth:`file` and its size; the errors are the same."""
        file, (size, _) = self._checked_file()
        return file, size

    def _checked_file(self) -> tuple[OpenFile, SizeAndTime]:
        """Return :meth:`file` and its state; the errors are the same."""
        try:
            return self._checked_file_now()
        except FileChanged as error:
            if not self.is_frozen or (isinstance(error, Patched) and not self.is_last):  # completed: see Log
                raise
            raise GoneForGood(error.reason, error.position, error.file) from None

    def _checked_file_now(self) -> tuple[OpenFile, SizeAndTime]:
        log = self.files.log
        try:
            self._incarnation.check(log.path)
            file = self.storage.files.open(log.path, log.inode, self.slot, anew=self.is_listed)
        except FileChanged:
            self._hooks.on_change()
            raise
        if self.patch is not None:
            from kfs.storage.patched_file import PatchedFile  # only here: few segments are damaged

            file = PatchedFile(file, self.patch, self._opened, self._spoil)
        return file, self._verify(file)

    def size_on_disk(self) -> int:
        """Return the size of the ``.log`` in bytes, with what is appended but not shown; the errors are the same."""
        log = self.files.log
        return self.storage.files.open(log.path, log.inode, self.slot, anew=self.is_listed).size()

    def bounded(self) -> Segment:
        """Return this last segment as it is now, whatever is appended to it.

        Raises:
            CorruptData: see :meth:`tail`.
        """
        from kfs.storage.patched_file import Extent  # only here: few logs are frozen

        end, _ = self.tail()
        log = self.files.log
        patch = _cut_patch(self.patch or (Extent(log.path, log.inode, 0, None),), end)
        hooks = self._hooks._replace(on_loss=lambda _segment: None)  # at the end nothing can be completed
        bounded = Segment(self.files, self.storage, self.problems, hooks, patch=patch, is_frozen=True)
        bounded.tail()  # it knows its last batch from now on, and so that it was cut
        return bounded

    def _opened(self, extent: Extent) -> OpenFile:
        """Open the file of another copy; if that fails, this incarnation ends."""
        try:
            return self.storage.files.open(extent.path, extent.inode, self.slot, anew=self.is_listed)
        except CorruptData as error:
            self._spoil(str(error))
            raise Patched(error.reason, error.position, extent.path) from None

    def _spoil(self, reason: str) -> None:
        self.end(f"the copy that its lost offsets were read from has changed: {reason}", Patched)
        self._hooks.on_change()

    def end(self, reason: str, error: type[FileChanged] = FileChanged) -> None:
        """End this incarnation, even if its file looks unchanged; ``error`` is the type that readers get."""
        self._incarnation.end(reason, error)

    def check_is_listed(self) -> None:
        """Raise :class:`FileGone` if its log no longer lists it, so that the log's answers now concern other segments.

        If the incarnation was ended, raise that error instead.
        """
        if not self.is_listed:
            self._incarnation.check(self.files.log.path)
            raise FileGone("it is no longer a segment of its log", 0, self.files.log.path)

    def notice_change(self) -> None:
        """Check by path whether the file is unchanged, and open it only if it may have changed."""
        with suppress(OSError, CorruptData):
            status = status_at(self.files.log.path)
            if status.inode == self.files.log.inode and not self._incarnation.is_unchanged(status):
                self.file()

    def _verify(self, file: OpenFile) -> SizeAndTime:
        is_closed = not self.is_last
        try:
            return self._incarnation.verify(file, is_closed=is_closed)
        except FileChanged:
            self._hooks.on_change()
            raise

    def _window(self) -> Window:
        """Return a window over the file in its current state; reads through it fail if the incarnation has ended."""
        bounds = SegmentBounds(self.base_offset, self.next_base_offset)  # first: if closed by now, the file is complete
        file, size = self._sized_file()
        return Window(file, size, bounds, self._verify)

    @property
    def was_cut(self) -> bool:
        """Whether it is stale because its file became shorter."""
        return self._incarnation.was_cut

    @property
    def was_patched(self) -> bool:
        """Whether it is stale because another copy completes it, or no longer does: its file didn't change."""
        return self._incarnation.was_patched

    def what_became_of_it(self) -> str:
        """Return why its log no longer lists it."""
        path = self.files.log.path
        if self.is_stale:
            return self._incarnation.end_reason
        if kind_at(f"{path}.deleted") is PathKind.FILE:
            return "renamed to .deleted"
        return "gone" if kind_at(path) is PathKind.NOTHING else "replaced by another file"

    def size(self) -> int:
        """Return the size of the ``.log`` in bytes, or 0 if it currently can't be opened."""
        try:
            return self._sized_file()[1]
        except CorruptData:
            return 0

    def walk(
        self,
        position: int = 0,
        after: int | None = None,
        window: Window | None = None,
        *,
        tells_missing: bool = True,
    ) -> Iterator[Block | Damage]:
        """Yield blocks and damage from a batch boundary on, and report problems.

        ``after`` is the highest offset before the boundary, if known. ``window`` is a window over the file that may
        already have data. ``tells_missing`` is as in :meth:`bulk_reader`.
        """
        walk = self._new_walk(window, tells_missing=tells_missing)
        marking = position <= self._last_mark
        highest = self.base_offset - 1 if after is None else after
        for item in walk.items(position, after):
            if isinstance(item, Block):
                if marking:
                    self.mark(highest + 1, item.position)
                highest = max(highest, item.header.last_offset)
            yield item

    def bulk(
        self, position: int = 0, after: int | None = None, end: int | None = None
    ) -> Iterator[DecodedBatches | Undecodable | Damage]:
        """Yield records fast, from one batch boundary to another; see :class:`BulkReader`."""
        return self.bulk_reader().items(position, after, end)

    def bulk_reader(self, report: Callable[[Problem], None] | None = None, *, tells_missing: bool = True) -> BulkReader:
        """Return a reader of the segment in its current state; it is reusable and keeps what it has read ahead.

        ``report`` receives problems in place of :attr:`problems`. Without ``tells_missing``, a gap after the segment
        isn't damage.
        """
        from kfs.log.bulk import BulkReader  # only here: a look-up needs none

        report = report or self.problems.add
        return BulkReader(self._walk_that_tells(report, tells_missing=tells_missing), self.storage, report)

    def walk_from(self, offset: int) -> Iterator[Block | Damage]:
        """Like :meth:`walk`, from the nearest known boundary before ``offset``."""
        window = self._window()
        return self.walk(*self.position_before(offset, window), window)

    def _new_walk(self, window: Window | None = None, *, tells_missing: bool = True) -> SegmentWalk:
        return self._walk_that_tells(self.problems.add, window, tells_missing=tells_missing)

    def _walk_that_tells(
        self,
        report: Callable[[Problem], None],
        window: Window | None = None,
        *,
        tells_missing: bool = True,
        notes_loss: bool = True,
    ) -> SegmentWalk:
        window = window or self._window()
        bounds = window.bounds or SegmentBounds(self.base_offset, self.next_base_offset)
        limit, decoder = self.storage.max_batch_bytes, self.storage.decoder
        missing = partial(self._missing_noted, bounds) if tells_missing else None
        on_loss = self._loss_noted(bounds) if notes_loss else lambda: None  # readers report the loss
        return SegmentWalk(window.file, bounds, limit, report, decoder, window, on_loss, missing)

    def _loss_noted(self, bounds: SegmentBounds) -> Callable[[], None]:
        """Return the callback of a walk for lost records; it first checks that the segment still has its bounds.

        The file may have been replaced by one that also has the records of later segments, without any visible sign.
        For example, a compacted file may get the inode number that its predecessor has freed.
        """
        is_looked = False

        def note_loss() -> None:
            nonlocal is_looked
            if not is_looked and self.is_listed:
                is_looked = True
                self._look_for(bounds)
            self._hooks.on_loss(self)

        return note_loss

    def _look_for(self, bounds: SegmentBounds) -> None:
        self._hooks.look_now()
        self.check_is_listed()
        if bounds.next_base_offset != self.next_base_offset:
            raise FileChanged("the segments after it have changed", 0, self.files.log.path)

    def _missing_noted(self, bounds: SegmentBounds, gap: OffsetRange) -> OffsetRange | None:
        """Return which offsets of a gap after the segment are lost, after checking that the gap still exists.

        A segment that is no longer listed repeats its last answer.
        """
        if not self.is_listed:
            return None if self._told_missing is None else self._told_missing[0]
        missing = self._hooks.missing(self, gap)
        if missing is not None:
            self._look_for(bounds)
            self._hooks.on_loss(self)
            missing = self._hooks.missing(self, gap)
        if self._told_missing is not None and (self._told_missing[0] is None) != (missing is None):
            self.end("the offsets missing after it count as lost now, or no longer")
            self._hooks.on_change()
            self.file()  # raises that error
        self._told_missing = (missing,)
        return missing

    def missing_from(self, end: int) -> OffsetRange | None:
        """Return which offsets are lost from ``end``, where its batches end, up to the next segment; None if none are.

        Raises:
            FileChanged: the segment is, or is about to become, another incarnation.
        """
        following = self.next_base_offset
        if following is None or end >= following:
            return None
        return self._missing_noted(SegmentBounds(self.base_offset, following), OffsetRange(end, following))

    def mark(self, offset: int, position: int) -> None:
        """Remember a batch boundary for lookups: before ``position`` there are only batches below ``offset``."""
        if position - self._last_mark >= _MARK_INTERVAL:
            self._mark(offset, position)

    @property
    def _last_mark(self) -> int:
        return 0 if self._marks is None else self._marks[1][-1]

    def _mark(self, offset: int, position: int) -> None:
        with self._lock:
            offsets, positions = self._marks or (array("q", [self.base_offset]), array("q", [0]))
            if offset > offsets[-1] and position > positions[-1]:
                positions.append(position)  # first, because lookups go from offsets to positions
                offsets.append(offset)
                self._marks = offsets, positions

    def load(self, block: Block, *, keep: bool = True) -> LoadedBlock:
        """Decode a block through the cache, and ``keep`` it there; raise :class:`CorruptData` if decoding fails."""
        cached = self.storage.cache.find(self.slot, block.header.last_offset)
        # The end of a run depends on where the walk began, so blocks at the same position may differ.
        if cached is not None and cached.header == block.header and cached.lies_within(block.after, block.before):
            return cached
        loaded = self.storage.load(block, self.problems.add)
        if keep:
            self.storage.cache.put(self.slot, loaded)
        return loaded

    def find(self, offset: int, *, keep: bool = True) -> LoadedBlock | None:
        """Return the decoded block that covers ``offset``, or None if the segment has no record there.

        The offset may be a gap in the block. Without ``keep`` the cache doesn't keep the block. Raises
        :class:`CorruptData` if the record, if it exists, lies in damaged bytes.
        """
        self.file()
        cached = self.storage.cache.find(self.slot, offset)
        if cached is not None:
            return cached
        block = self._ordinary_block(offset)
        if block is not None:
            return self.load(block, keep=keep)
        hidden: CorruptData | None = None
        for item in self.walk_from(offset):
            if isinstance(item, Damage):
                if hidden is None and item.lost is not None and offset in item.lost:
                    hidden = item.problem.error()
                continue
            header = item.header
            if header.last_offset < offset and (header.record_count != UNKNOWN_COUNT or header.last_offset):
                continue
            try:
                loaded = self.load(item, keep=keep)
            except CorruptData as error:
                if header.record_count != UNKNOWN_COUNT:
                    raise
                # Only a wrapper's content tells where it begins, so a later one may hold the offset.
                hidden = error
                continue
            if hidden is not None and offset < loaded.first_offset:
                raise hidden
            if loaded.last_offset >= offset:
                return loaded
        if hidden is not None:
            raise hidden
        return None

    def _ordinary_block(self, offset: int) -> Block | None:
        """Return the block that holds ``offset``, if every batch on the way is ordinary.

        The way begins with the segment if that is small, else at an entry of the index.
        """
        walk = self._new_walk(tells_missing=False)
        entry: OffsetPosition | None = None
        if walk.size > _SCANNED_BYTES:
            entry = self.indexes.entry_before(offset - 1)
            if entry is None or entry.position >= walk.size:
                return None
        position = 0 if entry is None else entry.position
        walk.begin(position, self.base_offset - 1 if entry is None else None)
        end = min(position + WINDOW_BYTES, walk.size)
        while position < end:
            table = walk.scan(position)
            row = bisect_left(table.last_offsets, offset)
            if entry is not None and position == entry.position and (not row or table.base_offsets[0] > entry.offset):
                return None  # only the batch before it tells whether it is in place
            if row < len(table):
                is_there = table.base_offsets[row] <= offset
                return Block(table.header(row), table.data(row), walk.file.path) if is_there else None
            if not row:
                return None
            position = table.end(row - 1)
        return None

    def tail(self) -> tuple[int, int]:
        """Return the byte position where the log ends in this segment, and the offset after its last batch."""
        size = self._sized_file()[1]
        known_size, position, next_offset = self._tail or (-1, 0, self.base_offset)
        if size == known_size:
            return position, next_offset
        walk = self._new_walk(tells_missing=False)
        begin: tuple[int, int | None] = (position, next_offset - 1)
        if size - max(known_size, 0) > (_WALKED_BYTES if known_size >= 0 else _WHOLE_BYTES):
            indexed = self._before_last_entry()
            if known_size < 0 or indexed[0] > position:
                begin = indexed
        last: Block | None = None
        for item in walk.items(*begin):
            if isinstance(item, Block):
                next_offset = max(next_offset, self._next_offset(item))  # a wrapper may hold nothing new
                last = item
        self._incarnation.note_end(walk.end, last, is_closed=not walk.bounds.is_last)
        with self._lock:
            if self._tail is None or walk.size > self._tail[0]:  # no other thread got further meanwhile
                self._tail = (walk.size, walk.end, next_offset)
            return self._tail[1:]

    def _before_last_entry(self) -> tuple[int, int | None]:
        """Return a batch boundary before the batch of the last index entry, because earlier batches validate it."""
        entry = self.indexes.entry_before(MAX_INT64)
        return self.position_before(self.base_offset if entry is None else entry.offset)

    def _next_offset(self, block: Block) -> int:
        header = block.header
        if header.record_count == UNKNOWN_COUNT and header.last_offset == 0:
            with suppress(CorruptData):  # already reported
                return self.load(block).last_offset + 1
        return min(header.last_offset + 1, block.before)

    def position_before(self, offset: int, window: Window | None = None) -> tuple[int, int | None]:
        """Return a batch boundary before which every batch ends below ``offset``, and the highest offset before it.

        The batch that contains ``offset`` doesn't begin at that boundary: see :class:`SegmentIndexes`.

        The second value is None if it is unknown, which is the case for a boundary from an index. Verification reads go
        through ``window``, if given; if that can hold the whole segment, its headers are read instead of the index.
        """
        if offset <= self.base_offset:
            return 0, self.base_offset - 1  # its index isn't needed, and opening that costs more than many a segment
        if window is not None and window.size <= _SCANNED_BYTES:
            return self._scanned_before(offset, window)
        indexed = self.indexes.position_before(offset, window)
        offsets, positions = self._marks or ((self.base_offset,), (0,))
        mark = max(bisect_right(offsets, offset) - 1, 0)
        if positions[mark] >= indexed:
            return positions[mark], offsets[mark] - 1
        return indexed, None

    def _scanned_before(self, offset: int, window: Window) -> tuple[int, int]:
        """Return the boundary of :meth:`position_before` among the ordinary batches at the segment's beginning."""
        walk = self._walk_that_tells(lambda problem: None, window, tells_missing=False, notes_loss=False)
        walk.begin(0, self.base_offset - 1)
        table = walk.scan(0) if window.size else None
        row = 0 if table is None else bisect_left(table.last_offsets, offset) - 1
        if table is None or row <= 0:
            return 0, self.base_offset - 1
        return table.positions[row], table.last_offsets[row - 1]

    def boundaries(self, start: int, every: int) -> Iterator[tuple[int, int]]:
        """Yield positions where the segment can be split; see :meth:`SegmentIndexes.boundaries`."""
        return self.indexes.boundaries(start, every)

    def header_at(self, position: int) -> BatchHeader | None:
        """Return the header at ``position``, or None if it is invalid; the batch's CRC isn't checked."""
        data = self.file().read(position, BATCH_OVERHEAD)
        if len(data) < HEADER_SIZE_UP_TO_MAGIC:
            return None
        try:
            return read_header(data, 0, position)
        except CorruptData:
            return None

    def intact_header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at ``position`` if that is intact, else None; report no problems."""
        header = self.header_at(position)
        if header is None or header.size > self.storage.max_batch_bytes:
            return None
        data = self.file().read(position, header.size)
        return header if len(data) == header.size and is_intact(header, data) else None

    def block_at(self, position: int, window: Window | None = None) -> Block | None:
        """Return the block at ``position`` if that is intact, else None; report no problems."""
        walk = self._walk_that_tells(lambda problem: None, window, tells_missing=False, notes_loss=False)
        item = next(walk.items(position), None)
        return item if isinstance(item, Block) else None


def _cut_patch(patch: Patch, size: int) -> Patch:
    """Return the extents with the first ``size`` bytes of patched content."""
    kept: list[Extent] = []
    for extent in patch:
        length = size if extent.length is None else min(extent.length, size)
        kept.append(extent._replace(length=length))
        size -= length
    return tuple(kept)
