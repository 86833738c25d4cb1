"""What a broker's own recovery leaves of a log directory: ``LogManager.loadLogs``, then a clean stop.

Batches behind the first bad one are lost with it, as are all later segments. Where a broker would not start, nothing
is recovered either, and every reason is named. What differs from a broker: no topic is created, moved or deleted,
directories of deleted topics are left out, and the cluster's metadata isn't asked which partitions belong here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from kfs.errors import CorruptData, KfsError, RecoveryRefused, UnusableSource
from kfs.format.checkpoint import TopicPartition, encode_offset_checkpoint, parse_offset_checkpoint
from kfs.log.atomic_file import sync_filesystem, write_atomically
from kfs.log.directory_name import DirectoryKind, DirectoryName, parse_directory_name
from kfs.log.log_config import Clock, LogConfig, wall_clock
from kfs.log.log_dir import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kfs.log.log_loader import LoadParameters
from kfs.log.log_manager import log_starts, write_clean_shutdown
from kfs.log.output_directory import check_apart, locked, make_empty_directory
from kfs.log.recover.copying import copy_file, keep_owner
from kfs.log.recover.report import Change, PartitionReport, RecoveryReport
from kfs.log.recover.witness import Witness
from kfs.log.side_file import read_side_file
from kfs.log.unified_log import PARTITION_METADATA, UnifiedLog

_CLUSTER_METADATA: Final = "__cluster_metadata"
_REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
#: Written anew, or not wanted in a copy.
_NOT_COPIED: Final = {*CHECKPOINTS, CLEAN_SHUTDOWN, LOCK, _REMOTE_INDEX_CACHE}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaMode:
    """How the broker would be configured, the time that it would start at, and whether its marker counts.

    With ``ignore_clean_shutdown`` every segment from the recovery point on is recovered even if the broker had been
    stopped cleanly.
    """

    config: LogConfig = field(default_factory=LogConfig)
    clock: Clock = wall_clock
    ignore_clean_shutdown: bool = False


def recover_copy(source: str, output: str, mode: KafkaMode) -> RecoveryReport:
    """Copy the log directory ``source`` to ``output``, which must be empty or not exist, and recover the copy.

    The source is only read.

    Raises:
        RecoveryRefused: a broker would not start on it; ``output`` is then empty.
        KfsError: the output lies in the source or the other way round, is not empty, or can't be written.
    """
    names = _listed(source)
    check_apart(source, output)
    make_empty_directory(output)
    report = RecoveryReport()
    with _failures_told(output):
        try:
            _copy_top(source, output, names, report)
            _Recovery(source, output, mode, report).run(_partition_names(source, names))
        except BaseException:
            _empty(output)
            raise
    return report


def recover_in_place(log_dir: str, mode: KafkaMode) -> RecoveryReport:
    """Recover a log directory where it is: what is lost is gone.

    Raises:
        RecoveryRefused: a broker would not start on it; partitions before the one that is to blame may be recovered.
        KfsError: a broker has it open.
    """
    names = _listed(log_dir)
    report = RecoveryReport()
    with _failures_told(log_dir), locked(log_dir):
        _Recovery(log_dir, log_dir, mode, report).run(_partition_names(log_dir, names))
    return report


def _listed(log_dir: str) -> list[str]:
    try:
        names = sorted(os.listdir(log_dir))
    except OSError as error:
        raise UnusableSource(f"{log_dir}: {error.strerror}") from None
    if not any(parse_directory_name(name) for name in names):
        raise UnusableSource(f"{log_dir}: not a log directory: there is no partition in it")
    return names


@contextmanager
def _failures_told(directory: str) -> Iterator[None]:
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


def _partition_names(log_dir: str, names: Iterable[str]) -> list[tuple[str, DirectoryName]]:
    """Return the directories that a broker loads, as it lists them.

    Raises:
        RecoveryRefused: one isn't named as a partition is, as ``lost+found`` isn't.
    """
    found = []
    for name in names:
        if not os.path.isdir(os.path.join(log_dir, name)) or name == _REMOTE_INDEX_CACHE:
            continue
        parsed = parse_directory_name(name)
        if parsed is None:
            raise RecoveryRefused(f"{os.path.join(log_dir, name)}: the directory is not named as a partition is")
        found.append((name, parsed))
    return found


def _copy_top(source: str, output: str, names: Iterable[str], report: RecoveryReport) -> None:
    for name in names:
        path = os.path.join(source, name)
        if name not in _NOT_COPIED and os.path.isfile(path):
            _copied(path, os.path.join(output, name), report.changes.append)


def _copied(source: str, target: str, tell: Callable[[Change], None]) -> None:
    for page, reason in copy_file(source, target).items():
        tell(Change(source, f"can't be read at byte {page * 4096} ({reason}): those 4096 bytes are taken for damaged"))


class _Recovery:
    """The recovery of one log directory in ``target``; ``source`` is what messages name."""

    def __init__(self, source: str, target: str, mode: KafkaMode, report: RecoveryReport) -> None:
        self._source = source
        self._target = target
        self._mode = mode
        self._report = report
        self._owner = os.stat(source)
        marker = os.path.join(source, CLEAN_SHUTDOWN)
        self._had_clean_shutdown = os.path.exists(marker) and not mode.ignore_clean_shutdown
        self._checkpoints = {name: self._checkpoint(name) for name in CHECKPOINTS}
        self._logs: dict[TopicPartition, UnifiedLog] = {}

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_side_file(os.path.join(self._source, name), parse_offset_checkpoint) or {}
        except CorruptData as error:
            raise RecoveryRefused(str(error)) from error

    def run(self, partitions: Iterable[tuple[str, DirectoryName]]) -> None:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._target, CLEAN_SHUTDOWN))  # as a broker that starts does
        refusals = []
        for name, parsed in partitions:
            try:
                self._recover(name, parsed)
            except RecoveryRefused as refusal:
                refusals.append(str(refusal))
        if refusals:
            raise RecoveryRefused("\n".join(refusals))
        sync_filesystem(self._target)
        self._write_checkpoints()
        write_clean_shutdown(self._target)
        for name in (*CHECKPOINTS, CLEAN_SHUTDOWN):
            keep_owner(self._owner, os.path.join(self._target, name))

    def _recover(self, name: str, parsed: DirectoryName) -> None:
        source, target = os.path.join(self._source, name), os.path.join(self._target, name)
        report = PartitionReport(source)
        self._report.partitions.append(report)
        if parsed.kind is DirectoryKind.DELETE:
            report.changes.append(Change(source, "left as it is: the topic was deleted"))
            if source != target:
                report.changes[-1] = Change(source, "left out: the topic was deleted")
            return
        if source != target:
            _copy_partition(source, target, report)
        partition = TopicPartition(parsed.topic, parsed.partition)
        witness = Witness(source, report)
        try:
            log = UnifiedLog.open(
                target, self._mode.config, self._parameters(partition), clock=self._mode.clock, observer=witness
            )
        except RecoveryRefused as refusal:
            raise RecoveryRefused(str(refusal).replace(target, source)) from refusal
        witness.loaded(log)
        if not os.path.exists(os.path.join(target, PARTITION_METADATA)) and parsed.topic != _CLUSTER_METADATA:
            what = "is missing: a broker in KRaft mode takes the partition for a stray one, unless it is put there"
            report.changes.append(Change(os.path.join(source, PARTITION_METADATA), what))
        log.close()
        self._keep_owners(target)
        # Checkpoints speak of no others; the metadata log has none (KafkaMetadataLog).
        if parsed.kind is DirectoryKind.CURRENT and parsed.topic != _CLUSTER_METADATA:
            self._logs[partition] = log

    def _parameters(self, partition: TopicPartition) -> LoadParameters:
        if partition.topic == _CLUSTER_METADATA:  # KafkaMetadataLog.apply: always as if the stop had been unclean
            return LoadParameters()
        return LoadParameters(
            had_clean_shutdown=self._had_clean_shutdown,
            recovery_point=self._checkpoints[RECOVERY_POINT_CHECKPOINT].get(partition, 0),
            log_start_offset=self._checkpoints[LOG_START_OFFSET_CHECKPOINT].get(partition, 0),
        )

    def _keep_owners(self, directory: str) -> None:
        """Give what was made anew the owner of the rest."""
        for entry in os.scandir(directory):
            if entry.is_file(follow_symlinks=False):
                keep_owner(self._owner, entry.path)
        keep_owner(self._owner, directory)

    def _write_checkpoints(self) -> None:
        """Write the four files as a broker does when it stops; of partitions that aren't here they say nothing."""
        ends = {partition: log.log_end_offset for partition, log in self._logs.items()}
        watermarks = self._checkpoints[HIGH_WATERMARK_CHECKPOINT]
        within = {
            partition: min(max(watermarks.get(partition, 0), log.log_start_offset), log.log_end_offset)
            for partition, log in self._logs.items()
        }
        cleaned = {
            partition: offset if offset <= ends[partition] else self._logs[partition].log_start_offset
            for partition, offset in self._checkpoints[CLEANER_OFFSET_CHECKPOINT].items()
            if partition in ends
        }
        for name, offsets in (
            (RECOVERY_POINT_CHECKPOINT, ends),
            (HIGH_WATERMARK_CHECKPOINT, within),
            (LOG_START_OFFSET_CHECKPOINT, log_starts(self._logs)),
            (CLEANER_OFFSET_CHECKPOINT, cleaned),
        ):
            write_atomically(os.path.join(self._target, name), encode_offset_checkpoint(offsets))


def _copy_partition(source: str, target: str, report: PartitionReport) -> None:
    os.mkdir(target)
    shutil.copystat(source, target)
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        if entry.is_file():
            _copied(entry.path, os.path.join(target, entry.name), report.changes.append)
        else:
            report.changes.append(Change(entry.path, "left out: not a file"))
