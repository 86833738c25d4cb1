"""Applies a partition's events: writes its segments and all files that a broker keeps beside them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.unified_log import UnifiedLog
from kfs.demo.topic import DemoPartition, EndOfTransaction, Event, NewLeader, ProducedBatch, Producer, Roll
from kfs.format.control_record import AbortMarker, CommitMarker, encode_control_record
from kfs.format.layout import MAGIC_V2, MAX_INT64, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kfs.format.legacy_writer import encode_message_set
from kfs.format.record import Record
from kfs.format.uuid import Uuid
from kfs.format.writer import encode_batch, encode_empty_batch

_COORDINATOR_EPOCH: Final = 3
#: Segments are rolled only by the demo's events, never by age.
_CONFIG: Final = LogConfig(segment_ms=MAX_INT64)


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """The number of messages in a written partition, and its log end offset."""

    messages: int
    log_end_offset: int


def write_partition(directory: str, partition: DemoPartition, topic_id: Uuid) -> WrittenPartition:
    """Create ``directory`` and write the files of a cleanly stopped broker into it."""
    writer = _PartitionWriter(directory, partition.first_offset, topic_id)
    for event in partition.events:
        writer.apply(event)
    writer.close()
    return WrittenPartition(writer.messages, writer.log.log_end_offset)


def write_file(path: str, content: bytes) -> None:
    """Write a new file."""
    with open(path, "xb") as file:
        file.write(content)


class _PartitionWriter:
    """Applies a partition's events to a log."""

    def __init__(self, directory: str, first_offset: int, topic_id: Uuid) -> None:
        self.messages = 0
        self.log = UnifiedLog.create(directory, _CONFIG, first_offset=first_offset, topic_id=topic_id, clock=lambda: 0)
        self._leader_epoch = NO_PARTITION_LEADER_EPOCH
        self._latest: dict[str, int] = {}  # the latest timestamp in milliseconds, by the path of a .log

    def apply(self, event: Event) -> None:
        match event:
            case ProducedBatch():
                self._append(self._encode(event), _latest(event))
                self.messages += len(event.records)
            case EndOfTransaction():
                self._append(self._encode_marker(event), event.timestamp)
            case Roll():
                self.log.roll(event.base_offset)
            case NewLeader():
                self._leader_epoch = event.epoch
                self.log.assign_epoch(event.epoch)

    def close(self) -> None:
        self.log.close()
        for path, latest in self._latest.items():
            # For records without a timestamp, this is their time.
            os.utime(path, ns=(latest * 1_000_000, latest * 1_000_000))

    def _append(self, data: bytes, timestamp: int) -> None:
        self.log.append(data)
        path = self.log.segments.last.path(".log")
        self._latest[path] = max(self._latest.get(path, timestamp), timestamp)

    def _encode(self, batch: ProducedBatch) -> bytes:
        if batch.magic < MAGIC_V2:
            return encode_message_set(batch.records, magic=batch.magic, codec=batch.codec)
        producer = batch.producer or Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        if not batch.records:
            return encode_empty_batch(
                batch.base_offset,
                batch.last_offset,
                timestamp_type=batch.timestamp_type,
                max_timestamp=_latest(batch),
                partition_leader_epoch=self._leader_epoch,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=batch.base_sequence,
            )
        return encode_batch(
            batch.records,
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            codec=batch.codec,
            timestamp_type=batch.timestamp_type,
            delete_horizon=batch.delete_horizon,
            partition_leader_epoch=self._leader_epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.is_transactional,
        )

    def _encode_marker(self, end: EndOfTransaction) -> bytes:
        marker = CommitMarker(_COORDINATOR_EPOCH) if end.is_commit else AbortMarker(_COORDINATOR_EPOCH)
        return encode_batch(
            [Record(end.offset, end.timestamp, *encode_control_record(marker))],
            partition_leader_epoch=self._leader_epoch,
            producer_id=end.producer.producer_id,
            producer_epoch=end.producer.epoch,
            transactional=True,
            control=True,
        )


def _latest(batch: ProducedBatch) -> int:
    if batch.emptied_timestamp is not None:
        return batch.emptied_timestamp
    return max(record.timestamp for record in batch.records)
