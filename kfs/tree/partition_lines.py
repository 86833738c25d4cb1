"""The line files of a partition: of each segment, and of the whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kfs.errors import CorruptData, Stale
from kfs.format.layout import MAX_INT64
from kfs.log.offset_range import OffsetRange
from kfs.log.segment import Segment
from kfs.log.span import Span
from kfs.tree.lines.record_lines import SegmentLines
from kfs.tree.lines.source import LineSource
from kfs.tree.lines.text import LogText, SegmentText
from kfs.tree.node_ids import View
from kfs.tree.visible_log import VisibleLog
from kfs.tree.work_ahead import WorkAheadJob


class PartitionLines:
    """Makes texts of the visible part of a log, and says which files of them are the same."""

    __slots__ = ("_visible", "promised_files")

    def __init__(self, visible: VisibleLog) -> None:
        self._visible = visible
        #: By base offset, the ids of the segments' line files that were promised :data:`~kfs.tree.node.UNTIL_TOLD`.
        self.promised_files: dict[int, int] = {}

    def segment_text(self, segment: Segment, start: int | None = None, end: int | None = None) -> SegmentText:
        """Return the lines of the segment's visible records, or those from offset ``start`` on.

        Offsets from ``end`` on belong to another segment, if there is one. The text stays the same when the range
        moves: a reader with the file open reads it to its end.
        """
        context = self._visible.context
        end = segment.next_base_offset if end is None else end
        shown = self._shown_of(segment, start, end)
        how = (context.options.on_damage, context.readers, self._visible.committed)
        if not self._is_undecided(segment, end):
            return self._text(segment, "records", SegmentLines(self._visible.json, shown, *how), shown)
        stable_end = partial(self._stable_end, segment, end, shown.end)
        shown = OffsetRange(shown.start, MAX_INT64)  # this index is that of a text without an end, as far as it got
        lines = SegmentLines(self._visible.json, shown, *how, stable_end)
        return self._text(segment, "records", lines, shown, stable_end)

    def _stable_end(self, segment: Segment, end: int | None, known: int) -> int:
        """Return the offset before which is decided what is shown of a segment, at least the one that is ``known``.

        The visible range says nothing of a segment that the log doesn't list any more.
        """
        visible_end = self._visible.offsets.end
        if not segment.is_listed:  # in this order
            return known
        return max(known, visible_end if end is None else min(visible_end, end))

    def is_undecided(self, segment: Segment) -> bool:
        """Return whether more of a segment will be shown without a write to it: it has open transactions."""
        return self._is_undecided(segment, segment.next_base_offset)

    def _is_undecided(self, segment: Segment, end: int | None) -> bool:
        if self._visible.committed is None or not self._visible.ends_with_log:
            return False
        return end is None or end > self._visible.offsets.end

    def grows(self, segment: Segment) -> bool:
        """Return whether more of a segment may be shown later."""
        return segment.is_last or self.is_undecided(segment)

    def lines_id(self, segment: Segment, start: int) -> int:
        """Return the id of the file of a segment's lines from offset ``start`` on: other lines, another file."""
        visible = self._visible
        first = visible.context.ids.first_of(View.SEGMENT, segment, visible, visible.cache_slot(segment))
        return first + start - segment.base_offset

    def lasting_file(self, base_offset: int) -> int | None:
        """Return the id of a segment's line file if that can't change while the segment stays the same."""
        segment = self._visible.log.segment_at(base_offset)
        if segment is None or not self._visible.shows(segment):
            return None
        if segment.next_base_offset is None or segment.next_base_offset > self._visible.offsets.end:
            return None
        return self.lines_id(segment, self._visible.first_shown(segment))

    def _shown_of(self, segment: Segment, start: int | None, following: int | None) -> OffsetRange:
        """Return the visible offsets of a segment; those of an active one end wherever its log ends.

        Raises:
            Stale: the log doesn't list it any more, so the visible range doesn't apply to it.
        """
        end = MAX_INT64 if following is None else following
        if self._visible.committed is not None or not self._visible.ends_with_log:
            visible = self._visible.offsets
            if visible.end < end and not segment.is_listed:  # in this order
                raise Stale(f"{segment.files.log.path}: {segment.what_became_of_it()}")
            end = min(visible.end, end)
        return OffsetRange(self._visible.first_shown(segment) if start is None else start, end)

    def text_of(self, segment: Segment, kind: str, source: LineSource) -> SegmentText:
        """Return the text that ``source`` makes of a whole segment; ``kind`` names it."""
        end = MAX_INT64 if segment.next_base_offset is None else segment.next_base_offset
        return self._text(segment, kind, source, OffsetRange(segment.base_offset, end))

    def _text(
        self,
        segment: Segment,
        kind: str,
        source: LineSource,
        shown: OffsetRange,
        stable_end: Callable[[], int] | None = None,
    ) -> SegmentText:
        key = (self._visible.path, kind, self._visible.cache_slot(segment), shown.start, shown.end)
        lasting_key = partial(self._lasting_key, segment, kind, shown)
        return SegmentText(segment, key, source, self._visible.context.text, lasting_key, stable_end)

    def _lasting_key(self, segment: Segment, kind: str, shown: OffsetRange) -> str:
        """Return everything that the index of a segment's text depends on, except its version."""
        try:
            status = segment.file().status()
        except CorruptData:
            return ""
        log = self._visible.log
        file = (status.device, status.inode, status.size, status.mtime_ns, status.ctime_ns)
        completed = segment.patch, tuple(copy.path for copy in log.other_copies())
        options = self._visible.context.options
        how = (kind, options.on_damage.value, log.storage.max_batch_bytes, options.isolation.value)
        return repr((log.topic, log.partition, segment.base_offset, file, completed, shown, how))

    def log_text(self) -> LogText:
        """Return the lines of every record."""
        return LogText(self._shown_spans, lambda span, start: self.segment_text(span.segment, start, span.end))

    def _shown_spans(self) -> list[Span]:
        """Return the spans with offsets in the range; that of the active segment even without."""
        return [span for span in self._visible.log.spans if self._visible.has_shown(span)]

    def size_ahead(self, segment: Segment) -> None:
        """Measure the segments after a requested one ahead, if a reader seems to go through all of them."""
        sizing = self._visible.context.sizing
        if not sizing.reach:
            return
        segments, at = self._visible.log.segments, self._visible.log.index_of(segment)
        if at is None or (
            at and self._visible.shows(segments[at - 1]) and not self.segment_text(segments[at - 1]).is_measured
        ):
            return
        following = (each for each in segments[at + 1 : at + 1 + sizing.reach] if self._visible.shows(each))
        texts = [self.segment_text(each) for each in following if not self.grows(each)]
        texts = [text for text in texts if not text.is_measured]
        if texts:
            sizing.ask(WorkAheadJob(text.key, text.index) for text in texts)
