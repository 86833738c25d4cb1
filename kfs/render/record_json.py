"""Records as lines of JSON, without loss: :mod:`kfs.render.record_line` turns a line back into the record."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate

from kfs.errors import CorruptData
from kfs.format.batch_header import later_sequence
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.layout import CONTROL_MASK
from kfs.format.record import Header, Record, TimestampType
from kfs.render.quoting import json_bytes, quote
from kfs.render.timestamps import iso_time


def line_start(topic: str, partition: int) -> str:
    """Return the beginning of every line of a partition, up to the offset."""
    # A directory name may have any bytes, but JSON must be UTF-8.
    name = topic.encode(errors="surrogateescape").decode(errors="replace")
    return f'{{"topic":{quote(name)},"partition":{partition},"offset":'


class RenderedLines:
    """The lines of one block, one per record, in offset order.

    Line ``i`` is ``buffer[starts[i]:starts[i + 1]]``. A record that is broken inside an intact batch
    (``faults``, by index) has an empty line. ``timestamps`` are in milliseconds.
    """

    __slots__ = ("__weakref__", "buffer", "faults", "first_offset", "last_offset", "offsets", "starts", "timestamps")

    def __init__(self, buffer: bytes, starts: array[int], columns: RecordColumns, covers: tuple[int, int]) -> None:
        self.buffer = buffer
        self.starts = starts
        self.offsets = columns.offsets
        self.timestamps = columns.timestamps
        self.faults: Mapping[int, CorruptData] = columns.faults
        self.first_offset, self.last_offset = covers

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """The memory used, in bytes."""
        return len(self.buffer) + 24 * len(self.offsets) + 1024  # the overhead of the objects

    def line(self, index: int) -> bytes:
        """Return the line of the record at ``index``, including its newline."""
        return self.buffer[self.starts[index] : self.starts[index + 1]]

    def size(self, index: int) -> int:
        """Return the size of the line at ``index`` in bytes."""
        return self.starts[index + 1] - self.starts[index]


class RecordJson:
    """Renders the records of one partition."""

    def __init__(self, topic: str, partition: int) -> None:
        self._start = line_start(topic, partition)

    def lines(self, columns: RecordColumns, covers: tuple[int, int]) -> RenderedLines:
        """Render a block; ``covers`` are the first and last offset that the block is responsible for."""
        lines = self._lines(columns)
        return RenderedLines(b"".join(lines), _starts_of(lines), columns, covers)

    def text(self, columns: RecordColumns) -> bytes:
        """Return all lines of a block together, as in :attr:`RenderedLines.buffer`."""
        return b"".join(self._lines(columns))

    def starts(self, columns: RecordColumns) -> array[int]:
        """Return the lines' positions, as in :attr:`RenderedLines.starts`, without keeping the lines."""
        return _starts_of(self._lines(columns))

    def batches(self, table: BatchTable, first: int, stop: int, limit: int) -> tuple[bytes, int]:
        """Render the batches in rows ``first`` to ``stop``; stop early at a control batch or one that can't be decoded.

        ``limit`` bounds the decompressed bytes of each batch. Returns the lines, and the row after the last one.
        """
        from kfs.format.decode import (
            PythonDecoder,  # only here: compiled code, which needs this module, renders batches
        )

        decoder = PythonDecoder()
        lines = []
        while first < stop and not table.attributes[first] & CONTROL_MASK:
            try:
                columns, after = decoder.decode_rows(table, first, stop, limit)
            except CorruptData:
                break
            lines.append(self.text(columns))
            first = after
        return b"".join(lines), first

    def line(self, columns: RecordColumns, index: int) -> bytes:
        """Render one record of a block."""
        if index in columns.faults:
            return b"\n"
        return self._line(columns, index, _kind_of(columns))

    def _lines(self, columns: RecordColumns) -> list[bytes]:
        kind = _kind_of(columns)
        lines = [self._line(columns, index, kind) for index in range(len(columns))]
        for index in columns.faults:
            lines[index] = b"\n"
        return lines

    def _line(self, columns: RecordColumns, index: int, kind: str) -> bytes:
        offset, timestamp = columns.offsets[index], columns.timestamps[index]
        start = f'{self._start}{offset},"timestamp":{timestamp}{kind}{_when(timestamp)}'
        return f"{start}{_contents(columns, index)}}}\n".encode()


class SequencedJson:
    """Renders the records of batches (v2) with their sequence numbers; the caller gives the line's beginning."""

    def lines(
        self, columns: RecordColumns, first: int, stop: int, start: bytes, base_offset: int, base_sequence: int
    ) -> bytes:
        """Render the records ``first`` to ``stop``: each line is ``start``, the offset, the sequence number, the rest.

        The record at ``base_offset`` has the sequence number ``base_sequence``.
        """
        beginning = start.decode()
        lines = []
        for index in range(first, stop):
            offset = columns.offsets[index]
            sequence = later_sequence(base_sequence, offset - base_offset)
            fields = record_fields(columns, index, has_contents=True)
            lines.append(f'{beginning}{offset},"sequence":{sequence}{fields}}}\n')
        return "".join(lines).encode()


def record_fields(columns: RecordColumns, index: int, *, has_contents: bool) -> str:
    """Return the part of a line after the record's offset: its times and, if wanted, its contents."""
    timestamp = columns.timestamps[index]
    times = f',"timestamp":{timestamp}{_kind_of(columns)}{_when(timestamp)}'
    return times + _contents(columns, index) if has_contents else times


def record_line(topic: str, partition: int, record: Record) -> str:
    """Return the line of a single record, without its newline."""
    times = f'"timestamp":{record.timestamp}{_kind(record.timestamp_type)}{_when(record.timestamp)}'
    contents = _contents_of(record.key, record.value, record.headers)
    return f"{line_start(topic, partition)}{record.offset},{times}{contents}}}"


def _when(timestamp: int) -> str:
    time = iso_time(timestamp)
    return "null" if time is None else f'"{time}"'


def _contents(columns: RecordColumns, index: int) -> str:
    headers = columns.headers(index) if columns.header_starts[index] >= 0 else ()
    return _contents_of(columns.key(index), columns.value(index), headers)


def _contents_of(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> str:
    listed = ",".join(map(_header, headers))
    return f',{_field("key", key)},{_field("value", value)},"headers":[{listed}]'


def _kind_of(columns: RecordColumns) -> str:
    return _kind(columns.timestamp_type)


def _kind(timestamp_type: TimestampType) -> str:
    return f',"timestampType":"{timestamp_type.label}","time":'


def _starts_of(lines: list[bytes]) -> array[int]:
    return array("q", accumulate(map(len, lines), initial=0))


def _field(name: str, data: bytes | None) -> str:
    if data is None:
        return f'"{name}":null'
    text, is_base64 = json_bytes(data)
    return f'"{name}":{text},"{name}Encoding":"base64"' if is_base64 else f'"{name}":{text}'


def _header(header: Header) -> str:
    key, value = header
    start = _field("key", key)
    if value is None:
        return f'{{{start},"value":null}}'
    text, is_base64 = json_bytes(value)
    return f'{{{start},"value":{text},"encoding":"base64"}}' if is_base64 else f'{{{start},"value":{text}}}'
