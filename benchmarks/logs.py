"""The logs that are measured: records as they come in production, and a directory of very many."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfs.broker_log.log_segment import LogSegment
from kfs.format.codecs import Codec
from kfs.format.record import Record
from kfs.format.writer import encode_batch

#: 2026-01-05T00:00:00Z, in milliseconds; the records are a tenth of a second apart.
FIRST_TIMESTAMP: Final = 1_767_571_200_000
INTERVAL_MILLISECONDS: Final = 100
#: What occurs in one value of a hundred, for grep to find.
NEEDLE: Final = "payment-declined"

_RECORDS_IN_BATCH: Final = 50  # 16 KiB, the default of ``batch.size``, before compression
_CLOSED_SEGMENTS: Final = 4
_RECORDS_IN_LARGE_BATCH: Final = 500
_RECORDS_IN_LARGE_SEGMENT: Final = 1_000_000
_BASE_OFFSET: Final = struct.Struct(">q")  # at the very beginning of a batch, outside of its CRC


@dataclass(frozen=True, slots=True)
class TopicLog:
    """A topic of one partition: ``records`` of them, from offset 0 on."""

    name: str
    records: int

    @property
    def directory(self) -> str:
        """Where its records are, below a mount point."""
        return f"{self.name}/0/offset"


def write_topic(log_dir: Path, codec: Codec, records: int) -> TopicLog:
    """Write a topic of JSON values of about 300 bytes, all of them in closed segments, and return it."""
    topic = TopicLog(f"events-{codec.label}", records)
    directory = log_dir / f"{topic.name}-0"
    directory.mkdir(parents=True)
    base_offsets = [records * part // _CLOSED_SEGMENTS for part in range(_CLOSED_SEGMENTS)]
    source = random.Random(20261121)
    for base_offset, end in zip(base_offsets, [*base_offsets[1:], records], strict=True):
        segment = LogSegment.create(os.fspath(directory), base_offset)
        for batch in _batches(source, base_offset, end):
            segment.append(encode_batch(batch, codec=codec))
        segment.close()
    LogSegment.create(os.fspath(directory), records).close()  # the active segment
    return topic


def _batches(source: random.Random, start: int, end: int) -> Iterator[list[Record]]:
    for first in range(start, end, _RECORDS_IN_BATCH):
        yield [_record(source, offset) for offset in range(first, min(first + _RECORDS_IN_BATCH, end))]


def _record(source: random.Random, offset: int) -> Record:
    user = source.randrange(100_000)
    event = {
        "id": offset,
        "event": NEEDLE if source.random() < 0.01 else source.choice(("view", "click", "purchase", "refund")),
        "user": f"user-{user}",
        "session": f"{source.getrandbits(64):016x}",
        "price": round(source.random() * 500, 2),
        "latitude": source.random() * 180 - 90,
        "longitude": source.random() * 360 - 180,
        "agent": source.choice(("Firefox/145.0", "Chrome/142.0.0.0", "Safari/26.1")),
        "trace": f"{source.getrandbits(128):032x}",
        "note": " ".join(source.choices(("fast", "lane", "night", "coupon", "gift", "return", "vip", "retry"), k=10)),
    }
    value = json.dumps(event, separators=(",", ":")).encode()
    return Record(offset, FIRST_TIMESTAMP + offset * INTERVAL_MILLISECONDS, b"user-%d" % user, value)


def write_large_topic(log_dir: Path, records: int) -> TopicLog:
    """Write a topic of so many records that only their number matters: one batch, again and again."""
    topic = TopicLog("large", records)
    directory = log_dir / f"{topic.name}-0"
    directory.mkdir(parents=True)
    batch = encode_batch(
        [
            Record(offset, FIRST_TIMESTAMP + offset, b"device-%d" % (offset % 40), b'{"reading":%d,"ok":true}' % offset)
            for offset in range(_RECORDS_IN_LARGE_BATCH)
        ],
        codec=Codec.LZ4,
    )
    rest = batch[_BASE_OFFSET.size :]
    for base_offset in range(0, records, _RECORDS_IN_LARGE_SEGMENT):
        segment = LogSegment.create(os.fspath(directory), base_offset)
        end = min(base_offset + _RECORDS_IN_LARGE_SEGMENT, records)
        for offset in range(base_offset, end, _RECORDS_IN_LARGE_BATCH):
            segment.append(_BASE_OFFSET.pack(offset) + rest)
        segment.close()
    return topic
