"""A record in Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from kfs.format.columns import RecordColumns
from kfs.format.record import Header, TimestampType
from kfs.format.record import Record as FormatRecord
from kfs.render.record_json import record_line
from kfs.render.timestamps import time_of


class Record(NamedTuple):
    """A record like Kafka's ``ConsumerRecord``: a plain tuple, which can be compared, hashed and pickled.

    ``timestamp`` is in milliseconds since 1970, -1 in format v0, which has none. Null keys and values are None, empty
    ones ``b""``. ``headers`` are pairs of name and value in their original order, including duplicates. Bytes of a name
    that aren't UTF-8 become surrogates, as in ``os.fsdecode``.

    >>> record = data["launch_info"][0][368776]
    >>> record.value, record.headers
    (b'4567890', (('trace', b'a1'),))
    >>> print(record.time)
    2020-11-27 03:12:51.205000+00:00
    >>> print(record.json())  # doctest: +ELLIPSIS
    {"topic":"launch_info","partition":0,"offset":368776,"timestamp":1606446771205,...
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def time(self) -> datetime | None:
        """The timestamp as a time in UTC; None if there is none, or if ``datetime`` can't represent it."""
        return time_of(self.timestamp)

    def json(self) -> str:
        """Return the record as a line of JSON, as in a mount and from ``kfs cat``, without the newline."""
        headers: tuple[Header, ...] = tuple(
            (name.encode(errors="surrogateescape"), value) for name, value in self.headers
        )
        record = FormatRecord(self.offset, self.timestamp, self.key, self.value, headers, self.timestamp_type)
        return record_line(self.topic, self.partition, record)


def records_of(topic: str, partition: int, columns: RecordColumns, indexes: Sequence[int]) -> Iterator[Record]:
    """Yield the records at the given indexes of a block; none of them may be broken.

    This is a hot path: it creates tuples directly, without the class's constructor.
    """
    make, buffer, kind = tuple.__new__, columns.buffer, columns.timestamp_type
    offsets, timestamps, header_starts = columns.offsets, columns.timestamps, columns.header_starts
    key_starts, key_lengths = columns.key_starts, columns.key_lengths
    value_starts, value_lengths = columns.value_starts, columns.value_lengths
    for index in indexes:
        start, length = key_starts[index], key_lengths[index]
        key = buffer[start : start + length] if length >= 0 else None
        start, length = value_starts[index], value_lengths[index]
        value = buffer[start : start + length] if length >= 0 else None
        headers = _headers(columns, index) if header_starts[index] >= 0 else ()
        yield make(Record, (topic, partition, offsets[index], timestamps[index], kind, key, value, headers))


def _headers(columns: RecordColumns, index: int) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name.decode(errors="surrogateescape"), value) for name, value in columns.headers(index))
