"""Writing what happened to a partition: its segments, and all that a broker keeps beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kfs.demo.topic import Batch, EndOfTransaction, Event, NewLeader, Partition, Producer, Roll
from kfs.format.aborted_transaction import AbortedTransaction, encode_aborted_transactions
from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint
from kfs.format.control_record import AbortMarker, CommitMarker, encode_control_record
from kfs.format.layout import MAGIC_V2, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from kfs.format.legacy_writer import encode_message_set
from kfs.format.partition_metadata import PartitionMetadata, encode_partition_metadata
from kfs.format.producer_snapshot import ProducerStateEntry, encode_producer_snapshot
from kfs.format.record import Record
from kfs.format.uuid import Uuid
from kfs.format.writer import encode_batch, encode_empty_batch
from kfs.log.segment_writer import SegmentWriter, segment_path

_COORDINATOR_EPOCH: Final = 3
_NO_COORDINATOR_EPOCH: Final = -1
_NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a partition: how many messages its log holds, and the offset after the last."""

    messages: int
    log_end_offset: int


def write_partition(directory: str, partition: Partition, topic_id: Uuid) -> Written:
    """Make ``directory`` and write the files of a cleanly stopped broker into it."""
    os.mkdir(directory)
    writer = _PartitionWriter(directory, partition.first_offset)
    for event in partition.events:
        writer.apply(event)
    writer.close()
    metadata = encode_partition_metadata(PartitionMetadata(topic_id))
    write_file(os.path.join(directory, "partition.metadata"), metadata)
    return Written(writer.messages, writer.log_end_offset)


def write_file(path: str, content: bytes) -> None:
    """Write a file that isn't there yet."""
    with open(path, "xb") as file:
        file.write(content)


class _PartitionWriter:
    """The log's end, as the broker that appends to it keeps it in memory."""

    def __init__(self, directory: str, first_offset: int) -> None:
        self.log_end_offset = first_offset
        self.messages = 0
        self._directory = directory
        self._segment = SegmentWriter(directory, first_offset)
        self._aborted: list[AbortedTransaction] = []
        self._epochs: list[EpochEntry] = []
        self._producers = _Producers()
        self._keeps_snapshots = False
        self._segment_timestamp = NO_TIMESTAMP

    def apply(self, event: Event) -> None:
        match event:
            case Batch():
                self._append(event)
            case EndOfTransaction():
                self._end_transaction(event)
            case Roll():
                self.log_end_offset = event.base_offset
                self._close_segment()
                self._segment = SegmentWriter(self._directory, event.base_offset)
            case NewLeader():
                self._epochs.append(EpochEntry(event.epoch, self.log_end_offset))

    def close(self) -> None:
        """``UnifiedLog.close``: a snapshot at the log's end, if that has moved since the last one."""
        moved = self.log_end_offset > self._segment.base_offset
        self._close_segment(with_snapshot=moved)
        checkpoint = encode_leader_epoch_checkpoint(self._epochs)
        write_file(os.path.join(self._directory, "leader-epoch-checkpoint"), checkpoint)

    def _append(self, batch: Batch) -> None:
        if batch.magic < MAGIC_V2:
            data = encode_message_set(batch.records, magic=batch.magic, codec=batch.codec)
        else:
            data = self._encode(batch)
            self._keeps_snapshots = True
        self._append_to_segment(data, _latest(batch))
        self.messages += len(batch.records)
        self.log_end_offset = batch.last_offset + 1

    def _append_to_segment(self, data: bytes, timestamp: int) -> None:
        self._segment.append(data)
        self._segment_timestamp = max(self._segment_timestamp, timestamp)

    def _encode(self, batch: Batch) -> bytes:
        producer = batch.producer or Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        if batch.producer is not None:
            self._producers.appended(batch, batch.producer)
        if not batch.records:
            return encode_empty_batch(
                batch.base_offset,
                batch.last_offset,
                timestamp_type=batch.timestamp_type,
                max_timestamp=_latest(batch),
                partition_leader_epoch=self._epochs[-1].epoch,
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
            partition_leader_epoch=self._epochs[-1].epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.is_transactional,
        )

    def _end_transaction(self, end: EndOfTransaction) -> None:
        marker = CommitMarker(_COORDINATOR_EPOCH) if end.is_commit else AbortMarker(_COORDINATOR_EPOCH)
        data = encode_batch(
            [Record(end.offset, end.timestamp, *encode_control_record(marker))],
            partition_leader_epoch=self._epochs[-1].epoch,
            producer_id=end.producer.producer_id,
            producer_epoch=end.producer.epoch,
            transactional=True,
            control=True,
        )
        self._append_to_segment(data, end.timestamp)
        self.log_end_offset = end.offset + 1
        aborted = self._producers.ended(end)
        if not end.is_commit:
            self._aborted.append(aborted)

    def _close_segment(self, *, with_snapshot: bool = True) -> None:
        self._segment.close()
        if self._segment_timestamp != NO_TIMESTAMP:
            # For records that have no timestamp, this is when they were written.
            when = self._segment_timestamp * 1_000_000
            os.utime(segment_path(self._directory, self._segment.base_offset, ".log"), ns=(when, when))
            self._segment_timestamp = NO_TIMESTAMP
        if self._aborted:
            content = encode_aborted_transactions(self._aborted)
            write_file(segment_path(self._directory, self._segment.base_offset, ".txnindex"), content)
            self._aborted.clear()
        # Brokers that wrote v0 and v1 kept none.
        if with_snapshot and self._keeps_snapshots:
            snapshot = encode_producer_snapshot(self._producers.entries())
            write_file(segment_path(self._directory, self.log_end_offset, ".snapshot"), snapshot)


class _Producers:
    """The state of the partition's producers (``ProducerStateManager.java``)."""

    def __init__(self) -> None:
        self._entries: dict[int, ProducerStateEntry] = {}

    def entries(self) -> Sequence[ProducerStateEntry]:
        return list(self._entries.values())

    def appended(self, batch: Batch, producer: Producer) -> None:
        """Note a batch."""
        known = self._entry(producer)
        offset_delta = batch.last_offset - batch.base_offset
        open_from = known.current_txn_first_offset
        if batch.is_transactional and open_from is None:
            open_from = batch.base_offset
        self._entries[producer.producer_id] = ProducerStateEntry(
            producer.producer_id,
            producer.epoch,
            batch.base_sequence + offset_delta,
            batch.last_offset,
            offset_delta,
            _latest(batch),
            known.coordinator_epoch,
            open_from,
        )

    def ended(self, end: EndOfTransaction) -> AbortedTransaction:
        """Note the end of a transaction and return what the transaction index says of one that was aborted."""
        known = self._entry(end.producer)
        assert known.current_txn_first_offset is not None
        self._entries[end.producer.producer_id] = ProducerStateEntry(
            known.producer_id,
            known.producer_epoch,
            known.last_sequence,
            known.last_offset,
            known.offset_delta,
            end.timestamp,
            _COORDINATOR_EPOCH,
            None,
        )
        others = [entry.current_txn_first_offset for entry in self._entries.values()]
        still_open = [offset for offset in others if offset is not None]
        return AbortedTransaction(
            end.producer.producer_id,
            known.current_txn_first_offset,
            end.offset,
            min(still_open, default=end.offset + 1),
        )

    def _entry(self, producer: Producer) -> ProducerStateEntry:
        known = self._entries.get(producer.producer_id)
        if known is not None:
            return known
        return ProducerStateEntry(
            producer.producer_id,
            producer.epoch,
            NO_SEQUENCE,
            _NO_OFFSET,
            0,
            0,
            _NO_COORDINATOR_EPOCH,
            None,
        )


def _latest(batch: Batch) -> int:
    if batch.emptied_timestamp is not None:
        return batch.emptied_timestamp
    return max(record.timestamp for record in batch.records)
