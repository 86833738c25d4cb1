"""Topics written by machines for machines: counters, telemetry, and an audit log from before the current broker."""

from __future__ import annotations

import math
import random
import struct
import zlib
from typing import Final

from kfs.demo.timeline import DAY, HOUR, batches_of, header, in_segments, moments
from kfs.demo.topic import DemoPartition, DemoTopic, Event, NewLeader, ProducedBatch, Producer, Roll
from kfs.format.codecs import Codec
from kfs.format.layout import MAGIC_V0, MAGIC_V1, MAGIC_V2, NO_SEQUENCE, NO_TIMESTAMP
from kfs.format.record import Record, TimestampType

#: The record that the documentation uses: offset, timestamp, value, and the number in its header ``trace``.
_KNOWN_OFFSET: Final = 368776
_KNOWN_TIMESTAMP: Final = 1_606_446_771_205
_KNOWN_LAUNCH: Final = 4567890
_KNOWN_TRACE: Final = 0xA1
_LAUNCHES_IN_SEGMENT: Final = 168
_LAUNCH_INTERVAL: Final = 17 * 60 * 1000

_DEVICE_FRAME: Final = struct.Struct(">BBHff")  # sync byte, version, device, degrees Celsius, volts
_SYNC: Final = 0xA5  # never the first byte of UTF-8 text

_JUNE_2017: Final = 1_496_275_200_000
_FIRST_V2_OFFSET: Final = 400
_ACTIONS: Final = ("login", "logout", "change-password", "grant role=editor", "revoke role=editor", "export report")
_USERS: Final = ("root", "årstad", "björn", "j.doe", "li.na", "ops-bot")


def launch_info() -> DemoTopic:
    """Return a topic with small text values; partition 0 has the offset that the documentation uses."""
    partitions = [_launches(0, _KNOWN_OFFSET, 368601, 3), _launches(1, 351300, 351120, 2)]
    return DemoTopic("launch_info", "numbers as text, trace headers", partitions)


def _launches(number: int, known_offset: int, first_offset: int, segments: int) -> DemoPartition:
    """Return a partition with every second launch, by its number; retention has deleted the earliest ones."""
    source = random.Random(f"launch_info {number}")
    records = []
    for offset in range(first_offset, first_offset + segments * _LAUNCHES_IN_SEGMENT):
        away = offset - known_offset
        jitter = int(source.random() * _LAUNCH_INTERVAL / 10) if away else 0
        moment = _KNOWN_TIMESTAMP + away * _LAUNCH_INTERVAL + jitter
        trace = header("trace", f"{(_KNOWN_TRACE + away) % 256:02x}")
        records.append(Record(offset, moment, None, b"%d" % (_KNOWN_LAUNCH + 2 * away + number), (trace,)))
    events: list[Event] = [NewLeader(3)]
    for start in range(0, len(records), _LAUNCHES_IN_SEGMENT):
        if start:
            events.append(Roll(first_offset + start))
        if start == _LAUNCHES_IN_SEGMENT:
            events.append(NewLeader(5))
        in_segment = records[start : start + _LAUNCHES_IN_SEGMENT]
        producer = Producer(100 + number)
        events.extend(batches_of(source, in_segment, 4, producer=producer, first_sequence=first_offset + start))
    return DemoPartition(events, first_offset=first_offset)


def sensor_readings() -> DemoTopic:
    """Return a topic with binary frames and broker timestamps; DeleteRecords has cut the beginning of partition 0."""
    partitions = [_readings(0, log_start_offset=250), _readings(1)]
    return DemoTopic("sensor-readings", "binary values, LogAppendTime", partitions)


def _readings(number: int, log_start_offset: int | None = None) -> DemoPartition:
    source = random.Random(f"sensor-readings {number}")
    records = []
    for offset, moment in enumerate(moments(source, 1800)):
        device = 2 * source.randrange(12) + number
        hour = moment % DAY / HOUR
        celsius = 18 + 6 * math.sin((hour - 9) / 24 * 2 * math.pi) + source.random() * 2
        frame = _DEVICE_FRAME.pack(_SYNC, 1, device, celsius, 3.0 + source.random() * 0.3)
        value = frame + struct.pack(">I", zlib.crc32(frame))
        records.append(Record(offset, moment, f"device-{device:02d}".encode(), value))
    batches = list(batches_of(source, records, 30, timestamp_type=TimestampType.LOG_APPEND_TIME))
    return DemoPartition(in_segments(batches, 3), log_start_offset=log_start_offset)


def legacy_audit() -> DemoTopic:
    """Return a topic that three generations of brokers wrote: message formats v0, v1 and v2; snappy."""
    source = random.Random("legacy-audit")
    batches = [
        *_audit(source, MAGIC_V0, 0, [NO_TIMESTAMP] * 180),
        *_audit(source, MAGIC_V1, 180, moments(source, 220, _JUNE_2017, _JUNE_2017 + 5 * DAY)),
        *_audit(source, MAGIC_V2, _FIRST_V2_OFFSET, moments(source, 200)),
    ]
    events: list[Event] = []
    for at, batch in enumerate(batches):
        # The formats change within segments, because an upgrade doesn't wait for a roll.
        if at in (len(batches) // 2, len(batches) * 5 // 6):
            events.append(Roll(batch.base_offset))
        if batch.base_offset == _FIRST_V2_OFFSET:
            events.append(NewLeader(7))
        events.append(batch)
    return DemoTopic("legacy-audit", "text in message formats v0, v1 and v2; snappy", [DemoPartition(events)])


def _audit(source: random.Random, magic: int, first_offset: int, times: list[int]) -> list[ProducedBatch]:
    records = []
    for offset, moment in enumerate(times, first_offset):
        user = source.choice(_USERS)
        line = f"user={user} action={source.choice(_ACTIONS)} from=10.0.{source.randrange(8)}.{source.randrange(255)}"
        records.append(Record(offset, moment, user.encode(), line.encode()))
    producer = Producer(6000) if magic == MAGIC_V2 else None
    batches = []
    at = 0
    while at < len(records):
        # A few clients did not compress.
        codec = Codec.SNAPPY if source.random() < 0.8 else Codec.NONE
        some = records[at : at + (source.randint(2, 9) if codec else 1)]
        at += len(some)
        batches.append(
            ProducedBatch(
                records=some,
                magic=magic,
                codec=codec,
                base_offset=some[0].offset,
                last_offset=some[-1].offset,
                producer=producer,
                base_sequence=NO_SEQUENCE if producer is None else some[0].offset - first_offset,
            )
        )
    return batches


def empty() -> DemoTopic:
    """Return a topic without records."""
    return DemoTopic("empty", "nothing yet", [DemoPartition([NewLeader(0)])])
