"""A log, and what of it is visible in the tree."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Final
from weakref import WeakKeyDictionary

from kfs.errors import CorruptData
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.segment import Segment
from kfs.log.span import Span
from kfs.read.isolation import CommittedReader
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_reader import LogReader
from kfs.read.transactions import TransactionHistory
from kfs.render.renderers import line_renderer
from kfs.tree.context import NOBODY, Owner, TreeContext, status_of
from kfs.tree.node import FOREVER, LIVE, Stamp
from kfs.tree.node_ids import NamesWithIds, View
from kfs.tree.slot_table import SlotTable

#: For how long, in seconds, the visible range isn't asked for again.
_RANGE_SECONDS: Final = 0.1


def state_of(log: Log) -> tuple[int, int | None]:
    """Return what stays the same as long as nothing that was shown of a log has become untrue."""
    return log.incarnation, log.checkpointed_log_start_offset


class VisibleLog:
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
        #: The state of the log as far as the front that shows this partition has been told.
        self.promised = state_of(log)
        #: Knows the transactions of the log, and has read nothing before it is asked.
        self.transactions = CommittedReader(log)
        #: Knows more of them, and reads the whole log for that, once it is asked.
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
                if time.monotonic() >= self._range_until:  # no other thread was faster
                    self._choose()
        return self._range

    def _choose(self) -> None:
        chosen = self._choose_range(self.log)
        if self.committed is not None:
            chosen = self.committed.stable(chosen)
        if chosen.end < self._range.end and (self.committed is not None or not self.ends_with_log):
            self._falls += 1
        self._range = chosen
        self._range_until = time.monotonic() + _RANGE_SECONDS

    @property
    def ends_with_log(self) -> bool:
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

    def first_shown(self, segment: Segment) -> int:
        """Return from which offset on a segment is shown now."""
        return max(self.offsets.start, segment.base_offset)

    def shown_segments(self) -> list[Segment]:
        """The segments that have offsets in the range, the active one even while it has none."""
        return [segment for segment in self.log.segments if self.shows(segment)]

    def shows(self, segment: Segment) -> bool:
        """Whether a segment has offsets in the range, or is the active one and they may come."""
        return self.has_shown(Span(segment, segment.base_offset, segment.next_base_offset))

    def has_shown(self, span: Span) -> bool:
        """Whether a span has offsets in the range, or is that of the active segment and they may come."""
        offsets = self.offsets
        if span.end is not None and span.end <= offsets.start:
            return False
        return span.start < offsets.end or (span.segment.is_last and span.start == offsets.end)
