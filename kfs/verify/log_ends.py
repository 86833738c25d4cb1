"""Check of former log end offsets against the batches: no CRC covers a batch's base offset."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.log.block import Block, Damage
from kfs.verify.finding import FindingKind, Findings
from kfs.verify.offset_index import message_starts


@dataclass(frozen=True, slots=True, order=True)
class KnownEnd:
    """A former log end offset, and the file that records it."""

    offset: int
    source: str


class LogEndAudit:
    """Reports a former log end offset at which no batch ends.

    Only the last segment can be checked: in earlier ones, compaction may have removed the batch.
    """

    def __init__(self, file: str, ends: Iterable[KnownEnd], findings: Findings) -> None:
        self._file = file
        self._waiting = deque(sorted(ends))
        self._findings = findings
        self._is_uncertain = False

    def rows(self, table: BatchTable) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        self._pass_damage(table.base_offsets[0])
        for end in self._ends_to(table.last_offsets[-1]):
            row = bisect_left(table.last_offsets, end.offset - 1)
            if table.last_offsets[row] != end.offset - 1:
                place = table.positions[row], table.end(row)
                self._misplaced(end, place, (table.base_offsets[row], table.last_offsets[row]))

    def messages(self, block: Block, columns: RecordColumns | None) -> None:
        """See :class:`~kfs.verify.observer.Observer`."""
        if columns is None or not len(columns):
            self._is_uncertain = True
            return
        self._pass_damage(columns.offsets[0])
        is_wrapper = block.header.record_count == UNKNOWN_COUNT
        last_offsets = columns.offsets[-1:] if is_wrapper else columns.offsets
        for end in self._ends_to(last_offsets[-1]):
            row = bisect_left(last_offsets, end.offset - 1)
            if last_offsets[row] == end.offset - 1:
                continue
            if is_wrapper:
                self._misplaced(end, (block.position, block.end), (columns.offsets[0], columns.offsets[-1]))
            else:
                starts = [*(start for start, _ in message_starts(block, columns)), block.end]
                offset = last_offsets[row]
                self._misplaced(end, (starts[row], starts[row + 1]), (offset, offset))

    def damage(self, damage: Damage) -> None:
        """See :class:`~kfs.verify.observer.Observer`. The damaged batch may have ended at a known end."""
        self._is_uncertain = True

    def _pass_damage(self, next_offset: int) -> None:
        if self._is_uncertain:
            self._ends_to(next_offset - 1)
            self._is_uncertain = False

    def _ends_to(self, last_offset: int) -> list[KnownEnd]:
        """Remove and return the known ends up to and including ``last_offset + 1``."""
        taken = []
        while self._waiting and self._waiting[0].offset <= last_offset + 1:
            taken.append(self._waiting.popleft())
        return taken

    def _misplaced(self, end: KnownEnd, place: tuple[int, int], offsets: tuple[int, int]) -> None:
        reason = (
            f"offsets {offsets[0]} to {offsets[1]}, but by {end.source} the log once ended at offset {end.offset}, and"
            " no batch ends there: probably a flipped bit in the base offset, which no CRC covers"
        )
        self._findings.add(FindingKind.OFFSETS_MISPLACED, self._file, reason, bytes=place, offsets=offsets)
