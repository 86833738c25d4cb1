"""Checks indexes against their log, in one walk for any number of entries.

Entries from every broker version are accepted. Before 4.x, an entry has the first or the last offset of an append;
later, the last offset of a batch. Readers rely only on this: a batch begins at the position, and all records before it
have offsets below the entry's offset.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from kfs.dump.batches import headers_of
from kfs.dump.problems import IndexFindings, Pair
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader
from kfs.format.batch_table import BatchTable
from kfs.format.layout import NO_TIMESTAMP, OFFSET_INDEX_ENTRY
from kfs.log.block import Block, Damage
from kfs.log.problem import Problem
from kfs.log.walk import SegmentWalk

_UNKNOWN: Final = -1


class Outline:
    """The positions of a log's batches, with their last offsets and largest timestamps.

    ``last_offsets`` never decrease: a damaged batch, or one with lower offsets, has the highest offset before it.
    """

    def __init__(self, walk: SegmentWalk) -> None:
        self.positions, self.base_offsets = array("q"), array("q")
        self.last_offsets, self.timestamps = array("q"), array("q")
        self._damaged: set[int] = set()
        self._highest = walk.bounds.base_offset - 1
        position = 0
        walk.begin(0, None)
        while position < walk.size:
            table = walk.scan(position)
            if not len(table):
                item = walk.item(position)
                if item is None:
                    break
                position = item.end
                if isinstance(item, Damage):
                    self._add_damage(item)
                    continue
                table = _table(item)
            for header in headers_of(table):
                self._add(header)
            position = table.end(len(table) - 1)
        self.end = position

    def _add(self, header: BatchHeader) -> None:
        self.positions.append(header.position)
        # A wrapper's header doesn't have the first offset of its messages.
        self.base_offsets.append(self._highest + 1 if header.record_count == UNKNOWN_COUNT else header.base_offset)
        self._highest = max(self._highest, header.last_offset)
        self.last_offsets.append(self._highest)
        self.timestamps.append(header.max_timestamp)

    def _add_damage(self, damage: Damage) -> None:
        self._damaged.add(damage.position)
        self.positions.append(damage.position)
        self.base_offsets.append(self._highest + 1)
        self.last_offsets.append(self._highest)
        self.timestamps.append(NO_TIMESTAMP)

    def batch_at(self, position: int) -> int | None:
        """Return the number of the batch at a position, or None if no batch begins there."""
        index = bisect_left(self.positions, position)
        return index if index < len(self.positions) and self.positions[index] == position else None

    def is_damaged(self, index: int) -> bool:
        """Whether the bytes with the given number aren't a valid batch."""
        return self.positions[index] in self._damaged

    def last_offset_before(self, index: int) -> int:
        """Return the highest offset before a batch, -1 if there is none."""
        return self.last_offsets[index - 1] if index else _UNKNOWN


def _table(block: Block) -> BatchTable:
    return BatchTable.of(block.header, block.data)


def check_offsets(path: str, entries: list[Pair], outline: Outline) -> tuple[list[Pair], list[Problem]]:
    """Check the entries (offset, position) of an offset index against the log.

    Returns the entries with an offset that a record before their position has, each with the last offset of the batch
    at the position. Returns as problems the entries that point to no batch or are out of order.
    """
    mismatches, problems = [], []
    previous = (-1, -1)
    for number, (offset, position) in enumerate(entries):
        if offset <= previous[0] or position <= previous[1]:
            reason = f"entry of offset {offset}, position {position} after that of {previous[0]}, {previous[1]}"
            problems.append(Problem(path, number * OFFSET_INDEX_ENTRY.size, OFFSET_INDEX_ENTRY.size, reason))
        previous = offset, position
        index = outline.batch_at(position)
        if index is None:
            if (offset, position) == (entries[0][0], 0) and not number:
                continue  # the first entry of a preallocated, empty index of an empty log
            where = f"the log ends at {outline.end}" if position >= outline.end else "no batch begins there"
            reason = f"entry of offset {offset} at position {position} of the log: {where}"
            problems.append(Problem(path, number * OFFSET_INDEX_ENTRY.size, OFFSET_INDEX_ENTRY.size, reason))
        elif not outline.is_damaged(index) and outline.last_offset_before(index) >= offset:
            mismatches.append((offset, outline.last_offsets[index]))
    return mismatches, problems


def check_times(entries: list[Pair], outline: Outline, base_offset: int) -> IndexFindings:
    """Check the entries (timestamp, offset) of a time index against the log and each other."""
    findings = IndexFindings()
    previous = NO_TIMESTAMP
    for timestamp, offset in entries:
        if (timestamp, offset) == (0, base_offset):
            continue  # the first entry of a preallocated, empty index
        index = bisect_left(outline.last_offsets, offset)
        if index == len(outline.last_offsets):
            findings.not_found.append((offset, _UNKNOWN))
        elif outline.last_offsets[index] != offset:
            # Before 4.x, the offset could be the record's own.
            if offset < outline.base_offsets[index] or outline.timestamps[index] != timestamp:
                findings.not_found.append((offset, outline.last_offsets[index]))
        elif not outline.is_damaged(index) and outline.timestamps[index] != timestamp:
            findings.mismatches.append((timestamp, outline.timestamps[index]))
        if previous >= timestamp:
            findings.out_of_order.append((timestamp, previous))
        previous = timestamp
    return findings
