"""One partition as the tree shows it: its log, a range of offsets, and how records are rendered."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from kfs.errors import CorruptData, NotFound, Stale
from kfs.format.layout import MAX_INT64
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.segment import Segment
from kfs.log.span import Span
from kfs.log.storage import LoadedBlock
from kfs.read.isolation import CommittedReader, IsolationLevel
from kfs.read.log_reader import Located, LogReader
from kfs.read.transactions import TransactionHistory
from kfs.render.record_json import RenderedLines
from kfs.render.renderers import line_renderer
from kfs.storage.open_files import FileChanged
from kfs.tree.context import NOBODY, Owner, TreeContext, status_of
from kfs.tree.lines.record_lines import SegmentLines
from kfs.tree.lines.source import LineSource
from kfs.tree.lines.text import LogText, SegmentText
from kfs.tree.node import FOREVER, LIVE, Stamp
from kfs.tree.node_ids import NamesWithIds, View
from kfs.tree.slot_table import SlotTable
from kfs.tree.work_ahead import Job

#: For how long, in seconds, the visible range isn't asked for again.
_RANGE_SECONDS: Final = 0.1


class PartitionView:
    """A log, seen through a range of offsets that may move.

    ``path`` is where in the tree it stands, without a leading slash; ``choose_range`` picks the
    range: what is visible, or what lies below the log start offset. ``committed`` leaves out of that what a
    ``read_committed`` consumer doesn't get; it is None where everything is shown.
    """

    def __init__(
        self, context: TreeContext, log: Log, path: str, choose_range: Callable[[Log], OffsetRange] = Log.visible
    ) -> None:
        self.context = context
        self.log = log
        self.path = path
        self.json = line_renderer(log.topic, log.partition)
        #: The state of the log as far as whoever is shown this partition has been told.
        self.promised = state_of(log)
        #: The ids under which the files of lines of segments were promised until told, by base offset.
        self.promised_files: dict[int, int] = {}
        #: Knows the transactions of the log, and has read nothing before it is asked.
        self.transactions = CommittedReader(log)
        #: Knows more of them, and reads the whole log for that, once somebody asks.
        self.history = TransactionHistory(log)
        self.raw_names = NamesWithIds(context.ids, f"{path}/raw")
        is_committed = context.options.isolation is IsolationLevel.READ_COMMITTED
        self.committed = self.transactions if is_committed else None
        self.reader = LogReader(log, self.committed, lambda: self.offsets)
        self._choose_range = choose_range
        self._range = OffsetRange(0, 0)
        self._range_until = -1.0
        self._owners: SlotTable[tuple[Owner, int]] = SlotTable()
        #: What the attributes of the records of closed segments have in common, by slot and view.
        self.stamps: SlotTable[dict[View, Stamp]] = SlotTable()
        #: The state of what decides what is shown of segments, and the slot for that.
        self._cache_slots: WeakKeyDictionary[Segment, tuple[tuple[int, int], int]] = WeakKeyDictionary()
        self._falls = 0  # how often the end of what is shown has moved back, although the log may not have
        self._choosing = threading.Lock()

    @property
    def offsets(self) -> OffsetRange:
        """The offsets that are shown."""
        if time.monotonic() >= self._range_until:
            with self._choosing:
                if time.monotonic() >= self._range_until:  # nobody was faster
                    self._choose()
        return self._range

    def _choose(self) -> None:
        chosen = self._choose_range(self.log)
        if self.committed is not None:
            chosen = self.committed.stable(chosen)
        if chosen.end < self._range.end and (self.committed is not None or not self._ends_with_log):
            self._falls += 1
        self._range = chosen
        self._range_until = time.monotonic() + _RANGE_SECONDS

    @property
    def _ends_with_log(self) -> bool:
        """Whether all that is in the log is in the range, from its start on."""
        return self._choose_range is Log.visible and not self.log.until_high_watermark

    @property
    def state(self) -> Hashable:
        """What stays equal as long as the same is shown of the closed segments."""
        offsets, segments = self.offsets, self.log.segments
        closed_end = segments[-1].base_offset if segments else 0
        return self.log, self.log.incarnation, offsets.start, min(offsets.end, closed_end)

    def cache_slot(self, segment: Segment) -> int:
        """Return the number of what is shown of a segment: under which it is cached, and lines have their id.

        What is committed in it may be for a later segment to say: where one of those became another file, what was
        shown may not hold any more. Nor may it where the end of what is shown has moved back.
        """
        changes = (segment.changes_behind if self.committed is not None else 0, self._falls)
        if changes == (0, 0):
            return segment.slot
        with self.context.lock:
            known = self._cache_slots.get(segment)
            if known is None or known[0] != changes:
                known = self._cache_slots[segment] = changes, segment.storage.new_slot()
            return known[1]

    def owner(self, segment: Segment) -> tuple[Owner, int]:
        """Return the owner of a segment's ``.log`` and its modification time in nanoseconds."""
        known = self._owners.get(segment.slot)
        if known is None or segment.is_last:
            try:
                status = segment.file().status()
            except CorruptData:
                return NOBODY, 0
            known = Owner.of(status), status.mtime_ns
            if not segment.is_last:
                self._owners.put(segment.slot, segment, known)
        return known

    @property
    def mtime_ns(self) -> int:
        """When the partition last changed, in nanoseconds: its directory, or its active segment."""
        mtime_ns = status_of(self.log.directory.path)[1]
        segments = self.log.segments
        return max(mtime_ns, self.owner(segments[-1])[1]) if segments else mtime_ns

    def lifetime(self, segment: Segment) -> float:
        """How long, in seconds, what is shown of a segment holds."""
        return LIVE if segment.is_last else FOREVER

    @property
    def is_in_doubt(self) -> bool:
        """Whether a name here may have led to something else a moment ago: who keeps it hasn't been told that often."""
        if self.log.is_changing or self.log.incarnation != self.promised[0]:  # in this order
            return True
        return self.context.pending.concerns(self.path)

    # -- records

    def loaded(self, offset: int, *, keep: bool = True) -> Located:
        """Return the record at ``offset``; see :meth:`LogReader.find`.

        Raises:
            NotFound: there is no such record, or it is a control record.
            CorruptData: it lies in damaged bytes.
        """
        found = self.reader.find(offset, keep=keep)
        if found is None:
            remote = self.log.remote
            why = f": {remote.sentence}" if remote is not None and offset in remote else ""
            raise NotFound(f"{self.path}: no record at offset {offset}{why}")
        return found

    def rendered(self, offset: int) -> tuple[Segment, RenderedLines, int]:
        """Like :meth:`loaded`, with the block's lines instead of its columns."""
        segment = self.log.segment_for(offset)
        if segment is not None and offset in self.offsets:
            lines = self.context.rendered.find(self.cache_slot(segment), offset)
            if lines is not None:
                index = bisect_left(lines.offsets, offset)
                if index == len(lines) or lines.offsets[index] != offset:
                    raise NotFound(f"{self.path}: no record at offset {offset}")
                if index not in lines.faults:
                    return segment, lines, index
        segment, loaded, index = self.loaded(offset, keep=False)  # its lines are kept
        return segment, self._render(segment, loaded), index

    def loaded_of(self, segment: Segment, offset: int) -> tuple[LoadedBlock, int]:
        """Like :meth:`loaded`, of one incarnation of a segment, though it may be gone from the log.

        Raises:
            Stale: it isn't there any more.
        """
        if self.log.segment_for(offset) is segment:
            found = self.loaded(offset)
            if found.segment is segment:
                return found.loaded, found.record_index
        kept = self.reader.find_kept(segment, offset)
        if kept is None:
            raise Stale(f"{self.path}: offset {offset} is gone")
        return kept.loaded, kept.record_index

    def rendered_of(self, segment: Segment, offset: int) -> tuple[RenderedLines, int]:
        """Like :meth:`rendered`, of one incarnation of a segment, as :meth:`loaded_of`."""
        if self.log.segment_for(offset) is segment:
            found, lines, index = self.rendered(offset)
            if found is segment:
                return lines, index
        kept = self.context.rendered.find(self.cache_slot(segment), offset)
        if kept is None:
            loaded, _ = self.loaded_of(segment, offset)
            kept = self.json.lines(loaded.columns, (loaded.first_offset, loaded.last_offset))
        index = bisect_left(kept.offsets, offset)
        if index == len(kept) or kept.offsets[index] != offset or index in kept.faults:
            raise Stale(f"{self.path}: offset {offset} is gone")
        return kept, index

    def render(self, segment: Segment, loaded: LoadedBlock) -> RenderedLines:
        """Return the lines of a decoded block, through the cache."""
        covers = (loaded.first_offset, loaded.last_offset)
        lines = self.context.rendered.find(self.cache_slot(segment), loaded.last_offset)
        if (
            lines is None
            or (lines.first_offset, lines.last_offset) != covers
            or lines.offsets != loaded.columns.offsets
        ):
            lines = self._render(segment, loaded)
        return lines

    def _render(self, segment: Segment, loaded: LoadedBlock) -> RenderedLines:
        lines = self.json.lines(loaded.columns, (loaded.first_offset, loaded.last_offset))
        slot = self.cache_slot(segment)
        with suppress(FileChanged):
            # Asked once more: what was found may be of a time before that of the slot.
            if self.reader.shows(segment, loaded.header):
                self.context.rendered.put(slot, lines)
        return lines

    # -- text

    def segment_text(self, segment: Segment, start: int | None = None, end: int | None = None) -> SegmentText:
        """Return the lines of the records of a segment that are shown now, or those from offset ``start`` on.

        Those at ``end`` or above are another segment's to show, if there is one. It stays what it is when the range
        moves on: who has the file open reads it to its end.
        """
        context = self.context
        end = segment.next_base_offset if end is None else end
        shown, stable_end = self._shown_of(segment, start, end), None
        if self._is_undecided(segment, end):  # the index is that of a text without an end, as far as it goes by now
            shown, stable_end = OffsetRange(shown.start, MAX_INT64), shown.end
        how = (context.options.on_damage, context.readers, self.committed)
        lines = SegmentLines(self.json, shown, *how, MAX_INT64 if stable_end is None else stable_end)
        return self._text(segment, "records", lines, shown, stable_end)

    def is_undecided(self, segment: Segment) -> bool:
        """Whether more of a segment will be shown without its being written to: transactions in it are open."""
        return self._is_undecided(segment, segment.next_base_offset)

    def _is_undecided(self, segment: Segment, end: int | None) -> bool:
        if self.committed is None or not self._ends_with_log:
            return False
        return end is None or end > self.offsets.end

    def grows(self, segment: Segment) -> bool:
        """Whether more of a segment may be shown than now."""
        return segment.is_last or self.is_undecided(segment)

    def first_shown(self, segment: Segment) -> int:
        """Return from which offset on a segment is shown now."""
        return max(self.offsets.start, segment.base_offset)

    def lines_id(self, segment: Segment, start: int) -> int:
        """Return the id of the file of a segment's lines from offset ``start`` on: other lines, another file."""
        slot = self.cache_slot(segment)
        return self.context.ids.first_of(View.SEGMENT, segment, self, slot) + start - segment.base_offset

    def lasting_file(self, base_offset: int) -> int | None:
        """Return the id of the file of a segment's lines if it can't change while the segment is what it is."""
        segment = self.log.segment_at(base_offset)
        if segment is None or not self.shows(segment):
            return None
        if segment.next_base_offset is None or segment.next_base_offset > self.offsets.end:
            return None
        return self.lines_id(segment, self.first_shown(segment))

    def _shown_of(self, segment: Segment, start: int | None, following: int | None) -> OffsetRange:
        """The offsets of a segment that are shown; the end of an active one is wherever its log ends."""
        offsets = self.offsets
        end = MAX_INT64
        if following is not None:
            end = min(offsets.end, following)
        elif self.committed is not None or not self._ends_with_log:
            end = offsets.end
        return OffsetRange(self.first_shown(segment) if start is None else start, end)

    def text_of(self, segment: Segment, kind: str, source: LineSource) -> SegmentText:
        """Return what ``source`` makes of all of a segment; ``kind`` names it."""
        end = MAX_INT64 if segment.next_base_offset is None else segment.next_base_offset
        return self._text(segment, kind, source, OffsetRange(segment.base_offset, end))

    def _text(
        self, segment: Segment, kind: str, source: LineSource, shown: OffsetRange, stable_end: int | None = None
    ) -> SegmentText:
        key = (self.path, kind, self.cache_slot(segment), shown.start, shown.end)
        lasting_key = partial(self._lasting_key, segment, kind, shown)
        return SegmentText(segment, key, source, self.context.text, lasting_key, stable_end)

    def _lasting_key(self, segment: Segment, kind: str, shown: OffsetRange) -> str:
        """Everything that the index of a segment's text depends on, its version aside."""
        try:
            status = segment.file().status()
        except CorruptData:
            return ""
        log = self.log
        file = (status.device, status.inode, status.size, status.mtime_ns, status.ctime_ns)
        completed = segment.patch, tuple(copy.path for copy in log.other_copies())
        options = self.context.options
        how = (kind, options.on_damage.value, log.storage.max_batch_bytes, options.isolation.value)
        return repr((log.topic, log.partition, segment.base_offset, file, completed, shown, how))

    def log_text(self) -> LogText:
        """Return the lines of every record."""
        return LogText(self._shown_spans, lambda span, start: self.segment_text(span.segment, start, span.end))

    def _shown_spans(self) -> list[Span]:
        """The spans that have offsets in the range, that of the active segment even while it has none."""
        return [span for span in self.log.spans if self._has_shown(span)]

    def shown_segments(self) -> list[Segment]:
        """The segments that have offsets in the range, the active one even while it has none."""
        return [segment for segment in self.log.segments if self.shows(segment)]

    def shows(self, segment: Segment) -> bool:
        """Whether a segment has offsets in the range, or is the active one and they may come."""
        return self._has_shown(Span(segment, segment.base_offset, segment.next_base_offset))

    def _has_shown(self, span: Span) -> bool:
        offsets = self.offsets
        if span.end is not None and span.end <= offsets.start:
            return False
        return span.start < offsets.end or (span.segment.is_last and span.start == offsets.end)

    def size_ahead(self, segment: Segment) -> None:
        """Have the segments after one that is asked for measured, if whoever asks seems to go through them all."""
        sizing = self.context.sizing
        if not sizing.reach:
            return
        segments, at = self.log.segments, self.log.index_of(segment)
        if at is None or (at and self.shows(segments[at - 1]) and not self.segment_text(segments[at - 1]).is_measured):
            return
        following = (each for each in segments[at + 1 : at + 1 + sizing.reach] if self.shows(each))
        texts = [self.segment_text(each) for each in following if not self.grows(each)]
        texts = [text for text in texts if not text.is_measured]
        if texts:
            sizing.ask(Job(text.key, text.index) for text in texts)


def state_of(log: Log) -> tuple[int, int | None]:
    """Return what stays the same as long as nothing that was shown of a log has become untrue."""
    return log.incarnation, log.checkpointed_log_start_offset
