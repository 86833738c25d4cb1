"""The lines of a segment's records, many batches at a time."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from cachetools import LRUCache

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64, TRANSACTIONAL_MASK
from kfs.log.block import Damage
from kfs.log.bulk import BulkReader, Ordinary, Records, Undecodable
from kfs.log.log import OffsetRange
from kfs.read.aborted_transactions import AbortedTransactions
from kfs.read.isolation import CommittedReader
from kfs.tree.text import CHUNK_BYTES, Extent, Piece
from kfs.tree.text_table import NO_EARLIEST, NO_LATEST, Marker

if TYPE_CHECKING:
    from kfs.log.segment import Segment
    from kfs.render.renderers import LineRenderer

_MOST_READERS: Final = 16


class OnDamage(StrEnum):
    """What stands for damaged bytes in a segment's lines."""

    ERROR = "error"  # an empty line, and reading the page that holds it fails
    SKIP = "skip"  # nothing: meta/problems.jsonl tells


class ReaderPool:
    """Readers of closed segments, with what they have read ahead: for whoever reads on where he was."""

    def __init__(self) -> None:
        self._readers: LRUCache[int, BulkReader] = LRUCache(_MOST_READERS)
        self._lock = threading.Lock()

    @contextmanager
    def reader(self, segment: Segment) -> Iterator[BulkReader]:
        """Lend a reader of a segment for the length of a block; raise :class:`FileChanged` as the segment does."""
        segment.file()
        with self._lock:
            reader = self._readers.pop(segment.slot, None)
        if reader is None:
            reader = segment.bulk_reader()
        yield reader
        if not reader.walk.bounds.is_last:  # which grows, and the reader doesn't know
            with self._lock:
                self._readers[segment.slot] = reader


#: What lines are made of.
Item: TypeAlias = Ordinary | Records | Undecodable | Damage


class Hidden(NamedTuple):
    """Aborted batches: where they end in the file, and the last of their offsets."""

    end: int
    last_offset: int


class SegmentLines:
    """The lines of those records of a segment whose offsets are in a range; with ``committed`` of those it shows."""

    def __init__(
        self,
        renderer: LineRenderer,
        offsets: OffsetRange,
        on_damage: OnDamage,
        readers: ReaderPool,
        committed: CommittedReader | None = None,
        stable_end: int = MAX_INT64,
    ) -> None:
        """What is measured ends before ``stable_end``, for now; what was measured is shown, whatever it was then."""
        self._renderer = renderer
        self._offsets = offsets
        self._on_damage = on_damage
        self._readers = readers
        self._committed = committed
        self._stable_end = stable_end
        self._grounds: dict[int, Marker | None] = {}  # by producer

    def extents(self, segment: Segment, position: int, seen: int, end: int | None) -> Iterator[Extent]:
        """See :class:`~kfs.tree.text.TextSource`."""
        for item in self._measurable(segment, position, seen, end):
            if isinstance(item, Hidden):
                yield Extent(0, item.end, item.last_offset)
            elif isinstance(item, Records) and not item.columns.faults and not item.is_control:
                yield from self._measured(item)
            else:
                yield self._extent_of(item)

    def pieces(self, segment: Segment, position: int, seen: int, ends: Sequence[int]) -> Iterator[Piece]:
        """See :class:`~kfs.tree.text.TextSource`."""
        with self._readers.reader(segment) as reader:
            items: Iterator[Item]
            if self._committed is None:
                items = reader.batches(position, seen, ends[-1])
            else:
                decoded = reader.items(position, seen, ends[-1])
                committed = self._committed_of(decoded, partial(self._is_aborted, segment), MAX_INT64)
                items = (item for item in committed if not isinstance(item, Hidden))
            for chunk in _cut(items, ends):
                yield Piece.join([self._piece_of(item, reader) for item in chunk])

    def grounds(self) -> list[Marker] | None:
        """See :class:`~kfs.tree.text.TextSource`."""
        known = [marker for marker in self._grounds.values() if marker is not None]
        return known if len(known) == len(self._grounds) else None

    def holds(self, grounds: Sequence[Marker]) -> bool:
        """See :class:`~kfs.tree.text.TextSource`."""
        return not grounds or (self._committed is not None and all(map(self._committed.has_marker, grounds)))

    def _measurable(
        self, segment: Segment, position: int, seen: int, end: int | None
    ) -> Iterator[Records | Undecodable | Damage | Hidden]:
        """Go through a segment in order, and note what decides about it from beyond its end."""
        items = segment.bulk(position, seen, end)
        if self._committed is None:
            return items
        transactions = AbortedTransactions(self._committed.log)  # no one else moves it about

        def is_aborted(producer_id: int, base_offset: int, last_offset: int) -> bool:
            fate = transactions.fate(segment, producer_id, base_offset, last_offset)
            if not fate.has_marker:
                self._grounds[producer_id] = None
            elif fate.last >= (segment.next_base_offset or MAX_INT64):
                self._grounds[producer_id] = Marker(producer_id, fate.last, fate.is_aborted)
            return fate.is_aborted

        return self._committed_of(items, is_aborted, self._stable_end)

    def _is_aborted(self, segment: Segment, producer_id: int, base_offset: int, last_offset: int) -> bool:
        committed = self._committed
        return committed is not None and committed.is_aborted(segment, producer_id, base_offset, last_offset)

    def _committed_of(
        self, items: Iterator[Records | Undecodable | Damage], is_aborted: Callable[[int, int, int], bool], end: int
    ) -> Iterator[Records | Undecodable | Damage | Hidden]:
        """Have something hidden stand in place of aborted batches, and nothing of those from offset ``end`` on."""
        for item in items:
            if isinstance(item, Damage):
                yield item
            elif isinstance(item, Undecodable):
                header = item.block.header
                if header.last_offset >= end:
                    return
                hides = header.is_transactional and not header.is_control
                hides = hides and is_aborted(header.producer_id, header.base_offset, header.last_offset)
                yield Hidden(item.end, header.last_offset) if hides else item
            else:
                yield from _divided(item, end, is_aborted)
                if item.last_offset >= end:
                    return

    def _measured(self, item: Records) -> Iterator[Extent]:
        """Measure the lines of batches that were decoded together, a chunk of text at a time."""
        table, columns = item.table, item.columns
        starts = self._renderer.starts(columns)
        first, stop = self._shown(item)
        ends = list(accumulate(table.counts[item.first : item.stop]))
        if len(ends) == 1:
            ends = [len(columns)]  # perhaps not all of what the batch has
        done = row = 0
        while row < len(ends):
            # The batch in which the chunk is full.
            full = bisect_left(starts, starts[done] + CHUNK_BYTES, done + 1, len(columns))
            row = min(bisect_left(ends, full, row), len(ends) - 1)
            begin, end = max(done, first), min(ends[row], stop)
            earliest, latest = _times(item, begin, end)
            size = starts[end] - starts[begin] if begin < end else 0
            last = item.first + row
            yield Extent(size, table.end(last), table.last_offsets[last], earliest, latest)
            done = ends[row]
            row += 1

    def _extent_of(self, item: Records | Undecodable | Damage) -> Extent:
        size = len(self._piece_of_decoded(item).text)
        if isinstance(item, Records):
            return Extent(size, item.end, item.last_offset, *_times(item, *self._shown(item)))
        return Extent(size, item.end, item.block.header.last_offset if isinstance(item, Undecodable) else -1)

    def _piece_of(self, item: Item, reader: BulkReader) -> Piece:
        if not isinstance(item, Ordinary):
            return self._piece_of_decoded(item)
        if item.base_offset < self._offsets.start or item.last_offset >= self._offsets.end:
            return Piece.join([self._piece_of_decoded(decoded) for decoded in reader.decoded(item)])
        limit = reader.storage.max_batch_bytes
        text, row = self._renderer.batches(item.table, item.first, item.stop, limit)
        pieces = [Piece(text)]
        while row < item.stop:  # at one that is no plain matter
            pieces.extend(map(self._piece_of_decoded, reader.decoded(item.of_rows(row, row + 1))))
            text, row = self._renderer.batches(item.table, row + 1, item.stop, limit)
            pieces.append(Piece(text))
        return Piece.join(pieces)

    def _piece_of_decoded(self, item: Records | Undecodable | Damage) -> Piece:
        start = self._offsets.start
        if isinstance(item, Records):
            return self._lines(item)
        if isinstance(item, Undecodable):
            header = item.block.header
            is_shown = not header.is_control and header.last_offset >= start
            return self._damage(item.error) if is_shown else Piece(b"")
        is_shown = item.may_hide(start, self._offsets.end + 1)
        return self._damage(item.problem.error()) if is_shown else Piece(b"")

    def _shown(self, item: Records) -> tuple[int, int]:
        """Return which rows of the columns are shown."""
        if item.is_control:
            return 0, 0
        offsets, start, end = item.columns.offsets, self._offsets.start, self._offsets.end
        if offsets and start <= offsets[0] and offsets[-1] < end:
            return 0, len(offsets)
        return bisect_left(offsets, start), bisect_left(offsets, end)

    def _lines(self, item: Records) -> Piece:
        first, stop = self._shown(item)
        if first >= stop:
            return Piece(b"")
        if not item.columns.faults and stop - first == len(item.columns.offsets):
            return Piece(self._renderer.text(item.columns))
        lines = self._renderer.lines(item.columns, (item.base_offset, item.last_offset))
        faults = [(index, error) for index, error in sorted(lines.faults.items()) if first <= index < stop]
        if faults and self._on_damage is OnDamage.SKIP:
            broken = dict(faults)
            return Piece(b"".join(lines.line(index) for index in range(first, stop) if index not in broken))
        start = lines.starts[first]
        piece = Piece(lines.buffer[start : lines.starts[stop]])
        for index, error in faults:
            at = lines.starts[index] - start
            piece.faults.append((at, at + 1, error.located(item.file, item.position)))
        return piece

    def _damage(self, error: CorruptData) -> Piece:
        if self._on_damage is OnDamage.SKIP:
            return Piece(b"")
        return Piece(b"\n", [(0, 1, error)])


def _divided(item: Records, end: int, is_aborted: Callable[[int, int, int], bool]) -> Iterator[Records | Hidden]:
    """Yield the batches of an item below offset ``end``, the aborted ones as hidden."""
    table = item.table
    start, was_hidden = item.first, False
    for row in range(item.first, item.stop):
        base_offset, last_offset = table.base_offsets[row], table.last_offsets[row]
        is_beyond = last_offset >= end  # a log start offset above the last stable one may lie inside of a batch
        hides = not is_beyond and not item.is_control and bool(table.attributes[row] & TRANSACTIONAL_MASK)
        hides = hides and is_aborted(table.producer_ids[row], base_offset, last_offset)
        if (is_beyond or hides != was_hidden) and start < row:
            yield _part(item, start, row, was_hidden)
            start = row
        if is_beyond:
            return
        was_hidden = hides
    yield _part(item, start, item.stop, was_hidden)


def _cut(items: Iterator[Item], ends: Sequence[int]) -> Iterator[list[Item]]:
    """Yield those items that lie before each of the ends, no further than to an item that an end lies inside of.

    Batches that came together are divided.
    """
    item = next(items, None)
    for end in ends:
        before: list[Item] = []
        while item is not None and item.end <= end:
            before.append(item)
            item = next(items, None)
        is_inside = item is not None and item.position < end
        if isinstance(item, Ordinary | Records) and is_inside:
            row = bisect_left(item.table.positions, end, item.first, item.stop)
            before.append(item.of_rows(item.first, row))
            is_inside = row == item.stop or item.table.positions[row] != end
            item = item.of_rows(row, item.stop) if not is_inside else None
        elif item is not None and is_inside:
            before.append(item)
        yield before
        if is_inside:
            return


def _part(item: Records, first: int, stop: int, hides: bool) -> Records | Hidden:
    if hides:
        return Hidden(item.table.end(stop - 1), item.table.last_offsets[stop - 1])
    return item.of_rows(first, stop)


def _times(item: Records, first: int, stop: int) -> tuple[int, int]:
    """Return the least and the greatest timestamp of some rows."""
    if first >= stop:
        return NO_EARLIEST, NO_LATEST
    timestamps = item.columns.timestamps
    if (first, stop) != (0, len(timestamps)):
        timestamps = timestamps[first:stop]
    return min(timestamps), max(timestamps)
