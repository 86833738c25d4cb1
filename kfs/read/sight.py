"""Decides which records of a segment a reader sees, and which losses in it must be reported."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.layout import TRANSACTIONAL_MASK
from kfs.log.block import Damage
from kfs.log.bulk import DecodedBatches, Undecodable
from kfs.log.offset_range import OffsetRange

if TYPE_CHECKING:
    from kfs.log.segment import Segment

#: Whether a transactional batch of messages in a segment belongs to an aborted transaction, by producer id, base offset
#: and last offset. Errors are those of :meth:`~kfs.read.aborted_transactions.AbortedTransactions.is_aborted`.
IsAborted: TypeAlias = "Callable[[Segment, int, int, int], bool]"
#: A place where records may be lost. ``lost`` is the range of offsets that they may have, or None if none can be lost.
#: ``problem`` describes the place.
Unreadable: TypeAlias = Undecodable | Damage


class Sight:
    """The records that a reader sees in ``offsets``: no control records and, with ``is_aborted``, no aborted ones.

    A loss is reported if it may affect offsets below ``asked_end``. That may lie above ``offsets.end``, because the
    readable offsets may end there only because later ones are lost.
    """

    __slots__ = ("_asked_end", "_end", "_is_aborted", "_start")

    def __init__(self, offsets: OffsetRange, asked_end: int, is_aborted: IsAborted | None = None) -> None:
        self._start = offsets.start
        self._end = offsets.end
        self._asked_end = asked_end
        self._is_aborted = is_aborted

    def rows(self, segment: Segment, records: DecodedBatches) -> list[range]:
        """Return the indexes of the visible records as non-empty ranges, broken records included.

        Errors are those of :data:`IsAborted`.
        """
        first, stop = self.shown(records)
        if first >= stop:
            return []
        if self._is_aborted is None:
            return [range(first, stop)]
        return self._not_aborted(self._is_aborted, segment, records, first, stop)

    def shown(self, records: DecodedBatches) -> tuple[int, int]:
        """Return the range of indexes, end excluded, of the records in the offsets; it is empty for control records."""
        if records.is_control:
            return 0, 0
        offsets, start, end = records.columns.offsets, self._start, self._end
        if offsets and start <= offsets[0] and offsets[-1] < end:
            return 0, len(offsets)
        first = bisect_left(offsets, start)
        return first, bisect_left(offsets, end, first)

    @staticmethod
    def _not_aborted(
        is_aborted: IsAborted, segment: Segment, records: DecodedBatches, first: int, stop: int
    ) -> list[range]:
        table, offsets = records.table, records.columns.offsets
        kept: list[range] = []
        for row in range(records.first, records.stop):
            if not table.attributes[row] & TRANSACTIONAL_MASK:
                continue
            base_offset, last_offset = table.base_offsets[row], table.last_offsets[row]
            if last_offset < offsets[first] or base_offset > offsets[stop - 1]:
                continue
            if is_aborted(segment, table.producer_ids[row], base_offset, last_offset):
                left_out = bisect_left(offsets, base_offset, first, stop)
                kept.append(range(first, left_out))
                first = bisect_left(offsets, last_offset + 1, left_out, stop)
                if first == stop:
                    break
        kept.append(range(first, stop))
        return [some for some in kept if some]

    def is_asked_for(self, item: Unreadable) -> bool:
        """Whether messages that are lost there may have requested offsets."""
        if isinstance(item, Undecodable) and item.block.header.is_control:
            return False
        return item.lost is not None and item.lost.overlaps(self._start, self._asked_end)

    def misses(self, segment: Segment, item: Unreadable) -> bool:
        """Whether the loss must be reported: it may affect requested offsets, and isn't known to be of aborted records.

        Errors are those of :data:`IsAborted`.
        """
        if not self.is_asked_for(item) or self._is_aborted is None or isinstance(item, Damage):
            return self.is_asked_for(item)
        header = item.block.header
        if not header.is_transactional or header.record_count == UNKNOWN_COUNT:
            return True
        return not self._is_aborted(segment, header.producer_id, header.base_offset, header.last_offset)


class Hidden(NamedTuple):
    """Aborted batches: the byte position in the file where they end, and their last offset."""

    end: int
    last_offset: int


def without_aborted(
    items: Iterable[DecodedBatches | Unreadable], segment: Segment, is_aborted: IsAborted, end: int
) -> Iterator[DecodedBatches | Unreadable | Hidden]:
    """Yield the items of a segment, with :class:`Hidden` in place of aborted batches.

    Stop at the first batch whose last offset isn't below ``end``.

    Errors are those of :data:`IsAborted`.
    """
    for item in items:
        if isinstance(item, Damage):
            yield item
        elif isinstance(item, Undecodable):
            header = item.block.header
            if header.last_offset >= end:
                return
            hides = header.is_transactional and not header.is_control
            hides = hides and is_aborted(segment, header.producer_id, header.base_offset, header.last_offset)
            yield Hidden(item.end, header.last_offset) if hides else item
        else:
            yield from _divided(item, segment, is_aborted, end)
            if item.last_offset >= end:
                return


def _divided(
    item: DecodedBatches, segment: Segment, is_aborted: IsAborted, end: int
) -> Iterator[DecodedBatches | Hidden]:
    """Yield the batches of an item below offset ``end``, the aborted ones as :class:`Hidden`."""
    table = item.table
    start, was_hidden = item.first, False
    for row in range(item.first, item.stop):
        base_offset, last_offset = table.base_offsets[row], table.last_offsets[row]
        is_beyond = last_offset >= end  # a log start offset above the last stable one may lie inside of a batch
        hides = not is_beyond and not item.is_control and bool(table.attributes[row] & TRANSACTIONAL_MASK)
        hides = hides and is_aborted(segment, table.producer_ids[row], base_offset, last_offset)
        if (is_beyond or hides != was_hidden) and start < row:
            yield _part(item, start, row, was_hidden)
            start = row
        if is_beyond:
            return
        was_hidden = hides
    yield _part(item, start, item.stop, was_hidden)


def _part(item: DecodedBatches, first: int, stop: int, hides: bool) -> DecodedBatches | Hidden:
    if hides:
        return Hidden(item.table.end(stop - 1), item.table.last_offsets[stop - 1])
    return item.of_rows(first, stop)
