"""Log directories open for writing (``LogManager.scala``): placement of partitions, and checkpoints."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from kfs.broker_log.log_config import Clock, LogConfig, wall_clock
from kfs.broker_log.unified_log import UnifiedLog
from kfs.errors import UnusableSource
from kfs.format.checkpoint import TopicPartition, encode_offset_checkpoint, parse_offset_checkpoint
from kfs.format.clean_shutdown import CleanShutdown, encode_clean_shutdown
from kfs.format.uuid import Uuid
from kfs.log.directory_name import DirectoryKind, delete_directory_name, parse_directory_name
from kfs.log.log_dir import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kfs.storage.atomic_file import sync_directory, sync_filesystem, write_atomically
from kfs.storage.side_file import read_side_file

_CHECKPOINTS_WRITTEN: Final = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


class LogManager:
    """Creates partitions in one or several log directories that no broker is using.

    While they are written, they have directory names of deleted partitions, which a broker removes when it starts. They
    get their own names when they are complete, so a crash never leaves an incomplete partition.
    """

    def __init__(self, log_dirs: Sequence[str], config: LogConfig | None = None, *, clock: Clock = wall_clock) -> None:
        """Inspect the directories, which must exist.

        Raises:
            UnusableSource: ``log_dirs`` is empty, or a directory can't be listed.
        """
        if not log_dirs:
            raise UnusableSource("no log directory to write to")
        self.log_dirs = [os.path.abspath(path) for path in log_dirs]
        self._config = config or LogConfig()
        self._clock = clock
        self._counts = {path: _count_partitions(path) for path in self.log_dirs}
        self._clean = [path for path, count in self._counts.items() if not count or _was_stopped_cleanly(path)]
        self._logs: dict[str, dict[TopicPartition, UnifiedLog]] = {path: {} for path in self.log_dirs}

    def next_log_dir(self) -> str:
        """Return the directory for a new partition: the one with the fewest partitions, or the first of several."""
        return min(self.log_dirs, key=lambda path: self._counts[path])

    def create(self, partition: TopicPartition, topic_id: Uuid | None = None, first_offset: int = 0) -> UnifiedLog:
        """Create a partition and open it; it has a temporary name until :meth:`close`.

        Raises:
            FileExistsError: the partition exists in one of the directories.
        """
        for path, logs in self._logs.items():
            if partition in logs or os.path.lexists(os.path.join(path, str(partition))):
                raise FileExistsError(f"{os.path.join(path, str(partition))}: the partition already exists")
        log_dir = self.next_log_dir()
        name = delete_directory_name(partition.topic, partition.partition, uuid.uuid4().hex)
        directory = os.path.join(log_dir, name)
        log = UnifiedLog.create(
            directory, self._config, first_offset=first_offset, topic_id=topic_id, clock=self._clock
        )
        self._counts[log_dir] += 1
        self._logs[log_dir][partition] = log
        return log

    def directory_of(self, partition: TopicPartition) -> str:
        """Return the final directory of a partition created here."""
        log_dir = next(log_dir for log_dir, logs in self._logs.items() if partition in logs)
        return os.path.join(log_dir, str(partition))

    def close(self) -> None:
        """Sync and rename every log, then write the checkpoints and the clean shutdown markers.

        A directory gets no marker if it has other partitions that weren't shut down cleanly: a broker must still
        recover those.

        Raises:
            CorruptData: an existing checkpoint can't be read; no partition has been renamed then.
        """
        for log_dir in self._logs:
            for name in _CHECKPOINTS_WRITTEN:
                read_side_file(os.path.join(log_dir, name), parse_offset_checkpoint)
        for log_dir, logs in self._logs.items():
            for log in logs.values():
                log.close()
            sync_filesystem(log_dir)
        for log_dir, logs in self._logs.items():
            for partition, log in logs.items():
                os.rename(log.directory, os.path.join(log_dir, str(partition)))
            sync_directory(log_dir)
            write_checkpoints(log_dir, logs)
            if log_dir in self._clean:
                write_clean_shutdown(log_dir)

    def discard(self) -> None:
        """Remove every created partition that still has its temporary name."""
        for logs in self._logs.values():
            for log in logs.values():
                with suppress(OSError):  # the disk may be full
                    for segment in log.segments:
                        segment.park()
                shutil.rmtree(log.directory, ignore_errors=True)


def write_checkpoints(log_dir: str, logs: Mapping[TopicPartition, UnifiedLog]) -> None:
    """Write the recovery points, log start offsets and high watermarks of flushed logs.

    All records in a log count as replicated. Entries of other partitions are kept.

    Raises:
        CorruptData: one of the files exists, but can't be read.
    """
    ends = {partition: log.log_end_offset for partition, log in logs.items()}
    for name, offsets in zip(_CHECKPOINTS_WRITTEN, (ends, log_starts(logs), ends), strict=True):
        path = os.path.join(log_dir, name)
        others = read_side_file(path, parse_offset_checkpoint) or {}
        kept = {partition: offset for partition, offset in others.items() if partition not in logs}
        write_atomically(path, encode_offset_checkpoint({**kept, **offsets}))


def log_starts(logs: Mapping[TopicPartition, UnifiedLog]) -> dict[TopicPartition, int]:
    """Return the log start offsets to checkpoint: those above the first segment's base offset.

    See ``LogManager.checkpointLogStartOffsetsInDir``.
    """
    return {
        partition: log.log_start_offset
        for partition, log in logs.items()
        if log.log_start_offset > log.segments.first.base_offset
    }


def write_clean_shutdown(log_dir: str) -> None:
    """Write the marker of a clean shutdown, with epoch -1 because it belongs to no particular broker."""
    write_atomically(os.path.join(log_dir, CLEAN_SHUTDOWN), encode_clean_shutdown(CleanShutdown(-1)))


def _was_stopped_cleanly(log_dir: str) -> bool:
    return os.path.exists(os.path.join(log_dir, CLEAN_SHUTDOWN))


def _count_partitions(path: str) -> int:
    """Count the partitions as ``LogManager.nextLogDirs`` does: with future replicas, but without deleted ones."""
    try:
        names = [parse_directory_name(name) for name in os.listdir(path)]
    except OSError as error:
        raise UnusableSource(f"{path}: {error.strerror}") from None
    return sum(name is not None and name.kind in (DirectoryKind.CURRENT, DirectoryKind.FUTURE) for name in names)
