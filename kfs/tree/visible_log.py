"""A log, and the part of it that is visible in the tree."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from kfs.errors import CorruptData, SourceLost
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.segment import Segment
from kfs.log.span import Span
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_reader import LogReader
from kfs.render.renderers import LineRenderer, line_renderer
from kfs.tree.context import NOBODY, Owner, TreeContext
from kfs.tree.node import FOREVER, LIVE, Stamp
from kfs.tree.node_ids import NamesWithIds, View
from kfs.tree.slot_table import SlotTable

if TYPE_CHECKING:
    from kfs.read.isolation import CommittedReader
    from kfs.read.transactions import TransactionHistory

#: How long, in seconds, the visible range is reused.
_RANGE_SECONDS: Final = 0.1


def state_of(log: Log) -> tuple[int, int | None]:
    """Return a state that stays the same while everything shown of a log stays true."""
    return log.incarnation, log.checkpointed_log_start_offset


class VisibleLog:
    """A log, seen through a range of offsets that may move.

    ``path`` is its place in the tree, without a leading slash; ``choose_range`` picks the range: the visible offsets,
    or those below the log start offset. ``committed`` filters that as for a ``read_committed`` consumer; it is None if
    everything is shown.
    """

    __slots__ = (
        "__weakref__",
        "_cache_slots",
        "_choose_range",
        "_choosing",
        "_falls",
        "_history",
        "_json",
        "_owners",
        "_range",
        "_range_until",
        "_raw_names",
        "_transactions",
        "committed",
        "context",
        "log",
        "number",
        "path",
        "promised",
        "reader",
        "stamps",
    )

    def __init__(
        self, context: TreeContext, log: Log, path: str, choose_range: Callable[[Log], OffsetRange] = Log.visible
    ) -> None:
        self.context = context
        self.log = log
        self.path = path
        self.number = context.ids.number_of(self)
        #: The state of the log as last told to the front that shows this partition.
        self.promised = state_of(log)
        is_committed = context.options.isolation is IsolationLevel.READ_COMMITTED
        # A mount may show very many logs: what isn't needed for most of them is made on demand.
        self._transactions: CommittedReader | None = None
        self._history: TransactionHistory | None = None
        self._raw_names: NamesWithIds | None = None
        self.committed = self.transactions if is_committed else None
        self._json: LineRenderer | None = None
        self.reader = LogReader(log, self.committed, self._chosen)
        self._choose_range = choose_range
        self._range = OffsetRange(0, 0)
        self._range_until = -1.0
        self._owners: SlotTable[tuple[Owner, int]] = SlotTable()
        #: The common attributes of the records of closed segments, by slot and view.
        self.stamps: SlotTable[dict[View, Stamp]] = SlotTable()
        #: For each segment: the state that decides what is shown of it, and the slot for that.
        self._cache_slots: WeakKeyDictionary[Segment, tuple[tuple[int, int], int]] | None = None
        self._falls = 0  # how often the end of the visible range has moved back, perhaps without the log
        self._choosing = threading.Lock()
        log.note_dependent(self)

    @property
    def json(self) -> LineRenderer:
        """Renders the records."""
        renderer = self._json
        if renderer is None:
            renderer = self._json = line_renderer(self.log.topic, self.log.partition)
        return renderer

    @property
    def transactions(self) -> CommittedReader:
        """Knows the transactions of the log; reads nothing before it is used."""
        reader = self._transactions
        if reader is None:
            from kfs.read.isolation import CommittedReader  # only here: readers of everything don't ask

            reader = self._transactions = CommittedReader(self.log)
        return reader

    @property
    def history(self) -> TransactionHistory:
        """Knows more of the transactions, for which it reads the whole log once it is used."""
        history = self._history
        if history is None:
            from kfs.read.transactions import TransactionHistory

            history = self._history = TransactionHistory(self.log)
        return history

    @property
    def raw_names(self) -> NamesWithIds:
        """The names in ``raw/`` that have ids."""
        with self.context.lock:
            names = self._raw_names
            if names is None:
                names = self._raw_names = NamesWithIds(self.context.ids, f"{self.path}/raw")
            return names

    def let_go(self) -> None:
        """Drop what can be found again, because the log let go of its segments: see :meth:`Log.let_go`."""
        if self._transactions is not None:
            self._transactions.let_go()
        if self._history is not None:
            self._history.let_go()
        self._transactions, self._history, self._json = self.committed, None, None
        self._owners, self.stamps = SlotTable(), SlotTable()

    @property
    def offsets(self) -> OffsetRange:
        """The offsets that are shown."""
        if time.monotonic() >= self._range_until:
            with self._choosing:
                if time.monotonic() >= self._range_until:  # no other thread was faster
                    self._choose()
        return self._range

    def look_again(self) -> None:
        """Choose the offsets anew at the next query, because the log has changed."""
        with self._choosing:  # a choice that is being made may have begun before
            self._range_until = -1.0

    def _chosen(self) -> OffsetRange:
        return self.offsets

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
        """Whether the range has everything in the log, from its start on."""
        return self._choose_range is Log.visible and not self.log.until_high_watermark

    @property
    def state(self) -> Hashable:
        """A value that stays equal while the closed segments show the same."""
        offsets, segments = self.offsets, self.log.segments
        closed_end = segments[-1].base_offset if segments else 0
        return self.log, self.log.incarnation, offsets.start, min(offsets.end, closed_end)

    def cache_slot(self, segment: Segment) -> int:
        """Return the number of a segment's visible content: the key of caches, and part of the id of its lines.

        Later segments may decide what is committed in it: if one of those is replaced, the content may be outdated. So
        it may be after the end of the visible range moved back.
        """
        changes = (segment.changes_behind if self.committed is not None else 0, self._falls)
        if changes == (0, 0):
            return segment.slot
        with self.context.lock:
            slots = self._cache_slots
            if slots is None:
                slots = self._cache_slots = WeakKeyDictionary()
            known = slots.get(segment)
            if known is None or known[0] != changes:
                segment.is_pinned = True
                known = slots[segment] = changes, segment.storage.new_slot()
            return known[1]

    def segment_with(self, slot: int) -> Segment | None:
        """Return the segment of the log that has a slot; None if there is none, or the log can't be listed."""
        try:
            return next((segment for segment in self.log.segments if segment.slot == slot), None)
        except SourceLost:
            return None

    def owner(self, segment: Segment) -> tuple[Owner, int]:
        """Return the owner of a segment's ``.log`` and its modification time in nanoseconds."""
        known = self._owners.get(segment.slot)
        is_growing = segment.is_last and not segment.is_frozen
        if known is None or is_growing:
            try:
                status = segment.file().status()
            except CorruptData:
                return NOBODY, 0
            known = Owner.of(status), status.mtime_ns
            if not is_growing:
                self._owners.put(segment.slot, segment, known)
        return known

    @property
    def mtime_ns(self) -> int:
        """When the partition last changed, in nanoseconds: its directory, or its active segment."""
        mtime_ns = self.context.status_of(self.log.directory.path)[1]
        segments = self.log.segments
        return max(mtime_ns, self.owner(segments[-1])[1]) if segments else mtime_ns

    def lifetime(self, segment: Segment) -> float:
        """Return how long, in seconds, a segment's content stays valid."""
        return LIVE if segment.is_last else FOREVER

    @property
    def is_in_doubt(self) -> bool:
        """Whether a name here may have led to another file a moment ago, and this wasn't told often enough yet."""
        if self.log.is_changing or self.log.incarnation != self.promised[0]:  # in this order
            return True
        return self.context.pending.concerns(self.path)

    def first_shown(self, segment: Segment) -> int:
        """Return the first offset shown of a segment now."""
        return max(self.offsets.start, segment.base_offset)

    def shown_segments(self) -> list[Segment]:
        """Return the segments with offsets in the range; the active one even without."""
        return [segment for segment in self.log.segments if self.shows(segment)]

    def shows(self, segment: Segment) -> bool:
        """Return whether a segment has offsets in the range, or is the active one and may get them."""
        return self.has_shown(Span(segment, segment.base_offset, segment.next_base_offset))

    def has_shown(self, span: Span) -> bool:
        """Return whether a span has offsets in the range, or is the active segment's and may get them."""
        offsets = self.offsets
        if span.end is not None and span.end <= offsets.start:
            return False
        return span.start < offsets.end or (span.segment.is_last and span.start == offsets.end)
