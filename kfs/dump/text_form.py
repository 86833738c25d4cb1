"""The output of ``kafka-dump-log`` of Kafka 4.3.1 (``DumpLogSegments.java``)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from kfs.dump.batch_text import BatchLines, batch_lines, optional_long
from kfs.dump.batches import DumpedBatch
from kfs.dump.forms import Printing
from kfs.format.aborted_txn import AbortedTxn
from kfs.format.checkpoint import EpochEntry, TopicPartition
from kfs.format.producer_snapshot import ProducerStateEntry
from kfs.internal.message_json import Json
from kfs.log.bulk import DecodedBatches
from kfs.log.problem import Problem


class TextForm:
    """Formats a dump as Kafka 4.3.1 does."""

    def __init__(self, printing: Printing) -> None:
        self.lines: BatchLines = batch_lines(printing)
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

    def records(self, records: DecodedBatches) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.records`."""
        return self.lines.records(records)

    def batch(self, batch: DumpedBatch) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.batch`."""
        return self.lines.batch(batch)

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

    def aborted_transactions(self, transactions: Sequence[AbortedTxn]) -> bytes:
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
        return joined(f"epoch: {one.leader_epoch} startOffset: {one.start_offset}\n" for one in epochs)

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
        """See :meth:`~kfs.dump.forms.Form.problem`; Kafka's tool doesn't print problems here."""
        return b""


def last_batch(producer: ProducerStateEntry) -> str:
    """Return the text on a producer's last batch, empty if it has none."""
    if not producer.has_batch:
        return ""
    return (
        f"firstSequence: {producer.first_sequence} lastSequence: {producer.last_sequence}"
        f" lastOffset: {producer.last_offset} offsetDelta: {producer.offset_delta} timestamp: {producer.timestamp}"
    )


def encoded(text: str) -> bytes:
    """Return lines encoded as UTF-8; bytes of a path that aren't UTF-8 are restored."""
    return text.encode("utf-8", "surrogateescape")


def joined(lines: Iterable[str]) -> bytes:
    """Return lines joined and encoded."""
    return encoded("".join(lines))
