"""Check of the time index against its log: an entry has the largest timestamp of all records up to its offset."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Final

from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.layout import MAX_INT32, NO_TIMESTAMP
from kfs.log.block import Block, Damage
from kfs.verify.finding import FindingKind, Findings
from kfs.verify.index_entries import EntryQueue, IndexEntries, IndexLayout, check_order

LAYOUT: Final = IndexLayout(  # TimeIndex.java: timestamp, relative offset
    Struct(">q4x"),
    Struct(">8xi"),
    FindingKind.TIMEINDEX_MISSING,
    FindingKind.TIMEINDEX_SIZE,
    FindingKind.TIMEINDEX_ZEROS,
    FindingKind.TIMEINDEX_ORDER,
)


class TimeIndexAudit:
    """Tracks the largest timestamp and compares each entry with it. ``latest`` is the largest seen so far."""

    def __init__(self, entries: IndexEntries | None, base_offset: int, findings: Findings) -> None:
        """Check the order of ``entries``; None means that there is no index, and only timestamps are tracked."""
        self._entries = entries
        self._base_offset = base_offset
        self._findings = findings
        self._by_offset = EntryQueue(array("q"), is_ordered=True)
        if entries is not None:
            # The closing entry may repeat an offset (LogSegment.onBecomeInactiveSegment), but not decrease.
            is_ordered = check_order(entries, findings, strictly=False)
            self._by_offset = EntryQueue(entries.second, is_ordered=is_ordered)
        self._is_damaged = False
        self.latest = NO_TIMESTAMP

    @property
    def count(self) -> int:
        """The number of entries."""
        return 0 if self._entries is None else len(self._entries)

    def rows(self, table: BatchTable) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        latest, done = self.latest, 0
        for offset, timestamp, number in self._entries_to(table.last_offsets[-1]):
            row = bisect_left(table.last_offsets, offset)
            latest = max(latest, max(table.max_timestamps[done:row], default=NO_TIMESTAMP))
            done = max(done, row)
            inside = max(latest, table.max_timestamps[row])
            # An offset inside a batch: which of its records come before is unknown here.
            self._compare(timestamp, number, inside if offset == table.last_offsets[row] else latest, inside)
        self.latest = max(latest, max(table.max_timestamps[done:], default=NO_TIMESTAMP))

    def messages(self, block: Block, columns: RecordColumns | None) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        last = block.header.last_offset
        if columns is None or not len(columns):
            self.damage_to(last)
            return
        for offset, timestamp, number in self._entries_to(max(last, columns.offsets[-1])):
            stop = bisect_right(columns.offsets, offset)
            before = max(self.latest, max(columns.timestamps[:stop], default=NO_TIMESTAMP))
            # The entry of a wrapper's last message may have the wrapper's timestamp.
            is_wrapper = block.header.record_count == UNKNOWN_COUNT
            most = max(before, block.header.max_timestamp) if is_wrapper else before
            self._compare(timestamp, number, before, most)
        self.latest = max(self.latest, block.header.max_timestamp, max(columns.timestamps))

    def damage(self, damage: Damage) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        self.damage_to(damage.claimed_last)

    def damage_to(self, last_offset: int) -> None:
        """Skip the entries of records with unknown timestamps."""
        self._is_damaged = True
        for _ in self._entries_to(last_offset):
            pass

    def finish(self, next_offset: int, *, is_closed: bool) -> None:
        """Report entries past the log's end; in a closed segment, also a missing last entry."""
        if self._entries is None:
            return
        past = list(self._entries_to(self._base_offset + MAX_INT32))
        if past and not self._is_damaged:
            offset, timestamp, number = past[0]
            self._findings.add(
                FindingKind.TIMEINDEX_PAST_END,
                self._entries.path,
                f"{len(past)} entries past the log's end at offset {next_offset}, the first ({timestamp}, {offset})",
                bytes=self._entries.bytes_of(number),
                offsets=(offset, offset),
            )
        known = max(self._entries.first, default=NO_TIMESTAMP)
        if is_closed and known < self.latest:
            reason = f"the last entry has timestamp {known}, the latest in the log is {self.latest}"
            start = self._entries.used
            self._findings.add(
                FindingKind.TIMEINDEX_SHORT,
                self._entries.path,
                reason,
                bytes=(start, max(start, self._entries.file_size)),
            )

    def _entries_to(self, offset: int) -> Iterator[tuple[int, int, int]]:
        """Remove and yield the entries up to ``offset``: absolute offset, timestamp, number."""
        for number in self._by_offset.below(offset - self._base_offset + 1):
            assert self._entries is not None
            yield self._base_offset + self._entries.second[number], self._entries.first[number], number

    def _compare(self, timestamp: int, number: int, least: int, most: int) -> None:
        if timestamp < least:
            reason = f"entry {number} has timestamp {timestamp}, below the latest up to its offset, {least}"
        elif timestamp > most and not self._is_damaged:
            reason = f"entry {number} has timestamp {timestamp}, above the latest up to its offset, {most}"
        else:
            return
        assert self._entries is not None
        self._findings.add(
            FindingKind.TIMEINDEX_TIMESTAMP, self._entries.path, reason, bytes=self._entries.bytes_of(number)
        )
