"""Check of the offset index against its log.

What an entry says depends on the broker that wrote it. Brokers from 4.x on write the last offset and the position of a
batch. Before that, an entry has the last offset of an append and the position of its first batch; still older brokers
write the first offset of the append. In all cases a batch begins at the position, and the entry's offset is at least
that batch's first offset, so it is above all earlier offsets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.layout import LOG_OVERHEAD_STRUCT, MAX_INT64
from kfs.log.block import Block, Damage
from kfs.verify.finding import FindingKind, Findings
from kfs.verify.index_entries import EntryQueue, IndexEntries, IndexLayout, check_order

LAYOUT: Final = IndexLayout(  # OffsetIndex.java: relative offset, position
    Struct(">i4x"),
    Struct(">4xi"),
    FindingKind.INDEX_MISSING,
    FindingKind.INDEX_SIZE,
    FindingKind.INDEX_ZEROS,
    FindingKind.INDEX_ORDER,
)


class IndexLength(NamedTuple):
    """How far an offset index reaches: ``entries`` entries, at most ``spacing`` bytes apart.

    ``gap`` is the distance in bytes from the last entry's position to the last batch. ``last_offset`` is the last
    entry's offset; without entries, it is one below the segment's base offset. ``is_preallocated`` is as in
    :class:`IndexEntries`.
    """

    entries: int
    last_offset: int
    spacing: int
    gap: int
    is_preallocated: bool


class OffsetIndexAudit:
    """Checks that each entry's position and offset match a batch."""

    def __init__(self, entries: IndexEntries, base_offset: int, findings: Findings) -> None:
        self._entries = entries
        self._base_offset = base_offset
        self._findings = findings
        # By position: then an index out of order gets one finding for that, not one for each entry that goes back.
        is_ordered = check_order(entries, findings, strictly=True)
        self._by_position = EntryQueue(entries.second, is_ordered=is_ordered)
        self._last_batch = 0
        self._last_entry = 0
        self._highest = -1
        self._damaged_to = -1
        self._spacing = 0

    def rows(self, table: BatchTable) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        self._last_batch = table.positions[-1]
        for number in self._below(table.end(len(table) - 1)):
            position = self._entries.second[number]
            row = bisect_left(table.positions, position)
            if row == len(table) or table.positions[row] != position:
                self._leads_nowhere(number)
            elif self._offset(number) < table.base_offsets[row]:
                self._is_too_low(number, table.base_offsets[row])

    def messages(self, block: Block, columns: RecordColumns | None) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        self._last_batch = block.position
        numbers = self._below(block.end)
        if columns is None or not numbers:
            return
        starts = dict(message_starts(block, columns))
        for number in numbers:
            first = starts.get(self._entries.second[number])
            if first is None:
                self._leads_nowhere(number)
            elif self._offset(number) < first:
                self._is_too_low(number, first)

    def damage(self, damage: Damage) -> None:
        """See :class:`~kfs.verify.observer.Observer`. An entry that points into damage may be right."""
        self._damaged_to = damage.end
        self._below(damage.end)

    def finish(self, end: int, next_offset: int) -> None:
        """Report entries past the log's end, given as a byte position and an offset."""
        behind = self._by_position.below(MAX_INT64)
        first = behind[0] if behind else self._highest
        is_past = bool(behind) or (first >= 0 and self._offset(first) >= next_offset)
        if is_past and self._damaged_to < end:
            offset, position = self._offset(first), self._entries.second[first]
            self._findings.add(
                FindingKind.INDEX_PAST_END,
                self._entries.path,
                f"entry {first} ({offset}, {position}) is past the end of the log, which ends at position {end} and"
                f" before offset {next_offset}" + (f"; so are {len(behind) - 1} more" if len(behind) > 1 else ""),
                bytes=self._entries.bytes_of(first),
                offsets=(offset, offset),
            )

    def length(self) -> IndexLength:
        """Return how far the index reaches; call :meth:`finish` first."""
        gap = self._last_batch - self._last_entry
        last_offset = self._offset(self._highest) if self._highest >= 0 else self._base_offset - 1
        return IndexLength(len(self._entries), last_offset, self._spacing, gap, self._entries.is_preallocated)

    def _below(self, end: int) -> Sequence[int]:
        """Remove and return the entries with positions below ``end``; track their spacing."""
        numbers = self._by_position.below(end)
        for number in numbers:
            position = self._entries.second[number]
            self._spacing = max(self._spacing, position - self._last_entry)
            self._last_entry = position
            if self._highest < 0 or self._entries.first[number] > self._entries.first[self._highest]:
                self._highest = number
        return numbers

    def _offset(self, number: int) -> int:
        return self._base_offset + self._entries.first[number]

    def _leads_nowhere(self, number: int) -> None:
        reason = f"entry {number} points to position {self._entries.second[number]}, where no batch begins"
        self._findings.add(FindingKind.INDEX_POSITION, self._entries.path, reason, bytes=self._entries.bytes_of(number))

    def _is_too_low(self, number: int, first: int) -> None:
        offset, position = self._offset(number), self._entries.second[number]
        self._findings.add(
            FindingKind.INDEX_OFFSET,
            self._entries.path,
            f"entry {number} has offset {offset}, but the batch at its position {position} begins at {first}",
            bytes=self._entries.bytes_of(number),
            offsets=(offset, offset),
        )


def message_starts(block: Block, columns: RecordColumns) -> Iterator[tuple[int, int]]:
    """Yield the byte position of each message in a block, and its first offset."""
    if block.header.record_count == UNKNOWN_COUNT:
        yield block.position, columns.offsets[0] if len(columns) else block.header.last_offset
        return
    at = 0
    while at < len(block.data):
        offset, size = LOG_OVERHEAD_STRUCT.unpack_from(block.data, at)
        yield block.position + at, offset
        at += LOG_OVERHEAD_STRUCT.size + size
