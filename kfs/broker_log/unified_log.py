"""A partition that is written to, as a broker does it (``UnifiedLog.java``, ``LocalLog.java``).

:class:`kfs.log.log.Log` is what shows a partition; this is what makes one: it rolls segments, and keeps beside them
what a broker needs to start on the directory.
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
    """A partition directory, open to be appended to; not for several threads, nor beside a broker.

    What has been appended is on the disk after :meth:`flush`; what is beside the segments (snapshots aside, which are
    written as segments are rolled) after :meth:`flush` or :meth:`close`.
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
        """Make ``directory`` and a log in it whose first offset is ``first_offset``.

        Raises:
            FileExistsError: there is something of that name.
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
        """Open the log in a directory, recovering it unless ``parameters`` say that it was closed cleanly.

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
        """Look for the batch where the oldest open transaction begins, as ``maybeIncrementFirstUnstableOffset`` does.

        Raises:
            RecoveryRefused: there is something else than a batch on the way there.
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
        """Append whole batches, of any message format, with the offsets and leader epochs that they have.

        Raises:
            CorruptData: there is something else than a batch, or a control record that isn't one.
            ValueError: the bytes end within a batch, or one is larger than a segment may be.
            InvalidOffset: an offset is below the end of the log.
            InvalidTransaction: a batch doesn't fit the transaction its producer has open.
        """
        for header in batch_headers(batches):
            self._append(header, batches[header.position : header.position + header.size])

    def append_as_leader(self, batches: bytes, leader_epoch: int = NO_PARTITION_LEADER_EPOCH) -> int:
        """Append whole batches with the offsets that come next, and return the first of those.

        Raises:
            ValueError: one is a compressed message of format v0 or v1, which has its offsets inside.
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
            # Where a compressed message begins is known only inside of it.
            self.roll(0 if header.record_count == UNKNOWN_COUNT else header.base_offset)
        if header.magic >= MAGIC_V2:
            if header.leader_epoch >= 0:
                self.epochs.assign(header.leader_epoch, header.base_offset)
        else:
            self.epochs.clear()  # an older format has none, and what is known would be wrong of it
        control = first_record(header, data) if header.is_transaction_marker else None
        completed = self.producers.state.append(header, control)
        self.segments.last.append(data)
        if completed is not None:
            self.segments.last.note_completed(completed)
        self.log_end_offset = header.last_offset + 1

    def assign_epoch(self, epoch: int) -> None:
        """Note that a leader of that epoch appends from here on."""
        self.epochs.assign(epoch, self.log_end_offset)

    def roll(self, expected_next_offset: int = 0) -> None:
        """Begin a new segment at the end of the log, or at ``expected_next_offset`` if that is higher."""
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
        """Cut off the batch that holds ``offset`` and all after it; nothing where the log ends before that.

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
        """Bring all that was appended to the disk, and the leader epochs."""
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
        """Write a snapshot of the producers at the log's end and the leader epochs, and close every segment."""
        self.producers.take_snapshot()
        for segment in self.segments:
            segment.close()
        self._write_epochs()
