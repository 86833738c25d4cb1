"""Log directories that are written to (``LogManager.scala``): which partition goes where, and their checkpoints."""

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
    """Makes partitions in one or several log directories that no broker uses meanwhile.

    They are written under the names that partitions of deleted topics have, which a broker removes when it starts, and
    get their own when they are complete: what a crash leaves is never taken for a partition.
    """

    def __init__(self, log_dirs: Sequence[str], config: LogConfig | None = None, *, clock: Clock = wall_clock) -> None:
        """Look at each directory, which must be there.

        Raises:
            UnusableSource: there is none, or one can't be listed.
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
        """Return where a new partition goes: the directory with the fewest, of several the first that was named."""
        return min(self.log_dirs, key=lambda path: self._counts[path])

    def create(self, partition: TopicPartition, topic_id: Uuid | None = None, first_offset: int = 0) -> UnifiedLog:
        """Make a partition; it is open, and has another name, until :meth:`close`.

        Raises:
            FileExistsError: it is there, in whichever directory.
        """
        for path, logs in self._logs.items():
            if partition in logs or os.path.lexists(os.path.join(path, str(partition))):
                raise FileExistsError(f"{os.path.join(path, str(partition))}: the partition is there already")
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
        """Return where a partition is that was made, or will be once it is closed."""
        log_dir = next(log_dir for log_dir, logs in self._logs.items() if partition in logs)
        return os.path.join(log_dir, str(partition))

    def close(self) -> None:
        """Bring every log to the disk and give it its name, then write the checkpoints and that the stop was clean.

        The latter not where other partitions are that weren't stopped cleanly: a broker has yet to recover those.

        Raises:
            CorruptData: a checkpoint that is there already can't be read; no partition has got its name.
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
        """Remove every partition that was made and has not got its name."""
        for logs in self._logs.values():
            for log in logs.values():
                with suppress(OSError):  # a disk that is full
                    for segment in log.segments:
                        segment.park()
                shutil.rmtree(log.directory, ignore_errors=True)


def write_checkpoints(log_dir: str, logs: Mapping[TopicPartition, UnifiedLog]) -> None:
    """Write the recovery points, the log start offsets and the high watermarks of logs that are flushed.

    All that is in a log counts as replicated. What the files say of other partitions stays.

    Raises:
        CorruptData: one of the files is there and can't be read.
    """
    ends = {partition: log.log_end_offset for partition, log in logs.items()}
    for name, offsets in zip(_CHECKPOINTS_WRITTEN, (ends, log_starts(logs), ends), strict=True):
        path = os.path.join(log_dir, name)
        others = read_side_file(path, parse_offset_checkpoint) or {}
        kept = {partition: offset for partition, offset in others.items() if partition not in logs}
        write_atomically(path, encode_offset_checkpoint({**kept, **offsets}))


def log_starts(logs: Mapping[TopicPartition, UnifiedLog]) -> dict[TopicPartition, int]:
    """Return the log start offsets that a checkpoint names: those that aren't the first segment's base offset.

    ``LogManager.checkpointLogStartOffsetsInDir``.
    """
    return {
        partition: log.log_start_offset
        for partition, log in logs.items()
        if log.log_start_offset > log.segments.first.base_offset
    }


def write_clean_shutdown(log_dir: str) -> None:
    """Write the marker of a clean stop, of no broker in particular: -1 is the epoch of one that isn't known."""
    write_atomically(os.path.join(log_dir, CLEAN_SHUTDOWN), encode_clean_shutdown(CleanShutdown(-1)))


def _was_stopped_cleanly(log_dir: str) -> bool:
    return os.path.exists(os.path.join(log_dir, CLEAN_SHUTDOWN))


def _count_partitions(path: str) -> int:
    """Count the partitions as ``LogManager.nextLogDirs`` does: those that are being moved here too, no deleted ones."""
    try:
        names = [parse_directory_name(name) for name in os.listdir(path)]
    except OSError as error:
        raise UnusableSource(f"{path}: {error.strerror}") from None
    return sum(name is not None and name.kind in (DirectoryKind.CURRENT, DirectoryKind.FUTURE) for name in names)
