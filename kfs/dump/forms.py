"""The elements of a dump, and the interface of the forms that format them."""

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
    """The options for a log: print records or only batches, with which parser, and with or without metadata."""

    is_deep: bool = False
    parser: MessageParser | None = None
    has_metadata: bool = True


class Form(Protocol):
    """Formats the elements of a dump, file by file. Every method returns UTF-8 lines, or nothing."""

    def begin(self, path: str) -> bytes:
        """Begin a file."""
        ...

    def log_start(self, base_offset: int) -> bytes:
        """Format a segment's base offset."""
        ...

    def snapshot_end(self, end_offset: int, epoch: int) -> bytes:
        """Format the end offset and epoch of a KRaft metadata snapshot."""
        ...

    def bootstrap_snapshot(self) -> bytes:
        """Format the information that a snapshot is the bootstrap snapshot."""
        ...

    def records(self, records: DecodedBatches) -> bytes:
        """Format batches and their records."""
        ...

    def batch(self, batch: DumpedBatch) -> bytes:
        """Format one batch, which may be invalid, and its records, if they can be decoded."""
        ...

    def trailing_bytes(self, size: int) -> bytes:
        """Format the number of bytes after the last batch of a log."""
        ...

    def empty_index(self) -> bytes:
        """Format the information that an offset index has no entries."""
        ...

    def sane_index(self) -> bytes:
        """Format the information that a broker would accept an index."""
        ...

    def offset_entries(self, entries: Sequence[tuple[int, int]]) -> bytes:
        """Format entries of an offset index: offset and position."""
        ...

    def time_entries(self, entries: Sequence[tuple[int, int]]) -> bytes:
        """Format entries of a time index: timestamp and offset."""
        ...

    def aborted_transactions(self, transactions: Sequence[AbortedTxn]) -> bytes:
        """Format entries of a transaction index."""
        ...

    def producers(self, producers: Sequence[ProducerStateEntry]) -> bytes:
        """Format the producers of a producer snapshot."""
        ...

    def leader_epochs(self, epochs: Sequence[EpochEntry]) -> bytes:
        """Format the entries of a ``leader-epoch-checkpoint``."""
        ...

    def offset_checkpoint(self, offsets: Mapping[TopicPartition, int]) -> bytes:
        """Format the entries of an offset checkpoint of a log directory."""
        ...

    def properties(self, properties: Mapping[str, Json]) -> bytes:
        """Format names and values: ``partition.metadata``, ``meta.properties``, ``quorum-state``."""
        ...

    def problem(self, problem: Problem) -> bytes:
        """Format a problem with the file, which also goes to standard error."""
        ...
