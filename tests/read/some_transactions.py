"""Partitions with transactions of several producers, written as a broker writes them, and a naive reading of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.unified_log import UnifiedLog
from kfs.format.codecs import Codec
from kfs.format.control_record import AbortMarker, CommitMarker, encode_control_record
from kfs.format.layout import MAX_INT64
from kfs.format.record import Record
from kfs.format.writer import encode_batch
from tests.logs import START, records


@dataclass(frozen=True, slots=True)
class Data:
    """A batch of so many messages; without a producer it is as a client without idempotence sends it."""

    producer: int | None
    count: int = 1
    transactional: bool = True
    codec: Codec = Codec.NONE


@dataclass(frozen=True, slots=True)
class End:
    """The marker that ends a producer's transaction."""

    producer: int
    is_commit: bool


Event = Data | End


def commit(producer: int = 1) -> End:
    return End(producer, True)


def abort(producer: int = 1) -> End:
    return End(producer, False)


@dataclass(frozen=True, slots=True)
class Placed:
    """An event and the offsets it got."""

    event: Event
    offsets: range


def placed(events: Sequence[Event], first_offset: int = 0) -> list[Placed]:
    """Give the events their offsets, dense from the first on."""
    result, offset = [], first_offset
    for event in events:
        count = event.count if isinstance(event, Data) else 1
        result.append(Placed(event, range(offset, offset + count)))
        offset += count
    return result


def write_transactions(
    directory: Path, events: Sequence[Event], *, segment_bytes: int = 1 << 20, first_offset: int = 0
) -> list[Placed]:
    """Write a partition that rolls where a broker would, with its snapshots and transaction indexes."""
    config = LogConfig(segment_bytes=segment_bytes, segment_ms=MAX_INT64, index_interval_bytes=100)
    log = UnifiedLog.create(str(directory), config, first_offset=first_offset, clock=lambda: START)
    result = placed(events, first_offset)
    for one in result:
        log.append(encoded(one))
    log.close()
    return result


def encoded(one: Placed) -> bytes:
    """Return the batch of an event."""
    event, offsets = one.event, one.offsets
    if isinstance(event, End):
        marker = CommitMarker(0) if event.is_commit else AbortMarker(0)
        content = [Record(offsets[0], START + offsets[0] * 1000, *encode_control_record(marker))]
        return encode_batch(content, producer_id=event.producer, producer_epoch=0, transactional=True, control=True)
    content = records(offsets[0], offsets[-1])
    if event.producer is None:
        return encode_batch(content, codec=event.codec)
    return encode_batch(
        content,
        codec=event.codec,
        producer_id=event.producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=event.transactional,
    )


# --- what a consumer gets, found the slow way -----------------------------------------------------------------------


def next_marker(log: Sequence[Placed], number: int) -> End | None:
    """Return what ended the transaction of a batch, None where it is open."""
    producer = log[number].event.producer
    ends = (one.event for one in log[number:] if isinstance(one.event, End) and one.event.producer == producer)
    return next(ends, None)


def stable_end(log: Sequence[Placed]) -> int:
    """Return the offset of the first message whose transaction is open, else the end of the log."""
    for number, one in enumerate(log):
        event = one.event
        is_in_one = isinstance(event, Data) and event.producer is not None and event.transactional
        if is_in_one and next_marker(log, number) is None:
            return one.offsets[0]
    return log[-1].offsets[-1] + 1


def committed_offsets(log: Sequence[Placed]) -> list[int]:
    """Return the offsets of the messages that a ``read_committed`` consumer gets."""
    end = stable_end(log)
    result: list[int] = []
    for number, one in enumerate(log):
        event = one.event
        if isinstance(event, End) or one.offsets[0] >= end:
            continue
        if event.producer is not None and event.transactional:
            marker = next_marker(log, number)
            if marker is not None and not marker.is_commit:
                continue
        result += one.offsets
    return result


# --- drawn ----------------------------------------------------------------------------------------------------------


def draw_transactions(random: Random, most: int = 25) -> list[Event]:
    """Draw interleaved batches and markers; a producer sends nothing else while its transaction is open."""
    events: list[Event] = []
    is_open: set[int] = set()
    for _ in range(random.randint(1, most)):
        producer = random.choice((None, 1, 2, 3))
        if producer is not None and random.randrange(3) == 0:
            events.append(End(producer, random.randrange(2) == 1))
            is_open.discard(producer)
            continue
        transactional = producer is not None and (producer in is_open or random.randrange(4) > 0)
        if producer is not None and transactional:
            is_open.add(producer)
        codec = random.choice((Codec.NONE, Codec.LZ4))
        events.append(Data(producer, random.randint(1, 3), transactional, codec))
    return events


def some_transactions(most: int = 25) -> st.SearchStrategy[list[Event]]:
    """For Hypothesis: see :func:`draw_transactions`."""
    return st.randoms(use_true_random=False).map(lambda random: draw_transactions(random, most))
