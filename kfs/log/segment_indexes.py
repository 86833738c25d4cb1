"""The two indexes of a segment, and how far they are believed.

An index only shortens the way. An entry is used once the batch it points at is intact and can be the
one it means; an index that is missing, short, zero-filled, foreign or damaged never changes an answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.log.block import Block
from kfs.log.index_file import EntryLayout, IndexBytes
from kfs.log.offset_index import LAYOUT as OFFSET_LAYOUT
from kfs.log.offset_index import OffsetIndex, OffsetPosition, check_offset_index
from kfs.log.open_files import FileChanged
from kfs.log.problem import Problem
from kfs.log.segment_files import FoundFile
from kfs.log.time_index import LAYOUT as TIME_LAYOUT
from kfs.log.time_index import TimeIndex, check_time_index

if TYPE_CHECKING:
    from kfs.log.segment import Segment
    from kfs.log.window import Window

_MOST_VERIFIED: Final = 4096
#: Entries tried, backwards, before an index that leads to no batch is given up.
_MOST_TRIED: Final = 8


@dataclass(slots=True)
class _State:
    """What is known of an index file: which content was checked, and whether it is to be believed."""

    suffix: str
    layout: EntryLayout
    identity: tuple[int, int, int] | None = None
    usable: bool = False


class SegmentIndexes:
    """Opens, checks and consults a segment's ``.index`` and ``.timeindex``."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._offset = _State(".index", OFFSET_LAYOUT)
        self._time = _State(".timeindex", TIME_LAYOUT)
        self._verified: set[int] = set()

    def position_before(self, offset: int, window: Window | None) -> int:
        """Return the position of a batch before which all lie below ``offset``; 0 where the index can't say.

        Whether a batch lies there is looked at through ``window``, if there is one.
        """
        limit = offset
        for _ in range(_MOST_TRIED):
            index = self._offset_index()
            entry = index.lookup(limit) if index is not None else None
            if entry is None:
                return 0
            if self._leads_to_batch(entry, window):
                return entry.position if self._offset.usable else 0
            limit = entry.offset - 1
        self._give_up("its entries point at no intact batch")
        return 0

    def entry_before(self, offset: int) -> OffsetPosition | None:
        """Return the last index entry at or below ``offset``, as the index has it; None where it has none."""
        index = self._offset_index()
        return index.lookup(offset) if index is not None else None

    def boundaries(self, start: int, every: int) -> Iterator[tuple[int, int]]:
        """Yield positions of intact batches at ``start`` or behind it, then ``every`` so many bytes on, and so on, each
        with the offset before it.

        Only as far as the offset index knows them.
        """
        content = self._offset_content()
        if content is None:
            return
        index = OffsetIndex(content.copied(OFFSET_LAYOUT), self._segment.base_offset)
        entries = range(index.entries)
        while (at := bisect_left(entries, start, key=lambda number: index.entry(number).position)) < len(entries):
            entry = index.entry(at)
            block = self._segment.block_at(entry.position)
            if block is not None and self._begins_at_or_below(block, entry.offset):
                yield entry.position, self._first_offset(block) - 1
            start = max(start + every, entry.position + 1)

    def _offset_content(self) -> IndexBytes | None:
        found = self._segment.files.index
        return self._checked(
            self._offset, found, lambda content: check_offset_index(content, self._segment.file().size())
        )

    def _offset_index(self) -> OffsetIndex | None:
        content = self._offset_content()
        return OffsetIndex(content, self._segment.base_offset) if content is not None else None

    def time_index(self) -> TimeIndex | None:
        """Return the time index if there is one that makes sense; for use at once."""
        content = self._checked(self._time, self._segment.files.timeindex, check_time_index)
        return TimeIndex(content, self._segment.base_offset) if content is not None else None

    def _checked(
        self, state: _State, found: FoundFile | None, check: Callable[[IndexBytes], None]
    ) -> IndexBytes | None:
        """Return the bytes of an index whose content was checked once and found sound."""
        if found is None:
            return None
        closed = not self._segment.is_last
        try:
            content = self._segment.storage.indexes.bytes_of(found, state.layout, closed=closed)
            if state.identity != content.identity:
                state.identity, state.usable = content.identity, False
                self._verified.clear()
                check(content)
                state.usable = True
        except FileChanged:
            return None  # the index vanished under the mount; the log speaks for itself
        except CorruptData as error:
            self._report(found.path, error.reason, error.position)
            return None
        return content if state.usable else None

    def _leads_to_batch(self, entry: OffsetPosition, window: Window | None = None) -> bool:
        """Whether an intact batch lies where an entry says; if it begins above the entry's offset, the index lies."""
        if entry.position in self._verified:
            return True
        block = self._segment.block_at(entry.position, window)
        if block is None:
            return False
        previous = self.entry_before(entry.offset - 1)
        if previous is not None and self._begins_at_or_below(block, previous.offset):
            return False  # no CRC covers a base offset, or an index
        if not self._begins_at_or_below(block, entry.offset):
            self._give_up(f"entry ({entry.offset}, {entry.position}) points at a batch that begins above its offset")
            return True
        if len(self._verified) >= _MOST_VERIFIED:
            self._verified.clear()
        self._verified.add(entry.position)
        return True

    def _begins_at_or_below(self, block: Block, offset: int) -> bool:
        try:
            return self._first_offset(block) <= offset
        except CorruptData:
            return False

    def _first_offset(self, block: Block) -> int:
        """Return the first offset of a block; a wrapper's is known only inside: raises :class:`CorruptData`."""
        if block.header.record_count != UNKNOWN_COUNT:
            return block.header.base_offset
        return self._segment.load(block).first_offset

    def _give_up(self, reason: str) -> None:
        self._offset.usable = False
        found = self._segment.files.index
        if found is not None:
            self._report(found.path, reason)

    def _report(self, path: str, reason: str, position: int = 0) -> None:
        self._segment.problems.add(Problem(path, position, 0, f"{reason}; rebuilt in memory"))
