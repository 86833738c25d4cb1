"""What a dump is made of, and the protocol of those that write it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kfs.dump.batches import DumpedBatch
from kfs.dump.message_parsers import MessageParser
from kfs.format.aborted_txn import AbortedTxn
from kfs.format.checkpoint import EpochEntry, TopicPartition
from kfs.format.producer_snapshot import ProducerStateEntry
from kfs.internal.message_json import Json
from kfs.log.bulk import DecodedBatches
from kfs.log.problem import Problem


@dataclass(frozen=True, slots=True)
class Printing:
    """What of a log is printed: its records or only its batches, what they hold, what is known about them."""

    is_deep: bool = False
    parser: MessageParser | None = None
    has_metadata: bool = True


class Form(Protocol):
    """Writes down what a dump finds, file after file. Every method returns lines, UTF-8, or nothing."""

    def begin(self, path: str) -> bytes:
        """A file begins."""
        ...

    def log_start(self, base_offset: int) -> bytes:
        """The base offset of a segment."""
        ...

    def snapshot_end(self, end_offset: int, epoch: int) -> bytes:
        """What a snapshot of the cluster's metadata goes up to."""
        ...

    def bootstrap_snapshot(self) -> bytes:
        """The snapshot is the one that a cluster begins with."""
        ...

    def records(self, records: DecodedBatches) -> bytes:
        """Batches, and their records."""
        ...

    def batch(self, batch: DumpedBatch) -> bytes:
        """One batch, perhaps an invalid one, and its records where they can be had."""
        ...

    def trailing_bytes(self, size: int) -> bytes:
        """Bytes at the end of the log that are no batch."""
        ...

    def empty_index(self) -> bytes:
        """An offset index without entries."""
        ...

    def sane_index(self) -> bytes:
        """An index that a broker would not rebuild."""
        ...

    def offset_entries(self, entries: Sequence[tuple[int, int]]) -> bytes:
        """Entries of an offset index: offset and position."""
        ...

    def time_entries(self, entries: Sequence[tuple[int, int]]) -> bytes:
        """Entries of a time index: timestamp and offset."""
        ...

    def aborted_transactions(self, transactions: Sequence[AbortedTxn]) -> bytes:
        """Entries of a transaction index."""
        ...

    def producers(self, producers: Sequence[ProducerStateEntry]) -> bytes:
        """Producers in a snapshot of their states."""
        ...

    def leader_epochs(self, epochs: Sequence[EpochEntry]) -> bytes:
        """Lines of a ``leader-epoch-checkpoint``."""
        ...

    def offset_checkpoint(self, offsets: Mapping[TopicPartition, int]) -> bytes:
        """Lines of one of the offset checkpoints of a log directory."""
        ...

    def properties(self, properties: Mapping[str, Json]) -> bytes:
        """Names and values: ``partition.metadata``, ``meta.properties``, ``quorum-state``."""
        ...

    def problem(self, problem: Problem) -> bytes:
        """Something that is wrong in the file, which is said on standard error too."""
        ...
