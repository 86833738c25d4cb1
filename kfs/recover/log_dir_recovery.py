"""The steps common to all recovery modes: recover each partition, then write the checkpoints of a clean stop.

A single partition directory uses the checkpoints of the log directory that contains it.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from kfs.broker_log.log_config import Clock, LogConfig, wall_clock
from kfs.broker_log.log_manager import log_starts, write_clean_shutdown
from kfs.broker_log.output_directory import check_apart, check_not_in_use, make_empty_directory
from kfs.broker_log.unified_log import UnifiedLog
from kfs.errors import CorruptData, KfsError, RecoveryRefused, UnusableSource
from kfs.format.checkpoint import TopicPartition, encode_offset_checkpoint, parse_offset_checkpoint
from kfs.log.directory_name import CLUSTER_METADATA, DirectoryKind, DirectoryName, parse_directory_name
from kfs.log.log_dir import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kfs.log.partition_directory import PARTITION_METADATA
from kfs.recover.copying import copy_file, keep_owner
from kfs.recover.free_space import check_free_space
from kfs.recover.report import Change, PartitionReport, RecoveryReport
from kfs.storage.atomic_file import sync_filesystem, write_atomically
from kfs.storage.listing import list_files, list_names
from kfs.storage.side_file import read_side_file
from kfs.storage.status import PathKind, is_there, kind_at, size_at, status_at

_REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
#: Rewritten, or not wanted in a copy.
_NOT_COPIED: Final = {*CHECKPOINTS, CLEAN_SHUTDOWN, LOCK, _REMOTE_INDEX_CACHE}
#: Called with the number of ``.log`` bytes processed since the last call.
Advance = Callable[[int], None]
_NO_METADATA: Final = "is missing: a broker in KRaft mode takes the partition for a stray unless you add it"

_NO_MARKER: Final = "not written: some partitions weren't recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode(ABC):
    """A recovery mode, with the broker configuration to assume and the clock of its start."""

    config: LogConfig = field(default_factory=LogConfig)
    clock: Clock = wall_clock

    def other_sources(self) -> Sequence[str]:
        """Return the directories to read besides the one to recover."""
        return ()

    @abstractmethod
    def recovery(self, source: str, target: str, report: RecoveryReport, advance: Advance) -> LogDirRecovery:
        """Return the recovery of ``source`` into ``target`` in this mode; they may be the same directory."""


class LogDirRecovery(ABC):
    """The recovery of one log directory into ``target``; messages name files in ``source``."""

    def __init__(self, source: str, target: str, mode: Mode, report: RecoveryReport, advance: Advance) -> None:
        self.source = source
        self.target = target
        self.mode = mode
        self.report = report
        self.advance = advance
        self.checkpoints = {name: self._checkpoint(name) for name in CHECKPOINTS}
        self._owner = status_at(source)
        self._logs: dict[TopicPartition, UnifiedLog] = {}

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_side_file(os.path.join(self.source, name), parse_offset_checkpoint) or {}
        except CorruptData as error:
            self.on_corrupt_checkpoint(error)
            return {}

    @abstractmethod
    def on_corrupt_checkpoint(self, error: CorruptData) -> None:
        """Handle an unreadable checkpoint: raise :class:`RecoveryRefused`, or report it and continue without it."""

    @abstractmethod
    def on_strange_directory(self, path: str) -> None:
        """Handle a directory such as ``lost+found`` that isn't named as a partition: refuse, or report and continue."""

    @abstractmethod
    def recover(self, source: str, target: str, name: DirectoryName, report: PartitionReport) -> UnifiedLog | None:
        """Recover one partition directory and return its log, closed; None if no log results.

        Raises:
            RecoveryRefused: a broker refuses to start on it.
        """

    def run(self, names: Iterable[str]) -> None:
        """Recover the partitions among ``names``, the entries of the log directory, and write the checkpoints.

        Raises:
            RecoveryRefused: a broker refuses to start; the message has all reasons.
        """
        partitions = list(self._partitions(names))
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.target, CLEAN_SHUTDOWN))  # as a starting broker does
        refusals = []
        for name, parsed in partitions:
            try:
                self._recover(name, parsed)
            except RecoveryRefused as refusal:
                refusals.append(str(refusal))
        if refusals:
            raise RecoveryRefused("\n".join(refusals))
        sync_filesystem(self.target)
        self._write_checkpoints()
        written = [*CHECKPOINTS]
        if self.report.left_out:  # a clean stop leaves all partitions
            self.report.changes.append(Change(os.path.join(self.target, CLEAN_SHUTDOWN), _NO_MARKER))
        else:
            write_clean_shutdown(self.target)
            written.append(CLEAN_SHUTDOWN)
        for name in written:
            keep_owner(self._owner, os.path.join(self.target, name))

    def _partitions(self, names: Iterable[str]) -> Iterable[tuple[str, DirectoryName]]:
        """Yield the directories that a broker loads, in the given order."""
        for name in names:
            path = os.path.join(self.source, name)
            parsed, kind = parse_directory_name(name), kind_at(path)
            is_partition = parsed is not None and kind.may_be_directory
            if name == _REMOTE_INDEX_CACHE or not (is_partition or kind is PathKind.DIRECTORY):
                continue
            if parsed is None:
                self.on_strange_directory(path)
            else:
                yield name, parsed

    def _recover(self, name: str, parsed: DirectoryName) -> None:
        source, target = os.path.join(self.source, name), os.path.join(self.target, name)
        report = PartitionReport(source)
        self.report.partitions.append(report)
        log = self.recover(source, target, parsed, report)
        if log is None:
            return
        if not is_there(os.path.join(log.directory, PARTITION_METADATA)) and parsed.topic != CLUSTER_METADATA:
            report.changes.append(Change(os.path.join(source, PARTITION_METADATA), _NO_METADATA))
        self._keep_owners(log.directory)
        final = parse_directory_name(os.path.basename(log.directory))
        # Checkpoints list only current partitions, and not the metadata log (KafkaMetadataLog).
        if final is not None and final.kind is DirectoryKind.CURRENT and final.topic != CLUSTER_METADATA:
            self._logs[TopicPartition(final.topic, final.partition)] = log

    def _keep_owners(self, directory: str) -> None:
        """Give newly written files the owner of the source directory."""
        for name in list_files(directory):
            keep_owner(self._owner, os.path.join(directory, name))
        keep_owner(self._owner, directory)

    def _write_checkpoints(self) -> None:
        """Write the four checkpoints as a stopping broker does, without partitions that aren't here."""
        ends = {partition: log.log_end_offset for partition, log in self._logs.items()}
        watermarks = self.checkpoints[HIGH_WATERMARK_CHECKPOINT]
        within = {
            partition: min(max(watermarks.get(partition, 0), log.log_start_offset), log.log_end_offset)
            for partition, log in self._logs.items()
        }
        cleaned = {
            partition: offset if offset <= ends[partition] else self._logs[partition].log_start_offset
            for partition, offset in self.checkpoints[CLEANER_OFFSET_CHECKPOINT].items()
            if partition in ends
        }
        for name, offsets in (
            (RECOVERY_POINT_CHECKPOINT, ends),
            (HIGH_WATERMARK_CHECKPOINT, within),
            (LOG_START_OFFSET_CHECKPOINT, log_starts(self._logs)),
            (CLEANER_OFFSET_CHECKPOINT, cleaned),
        ):
            write_atomically(os.path.join(self.target, name), encode_offset_checkpoint(offsets))


@dataclass(frozen=True, slots=True)
class Recoverable:
    """A log directory, and the sorted names of the entries to recover."""

    log_dir: str
    names: tuple[str, ...]

    @classmethod
    def at(cls, path: str) -> Recoverable:
        """Inspect a path; raise :class:`UnusableSource` if it is neither a log directory nor a partition directory."""
        try:
            names = sorted(list_names(path))
        except OSError as error:
            raise UnusableSource(f"{path}: {error.strerror}") from None
        if any(parse_directory_name(name) for name in names):
            return cls(path, tuple(names))
        log_dir, name = os.path.split(os.path.abspath(path))
        if parse_directory_name(name) and any(filename.endswith(".log") for filename in names):
            return cls(log_dir, (name,))
        raise UnusableSource(f"{path}: not a log directory: there is no partition in it")

    def log_bytes(self) -> int:
        """Return the total size of the ``.log`` files in bytes."""
        return sum(log_bytes(os.path.join(self.log_dir, name)) for name in self.names)

    def logs(self) -> dict[str, tuple[int, int, int]]:
        """Return the ``.log`` files with inode, size and modification time, of which a write changes at least one."""
        found = {}
        for path in (path for name in self.names for path in _logs_in(os.path.join(self.log_dir, name))):
            with suppress(OSError):
                status = status_at(path)
                found[path] = status.inode, status.size, status.mtime_ns
        return found


def log_bytes(directory: str) -> int:
    """Return the size of a partition directory's ``.log`` files in bytes; a file of unknown size counts as empty."""
    return sum(map(size_at, _logs_in(directory)))


def _logs_in(directory: str) -> list[str]:
    """Return the ``.log`` files of a directory; none if it isn't a directory or can't be listed."""
    try:
        names = list_names(directory)
    except OSError:
        return []
    return [os.path.join(directory, name) for name in names if name.endswith(".log") and not name.startswith(".")]


def recover_copy(source: str, output: str, mode: Mode, advance: Advance = lambda done: None) -> RecoveryReport:
    """Recover a log directory, or one partition of it, into ``output``, which must be empty or not exist.

    ``output`` becomes a log directory in both cases. The source is only read. If the recovery fails after it has
    begun to write, it empties ``output``.

    Raises:
        RecoveryRefused: a broker refuses to start on the source.
        KfsError: the output lies in the source or vice versa, isn't empty, has too little space, or can't be written;
            or a broker has the source open, as its lock or a change during the copy shows.
    """
    recoverable, *_ = [Recoverable.at(path) for path in (source, *mode.other_sources())]
    for path in (source, *mode.other_sources()):
        check_apart(path, output)
    check_not_in_use(recoverable.log_dir)
    before = recoverable.logs()
    make_empty_directory(output)
    report = RecoveryReport()
    with failures_told(output):
        try:
            check_free_space([*before], output)
            recovery = mode.recovery(recoverable.log_dir, output, report, advance)
            _copy_top(recoverable, output, report)
            recovery.run(recoverable.names)
            _check_unchanged(before, recoverable.logs())
        except BaseException:
            _empty(output)
            raise
    return report


def _check_unchanged(before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]) -> None:
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if changed:
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        reason = "changed while it was copied: a broker seems to have it open: stop the broker first, or recover a copy"
        raise KfsError(f"{changed[0]}{more}: {reason}")


@contextmanager
def failures_told(directory: str) -> Iterator[None]:
    """Convert an :class:`OSError` into a :class:`KfsError` that names the file, or else ``directory``."""
    try:
        yield
    except OSError as error:
        raise KfsError(f"{error.filename or directory}: {error.strerror}") from error


def _empty(directory: str) -> None:
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _copy_top(recoverable: Recoverable, output: str, report: RecoveryReport) -> None:
    for name in recoverable.names:
        path = os.path.join(recoverable.log_dir, name)
        if name in _NOT_COPIED:
            continue
        kind = kind_at(path)
        if kind is PathKind.FILE:
            copied(path, os.path.join(output, name), report.changes.append)
        elif kind is PathKind.UNKNOWN and parse_directory_name(name) is None:
            report.changes.append(Change(path, "left out: its type can't be determined"))


def copied(source: str, target: str, tell: Callable[[Change], None]) -> None:
    """Copy a file with :func:`copy_file`, and report the pages that can't be read."""
    for page, reason in copy_file(source, target).items():
        tell(Change(source, f"can't be read at byte {page * 4096} ({reason}): these 4096 bytes count as damaged"))
