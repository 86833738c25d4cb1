"""Reading a segment as fast as it goes: many batches at a time, as few sets of columns.

The same records, damage and problems as a walk with every block decoded, in the same order. What is
ordinary goes through :meth:`~kfs.format.decode.BlockDecoder.scan` by the window; what isn't is
judged by the walk, one item at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfs.errors import CorruptData
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.layout import CONTROL_MASK
from kfs.log.block import Block, Damage
from kfs.log.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfs.log.storage import Storage
    from kfs.log.walk import SegmentWalk


class Records:
    """The records of one or several batches that follow one another, from ``position`` to ``end`` in the file.

    ``base_offset`` and ``last_offset`` are what their headers say together. ``is_control`` tells
    control records, which are no messages; the two are never mixed.
    """

    __slots__ = ("base_offset", "columns", "end", "file", "is_control", "last_offset", "position")

    def __init__(
        self,
        columns: RecordColumns,
        file: str,
        position: int,
        end: int,
        base_offset: int,
        last_offset: int,
        is_control: bool,
    ) -> None:
        self.columns = columns
        self.file = file
        self.position = position
        self.end = end
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.is_control = is_control


class Undecodable:
    """An intact block whose records can't be had, and why."""

    __slots__ = ("block", "error")

    def __init__(self, block: Block, error: CorruptData) -> None:
        self.block = block
        self.error = error

    @property
    def position(self) -> int:
        """Byte position in the segment's file."""
        return self.block.position

    @property
    def end(self) -> int:
        """Byte position of what follows."""
        return self.block.end


class BulkReader:
    """Reads what ``walk`` walks over; ``report`` is told what is wrong with records."""

    def __init__(self, walk: SegmentWalk, storage: Storage, report: Callable[[Problem], None]) -> None:
        self.walk = walk
        self.storage = storage
        self.report = report

    def items(
        self, position: int = 0, seen: int | None = None, end: int | None = None
    ) -> Iterator[Records | Undecodable | Damage]:
        """Read from ``position``, a batch boundary, up to ``end``, another one, or to the end of the log.

        ``seen`` is as in :meth:`~kfs.log.walk.SegmentWalk.items`, and so are the errors.
        """
        walk = self.walk
        walk.begin(position, seen)
        stop = walk.size if end is None else min(end, walk.size)
        while position < stop:
            table = walk.ordinary(position)
            rows = len(table) if end is None else bisect_left(table.positions, stop)
            if rows:
                yield from self._decoded(table, rows)
                position = table.end(rows - 1)
                continue
            item = walk.item(position)
            if item is None:
                break
            yield self._loaded(item) if isinstance(item, Block) else item
            position = item.end
        walk.end = position

    def _decoded(self, table: BatchTable, rows: int) -> Iterator[Records | Undecodable]:
        decoder, limit, file = self.storage.decoder, self.storage.max_batch_bytes, self.walk.file.path
        row = 0
        while row < rows:
            try:
                columns, after = decoder.decode_rows(table, row, limit)
            except CorruptData:
                yield self._loaded(Block(table.header(row), table.data(row), file))
                row += 1
                continue
            yield Records(
                columns,
                file,
                table.positions[row],
                table.end(after - 1),
                table.base_offsets[row],
                table.last_offsets[after - 1],
                bool(table.attributes[row] & CONTROL_MASK),
            )
            row = after

    def _loaded(self, block: Block) -> Records | Undecodable:
        """Decode a block by itself, and report what is wrong with it."""
        try:
            loaded = self.storage.load(block, self.report)
        except CorruptData as error:
            return Undecodable(block, error)
        header = block.header
        return Records(
            loaded.columns,
            block.file,
            block.position,
            block.end,
            header.base_offset,
            header.last_offset,
            header.is_control,
        )
