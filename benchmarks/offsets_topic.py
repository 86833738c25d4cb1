"""A partition of ``__consumer_offsets`` with very many commits in it, as a broker would have written them."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfs.broker_log.log_segment import LogSegment
from kfs.format.control_record import CommitMarker, encode_control_record
from kfs.format.record import Record
from kfs.format.writer import encode_batch

#: 2026-01-05T00:00:00Z, in milliseconds.
FIRST_TIMESTAMP: Final = 1_767_571_200_000
_TOPICS: Final = 20
_PARTITIONS_OF_GROUP: Final = 10
_SEGMENT_BYTES: Final = 100 * 1024 * 1024  # offsets.topic.segment.bytes
#: How many groups share the partitions of one topic.
_GROUPS_OF_TOPIC: Final = 20
_VALUE: Final = struct.Struct(">hqihq")
_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class OffsetsLog:
    """``commits`` of so many ``groups``, of ten partitions each, ``transactional`` of them in transactions."""

    commits: int
    groups: int
    transactional: float
    commits_in_batch: int

    def write(self, log_dir: Path) -> None:
        """Write the partition directory."""
        directory = log_dir / "__consumer_offsets-0"
        directory.mkdir(parents=True)
        path = os.fspath(directory)
        segment = LogSegment.create(path, 0)
        size = 0
        for base_offset, batch in self._batches():
            if size + len(batch) > _SEGMENT_BYTES:
                segment.close()
                segment, size = LogSegment.create(path, base_offset), 0
            segment.append(batch)
            size += len(batch)
        segment.close()

    def _batches(self) -> Iterator[tuple[int, bytes]]:
        source = random.Random(20261121)
        offset = 0
        for first in range(0, self.commits, self.commits_in_batch):
            count = min(self.commits_in_batch, self.commits - first)
            group = source.randrange(self.groups)
            timestamp = FIRST_TIMESTAMP + first
            records = [
                Record(offset + index, timestamp, _key(group, index), _value(first, timestamp))
                for index in range(count)
            ]
            is_transactional = source.random() < self.transactional
            producer_id = group if is_transactional else -1
            yield offset, encode_batch(records, producer_id=producer_id, transactional=is_transactional)
            offset += count
            if is_transactional:
                yield offset, _marker(offset, timestamp, producer_id)
                offset += 1


def write_commits(log_dir: Path, topic: str, partitions: int, offset: int) -> None:
    """Write a partition in which each of the topic's partitions has one commit, at ``offset``, of one of the groups."""
    directory = log_dir / "__consumer_offsets-0"
    directory.mkdir(parents=True)
    segment = LogSegment.create(os.fspath(directory), 0)
    value = _value(offset, FIRST_TIMESTAMP)
    for partition in range(partitions):
        key = _key_of(f"service-{partition % _GROUPS_OF_TOPIC}", topic, partition)
        segment.append(encode_batch([Record(partition, FIRST_TIMESTAMP, key, value)]))
    segment.close()


def _key(group: int, index: int) -> bytes:
    topic = f"events-{(group + index // _PARTITIONS_OF_GROUP) % _TOPICS}"
    return _key_of(f"service-{group:05d}-consumers", topic, index % _PARTITIONS_OF_GROUP)


def _key_of(group: str, topic: str, partition: int) -> bytes:
    return (
        b"\x00\x01"
        + b"".join(_LENGTH.pack(len(name)) + name.encode() for name in (group, topic))
        + _PARTITION.pack(partition)
    )


def _value(offset: int, timestamp: int) -> bytes:
    return _VALUE.pack(3, offset, 0, 0, timestamp)


def _marker(offset: int, timestamp: int, producer_id: int) -> bytes:
    key, value = encode_control_record(CommitMarker(0))
    record = Record(offset, timestamp, key, value)
    return encode_batch([record], producer_id=producer_id, transactional=True, control=True)
