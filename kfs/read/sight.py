"""What a reader sees of the batches of a segment, and which of what is lost there he has to be told."""

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

#: Whether a transactional batch of messages in a segment is of an aborted transaction, by producer id, base offset and
#: last offset. Raises as :meth:`~kfs.read.aborted_transactions.AbortedTransactions.is_aborted`.
IsAborted: TypeAlias = "Callable[[Segment, int, int, int], bool]"
#: Where records may be lost: it has ``lost``, the offsets that they may have had, None for none, and a ``problem``.
Unreadable: TypeAlias = Undecodable | Damage


class Sight:
    """What is seen of the offsets in ``offsets``: no control records, and with ``is_aborted`` nothing that was aborted.

    What is lost is reported if it may have been among the offsets up to ``asked_end``: where there are none to be read
    from ``offsets.end`` on, that may be because they are lost.
    """

    __slots__ = ("_asked_end", "_end", "_is_aborted", "_start")

    def __init__(self, offsets: OffsetRange, asked_end: int, is_aborted: IsAborted | None = None) -> None:
        self._start = offsets.start
        self._end = offsets.end
        self._asked_end = asked_end
        self._is_aborted = is_aborted

    def rows(self, segment: Segment, records: DecodedBatches) -> list[range]:
        """Return which of the records are seen, by index, those that are broken among them: ranges that aren't empty.

        Raises as :data:`IsAborted`.
        """
        first, stop = self.shown(records)
        if first >= stop:
            return []
        if self._is_aborted is None:
            return [range(first, stop)]
        return self._not_aborted(self._is_aborted, segment, records, first, stop)

    def shown(self, records: DecodedBatches) -> tuple[int, int]:
        """Return the index of the first record that is of the offsets and no control record, and where they end."""
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
        """Whether messages that are lost there may be of the offsets that are asked for."""
        if isinstance(item, Undecodable) and item.block.header.is_control:
            return False
        return item.lost is not None and item.lost.overlaps(self._start, self._asked_end)

    def misses(self, segment: Segment, item: Unreadable) -> bool:
        """Whether a reader has to be told of what is lost there: asked for, and not known to be aborted.

        Raises as :data:`IsAborted`.
        """
        if not self.is_asked_for(item) or self._is_aborted is None or isinstance(item, Damage):
            return self.is_asked_for(item)
        header = item.block.header
        if not header.is_transactional or header.record_count == UNKNOWN_COUNT:
            return True
        return not self._is_aborted(segment, header.producer_id, header.base_offset, header.last_offset)


class Hidden(NamedTuple):
    """Aborted batches: where they end in the file, and the last of their offsets."""

    end: int
    last_offset: int


def without_aborted(
    items: Iterable[DecodedBatches | Unreadable], segment: Segment, is_aborted: IsAborted, end: int
) -> Iterator[DecodedBatches | Unreadable | Hidden]:
    """Have something hidden stand in place of a segment's aborted batches, and nothing of those from ``end`` on.

    Raises as :data:`IsAborted`.
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
    """Yield the batches of an item below offset ``end``, the aborted ones as hidden."""
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
