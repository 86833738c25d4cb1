"""The visible records of a log: lookups by offset and time, and iteration in offset order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from kfs.errors import CorruptData
from kfs.format.layout import NO_TIMESTAMP
from kfs.log.block import Block
from kfs.log.log import Log
from kfs.log.log_segments import MOST_LOOKS
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem
from kfs.storage.open_files import FileChanged

if TYPE_CHECKING:
    from kfs.format.batch_header import BatchHeader
    from kfs.log.segment import Segment
    from kfs.log.span import Span
    from kfs.log.storage import LoadedBlock
    from kfs.read.isolation import CommittedReader

#: The numbers of offsets, counted back from a segment's end, to search for its last record: markers and offsets without
#: records may follow it.
_LOOK_BACK: Final = (1, 64, 4096, 2**18, 2**31)


class Located(NamedTuple):
    """A record: its segment, its decoded block, and its index in the block."""

    segment: Segment
    loaded: LoadedBlock
    record_index: int


class Shown(NamedTuple):
    """A decoded block of a segment, and the indexes of its visible records, broken records included."""

    segment: Segment
    loaded: LoadedBlock
    indexes: range


class LogReader:
    """Reads the records in a log's visible offsets, or in the offsets that ``choose`` returns.

    With ``committed`` it reads only the records that a ``read_committed`` consumer gets. Control records are never
    shown. Thread-safe; lookups can come in any order.
    """

    __slots__ = ("_choose", "committed", "log")

    def __init__(
        self, log: Log, committed: CommittedReader | None = None, choose: Callable[[], OffsetRange] | None = None
    ) -> None:
        self.log = log
        self.committed = committed
        self._choose = choose

    @property
    def offsets(self) -> OffsetRange:
        """The offsets whose records are visible; the range moves with the log."""
        if self._choose is not None:
            return self._choose()
        visible = self.log.visible()
        return visible if self.committed is None else self.committed.stable(visible)

    def shows(self, segment: Segment, header: BatchHeader) -> bool:
        """Whether the records of a batch below the end of :attr:`offsets` are visible: neither control nor aborted.

        Raises:
            FileChanged: the log doesn't have the batch's segment any more.
        """
        return not header.is_control and (self.committed is None or not self.committed.hides(segment, header))

    # -- by offset

    def find(self, offset: int, *, keep: bool = True) -> Located | None:
        """Return the record at ``offset``, or None if no record is visible there.

        With ``keep`` the cache keeps its block.

        Raises:
            CorruptData: the record lies in damaged bytes.
        """
        log, offsets = self.log, self.offsets
        if offset >= offsets.end == log.log_end_offset and not log.until_high_watermark:
            log.find(offset)  # raises if damage at the log's end may hold it
        if offset not in offsets:
            return None
        segment, loaded = log.find_with_segment(offset, keep=keep, shows=self.shows)
        if segment is None or loaded is None:
            return None
        index = _index_of(loaded, offset)
        if index is None:
            return None
        if index in loaded.columns.faults:
            raise loaded.columns.faults[index].located(loaded.file, loaded.header.position)
        return Located(segment, loaded, index)

    @staticmethod
    def find_kept(segment: Segment, offset: int) -> Located | None:
        """Return the record at ``offset`` of a segment that the log no longer has, for a reader that knows the segment.

        Raises:
            CorruptData: the record lies in damaged bytes, or the segment can't be read any more.
        """
        loaded = segment.find(offset)
        index = None if loaded is None else _index_of(loaded, offset)
        return None if loaded is None or index is None else Located(segment, loaded, index)

    # -- in order

    def blocks(self, start: int) -> Iterator[tuple[Span, Block]]:
        """Yield the blocks with visible messages from offset ``start`` on; damage is reported and skipped.

        Only those records of a block count whose offsets lie in its span; see :meth:`Log.walk_spans`.
        """
        offsets = self.offsets
        reached, looks = max(start, offsets.start), 0
        while True:
            try:
                for span, item in self.log.walk_spans(OffsetRange(reached, offsets.end)):
                    if isinstance(item, Block):
                        if self.shows(span.segment, item.header):
                            yield span, item
                        reached, looks = max(reached, span.within(0, item.header.last_offset + 1)[1]), 0
                return
            except FileChanged:  # by now, the log has another segment there, or none
                looks += 1
                if looks == MOST_LOOKS:
                    raise

    def records(self, start: int) -> Iterator[Shown]:
        """Yield the decoded blocks from offset ``start`` on, each with the indexes of its visible records."""
        offsets = self.offsets
        start = max(start, offsets.start)
        for span, block in self.blocks(start):
            with suppress(CorruptData):
                loaded = span.segment.load(block)
                first, stop = (bisect_left(loaded.columns.offsets, at) for at in span.within(start, offsets.end))
                yield Shown(span.segment, loaded, range(first, stop))

    def records_between(self, segment: Segment, position: int, end: int, after: int) -> Iterator[Shown]:
        """Yield the decoded blocks between two byte positions of a segment, in the form of :meth:`records`."""
        offsets = self.offsets
        for item in segment.walk(position, after):
            if item.position >= end:
                return
            if isinstance(item, Block) and self.shows(segment, item.header):
                with suppress(CorruptData):
                    loaded = segment.load(item)
                    first = bisect_left(loaded.columns.offsets, offsets.start)
                    yield Shown(segment, loaded, range(first, bisect_left(loaded.columns.offsets, offsets.end)))

    def first_from(self, start: int, lost: Callable[[Problem], None]) -> Located | None:
        """Return the first record from offset ``start`` on; call ``lost`` with damage that may hide an earlier one."""
        from kfs.read.sight import Sight  # only here: other look-ups report no losses

        offsets = self.offsets
        wanted = OffsetRange(max(start, offsets.start), offsets.end)
        sight = Sight(wanted, wanted.end + 1)
        for segment, item in self.log.walk(wanted):
            if not isinstance(item, Block):
                if sight.is_asked_for(item):
                    lost(item.problem)
                continue
            if not self.shows(segment, item.header):
                continue
            try:
                loaded = segment.load(item)
            except CorruptData as error:
                lost(Problem(item.file, item.position, item.header.size, error.reason))
                continue
            columns = loaded.columns
            index = bisect_left(columns.offsets, wanted.start)
            while index in columns.faults:
                index += 1
            if index < len(columns) and columns.offsets[index] < wanted.end:
                return Located(segment, loaded, index)
        return None

    # -- by timestamp, first and last

    def first_at_or_after(self, timestamp: int) -> int | None:
        """Return the lowest offset of a visible record whose timestamp (ms) is at least ``timestamp``, None if none."""
        offset = self.log.offset_for_time(timestamp, self.offsets)
        if offset is None or self.committed is None:
            return offset
        for _, loaded, indexes in self.records(offset):  # the record at this offset may be hidden
            timestamps = loaded.columns.timestamps
            found = next((index for index in indexes if timestamps[index] >= timestamp), None)
            if found is not None and timestamps[found] != NO_TIMESTAMP:
                return loaded.columns.offsets[found]
        return None

    def first_offset(self) -> int | None:
        """Return the lowest offset with a visible record, None if there is none."""
        for _, loaded, indexes in self.records(0):
            if indexes:
                return loaded.columns.offsets[indexes[0]]
        return None

    def last_offset(self) -> int | None:
        """Return the highest offset with a visible record, None if there is none."""
        offsets = self.offsets
        for segment, begin, following in reversed(self.log.spans):
            if begin >= offsets.end:
                continue
            end = min(offsets.end, following or offsets.end)
            for back in _LOOK_BACK:
                start = max(end - back, begin)
                last = self._last_from(segment, start)
                if last is not None:
                    return last
                if start == begin:
                    break
        return None

    def _last_from(self, segment: Segment, start: int) -> int | None:
        last = None
        for found, loaded, indexes in self.records(start):
            if found is not segment:
                break
            if indexes:
                last = loaded.columns.offsets[indexes[-1]]
        return last


def _index_of(loaded: LoadedBlock, offset: int) -> int | None:
    offsets = loaded.columns.offsets
    index = bisect_left(offsets, offset)
    return index if index < len(offsets) and offsets[index] == offset else None
