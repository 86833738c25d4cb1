"""The log that decoding is measured on: JSON events of about 180 bytes, in batches of any size, with any codec."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from kfs.format.codecs import Codec
from kfs.format.record import Header, Record
from kfs.format.writer import encode_batch
from kfs.log.segment_writer import SegmentWriter

RECORDS: Final = 1_500_000
#: About 64 KiB, a common ``batch.size`` of producers that care for throughput.
RECORDS_IN_BATCH: Final = 300
SEGMENT_BYTES: Final = 64 * 1024 * 1024
TOPIC_PREFIX: Final = "events"

_FIRST_TIMESTAMP: Final = 1_790_000_000_000
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
        return f"{self.codec.label}, batches of {self.records_in_batch}"

    def segments(self) -> list[Path]:
        """Return its ``.log`` files in the order of their offsets."""
        return sorted(self.directory.glob("*.log"))


def event_log(root: Path, codec: Codec, records: int, records_in_batch: int = RECORDS_IN_BATCH) -> EventLog:
    """Return the log of these events below ``root``, written unless it is there: the records are always the same."""
    directory = root / f"{TOPIC_PREFIX}-{codec.label}-{records}-by-{records_in_batch}-0"
    if not directory.exists():
        partial = directory.with_suffix(".partial")
        partial.mkdir(parents=True)
        _write(partial, codec, records, records_in_batch)
        partial.rename(directory)
    return EventLog(directory, codec, records, records_in_batch)


def _write(directory: Path, codec: Codec, records: int, records_in_batch: int) -> None:
    source = _events(records)
    segment: SegmentWriter | None = None
    while batch := list(islice(source, records_in_batch)):
        data = encode_batch(batch, codec=codec)
        if segment is None or segment.size + len(data) > SEGMENT_BYTES:
            if segment is not None:
                segment.close()
            segment = SegmentWriter(os.fspath(directory), batch[0].offset)
        segment.append(data)
    if segment is not None:
        segment.close()


def _events(count: int) -> Iterator[Record]:
    source = random.Random(20261120)
    timestamp = _FIRST_TIMESTAMP
    for offset in range(count):
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
