"""Timestamps of the demo's records, and their grouping into batches and segments."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from kfs.demo.topic import Event, NewLeader, ProducedBatch, Producer, Roll
from kfs.format.codecs import Codec
from kfs.format.layout import NO_SEQUENCE
from kfs.format.record import Header, Record, TimestampType

SECOND: Final = 1000
HOUR: Final = 3600 * SECOND
DAY: Final = 24 * HOUR
#: Tuesday 2020-11-24, 00:00 UTC; the demo covers six days from then on.
FIRST_DAY: Final = 1_606_176_000_000
LAST_DAY_END: Final = FIRST_DAY + 6 * DAY


def moments(source: random.Random, count: int, start: int = FIRST_DAY, end: int = LAST_DAY_END) -> list[int]:
    """Return ``count`` timestamps in order, most of them during the day."""
    found: list[int] = []
    while len(found) < count:
        moment = int(start + source.random() * (end - start))
        hour = moment % DAY // HOUR
        if 8 <= hour < 21 or source.random() < 0.25:
            found.append(moment)
    return sorted(found)


def batches_of(
    source: random.Random,
    records: Sequence[Record],
    largest: int,
    *,
    producer: Producer | None = None,
    first_sequence: int = 0,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> Iterator[ProducedBatch]:
    """Yield records in batches of 1 to ``largest``, as from a producer; the first has ``first_sequence``."""
    at = 0
    while at < len(records):
        some = records[at : at + 1 + int(source.random() * largest)]
        sequence = NO_SEQUENCE if producer is None else first_sequence + at
        at += len(some)
        yield ProducedBatch(
            records=some,
            base_offset=some[0].offset,
            last_offset=some[-1].offset,
            codec=codec,
            producer=producer,
            base_sequence=sequence,
            timestamp_type=timestamp_type,
        )


def in_segments(batches: Sequence[ProducedBatch], segments: int, epochs: Sequence[int] = (0,)) -> list[Event]:
    """Return events that write the batches to segments of similar length, under a leader of each epoch in turn."""
    events: list[Event] = []
    for at, batch in enumerate(batches):
        if any(at == len(batches) * part // segments for part in range(1, segments)):
            events.append(Roll(batch.base_offset))
        for turn, epoch in enumerate(epochs):
            if at == len(batches) * turn // len(epochs):
                events.append(NewLeader(epoch))
        events.append(batch)
    return events


def header(key: str, value: str) -> Header:
    """Return a header with a text value."""
    return key.encode(), value.encode()


def hexadecimal(source: random.Random, length: int) -> str:
    """Return an id of ``length`` hexadecimal digits."""
    return f"{source.getrandbits(4 * length):0{length}x}"
