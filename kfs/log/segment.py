"""One segment: a ``.log`` file and what helps to find things in it."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Final

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader, is_intact, read_header
from kfs.format.layout import BATCH_OVERHEAD, HEADER_SIZE_UP_TO_MAGIC, MAX_INT64
from kfs.log.block import Block, Damage
from kfs.log.bulk import BulkReader, DecodedBatches, Undecodable
from kfs.log.incarnation import LogIncarnation
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem, Problems
from kfs.log.segment_bounds import SegmentBounds
from kfs.log.segment_files import SegmentFiles
from kfs.log.segment_indexes import SegmentIndexes
from kfs.log.storage import LoadedBlock, Storage
from kfs.log.walk import SegmentWalk
from kfs.log.window import WINDOW_BYTES, Window
from kfs.storage.open_files import FileChanged, FileGone, OpenFile
from kfs.storage.patched_file import Extent, Patch, Patched, PatchedFile
from kfs.storage.status import PathKind, kind_at, status_at

#: How far apart, in bytes, the marks are that a walk leaves behind for later lookups.
_MARK_INTERVAL: Final = 64 * 1024
#: What has grown by more than that since its end was looked for is not read for it: the index knows of an end near by.
_WALKED_BYTES: Final = 4 * 1024 * 1024


class Segment:
    """One incarnation of a segment: this base offset, this very file.

    ``slot`` numbers the incarnation. A segment that was truncated, swapped or re-created is
    another one, and this one then raises :class:`FileChanged`, and ``on_change`` is called. Lookups begin at an index
    entry, or where that is no good at one of the marks that walks leave behind. Where records are found to be lost,
    ``look_now`` is called once for each walk, to know the segments as they are by now, and then ``on_loss``; a segment
    that is to be read with a ``patch`` is another incarnation. ``missing`` returns which of the offsets between its end
    and the next one are lost; where the answer becomes another one, so does the segment.
    """

    def __init__(
        self,
        files: SegmentFiles,
        storage: Storage,
        problems: Problems,
        on_change: Callable[[], None] = lambda: None,
        *,
        patch: Patch | None = None,
        look_now: Callable[[], None] = lambda: None,
        on_loss: Callable[[Segment], None] = lambda _segment: None,
        missing: Callable[[Segment, OffsetRange], OffsetRange | None] = lambda _segment, _gap: None,
    ) -> None:
        self.files = files
        self.base_offset = files.base_offset
        self.next_base_offset: int | None = None
        #: Whether its log has it; what is read of it may be there although it hasn't.
        self.is_listed = True
        #: How often a segment behind it went from the log, or became another file.
        self.changes_behind = 0
        self.slot = storage.new_slot()
        self.storage = storage
        self.problems = problems
        #: What other copies have of what is lost in the file, put in its place.
        self.patch = patch
        self._on_change = on_change
        self._look_now = look_now
        self._on_loss = on_loss
        self._missing = missing
        #: What was said to be missing behind it, None until it was asked for.
        self._told_missing: tuple[OffsetRange | None] | None = None
        self._incarnation = LogIncarnation()
        self._mark_offsets = array("q", [files.base_offset])
        self._mark_positions = array("q", [0])
        self._marking = Lock()
        self._ending = Lock()
        self.indexes = SegmentIndexes(self)
        self._tail: tuple[int, int, int] = (-1, 0, files.base_offset)  # file size, end position, next offset

    @property
    def was_read(self) -> bool:
        """Whether anything of it was asked for yet."""
        return self._incarnation.was_seen

    @property
    def is_stale(self) -> bool:
        """Whether its file was found to have become something else; what that is, is another segment."""
        return self._incarnation.end_reason != ""

    @property
    def is_last(self) -> bool:
        """Whether this is the log's last (active) segment."""
        return self.next_base_offset is None

    def file(self) -> OpenFile:
        """Return the ``.log``, open.

        Raises:
            FileChanged: it is gone, or isn't what it was: replaced, cut, or closed and written to. What its log
                doesn't list any more is read only as long as it is open: another file may have its path and number.
        """
        return self._sized_file()[0]

    def _sized_file(self) -> tuple[OpenFile, int]:
        """Return :meth:`file` and its size, errors too."""
        log = self.files.log
        try:
            self._incarnation.check(log.path)
            file = self.storage.files.open(log.path, log.inode, self.slot, anew=self.is_listed)
        except FileChanged:
            self._on_change()
            raise
        if self.patch is not None:
            file = PatchedFile(file, self.patch, self._opened, self._spoil)
        return file, self._verify(file)

    def _opened(self, extent: Extent) -> OpenFile:
        """Open the file of another copy; without it this isn't what it was."""
        try:
            return self.storage.files.open(extent.path, extent.inode, self.slot, anew=self.is_listed)
        except CorruptData as error:
            self._spoil(str(error))
            raise Patched(error.reason, error.position, extent.path) from None

    def _spoil(self, reason: str) -> None:
        self.end(f"another copy that completed it is no more what it was: {reason}", Patched)
        self._on_change()

    def end(self, reason: str, error: type[FileChanged] = FileChanged) -> None:
        """Take it for something else from now on, whatever its file looks like; ``error`` is what readers get."""
        self._incarnation.end(reason, error)

    def check_is_listed(self) -> None:
        """Raise :class:`FileGone` if it isn't among the segments of its log any more: that speaks of others now.

        Where it was ended, that is the error.
        """
        if not self.is_listed:
            self._incarnation.check(self.files.log.path)
            raise FileGone("its log goes on without it", 0, self.files.log.path)

    def notice_change(self) -> None:
        """Look whether the file is still what it was, by its name, and open it only if something has happened to it."""
        with suppress(OSError, CorruptData):
            status = status_at(self.files.log.path)
            if status.inode == self.files.log.inode and not self._incarnation.is_unchanged(status):
                self.file()

    def _verify(self, file: OpenFile) -> int:
        is_closed = not self.is_last
        try:
            return self._incarnation.verify(file, is_closed=is_closed)
        except FileChanged:
            self._on_change()
            raise

    def _window(self) -> Window:
        """Return a window over the file as it is now: what is read through it is of this incarnation, or an error."""
        bounds = SegmentBounds(self.base_offset, self.next_base_offset)  # first: what is closed then, is complete
        file, size = self._sized_file()
        return Window(file, size, bounds, self._verify)

    @property
    def was_cut(self) -> bool:
        """Whether it is stale because its file became shorter."""
        return self._incarnation.was_cut

    def what_became_of_it(self) -> str:
        """Say why it is no more among the segments of its log."""
        path = self.files.log.path
        if self.is_stale:
            return self._incarnation.end_reason
        if kind_at(f"{path}.deleted") is PathKind.FILE:
            return "deleted by the broker"
        return "gone" if kind_at(path) is PathKind.NOTHING else "replaced by another file"

    def size(self) -> int:
        """Return the bytes of the ``.log``; none where it can't be opened just now."""
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
        """Yield blocks and damage from a batch boundary on; what is wrong is reported.

        ``after`` is the highest offset before it, where that is known. A ``window`` over the file may have been
        read through already. ``tells_missing`` is as in :meth:`bulk_reader`.
        """
        walk = self._new_walk(window, tells_missing=tells_missing)
        marking = position <= self._mark_positions[-1]
        highest = self.base_offset - 1 if after is None else after
        for item in walk.items(position, after):
            if isinstance(item, Block):
                if marking and item.position - self._mark_positions[-1] >= _MARK_INTERVAL:
                    self._mark(highest + 1, item.position)
                highest = max(highest, item.header.last_offset)
            yield item

    def bulk(
        self, position: int = 0, after: int | None = None, end: int | None = None
    ) -> Iterator[DecodedBatches | Undecodable | Damage]:
        """Yield records as fast as it goes, from one batch boundary to another; see :class:`BulkReader`."""
        return self.bulk_reader().items(position, after, end)

    def bulk_reader(self, report: Callable[[Problem], None] | None = None, *, tells_missing: bool = True) -> BulkReader:
        """Return what reads the segment as it is now, to be asked more than once: it keeps what it has read ahead.

        ``report`` gets what is wrong, in place of :attr:`problems`. Without ``tells_missing`` a gap behind the segment
        isn't damage.
        """
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
        on_loss = self._loss_noted(bounds) if notes_loss else lambda: None  # who reads it comes to it
        return SegmentWalk(window.file, bounds, limit, report, decoder, window, on_loss, missing)

    def _loss_noted(self, bounds: SegmentBounds) -> Callable[[], None]:
        """Return what a walk calls where records are lost: first it looks whether the segment still has its bounds.

        The file may be another one since, with the records of those behind it, and not look like it: one that is
        compacted may get the number of the one that it replaces, as that is free again.
        """
        is_looked = False

        def note_loss() -> None:
            nonlocal is_looked
            if not is_looked and self.is_listed:
                is_looked = True
                self._look_for(bounds)
            self._on_loss(self)

        return note_loss

    def _look_for(self, bounds: SegmentBounds) -> None:
        self._look_now()
        self.check_is_listed()
        if bounds.next_base_offset != self.next_base_offset:
            raise FileChanged("the segments behind it are others by now", 0, self.files.log.path)

    def _missing_noted(self, bounds: SegmentBounds, gap: OffsetRange) -> OffsetRange | None:
        """Return what of a gap behind the segment is lost, once it was looked whether the gap is still there.

        A segment that is no longer listed answers as it did before.
        """
        if not self.is_listed:
            return None if self._told_missing is None else self._told_missing[0]
        missing = self._missing(self, gap)
        if missing is not None:
            self._look_for(bounds)
            self._on_loss(self)
            missing = self._missing(self, gap)
        if self._told_missing is not None and (self._told_missing[0] is None) != (missing is None):
            self.end("what is missing behind it is known to be lost, or no longer")
            self._on_change()
            self.file()  # raises that
        self._told_missing = (missing,)
        return missing

    def missing_from(self, end: int) -> OffsetRange | None:
        """Return which offsets are lost from ``end`` on, where its batches end, up to the next segment; None: none.

        Raises:
            FileChanged: it is another segment by now, or is to be.
        """
        following = self.next_base_offset
        if following is None or end >= following:
            return None
        return self._missing_noted(SegmentBounds(self.base_offset, following), OffsetRange(end, following))

    def mark(self, offset: int, position: int) -> None:
        """Remember a batch boundary for later lookups: before ``position`` there are only batches below ``offset``."""
        if position - self._mark_positions[-1] >= _MARK_INTERVAL:
            self._mark(offset, position)

    def _mark(self, offset: int, position: int) -> None:
        with self._marking:
            if offset > self._mark_offsets[-1] and position > self._mark_positions[-1]:
                self._mark_positions.append(position)  # first: a lookup goes from offsets to positions
                self._mark_offsets.append(offset)

    def load(self, block: Block, *, keep: bool = True) -> LoadedBlock:
        """Decode a block through the cache, which is to ``keep`` it; raise :class:`CorruptData` where that fails."""
        cached = self.storage.cache.find(self.slot, block.header.last_offset)
        # A run of messages ends elsewhere where a walk began elsewhere: the same position isn't the same block.
        if cached is not None and cached.header == block.header and cached.lies_within(block.after, block.before):
            return cached
        loaded = self.storage.load(block, self.problems.add)
        if keep:
            self.storage.cache.put(self.slot, loaded)
        return loaded

    def find(self, offset: int, *, keep: bool = True) -> LoadedBlock | None:
        """Return the decoded block that answers for ``offset``, None where the segment has no such record.

        The offset may be a hole in the block. Without ``keep`` the cache doesn't keep the block.
        Raises :class:`CorruptData` if the record, should it exist, lies in damaged bytes.
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
                # Where a wrapper begins is known only inside: a later one may hold the offset yet.
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
        """Return the block that holds ``offset``, if the index leads to it over nothing that needs judgement."""
        entry = self.indexes.entry_before(offset - 1)
        if entry is None:
            return None
        walk = self._new_walk(tells_missing=False)
        if entry.position >= walk.size:
            return None
        walk.begin(entry.position, None)
        position, end = entry.position, min(entry.position + WINDOW_BYTES, walk.size)
        while position < end:
            table = walk.scan(position)
            row = bisect_left(table.last_offsets, offset)
            if position == entry.position and (not row or table.base_offsets[0] > entry.offset):
                return None  # where a batch belongs, only the one before it tells
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
        known_size, position, next_offset = self._tail
        if size == known_size:
            return position, next_offset
        walk = self._new_walk(tells_missing=False)
        begin: tuple[int, int | None] = (position, next_offset - 1)
        if known_size < 0 or size - known_size > _WALKED_BYTES:
            indexed = self._before_last_entry()
            if known_size < 0 or indexed[0] > position:
                begin = indexed
        last: Block | None = None
        for item in walk.items(*begin):
            if isinstance(item, Block):
                next_offset = self._next_offset(item)
                last = item
        self._incarnation.note_end(walk.end, last, is_closed=not walk.bounds.is_last)
        with self._ending:
            if walk.size > self._tail[0]:  # no other thread came further meanwhile
                self._tail = (walk.size, walk.end, next_offset)
            return self._tail[1:]

    def _before_last_entry(self) -> tuple[int, int | None]:
        """Return a batch boundary before that of the last index entry: only what is before tells where that belongs."""
        entry = self.indexes.entry_before(MAX_INT64)
        return self.position_before(self.base_offset if entry is None else entry.offset)

    def _next_offset(self, block: Block) -> int:
        header = block.header
        if header.record_count == UNKNOWN_COUNT and header.last_offset == 0:
            with suppress(CorruptData):  # reported
                return self.load(block).last_offset + 1
        return min(header.last_offset + 1, block.before)

    def position_before(self, offset: int, window: Window | None = None) -> tuple[int, int | None]:
        """Return a batch boundary before which every batch ends below ``offset``, and the highest offset before it.

        The one that ``offset`` is in doesn't begin there: see :class:`SegmentIndexes`.

        The latter is None where it isn't known: from an index. What is read to make sure passes through the ``window``,
        if there is one.
        """
        indexed = self.indexes.position_before(offset, window)
        mark = max(bisect_right(self._mark_offsets, offset) - 1, 0)
        if self._mark_positions[mark] >= indexed:
            return self._mark_positions[mark], self._mark_offsets[mark] - 1
        return indexed, None

    def boundaries(self, start: int, every: int) -> Iterator[tuple[int, int]]:
        """Yield positions where the segment can be cut; see :meth:`SegmentIndexes.boundaries`."""
        return self.indexes.boundaries(start, every)

    def header_at(self, position: int) -> BatchHeader | None:
        """Return the header at ``position``, None where none could be; whether the batch is intact isn't looked at."""
        data = self.file().read(position, BATCH_OVERHEAD)
        if len(data) < HEADER_SIZE_UP_TO_MAGIC:
            return None
        try:
            return read_header(data, 0, position)
        except CorruptData:
            return None

    def intact_header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at ``position`` if there is an intact one; says nothing of what is wrong."""
        header = self.header_at(position)
        if header is None or header.size > self.storage.max_batch_bytes:
            return None
        data = self.file().read(position, header.size)
        return header if len(data) == header.size and is_intact(header, data) else None

    def block_at(self, position: int, window: Window | None = None) -> Block | None:
        """Return the block at ``position`` if there is an intact one; says nothing of what is wrong there."""
        walk = self._walk_that_tells(lambda problem: None, window, tells_missing=False, notes_loss=False)
        item = next(walk.items(position), None)
        return item if isinstance(item, Block) else None
