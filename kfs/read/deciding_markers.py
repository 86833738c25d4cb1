"""Which markers behind a segment decided what is committed in it: while they stand, so does what is shown of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kfs.format.layout import MAX_INT64
from kfs.read.aborted_transactions import AbortedTransactions

if TYPE_CHECKING:
    from kfs.log.log import Log
    from kfs.log.segment import Segment
    from kfs.read.sight import IsAborted


class Marker(NamedTuple):
    """A marker beyond the end of a segment that decided about records in it."""

    producer_id: int
    offset: int
    is_aborted: bool


class DecidingMarkers:
    """Notes the markers that decide about a segment from beyond its end, as passes over it ask for them."""

    def __init__(self) -> None:
        self._by_producer: dict[int, Marker | None] = {}

    def noting(self, log: Log) -> IsAborted:
        """Return what answers for one pass over a segment of a log, in its order, and notes what decided."""
        transactions = AbortedTransactions(log)  # no one else moves it about

        def is_aborted(segment: Segment, producer_id: int, base_offset: int, last_offset: int) -> bool:
            outcome = transactions.outcome(segment, producer_id, base_offset, last_offset)
            if not outcome.has_marker:
                self._by_producer[producer_id] = None
            elif outcome.last >= (segment.next_base_offset or MAX_INT64):
                self._by_producer[producer_id] = Marker(producer_id, outcome.last, outcome.is_aborted)
            return outcome.is_aborted

        return is_aborted

    def noted(self) -> list[Marker] | None:
        """Return the markers that were noted; None where something decided that isn't a marker."""
        known = [marker for marker in self._by_producer.values() if marker is not None]
        return known if len(known) == len(self._by_producer) else None
