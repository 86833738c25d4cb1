"""The offset index against its log.

What an entry may be depends on who wrote it: brokers from 4.x on write the last offset of a batch, those before the
last offset of an append with the position of its first batch, still older ones the first offset of an append. All
agree on this: the position is where a batch begins, the offset isn't below that batch's first, so above all before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.layout import LOG_OVERHEAD_STRUCT
from kfs.log.block import Block, Damage
from kfs.log.index_builder import OFFSET_ENTRY
from kfs.log.verify.finding import Findings, Kind
from kfs.log.verify.index_entries import IndexEntries, IndexKinds, check_order

KINDS: Final = IndexKinds("offset index", Kind.INDEX_MISSING, Kind.INDEX_SIZE, Kind.INDEX_ZEROS)


class OffsetIndexAudit:
    """Looks where each entry leads."""

    def __init__(self, entries: IndexEntries, base_offset: int, findings: Findings) -> None:
        self._entries = entries
        self._base_offset = base_offset
        self._findings = findings
        check_order(entries, _is_after, Kind.INDEX_ORDER, findings)
        # By position: an index out of order is said to be that once, not at each entry that leads back.
        self._sorted = sorted((position, offset, number) for number, (offset, position) in enumerate(entries))
        self._next = 0
        self._last_batch = 0
        self._damaged: list[tuple[int, int]] = []
        #: How far apart entries lie at most, in bytes, and how far the last batch lies from the last entry.
        self.spacing = 0
        self.gap = 0

    def rows(self, table: BatchTable) -> None:
        """See :class:`~kfs.log.verify.observer.Observer`."""
        self._last_batch = table.positions[-1]
        for position, offset, number in self._entries_below(table.end(len(table) - 1)):
            row = bisect_left(table.positions, position)
            if row == len(table) or table.positions[row] != position:
                self._leads_nowhere(position, number)
            elif offset < table.base_offsets[row]:
                self._is_too_low(offset, position, table.base_offsets[row], number)

    def messages(self, block: Block, columns: RecordColumns | None) -> None:
        """See :class:`~kfs.log.verify.observer.Observer`."""
        self._last_batch = block.position
        starts: dict[int, int] | None = None
        for position, offset, number in self._entries_below(block.end):
            if columns is None:
                continue
            if starts is None:
                starts = dict(_starts(block, columns))
            if position not in starts:
                self._leads_nowhere(position, number)
            elif offset < starts[position]:
                self._is_too_low(offset, position, starts[position], number)

    def damage(self, damage: Damage) -> None:
        """See :class:`~kfs.log.verify.observer.Observer`. An entry that leads there may well be right."""
        self._damaged.append((damage.position, damage.end))
        for _ in self._entries_below(damage.end):
            pass

    def finish(self, end: int, next_offset: int) -> None:
        """Take where the log ends, in bytes and offsets."""
        past = [
            number
            for position, offset, number in self._sorted
            if position >= end or self._absolute(offset) >= next_offset
        ]
        if past and not (self._damaged and self._damaged[-1][1] >= end):
            first = min(past)
            offset, position = OFFSET_ENTRY.unpack_from(self._entries.data, first * OFFSET_ENTRY.size)
            self._findings.add(
                Kind.INDEX_PAST_END,
                self._entries.path,
                f"{len(past)} entries past the log's end, the first ({self._absolute(offset)}, {position});"
                f" the log ends at position {end}, before offset {next_offset}",
                bytes=self._entries.bytes_of(first),
                offsets=(self._absolute(offset), self._absolute(offset)),
            )
        self._measure(end)

    def _measure(self, end: int) -> None:
        previous = 0
        for position, _, _ in self._sorted:
            if position < end:
                self.spacing = max(self.spacing, position - previous)
                previous = position
        self.gap = self._last_batch - previous

    def _absolute(self, offset: int) -> int:
        return self._base_offset + offset

    def _entries_below(self, end: int) -> Iterator[tuple[int, int, int]]:
        """Take the entries whose position is below ``end``: position, absolute offset, number."""
        while self._next < len(self._sorted) and self._sorted[self._next][0] < end:
            position, offset, number = self._sorted[self._next]
            self._next += 1
            yield position, self._absolute(offset), number

    def _leads_nowhere(self, position: int, number: int) -> None:
        reason = f"entry {number} leads to position {position}, where no batch begins"
        self._findings.add(Kind.INDEX_POSITION, self._entries.path, reason, bytes=self._entries.bytes_of(number))

    def _is_too_low(self, offset: int, position: int, first: int, number: int) -> None:
        self._findings.add(
            Kind.INDEX_OFFSET,
            self._entries.path,
            f"entry {number} says offset {offset}, the batch at its position {position} begins at {first}",
            bytes=self._entries.bytes_of(number),
            offsets=(offset, offset),
        )


def _is_after(entry: tuple[int, int], before: tuple[int, int]) -> bool:
    return entry[0] > before[0] and entry[1] > before[1]


def _starts(block: Block, columns: RecordColumns) -> Iterator[tuple[int, int]]:
    """Yield where each message of a block begins, and its first offset."""
    if block.header.record_count == UNKNOWN_COUNT:
        yield block.position, columns.offsets[0] if len(columns) else block.header.last_offset
        return
    at = 0
    while at < len(block.data):
        offset, size = LOG_OVERHEAD_STRUCT.unpack_from(block.data, at)
        yield block.position + at, offset
        at += LOG_OVERHEAD_STRUCT.size + size
