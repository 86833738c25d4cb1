"""Notes the markers after a segment that decide what is committed in it.

As long as these markers exist, the visible records of the segment stay the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kfs.format.layout import MAX_INT64
from kfs.read.aborted_transactions import AbortedTransactions

if TYPE_CHECKING:
    from kfs.log.log import Log
    from kfs.log.segment import Segment
    from kfs.read.sight import IsAborted


class Marker(NamedTuple):
    """A marker after the end of a segment that ends a transaction with records in the segment."""

    producer_id: int
    offset: int
    is_aborted: bool


class DecidingMarkers:
    """Notes the markers after the end of a segment that decide transactions in it, during passes over the segment."""

    def __init__(self) -> None:
        self._by_producer: dict[int, Marker | None] = {}

    def noting(self, log: Log) -> IsAborted:
        """Return an :data:`IsAborted` function for one pass over a segment, in log order; it notes the markers."""
        transactions = AbortedTransactions(log)  # not shared: other users would move its read position

        def is_aborted(segment: Segment, producer_id: int, base_offset: int, last_offset: int) -> bool:
            outcome = transactions.outcome(segment, producer_id, base_offset, last_offset)
            if not outcome.has_marker:
                self._by_producer[producer_id] = None
            elif outcome.last >= (segment.next_base_offset or MAX_INT64):
                self._by_producer[producer_id] = Marker(producer_id, outcome.last, outcome.is_aborted)
            return outcome.is_aborted

        return is_aborted

    def noted(self) -> list[Marker] | None:
        """Return the noted markers, or None if an outcome came from something else than a marker."""
        known = [marker for marker in self._by_producer.values() if marker is not None]
        return known if len(known) == len(self._by_producer) else None
