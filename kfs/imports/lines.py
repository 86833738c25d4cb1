"""The lines that are to be imported, parsed and numbered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from kfs.errors import BadLine
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT32, MAX_INT64
from kfs.format.record import Record
from kfs.log.directory_name import is_legal_topic
from kfs.render.record_json import parse_line

#: A line that is longer, in bytes, is no record: a batch in which it could be is more than kfs reads.
MAX_LINE_BYTES: Final = 1 << 30
_ADVANCE_BYTES: Final = 256 * 1024
#: The offset after the last one has to be an offset too.
_MAX_OFFSET: Final = MAX_INT64 - 1


@dataclass(frozen=True, slots=True)
class Line:
    """A record, the partition it belongs to, and where it was read: the name of the input and the line's number."""

    source: str
    number: int
    partition: TopicPartition
    record: Record

    def bad(self, reason: str) -> BadLine:
        """Return the error that this line can't be imported."""
        return BadLine(self.source, self.number, reason)


def lines_of(
    file: BinaryIO, source: str, advance: Callable[[int], None] = lambda size: None
) -> Iterator[Line | BadLine]:
    """Yield the lines of an input that is called ``source``, and those that are no records; one at a time in memory.

    ``advance`` is told every now and then how many bytes more were read.
    """
    parser = _Parser(source)
    number = unsaid = 0
    while data := file.readline(MAX_LINE_BYTES):
        number += 1
        unsaid += len(data)
        if unsaid >= _ADVANCE_BYTES:
            advance(unsaid)
            unsaid = 0
        if len(data) < MAX_LINE_BYTES or data.endswith(b"\n"):
            yield parser.parsed(data, number)
            continue
        while (data := file.readline(MAX_LINE_BYTES)) and not data.endswith(b"\n"):
            advance(len(data))
        yield BadLine(source, number, f"longer than {MAX_LINE_BYTES} bytes")
    advance(unsaid)


class _Parser:
    """Parses the lines of one input; remembers the partitions that were met, which are few."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._partitions: dict[tuple[str, int], TopicPartition] = {}

    def parsed(self, data: bytes, number: int) -> Line | BadLine:
        if data.isspace():
            return BadLine(self._source, number, "an empty line, which stands for what could not be read")
        try:
            topic, partition, record = parse_line(data)
            found = self._partitions.get((topic, partition)) or self._partition(topic, partition)
            _check_range("offset", record.offset, 0, _MAX_OFFSET)
            _check_range("timestamp", record.timestamp, -MAX_INT64 - 1, MAX_INT64)
        except ValueError as error:
            return BadLine(self._source, number, str(error))
        return Line(self._source, number, found, record)

    def _partition(self, topic: str, partition: int) -> TopicPartition:
        if not is_legal_topic(topic):
            raise ValueError(f"{topic!r} is not the name of a topic")
        _check_range("partition", partition, 0, MAX_INT32)
        found = self._partitions[topic, partition] = TopicPartition(topic, partition)
        return found


def _check_range(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{what} {value}, expected {least} to {most}")
