"""A partition open for writing, as in a broker (``UnifiedLog.java``, ``LocalLog.java``).

:class:`kfs.log.log.Log` shows a partition, and this class creates one. It rolls segments, and maintains the other files
that a broker needs to start on the directory.
"""

from __future__ import annotations

import os
import random
from typing import Final

from kfs.broker_log.file_records import first_record
from kfs.broker_log.log_config import Clock, LogConfig, wall_clock
from kfs.broker_log.log_loader import LoadedLog, LoadObserver, LoadParameters, LogLoader
from kfs.broker_log.log_segment import LogSegment, RollParams, batch_headers
from kfs.broker_log.log_segments import LogSegments, rebuild_producer_state
from kfs.broker_log.producer_state_manager import ProducerStateManager
from kfs.errors import CorruptData, InvalidOffset, RecoveryRefused
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader
from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint, parse_leader_epoch_checkpoint
from kfs.format.layout import MAGIC_V2, NO_PARTITION_LEADER_EPOCH
from kfs.format.offset_assignment import assign_offset
from kfs.format.partition_metadata import PartitionMetadata, encode_partition_metadata, parse_partition_metadata
from kfs.format.uuid import Uuid
from kfs.log.leader_epochs import LeaderEpochs
from kfs.log.partition_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from kfs.storage.atomic_file import sync_directory, write_atomically
from kfs.storage.side_file import read_side_file

_DEFAULTS: Final = LogConfig()
_NOTHING_KNOWN: Final = LoadParameters()


class UnifiedLog:
    """A partition directory, open for appending; not thread-safe, and not to be used next to a broker.

    :meth:`flush` syncs appended data to disk. The other files are written by :meth:`flush` or :meth:`close`, except for
    producer snapshots, which are written whenever a segment is rolled.
    """

    def __init__(self, directory: str, loaded: LoadedLog, config: LogConfig, clock: Clock) -> None:
        self.directory = directory
        self.segments: LogSegments = loaded.segments
        self.epochs: LeaderEpochs = loaded.epochs
        self.producers: ProducerStateManager = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self._config = config
        self._clock = clock
        self._written_epochs: tuple[EpochEntry, ...] | None = None

    @classmethod
    def create(
        cls,
        directory: str,
        config: LogConfig = _DEFAULTS,
        *,
        first_offset: int = 0,
        topic_id: Uuid | None = None,
        clock: Clock = wall_clock,
    ) -> UnifiedLog:
        """Create ``directory`` and a log in it whose first offset is ``first_offset``.

        Raises:
            FileExistsError: the path exists.
        """
        os.mkdir(directory)
        if topic_id is not None:
            metadata = encode_partition_metadata(PartitionMetadata(topic_id))
            write_atomically(os.path.join(directory, PARTITION_METADATA), metadata)
        segments = LogSegments()
        segments.add(LogSegment.create(directory, first_offset, config, clock=clock))
        producers = ProducerStateManager(directory, config, clock)
        producers.truncate_fully_and_start_at(first_offset)
        loaded = LoadedLog(segments, LeaderEpochs(), producers, first_offset, first_offset, first_offset)
        return cls(directory, loaded, config, clock)

    @classmethod
    def open(
        cls,
        directory: str,
        config: LogConfig = _DEFAULTS,
        parameters: LoadParameters = _NOTHING_KNOWN,
        *,
        clock: Clock = wall_clock,
        observer: LoadObserver | None = None,
    ) -> UnifiedLog:
        """Open the log in a directory, and recover it unless ``parameters`` say that it was closed cleanly.

        Raises:
            RecoveryRefused: a broker would not start on it.
            OSError: a file can't be read or written.
        """
        try:
            read_side_file(os.path.join(directory, PARTITION_METADATA), parse_partition_metadata)
            checkpoint = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
            entries = read_side_file(checkpoint, parse_leader_epoch_checkpoint)
            epochs = LeaderEpochs(entries or ())
        except CorruptData as error:
            raise RecoveryRefused(str(error)) from error
        loaded = LogLoader(directory, config, clock, parameters, epochs, observer).load()
        log = cls(directory, loaded, config, clock)
        log._find_first_unstable_batch()
        log._written_epochs = entries
        return log

    def _find_first_unstable_batch(self) -> None:
        """Find the first batch of the oldest open transaction, as ``maybeIncrementFirstUnstableOffset`` does.

        Raises:
            RecoveryRefused: the search meets bytes that are no batch.
        """
        unstable = self.producers.state.first_unstable_offset
        if unstable is None:
            return
        offset = max(unstable, self.log_start_offset)
        if offset >= self.log_end_offset or self.segments.floor(offset) is None:
            return
        try:
            for segment in self.segments.values(offset):
                if segment.translate_offset(offset) is not None:
                    return
        except CorruptData as error:
            raise RecoveryRefused(str(error)) from error

    # --- appending

    def append(self, batches: bytes) -> None:
        """Append complete batches of any message format, with their own offsets and leader epochs.

        Raises:
            CorruptData: the bytes at a batch's position are no batch, or a control record is invalid.
            ValueError: the bytes end within a batch, or a batch is larger than a segment may be.
            InvalidOffset: an offset is below the log end offset.
            InvalidTransaction: a batch doesn't fit its producer's open transaction.
        """
        for header in batch_headers(batches):
            self._append(header, batches[header.position : header.position + header.size])

    def append_as_leader(self, batches: bytes, leader_epoch: int = NO_PARTITION_LEADER_EPOCH) -> int:
        """Append complete batches with the next offsets, and return the first of these.

        Raises:
            ValueError: a batch is a compressed message of format v0 or v1, whose offsets are inside it.
            CorruptData, InvalidTransaction: see :meth:`append`.
        """
        first = self.log_end_offset
        for header in batch_headers(batches):
            data = batches[header.position : header.position + header.size]
            self.append(assign_offset(data, header, self.log_end_offset, leader_epoch))
        return first

    def _append(self, header: BatchHeader, data: bytes) -> None:
        if header.base_offset < self.log_end_offset:
            raise InvalidOffset(f"offset {header.base_offset} is below the end of the log, {self.log_end_offset}")
        if len(data) > self._config.segment_bytes:
            raise ValueError(f"a batch of {len(data)} bytes, segments have at most {self._config.segment_bytes}")
        params = RollParams(header.max_timestamp, header.last_offset, len(data), self._clock())
        if self.segments.last.should_roll(params):
            # Only its content tells where a compressed message begins.
            self.roll(0 if header.record_count == UNKNOWN_COUNT else header.base_offset)
        if header.magic >= MAGIC_V2:
            if header.leader_epoch >= 0:
                self.epochs.assign(header.leader_epoch, header.base_offset)
        else:
            self.epochs.clear()  # older formats have no epochs, and the known ones would be wrong for it
        control = first_record(header, data) if header.is_transaction_marker else None
        completed = self.producers.state.append(header, control)
        self.segments.last.append(data)
        if completed is not None:
            self.segments.last.note_completed(completed)
        self.log_end_offset = header.last_offset + 1

    def assign_epoch(self, epoch: int) -> None:
        """Note that a leader of that epoch appends from the log end offset on."""
        self.epochs.assign(epoch, self.log_end_offset)

    def roll(self, expected_next_offset: int = 0) -> None:
        """Begin a new segment at the log end offset, or at ``expected_next_offset`` if that is higher."""
        offset = max(expected_next_offset, self.log_end_offset)
        active = self.segments.last
        if active.base_offset == offset and not active.size:
            return
        active.become_inactive()
        active.park()
        jitter_ms = min(self._config.segment_jitter_ms, self._config.segment_ms)
        segment = LogSegment.create(
            self.directory,
            offset,
            self._config,
            clock=self._clock,
            roll_jitter_ms=random.randrange(jitter_ms) if jitter_ms else 0,
        )
        self.segments.add(segment)
        self.log_end_offset = offset
        self.producers.state.map_end_offset = offset
        self.producers.take_snapshot()

    def truncate_to(self, offset: int) -> None:
        """Cut off the batch that holds ``offset`` and everything after it; do nothing if the log ends before it.

        Raises:
            ValueError: the offset is negative.
        """
        if offset < 0:
            raise ValueError(f"a log cannot be cut at offset {offset}")
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
        elif offset < self.segments.first.base_offset:
            self._truncate_fully_and_start_at(offset)
        else:
            for segment in [each for each in self.segments if each.base_offset > offset]:
                self._delete(segment)
            self.segments.last.truncate_to(offset)
            self.epochs.truncate_from_end(offset)
            self.log_start_offset = min(offset, self.log_start_offset)
            self._end_at(offset)

    def _truncate_fully_and_start_at(self, offset: int) -> None:
        for segment in self.segments:
            self._delete(segment)
        self.segments.add(LogSegment.create(self.directory, offset, self._config, clock=self._clock))
        self.epochs.clear()
        self.producers.truncate_fully_and_start_at(offset)
        self.log_start_offset = offset
        self._end_at(offset)

    def _delete(self, segment: LogSegment) -> None:
        self.segments.remove(segment)
        segment.delete()
        self.producers.remove_snapshot(segment.base_offset)

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        rebuild_producer_state(self.producers, self.segments, self.log_start_offset, offset)

    # --- the disk

    def flush(self) -> None:
        """Sync all appended data and the leader epochs to disk."""
        for segment in self.segments.values(self.recovery_point, self.log_end_offset + 1):
            segment.flush()
        self._write_epochs()
        sync_directory(self.directory)
        self.recovery_point = self.log_end_offset

    def _write_epochs(self) -> None:
        entries = self.epochs.entries
        if entries != self._written_epochs:
            path = os.path.join(self.directory, LEADER_EPOCH_CHECKPOINT)
            write_atomically(path, encode_leader_epoch_checkpoint(entries))
            self._written_epochs = entries

    def close(self) -> None:
        """Write a producer snapshot at the log end offset and the leader epochs, and close every segment."""
        self.producers.take_snapshot()
        for segment in self.segments:
            segment.close()
        self._write_epochs()
