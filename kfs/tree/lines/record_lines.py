"""The lines of a segment's records, many batches at a time."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias

from cachetools import LRUCache

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.log.block import Cause, Damage
from kfs.log.bulk import BulkReader, DecodedBatches, ScannedBatches
from kfs.log.problem import DamagePolicy
from kfs.read.deciding_markers import DecidingMarkers, Marker
from kfs.read.sight import Hidden, Sight, Unreadable, without_aborted
from kfs.tree.lines.index import NO_EARLIEST, NO_LATEST
from kfs.tree.lines.source import CHUNK_BYTES, Chunk, TextPart

if TYPE_CHECKING:
    from kfs.log.offset_range import OffsetRange
    from kfs.log.segment import Segment
    from kfs.read.isolation import CommittedReader
    from kfs.render.renderers import LineRenderer

_MOST_READERS: Final = 16


class ReaderPool:
    """Readers of closed segments, with their read-ahead data, to continue where they were."""

    def __init__(self) -> None:
        self._readers: LRUCache[int, BulkReader] = LRUCache(_MOST_READERS)
        self._lock = threading.Lock()

    @contextmanager
    def reader(self, segment: Segment) -> Iterator[BulkReader]:
        """Lend a reader of a segment for the duration of a block; raise :class:`FileChanged` as the segment does."""
        segment.file()
        with self._lock:
            reader = self._readers.pop(segment.slot, None)
        if reader is None:
            reader = segment.bulk_reader()
        yield reader
        if not reader.walk.bounds.is_last:  # an active segment grows, and the reader doesn't notice
            with self._lock:
                self._readers[segment.slot] = reader


#: The items that lines are made of.
Item: TypeAlias = ScannedBatches | DecodedBatches | Unreadable


class SegmentLines:
    """The lines of a segment's records in a range of offsets; with ``committed``, only of those it shows."""

    def __init__(
        self,
        renderer: LineRenderer,
        offsets: OffsetRange,
        on_damage: DamagePolicy,
        readers: ReaderPool,
        committed: CommittedReader | None = None,
        stable_end: Callable[[], int] = lambda: MAX_INT64,
    ) -> None:
        """``stable_end`` returns the offset before which the text ends for now; what is measured stays."""
        self._renderer = renderer
        self._offsets = offsets
        self._on_damage = on_damage
        self._readers = readers
        self._committed = committed
        self._stable_end = stable_end
        #: Covers the whole log, as far as there is a segment: losses at the segment's end are reported.
        self._sight = Sight(offsets, min(offsets.end, MAX_INT64 - 1) + 1)
        self._deciding = DecidingMarkers()

    def measure(self, segment: Segment, position: int, after: int, end: int | None) -> Iterator[TextPart]:
        """See :class:`~kfs.tree.lines.source.LineSource`."""
        for item in self._measurable(segment, position, after, end):
            if isinstance(item, Hidden):
                yield TextPart(0, item.end, item.last_offset)
            elif isinstance(item, DecodedBatches) and not item.columns.faults and not item.is_control:
                yield from self._measured(item)
            else:
                yield self._part_of(item)

    def chunks(self, segment: Segment, position: int, after: int, ends: Sequence[int]) -> Iterator[Chunk]:
        """See :class:`~kfs.tree.lines.source.LineSource`."""
        with self._readers.reader(segment) as reader:
            items: Iterator[Item]
            if self._committed is None:
                items = reader.batches(position, after, ends[-1])
            else:
                decoded = reader.items(position, after, ends[-1])
                committed = without_aborted(decoded, segment, self._committed.is_aborted, MAX_INT64)
                items = (item for item in committed if not isinstance(item, Hidden))
            for chunk in _cut(items, ends):
                yield Chunk.join([self._chunk_of(item, reader) for item in chunk])

    def deciding_markers(self) -> list[Marker] | None:
        """See :class:`~kfs.tree.lines.source.LineSource`."""
        return self._deciding.noted()

    def still_decide(self, markers: Sequence[Marker]) -> bool:
        """See :class:`~kfs.tree.lines.source.LineSource`."""
        return not markers or (self._committed is not None and all(map(self._committed.has_marker, markers)))

    def _measurable(
        self, segment: Segment, position: int, after: int, end: int | None
    ) -> Iterator[DecodedBatches | Unreadable | Hidden]:
        """Return the segment's items in order, and note the markers after it that decide about them."""
        items = segment.bulk(position, after, end)
        if self._committed is None:
            return items
        return without_aborted(items, segment, self._deciding.noting(self._committed.log), self._stable_end())

    def _measured(self, item: DecodedBatches) -> Iterator[TextPart]:
        """Measure the lines of batches that were decoded together, a chunk of text at a time."""
        table, columns = item.table, item.columns
        starts = self._renderer.starts(columns)
        first, stop = self._sight.shown(item)
        ends = list(accumulate(table.counts[item.first : item.stop]))
        if len(ends) == 1:
            ends = [len(columns)]  # perhaps not all records of the batch
        done = row = 0
        while row < len(ends):
            # The batch that fills the chunk.
            full = bisect_left(starts, starts[done] + CHUNK_BYTES, done + 1, len(columns))
            row = min(bisect_left(ends, full, row), len(ends) - 1)
            begin, end = max(done, first), min(ends[row], stop)
            earliest, latest = _times(item, begin, end)
            size = starts[end] - starts[begin] if begin < end else 0
            last = item.first + row
            yield TextPart(size, table.end(last), table.last_offsets[last], earliest, latest)
            done = ends[row]
            row += 1

    def _part_of(self, item: DecodedBatches | Unreadable) -> TextPart:
        size = len(self._chunk_of_decoded(item).text)
        if isinstance(item, DecodedBatches):
            return TextPart(size, item.end, item.last_offset, *_times(item, *self._sight.shown(item)))
        is_missing = isinstance(item, Damage) and item.cause is Cause.MISSING
        return TextPart(size, item.end, item.last_offset, is_missing=is_missing)

    def _chunk_of(self, item: Item, reader: BulkReader) -> Chunk:
        if not isinstance(item, ScannedBatches):
            return self._chunk_of_decoded(item)
        if item.base_offset < self._offsets.start or item.last_offset >= self._offsets.end:
            return Chunk.join([self._chunk_of_decoded(decoded) for decoded in reader.decoded(item)])
        limit = reader.storage.max_batch_bytes
        text, row = self._renderer.batches(item.table, item.first, item.stop, limit)
        chunks = [Chunk(text)]
        while row < item.stop:  # at a batch that needs decoding
            chunks.extend(map(self._chunk_of_decoded, reader.decoded(item.of_rows(row, row + 1))))
            text, row = self._renderer.batches(item.table, row + 1, item.stop, limit)
            chunks.append(Chunk(text))
        return Chunk.join(chunks)

    def _chunk_of_decoded(self, item: DecodedBatches | Unreadable) -> Chunk:
        if isinstance(item, DecodedBatches):
            return self._lines(item)
        return self._damage(item.problem.error()) if self._sight.is_asked_for(item) else Chunk(b"")

    def _lines(self, item: DecodedBatches) -> Chunk:
        first, stop = self._sight.shown(item)
        if first >= stop:
            return Chunk(b"")
        if not item.columns.faults and stop - first == len(item.columns.offsets):
            return Chunk(self._renderer.text(item.columns))
        lines = self._renderer.lines(item.columns, (item.base_offset, item.last_offset))
        faults = [(index, error) for index, error in sorted(lines.faults.items()) if first <= index < stop]
        if faults and self._on_damage is DamagePolicy.SKIP:
            broken = dict(faults)
            return Chunk(b"".join(lines.line(index) for index in range(first, stop) if index not in broken))
        start = lines.starts[first]
        chunk = Chunk(lines.buffer[start : lines.starts[stop]])
        for index, error in faults:
            at = lines.starts[index] - start
            chunk.faults.append((at, at + 1, error.located(item.file, item.position)))
        return chunk

    def _damage(self, error: CorruptData) -> Chunk:
        if self._on_damage is DamagePolicy.SKIP:
            return Chunk(b"")
        return Chunk(b"\n", [(0, 1, error)])


def _cut(items: Iterator[Item], ends: Sequence[int]) -> Iterator[list[Item]]:
    """Yield, for each end, the items before it, up to an item that contains the end.

    Batches that came together are divided.
    """
    item = next(items, None)
    for end in ends:
        before: list[Item] = []
        while item is not None and item.end <= end:
            before.append(item)
            item = next(items, None)
        is_inside = item is not None and item.position < end
        if isinstance(item, ScannedBatches | DecodedBatches) and is_inside:
            row = bisect_left(item.table.positions, end, item.first, item.stop)
            before.append(item.of_rows(item.first, row))
            is_inside = row == item.stop or item.table.positions[row] != end
            item = item.of_rows(row, item.stop) if not is_inside else None
        elif item is not None and is_inside:
            before.append(item)
        yield before
        if is_inside:
            return


def _times(item: DecodedBatches, first: int, stop: int) -> tuple[int, int]:
    """Return the least and the greatest timestamp of some rows."""
    if first >= stop:
        return NO_EARLIEST, NO_LATEST
    timestamps = item.columns.timestamps
    if (first, stop) != (0, len(timestamps)):
        timestamps = timestamps[first:stop]
    return min(timestamps), max(timestamps)
