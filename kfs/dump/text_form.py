"""The lines of ``kafka-dump-log`` of Kafka 4.3.1 (``DumpLogSegments.java``)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from kfs.dump.batches import Batch, batches_of
from kfs.dump.control_text import control_text
from kfs.dump.forms import Printing
from kfs.format.aborted_transaction import AbortedTransaction
from kfs.format.checkpoint import EpochEntry, TopicPartition
from kfs.format.java_text import java_text
from kfs.format.layout import MAGIC_V2
from kfs.format.producer_snapshot import ProducerStateEntry
from kfs.internal.message_json import Json
from kfs.log.bulk import Records
from kfs.log.problem import Problem


def java_boolean(value: bool) -> str:
    """Return ``Boolean.toString``."""
    return "true" if value else "false"


def optional_long(value: int | None) -> str:
    """Return ``OptionalLong.toString``."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


class TextForm:
    """Writes what Kafka 4.3.1 writes."""

    def __init__(self, printing: Printing) -> None:
        self.printing = printing
        self.path = ""

    def begin(self, path: str) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.begin`."""
        self.path = path
        return encoded(f"Dumping {path}\n")

    def log_start(self, base_offset: int) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.log_start`."""
        return encoded(f"Log starting offset: {base_offset}\n")

    def snapshot_end(self, end_offset: int, epoch: int) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.snapshot_end`."""
        return encoded(f"Snapshot end offset: {end_offset}, epoch: {epoch}\n")

    def bootstrap_snapshot(self) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.bootstrap_snapshot`."""
        return b"KRaft bootstrap snapshot\n"

    def records(self, records: Records) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.records`."""
        return b"".join(map(self.batch, batches_of(records)))

    def batch(self, batch: Batch) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.batch`."""
        lines = [self._batch_line(batch)]
        if self.printing.is_deep and batch.columns is not None:
            lines += [self._record_line(batch, index) for index in range(batch.first, batch.stop)]
        return encoded("".join(lines))

    def _batch_line(self, batch: Batch) -> str:
        header = batch.header
        if header.magic >= MAGIC_V2:
            start = (
                f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count}"
                f" baseSequence: {header.base_sequence} lastSequence: {batch.last_sequence}"
                f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
                f" partitionLeaderEpoch: {header.leader_epoch}"
                f" isTransactional: {java_boolean(header.is_transactional)}"
                f" isControl: {java_boolean(header.is_control)}"
                f" deleteHorizonMs: {optional_long(header.delete_horizon)}"
            )
        else:
            start = f"offset: {header.last_offset}"
        return (
            f"{start} position: {header.position} {header.timestamp_type.label}: {header.max_timestamp}"
            f" size: {header.size} magic: {header.magic} compresscodec: {header.codec_label}"
            f" crc: {header.crc} isvalid: {java_boolean(batch.is_valid)}\n"
        )

    def _record_line(self, batch: Batch, index: int) -> str:
        parts = self._metadata(batch, index) if self.printing.has_metadata else ""
        if self.printing.contents is not None and not batch.header.is_control:
            contents = self._contents(batch, index)
            parts = f"{parts} {contents}" if parts and contents else parts or (contents and f"| {contents}")
        return parts + "\n"

    def _metadata(self, batch: Batch, index: int) -> str:
        columns, header = batch.columns, batch.header
        assert columns is not None
        text = (
            f"| offset: {columns.offsets[index]} {header.timestamp_type.label}: {columns.timestamps[index]}"
            f" keySize: {columns.key_lengths[index]} valueSize: {columns.value_lengths[index]}"
        )
        if header.magic < MAGIC_V2:
            is_valid = java_boolean(index not in columns.faults)
            return f"{text} isValid: {is_valid} crc: {batch.record_crc(index)}"
        text += f" sequence: {batch.sequence(index)} headerKeys: [{self.header_keys(batch, index)}]"
        if header.is_control:
            text += f" {control_text(columns.key(index), columns.value(index))}"
        return text

    def _contents(self, batch: Batch, index: int) -> str:
        columns, contents = batch.columns, self.printing.contents
        assert columns is not None
        assert contents is not None
        key, value = contents.texts(columns.offsets[index], columns.key(index), columns.value(index))
        parts = ([] if key is None else [f"key: {key}"]) + ([] if value is None else [f"payload: {value}"])
        return " ".join(parts)

    @staticmethod
    def header_keys(batch: Batch, index: int) -> str:
        """Return the names of a record's headers, joined."""
        assert batch.columns is not None
        if batch.columns.header_starts[index] < 0:
            return ""
        return ",".join(java_text(key) for key, _ in batch.columns.headers(index))

    def trailing_bytes(self, size: int) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.trailing_bytes`."""
        return encoded(f"Found {size} invalid bytes at the end of {os.path.basename(self.path)}\n")

    def empty_index(self) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.empty_index`."""
        return encoded(f"{self.path} is empty.\n")

    def sane_index(self) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.sane_index`."""
        return encoded(f"{self.path} passed sanity check.\n")

    def offset_entries(self, entries: Sequence[tuple[int, int]]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.offset_entries`."""
        return joined(f"offset: {offset} position: {position}\n" for offset, position in entries)

    def time_entries(self, entries: Sequence[tuple[int, int]]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.time_entries`."""
        return joined(f"timestamp: {timestamp} offset: {offset}\n" for timestamp, offset in entries)

    def aborted_transactions(self, transactions: Sequence[AbortedTransaction]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.aborted_transactions`."""
        return joined(
            f"version: 0 producerId: {one.producer_id} firstOffset: {one.first_offset}"
            f" lastOffset: {one.last_offset} lastStableOffset: {one.last_stable_offset}\n"
            for one in transactions
        )

    def producers(self, producers: Sequence[ProducerStateEntry]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.producers`."""
        return joined(map(self._producer, producers))

    def _producer(self, producer: ProducerStateEntry) -> str:
        return (
            f"producerId: {producer.producer_id} producerEpoch: {producer.producer_epoch}"
            f" coordinatorEpoch: {producer.coordinator_epoch}"
            f" currentTxnFirstOffset: {optional_long(producer.current_txn_first_offset)}"
            f" lastTimestamp: {producer.timestamp}{' ' if producer.has_batch else ''}{last_batch(producer)}\n"
        )

    def leader_epochs(self, epochs: Sequence[EpochEntry]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.leader_epochs`."""
        return joined(f"epoch: {one.epoch} startOffset: {one.start_offset}\n" for one in epochs)

    def offset_checkpoint(self, offsets: Mapping[TopicPartition, int]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.offset_checkpoint`."""
        return joined(
            f"topic: {partition.topic} partition: {partition.partition} offset: {offset}\n"
            for partition, offset in offsets.items()
        )

    def properties(self, properties: Mapping[str, Json]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.properties`."""
        return joined(f"{name}: {value}\n" for name, value in properties.items())

    def problem(self, problem: Problem) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.problem`; the text has no place for it."""
        return b""


def last_batch(producer: ProducerStateEntry) -> str:
    """Return what is said of the last batch of a producer, if anything."""
    if not producer.has_batch:
        return ""
    return (
        f"firstSequence: {producer.first_sequence} lastSequence: {producer.last_sequence}"
        f" lastOffset: {producer.last_offset} offsetDelta: {producer.offset_delta} timestamp: {producer.timestamp}"
    )


def encoded(text: str) -> bytes:
    """Return lines as they are written; a path's bytes come back as they were."""
    return text.encode("utf-8", "surrogateescape")


def joined(lines: Iterable[str]) -> bytes:
    """Return lines as they are written."""
    return encoded("".join(lines))
