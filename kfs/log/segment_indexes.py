"""The two indexes of a segment, and how far they are trusted.

An index only shortens the search. An entry is used only if the batch at its position is intact and can be the one it
refers to. An index that is missing, short, zero-filled, foreign or damaged never changes a result.

No CRC covers a base offset. If batches contradict each other, a walk decides which one to trust, based on their
neighbors. A walk from the middle must give the same result as one from the start. So it begins at a batch that its
successor doesn't contradict, nor any batch back to the previous entry, and that lies before the first relevant batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.layout import MAX_INT64
from kfs.log.block import Block
from kfs.log.index_file import EntryLayout, IndexBytes
from kfs.log.offset_index import LAYOUT as OFFSET_LAYOUT
from kfs.log.offset_index import OffsetIndex, OffsetPosition, check_offset_index
from kfs.log.problem import Problem, ProblemKind
from kfs.storage.listing import FoundFile
from kfs.storage.open_files import FileChanged
from kfs.storage.status import Version

if TYPE_CHECKING:
    from kfs.format.batch_header import BatchHeader
    from kfs.log.problem import Problems
    from kfs.log.segment_files import SegmentFiles
    from kfs.log.storage import LoadedBlock, Storage
    from kfs.log.time_index import TimeIndex
    from kfs.log.window import Window
    from kfs.storage.open_files import OpenFile

_MOST_VERIFIED: Final = 4096
#: How many entries to try, backwards, before the index is given up because none leads to a batch.
_MOST_TRIED: Final = 8
#: How many batches to check between two entries; the limit allows for an index with few entries.
_MOST_BETWEEN: Final = 256


class _Verified(NamedTuple):
    """The batch of an entry: its last offset, and whether its neighbors don't contradict it."""

    last: int
    is_agreed_upon: bool


@dataclass(slots=True)
class _State:
    """The state of an index file: the version that was checked, and whether it is usable."""

    layout: EntryLayout
    version: Version | None = None
    usable: bool = False


class IndexedSegment(Protocol):
    """The segment that the indexes belong to and must agree with."""

    base_offset: int
    files: SegmentFiles
    storage: Storage
    problems: Problems
    slot: int
    is_listed: bool

    @property
    def is_last(self) -> bool:
        """Whether it may still be written to."""
        ...

    def file(self) -> OpenFile:
        """Return its ``.log``."""
        ...

    def size_on_disk(self) -> int:
        """Return the size of its ``.log`` in bytes, even if not all of that is shown."""
        ...

    def block_at(self, position: int, window: Window | None = None) -> Block | None:
        """Return the intact batch at a position, or None if there is none."""
        ...

    def header_at(self, position: int) -> BatchHeader | None:
        """Return the header at a position, or None if there is none."""
        ...

    def intact_header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the intact batch at a position, or None if there is none."""
        ...

    def load(self, block: Block, *, keep: bool = True) -> LoadedBlock:
        """Decode a block."""
        ...


class SegmentIndexes:
    """Opens, checks and queries a segment's ``.index`` and ``.timeindex``."""

    __slots__ = ("_offset", "_segment", "_time", "_verified")

    def __init__(self, segment: IndexedSegment) -> None:
        self._segment = segment
        self._offset = _State(OFFSET_LAYOUT)
        self._time: _State | None = None
        self._verified: dict[int, _Verified] = {}

    def position_before(self, offset: int, window: Window | None) -> int:
        """Return the position of a batch that, like all batches before it, lies below ``offset``; 0 if unknown.

        The check of that batch reads through ``window``, if given.
        """
        limit = offset - 1
        is_wrong = True
        for _ in range(_MOST_TRIED):
            entry = self.entry_before(limit)
            if entry is None:
                return 0
            block = self._block_of(entry, window)
            # Old brokers wrote the first offset, so the batch may be the one that contains the wanted offset.
            if block is not None and block.last < offset and block.is_agreed_upon:
                return entry.position
            is_wrong = is_wrong and block is None
            limit = entry.offset - 1
        if is_wrong:
            self._give_up("its entries don't point to an intact batch")
        return 0

    def entry_before(self, offset: int) -> OffsetPosition | None:
        """Return the last index entry at or below ``offset``, unverified; None if there is none."""
        index = self._offset_index()
        return index.lookup(offset) if index is not None else None

    def boundaries(self, start: int, every: int) -> Iterator[tuple[int, int]]:
        """Yield positions of intact batches from ``start`` on, about ``every`` bytes apart, and the offset before each.

        It yields only batches that the offset index has.
        """
        content = self._offset_content()
        if content is None:
            return
        index = OffsetIndex(content.copied(OFFSET_LAYOUT), self._segment.base_offset)
        entries = range(index.entries)
        while (at := bisect_left(entries, start, key=lambda number: index.entry(number).position)) < len(entries):
            entry = index.entry(at)
            block = self._segment.block_at(entry.position)
            if block is not None and self._begins_at_or_below(block, entry.offset) and self._is_followed(block):
                yield entry.position, self._first_offset(block) - 1
            start = max(start + every, entry.position + 1)

    def _offset_content(self) -> IndexBytes | None:
        found = self._segment.files.index
        return self._checked(
            self._offset, found, lambda content: check_offset_index(content, self._segment.size_on_disk())
        )

    def _offset_index(self) -> OffsetIndex | None:
        content = self._offset_content()
        return OffsetIndex(content, self._segment.base_offset) if content is not None else None

    def time_index(self) -> TimeIndex | None:
        """Return the time index if there is a valid one; use it at once."""
        from kfs.log.time_index import LAYOUT, TimeIndex, check_time_index  # only here: few readers look up a time

        if self._time is None:
            self._time = _State(LAYOUT)
        content = self._checked(self._time, self._segment.files.timeindex, check_time_index)
        return TimeIndex(content, self._segment.base_offset) if content is not None else None

    def _checked(
        self, state: _State, found: FoundFile | None, check: Callable[[IndexBytes], None]
    ) -> IndexBytes | None:
        """Return the bytes of an index, after checking its content once per version; None if it is invalid."""
        if found is None:
            return None
        closed = not self._segment.is_last
        try:
            indexes, slot, anew = self._segment.storage.indexes, self._segment.slot, self._segment.is_listed
            content = indexes.bytes_of(found, state.layout, closed=closed, owner=slot, anew=anew)
            if state.version != content.version:
                self._verified.clear()
                state.usable = self._is_sound(content, found, check)
                state.version = content.version  # after the check, so that a failed check is repeated
        except FileChanged:
            return None  # the index vanished meanwhile; the log doesn't need it
        except CorruptData as error:
            self._report(found.path, error.reason, error.position)
            return None
        return content if state.usable else None

    def _is_sound(self, content: IndexBytes, found: FoundFile, check: Callable[[IndexBytes], None]) -> bool:
        try:
            check(content)
        except FileChanged:
            raise
        except CorruptData as error:
            self._report(found.path, error.reason, error.position)
            return False
        return True

    def _block_of(self, entry: OffsetPosition, window: Window | None = None) -> _Verified | None:
        """Return the batch at an entry's position, or None if it isn't intact or can't be the entry's batch."""
        known = self._verified.get(entry.position)
        if known is not None:
            return known
        block = self._segment.block_at(entry.position, window)
        if block is None:
            return None
        if not self._begins_at_or_below(block, entry.offset):
            if self._is_agreed_upon(block, entry):
                where = f"({entry.offset}, {entry.position})"
                self._give_up(f"entry {where} points to a batch that begins above its offset")
            return None
        if len(self._verified) >= _MOST_VERIFIED:
            self._verified.clear()
        last = MAX_INT64 if block.header.has_unknown_last else block.header.last_offset
        known = self._verified[entry.position] = _Verified(last, self._is_agreed_upon(block, entry))
        return known

    def _is_agreed_upon(self, block: Block, entry: OffsetPosition) -> bool:
        """Whether the neighbors of a block don't contradict its offsets, as far as headers tell."""
        return self._is_followed(block) and self._is_preceded(block, entry)

    def _is_followed(self, block: Block) -> bool:
        following = self._segment.header_at(block.end)
        return following is None or following.has_unknown_last or following.base_offset > block.header.last_offset

    def _is_preceded(self, block: Block, entry: OffsetPosition) -> bool:
        before = self.entry_before(entry.offset - 1)
        position = 0 if before is None else before.position
        for _ in range(_MOST_BETWEEN):
            if position >= block.position:
                return position == block.position
            header = self._segment.intact_header_at(position)  # a broken one may hide anything
            if header is None or header.last_offset >= block.header.base_offset:
                return False
            position += header.size
        return True

    def _begins_at_or_below(self, block: Block, offset: int) -> bool:
        try:
            return self._first_offset(block) <= offset
        except CorruptData:
            return False

    def _first_offset(self, block: Block) -> int:
        """Return the first offset of a block; decoding a wrapper for it may raise :class:`CorruptData`."""
        if block.header.record_count != UNKNOWN_COUNT:
            return block.header.base_offset
        return self._segment.load(block, keep=False).first_offset  # not kept, as it may be misplaced

    def _give_up(self, reason: str) -> None:
        self._offset.usable = False
        found = self._segment.files.index
        if found is not None:
            self._report(found.path, reason)

    def _report(self, path: str, reason: str, position: int = 0) -> None:
        self._segment.problems.add(Problem(path, position, 0, f"{reason}; rebuilt in memory", ProblemKind.INDEX))
