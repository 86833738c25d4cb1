"""Parses, checks and numbers the lines to import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from kfs.errors import BadLine
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT32, MAX_INT64
from kfs.format.record import Record
from kfs.log.directory_name import is_legal_topic
from kfs.render.record_line import parse_line

#: The maximum size of a line in bytes. A longer one is no record: its batch would be too large for kfs to read.
MAX_LINE_BYTES: Final = 1 << 30
_ADVANCE_BYTES: Final = 256 * 1024
#: The next offset must be a valid offset too.
_MAX_OFFSET: Final = MAX_INT64 - 1


@dataclass(frozen=True, slots=True)
class ImportedRecord:
    """A record with its partition and its origin: the input's name and the line number.

    ``unit`` is ``"line"``, or ``"row"`` in a table.
    """

    source: str
    number: int
    partition: TopicPartition
    record: Record
    unit: str = "line"

    def bad(self, reason: str) -> BadLine:
        """Return the error for a line that can't be imported."""
        return BadLine(self.source, self.number, reason, self.unit)

    @property
    def where(self) -> str:
        """The line's origin, for messages."""
        return f"{self.source}: {self.unit} {self.number}"


def lines_of(
    file: BinaryIO, source: str, advance: Callable[[int], None] = lambda size: None
) -> Iterator[ImportedRecord | BadLine]:
    """Yield the records of the input named ``source``, and errors for invalid lines; keep one line in memory.

    ``advance`` is called from time to time with the number of bytes read since the last call.
    """
    maker = LineMaker(source)
    number = unsaid = 0
    while data := file.readline(MAX_LINE_BYTES):
        number += 1
        unsaid += len(data)
        if unsaid >= _ADVANCE_BYTES:
            advance(unsaid)
            unsaid = 0
        if len(data) < MAX_LINE_BYTES or data.endswith(b"\n"):
            yield _parsed(maker, data, number)
            continue
        while (data := file.readline(MAX_LINE_BYTES)) and not data.endswith(b"\n"):
            advance(len(data))
        yield maker.bad(number, f"longer than {MAX_LINE_BYTES} bytes")
    advance(unsaid)


def _parsed(maker: LineMaker, data: bytes, number: int) -> ImportedRecord | BadLine:
    if data.isspace():
        return maker.bad(number, "an empty line, which stands for what could not be read")
    try:
        return maker.line(number, *parse_line(data))
    except ValueError as error:
        return maker.bad(number, str(error))


class LineMaker:
    """Checks the records of one input, and caches the input's partitions."""

    def __init__(self, source: str, unit: str = "line") -> None:
        self._source = source
        self._unit = unit
        self._partitions: dict[tuple[str, int], TopicPartition] = {}

    def line(self, number: int, topic: str, partition: int, record: Record) -> ImportedRecord:
        """Return the line of a record; raise ValueError if no log can contain the record."""
        found = self._partitions.get((topic, partition)) or self._partition(topic, partition)
        _check_range("offset", record.offset, 0, _MAX_OFFSET)
        _check_range("timestamp", record.timestamp, -MAX_INT64 - 1, MAX_INT64)
        return ImportedRecord(self._source, number, found, record, self._unit)

    def bad(self, number: int, reason: str) -> BadLine:
        """Return the error for a line or row that can't be imported."""
        return BadLine(self._source, number, reason, self._unit)

    def _partition(self, topic: str, partition: int) -> TopicPartition:
        if not is_legal_topic(topic):
            raise ValueError(f"{topic!r} is not the name of a topic")
        _check_range("partition", partition, 0, MAX_INT32)
        found = self._partitions[topic, partition] = TopicPartition(topic, partition)
        return found


def _check_range(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{what} {value}, expected {least} to {most}")
