"""The import of one partition: gathers its records into batches and appends these to its log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kfs.broker_log.unified_log import UnifiedLog
from kfs.errors import BadLine
from kfs.format.layout import MAX_INT32
from kfs.imports.layout import BatchLayout, size_of
from kfs.imports.lines import ImportedRecord


@dataclass(slots=True)
class PartitionImport:
    """Takes a partition's lines in order; the layout's message format must be able to hold each of them.

    With ``new_offsets``, offsets are assigned from 0 on. A batch has at most ``most_bytes``, the segment size.
    """

    log: UnifiedLog
    layout: BatchLayout
    most_bytes: int
    new_offsets: bool = False
    records: int = 0
    first_offset: int | None = None
    _next_offset: int = 0
    _waiting: list[ImportedRecord] = field(default_factory=list)
    _waiting_bytes: int = 0

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self._next_offset

    def add(self, line: ImportedRecord) -> Iterator[BadLine]:
        """Take a line; append the waiting batch if the line doesn't fit; yield errors for invalid lines."""
        record = line.record
        if self.new_offsets:
            record = replace(record, offset=self._next_offset)
            line = replace(line, record=record)
        if record.offset < self._next_offset:
            yield line.bad(f"offset {record.offset} after offset {self._next_offset - 1} of {line.partition}")
            return
        size = size_of(record)
        if self._waiting and not self._has_room(line, size):
            yield from self.flush()
        self._waiting.append(line)
        self._waiting_bytes += size
        self._next_offset = record.offset + 1

    def _has_room(self, line: ImportedRecord, size: int) -> bool:
        if len(self._waiting) >= self.layout.batch_records or self._waiting_bytes + size > self.layout.batch_bytes:
            return False
        return self.layout.belong_together(self._waiting[0].record, line.record)

    def flush(self) -> Iterator[BadLine]:
        """Append the waiting records; yield errors for lines that are too large."""
        lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if lines:
            yield from self._append(lines)

    def _append(self, lines: list[ImportedRecord]) -> Iterator[BadLine]:
        records = [line.record for line in lines]
        try:
            data = self.layout.encode(records)
        except ValueError as error:  # a field is too long
            data, reason = b"", str(error)
        else:
            reason = f"{len(data)} bytes, more than a segment may have ({self.most_bytes})"
        if data and len(data) <= self.most_bytes:
            self._append_batch(data, records[0].offset, records[-1].offset)
            self.records += len(records)
        elif len(lines) > 1:
            middle = len(lines) // 2
            yield from self._append(lines[:middle])
            yield from self._append(lines[middle:])
        else:
            yield lines[0].bad(reason)

    def _append_batch(self, data: bytes, first: int, last: int) -> None:
        if last - self.log.segments.last.base_offset > MAX_INT32:
            self.log.roll(first)  # the log doesn't know the first offset of a compressed v0 or v1 message
        self.log.append(data)
        if self.first_offset is None:
            self.first_offset = first
