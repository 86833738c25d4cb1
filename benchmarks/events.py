"""The logs that bulk reading is measured on: JSON events of about 180 bytes, in batches of any size, with any codec.

The same records with every codec, and always the same ones: chunks of them are made side by side, each from a seed
of its own, so that it doesn't matter how many processes make them. A broker writes them for a real producer, or kfs
does without one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from benchmarks.produced import Producer, write_partition
from kfs.broker_log.log_segment import LogSegment
from kfs.format.codecs import Codec
from kfs.format.layout import LOG_OVERHEAD_STRUCT
from kfs.format.record import Header, Record
from kfs.format.writer import encode_batch

#: About 64 KiB, a common ``batch.size`` of producers that care for throughput.
RECORDS_IN_BATCH: Final = 300
_SEGMENT_BYTES: Final = 64 * 1024 * 1024
_SEED: Final = 20261120
_FIRST_TIMESTAMP: Final = 1_790_000_000_000
#: Made at a time, from one seed; whole batches of each of the sizes that are measured.
_RECORDS_IN_CHUNK: Final = 60_000
_MILLISECONDS_IN_CHUNK: Final = 14 * _RECORDS_IN_CHUNK
# fmt: off
_FIRST_NAMES: Final = (
    "Anna", "Bence", "Chloë", "David", "Émile", "Fatima", "Grzegorz", "Håkon", "İpek", "José", "Kateřina", "Łukasz",
    "María", "Nguyễn", "Olga", "Пётр", "小林", "李娜", "محمد", "Zoë",
)
_LAST_NAMES: Final = (
    "Smith", "García", "Müller", "Ōkubo", "Kowalski", "Nováková", "Иванов", "Lee", "佐藤", "Brown", "Dvořák", "Åberg",
    "Costa", "Silva", "Rossi",
)
# fmt: on
_EVENTS: Final = ("view", "click", "add_to_cart", "purchase", "refund", "login", "logout", "search")
_CITIES: Final = ("Budapest", "São Paulo", "Zürich", "東京", "Kraków", "Berlin", "Wien", "Praha", "Oslo", "Lyon")


@dataclass(frozen=True, slots=True)
class EventLog:
    """A partition of events: where it is, and how it was written."""

    directory: Path
    codec: Codec
    records: int
    records_in_batch: int

    @property
    def name(self) -> str:
        """What tables call it: the codec, and the size of the batches where it isn't the usual one."""
        if self.records_in_batch == RECORDS_IN_BATCH:
            return self.codec.label
        return f"{self.codec.label}, by {self.records_in_batch}"

    @property
    def topic(self) -> str:
        """The topic, of one partition, alone in its log directory."""
        return self.directory.name.removesuffix("-0")

    def segments(self) -> list[Path]:
        """Return its ``.log`` files in the order of their offsets."""
        return sorted(self.directory.glob("*.log"))


def event_log(
    root: Path,
    codec: Codec,
    records: int,
    records_in_batch: int = RECORDS_IN_BATCH,
    producer: Producer = Producer.KFS,
) -> EventLog:
    """Return the log of these events below ``root``, written unless it is there.

    A producer makes batches of about the given size.
    """
    name = f"events-{codec.label}-{records}-by-{records_in_batch}"
    if producer is not Producer.KFS:
        name += f"-{producer}"
    directory = root / name / f"{name}-0"
    if not directory.exists():
        partial_directory = directory.with_suffix(".partial")
        shutil.rmtree(partial_directory, ignore_errors=True)
        partial_directory.parent.mkdir(parents=True, exist_ok=True)
        if producer is Producer.KFS:
            partial_directory.mkdir()
            _write(partial_directory, _chunks(codec, records, records_in_batch))
        else:
            content = chain.from_iterable(_events(first, end) for first, end in _spans(records))
            write_partition(partial_directory, producer, codec, content, records_in_batch, _SEGMENT_BYTES)
        partial_directory.rename(directory)
    return EventLog(directory, codec, records, records_in_batch)


def many_segments(root: Path, source: EventLog, segments: int, batches: int) -> EventLog:
    """Return a log of so many closed segments, each the first batches of ``source`` under other offsets."""
    name = f"events-{source.codec.label}-{segments}-segments"
    directory = root / name / f"{name}-0"
    if not directory.exists():
        partial_directory = directory.with_suffix(".partial")
        shutil.rmtree(partial_directory, ignore_errors=True)
        offset = _write_segments(partial_directory, _first_batches(source, batches), source.records_in_batch, segments)
        LogSegment.create(os.fspath(partial_directory), offset).close()  # the active one
        partial_directory.rename(directory)
    return EventLog(directory, source.codec, segments * batches * source.records_in_batch, source.records_in_batch)


def many_partitions(root: Path, source: EventLog, partitions: int, segments: int) -> EventLog:
    """Return the log directory of so many partitions of one topic, each of small segments of one batch."""
    directory = root / f"events-{source.codec.label}-{partitions}-partitions"
    if not directory.exists():
        partial_directory = directory.with_suffix(".partial")
        shutil.rmtree(partial_directory, ignore_errors=True)
        batches = _first_batches(source, 1)
        for partition in range(partitions):
            _write_segments(partial_directory / f"events-{partition}", batches, source.records_in_batch, segments)
        partial_directory.rename(directory)
    records = partitions * segments * source.records_in_batch
    return EventLog(directory, source.codec, records, source.records_in_batch)


def _first_batches(source: EventLog, batches: int) -> list[bytes]:
    return _encoded(source.codec, source.records_in_batch, (0, batches * source.records_in_batch))


def _write_segments(directory: Path, batches: list[bytes], records_in_batch: int, segments: int) -> int:
    """Write segments of the same batches under other offsets; return the offset behind the last."""
    directory.mkdir(parents=True)
    offset = 0
    for _ in range(segments):
        segment = LogSegment.create(os.fspath(directory), offset)
        for batch in batches:
            body = batch[LOG_OVERHEAD_STRUCT.size :]
            segment.append(LOG_OVERHEAD_STRUCT.pack(offset, len(body)) + body)  # outside of the batch's CRC
            offset += records_in_batch
        segment.close()
    return offset


def _write(directory: Path, chunks: Iterator[list[bytes]]) -> None:
    segment = LogSegment.create(os.fspath(directory), 0)
    for chunk in chunks:
        for batch in chunk:
            if segment.size + len(batch) > _SEGMENT_BYTES:
                segment.close()
                base_offset, _ = LOG_OVERHEAD_STRUCT.unpack_from(batch)
                segment = LogSegment.create(os.fspath(directory), base_offset)
            segment.append(batch)
    segment.close()


def _chunks(codec: Codec, records: int, records_in_batch: int) -> Iterator[list[bytes]]:
    """Yield the batches of each chunk, made by as many processes as there are CPUs."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        make = partial(_encoded, codec, records_in_batch)
        yield from pool.map(make, _spans(records))


def _spans(records: int) -> list[tuple[int, int]]:
    """Return where each chunk begins and ends."""
    return [(first, min(first + _RECORDS_IN_CHUNK, records)) for first in range(0, records, _RECORDS_IN_CHUNK)]


def _encoded(codec: Codec, records_in_batch: int, span: tuple[int, int]) -> list[bytes]:
    """Return the batches of a chunk."""
    chunk = list(_events(*span))
    starts = range(0, len(chunk), records_in_batch)
    return [encode_batch(chunk[start : start + records_in_batch], codec=codec) for start in starts]


def _events(first: int, end: int) -> Iterator[Record]:
    source = random.Random(_SEED + first)
    timestamp = _FIRST_TIMESTAMP + first // _RECORDS_IN_CHUNK * _MILLISECONDS_IN_CHUNK
    for offset in range(first, end):
        timestamp += int(source.random() * 14)
        user = int(source.random() * 100_000)
        event = {
            "id": offset,
            "event": source.choice(_EVENTS),
            "user": f"user-{user}",
            "name": f"{source.choice(_FIRST_NAMES)} {source.choice(_LAST_NAMES)}",
            "city": source.choice(_CITIES),
            "price": round(source.random() * 500, 2),
            "qty": int(source.random() * 9) + 1,
            "lat": round(source.random() * 180 - 90, 6),
            "ts": timestamp,
            "session": f"{source.getrandbits(48):012x}",
            "ok": source.random() < 0.97,
        }
        value = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
        headers: tuple[Header, ...] = ()
        if offset % 10 == 0:
            origin = b"web" if source.random() < 0.6 else b"mobile"
            headers = ((b"trace-id", b"%016x" % source.getrandbits(64)), (b"source", origin))
        yield Record(offset, timestamp, b"user-%05d" % user, value, headers)
