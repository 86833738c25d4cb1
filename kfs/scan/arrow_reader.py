"""Reads splits into Arrow buffers, in one process."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Final

from kfs.cat.records import some_of
from kfs.errors import CorruptData
from kfs.format.columns import RecordColumns
from kfs.format.layout import MAX_INT32
from kfs.format.record import TimestampType
from kfs.log.bulk import DecodedBatches, WholeBatches
from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.read.plan import BatchRange
from kfs.read.split_reader import SelectedRecords, SplitReader
from kfs.read.wanted_offsets import WantedOffsets
from kfs.read.workers.job import Arena
from kfs.render.arrow_builder import NO_BATCH, ArrowBuffers, ArrowBuilder, arrow_builder
from kfs.render.arrow_columns import BatchFields, come_from_headers, needs_batches
from kfs.scan.batches import by_batch, in_whole
from kfs.scan.request import DEFAULT_BATCH_ROWS, Request

#: The maximum growth of text that isn't UTF-8: one byte is replaced by three.
_MOST_GROWTH: Final = 3


class ArrowReader:
    """Reads splits of one request, in any order: yields the rows of each, and problems in between.

    With an ``arena``, rows may be laid out in its memory, which the caller may change after each item that is yielded.
    """

    def __init__(self, request: Request, arena: Arena | None = None) -> None:
        self._request = request
        self._arena = arena
        self._reader = SplitReader(request.selection, request.isolation, come_from_headers(request.columns))
        self._needs_batches = needs_batches(request.columns)
        self._idle: tuple[BatchRange, ArrowBuilder] | None = None

    def read(self, log: Log | None, batches: BatchRange, offsets: WantedOffsets) -> Iterator[ArrowBuffers | Problem]:
        """Yield the rows of a split, and each problem after the rows before it.

        A segment that is deleted or truncated meanwhile is a problem too.
        """
        return self._built(batches, self._reader.select(log, batches, offsets))

    def read_some(
        self, log: Log, offsets: WantedOffsets, first: int | None, last: int | None
    ) -> Iterator[ArrowBuffers | Problem]:
        """Yield only the first or the last rows; see :func:`~kfs.cat.records.some_of`."""
        gone: list[CorruptData] = []
        reader = SplitReader(self._request.selection, self._request.isolation)  # records must be counted one by one
        found = some_of(reader, log, offsets, first, last, gone.append)
        for batches, of_range in groupby(found, key=itemgetter(0)):
            yield from self._built(batches, map(itemgetter(1), of_range))
        yield from map(_vanished, gone)

    def _built(self, batches: BatchRange, found: Iterable[SelectedRecords]) -> Iterator[ArrowBuffers | Problem]:
        builder = self._builder_for(batches)
        vanished: Problem | None = None
        try:
            for selected in found:
                if selected.problems:
                    if builder.rows:
                        yield builder.finish()
                    yield from selected.problems
                if selected.records is not None:
                    yield from self._add(builder, selected.records, selected.indexes)
                if selected.whole is not None:
                    yield from self._add_whole(builder, selected.whole)
        except CorruptData as error:
            vanished = _vanished(error)
        if builder.rows:
            yield builder.finish()
        self._idle = (batches, builder)
        if vanished is not None:
            yield vanished

    def _builder_for(self, batches: BatchRange) -> ArrowBuilder:
        """Return the last builder if it is for the same segment, because it knows the batch sizes; else a new one."""
        idle, self._idle = self._idle, None
        if idle is not None and batches.continues(idle[0]):
            return idle[1]
        return arrow_builder(self._request.columns, batches.topic, batches.partition, batches.base_offset, self._arena)

    def _add(self, builder: ArrowBuilder, records: DecodedBatches, indexes: Sequence[int]) -> Iterator[ArrowBuffers]:
        parts: Iterator[tuple[Sequence[int], BatchFields]] = iter(((indexes, NO_BATCH),))
        if self._needs_batches:
            parts = by_batch(records, indexes)
        for part, fields in parts:
            while part:
                if self._is_full(builder, records):
                    yield builder.finish()
                room = self._request.batch_rows - builder.rows
                builder.add(records.columns, part[:room], fields)
                part = part[room:]

    def _add_whole(self, builder: ArrowBuilder, batches: WholeBatches) -> Iterator[ArrowBuffers]:
        for count, timestamp_type, fields in in_whole(batches, each=self._needs_batches):
            records = _nothing_of_records(timestamp_type)
            missing = count
            while missing:
                if builder.rows >= self._request.batch_rows:
                    yield builder.finish()
                rows = min(missing, self._request.batch_rows - builder.rows, len(records))
                builder.add(records, range(rows), fields)
                missing -= rows

    def _is_full(self, builder: ArrowBuilder, records: DecodedBatches) -> bool:
        rows, size = builder.rows, builder.nbytes
        if rows >= self._request.batch_rows or size >= self._request.batch_bytes:
            return True
        return bool(rows) and size + _MOST_GROWTH * len(records.columns.buffer) > MAX_INT32


@cache
def _nothing_of_records(timestamp_type: TimestampType) -> RecordColumns:
    """Return records without content, to make rows whose columns all come from batch headers."""
    zeros, none = array("q", [0]) * DEFAULT_BATCH_ROWS, array("i", [-1]) * DEFAULT_BATCH_ROWS
    return RecordColumns(b"", zeros, zeros, timestamp_type, none, none, none, none, none)


def _vanished(error: CorruptData) -> Problem:
    return Problem.of(error)
