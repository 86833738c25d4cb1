"""The offset index against its log.

What an entry may be depends on who wrote it: brokers from 4.x on write the last offset of a batch, those before the last
offset of an append with the position of its first batch, still older ones the first offset of an append. All agree on
this: the position is where a batch begins, the offset isn't below that batch's first, and so above all before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import Final

from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.layout import LOG_OVERHEAD_STRUCT
from kfs.log.block import Block, Damage
from kfs.log.verify.finding import Findings, Kind, Severity
from kfs.log.verify.index_entries import IndexEntries, IndexKinds, check_order

ENTRY: Final = Struct(">ii")
KINDS: Final = IndexKinds("offset index", Kind.INDEX_MISSING, Kind.INDEX_SIZE, Kind.INDEX_ZEROS)

#: ``index.interval.bytes``'s default.
_INTERVAL_BYTES: Final = 4096
#: ``replica.fetch.response.max.bytes``'s default: what a follower appends at once, before 4.x with one entry at most.
_LARGEST_APPEND: Final = 10 * 1024 * 1024


class OffsetIndexAudit:
    """Looks where each entry leads."""

    def __init__(self, entries: IndexEntries, base_offset: int, findings: Findings) -> None:
        self._entries = entries
        self._base_offset = base_offset
        self._findings = findings
        check_order(entries, lambda entry, before: entry[0] > before[0] and entry[1] > before[1], Kind.INDEX_ORDER, findings)
        # By position: an index out of order is said to be that once, not at each entry that leads back.
        self._sorted = sorted((position, offset, number) for number, (offset, position) in enumerate(entries))
        self._next = 0
        self._last_batch = 0
        self._damaged: list[tuple[int, int]] = []

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

    def finish(self, end: int, next_offset: int, *, time_entries: int, is_closed: bool) -> None:
        """Take where the log ends, in bytes and offsets, and how many entries the time index has."""
        past = [number for position, _, number in self._sorted if position >= end]
        past += [number for position, offset, number in self._sorted if position < end and self._absolute(offset) >= next_offset]
        if past and not (self._damaged and self._damaged[-1][1] >= end):
            first = min(past)
            offset, position = ENTRY.unpack_from(self._entries.data, first * ENTRY.size)
            self._findings.add(
                Kind.INDEX_PAST_END,
                self._entries.path,
                f"{len(past)} entries past the log's end, the first ({self._absolute(offset)}, {position});"
                f" the log ends at position {end}, before offset {next_offset}",
                bytes=self._entries.bytes_of(first),
                offsets=(self._absolute(offset), self._absolute(offset)),
            )
        self._check_length(time_entries, is_closed=is_closed)

    def _check_length(self, time_entries: int, *, is_closed: bool) -> None:
        """Entries are made for both indexes at once, and one more for the time index when the segment is closed."""
        count = len(self._entries)
        if count < time_entries - 1:
            reason = f"{count} entries where the time index has {time_entries}"
            self._findings.add(Kind.INDEX_SHORT, self._entries.path, reason, bytes=self._end_bytes())
            return
        if not is_closed:
            return
        previous, widest = 0, _INTERVAL_BYTES
        for position, _, _ in self._sorted:
            widest = max(widest, position - previous)
            previous = position
        gap = self._last_batch - previous
        if gap > widest:
            severity = None if gap > _LARGEST_APPEND else Severity.INFO
            reason = f"no entry after position {previous}, the last batch is at {self._last_batch}"
            self._findings.add(Kind.INDEX_SHORT, self._entries.path, reason, bytes=self._end_bytes(), severity=severity)

    def _end_bytes(self) -> tuple[int, int]:
        return len(self._entries.data), max(self._entries.file_size, len(self._entries.data))

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
