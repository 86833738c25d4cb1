"""The lines that are to be imported, parsed, checked and numbered."""

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

#: A line that is longer, in bytes, is no record: a batch in which it could be is more than kfs reads.
MAX_LINE_BYTES: Final = 1 << 30
_ADVANCE_BYTES: Final = 256 * 1024
#: The offset after the last one has to be an offset too.
_MAX_OFFSET: Final = MAX_INT64 - 1


@dataclass(frozen=True, slots=True)
class ImportedRecord:
    """A record, the partition it belongs to, and where it was read: the name of the input and the line's number.

    ``unit`` is what is numbered: a table has rows.
    """

    source: str
    number: int
    partition: TopicPartition
    record: Record
    unit: str = "line"

    def bad(self, reason: str) -> BadLine:
        """Return the error that this line can't be imported."""
        return BadLine(self.source, self.number, reason, self.unit)

    @property
    def where(self) -> str:
        """Where it was read."""
        return f"{self.source}: {self.unit} {self.number}"


def lines_of(
    file: BinaryIO, source: str, advance: Callable[[int], None] = lambda size: None
) -> Iterator[ImportedRecord | BadLine]:
    """Yield the lines of an input that is called ``source``, and those that are no records; one at a time in memory.

    ``advance`` gets every now and then how many more bytes were read.
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
    """Checks the records of one input; remembers the partitions that were met, which are few."""

    def __init__(self, source: str, unit: str = "line") -> None:
        self._source = source
        self._unit = unit
        self._partitions: dict[tuple[str, int], TopicPartition] = {}

    def line(self, number: int, topic: str, partition: int, record: Record) -> ImportedRecord:
        """Return the line of a record; raise ValueError where it is one that no log can have."""
        found = self._partitions.get((topic, partition)) or self._partition(topic, partition)
        _check_range("offset", record.offset, 0, _MAX_OFFSET)
        _check_range("timestamp", record.timestamp, -MAX_INT64 - 1, MAX_INT64)
        return ImportedRecord(self._source, number, found, record, self._unit)

    def bad(self, number: int, reason: str) -> BadLine:
        """Return the error that what has this number can't be imported."""
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
