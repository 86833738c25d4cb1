"""Recovery as a broker does it: the result of ``LogManager.loadLogs`` followed by a clean stop.

The first bad batch and all batches after it are lost, including all later segments. Where a broker refuses to start,
nothing is recovered, and every reason is reported. Unlike a broker, this recovery creates, moves and deletes no topics,
leaves out the directories of deleted topics, and doesn't ask the cluster metadata which partitions belong here.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import NoReturn

from kfs.broker_log.log_loader import LoadParameters
from kfs.broker_log.output_directory import locked
from kfs.broker_log.unified_log import UnifiedLog
from kfs.errors import CorruptData, RecoveryRefused, UnusableSource
from kfs.format.checkpoint import TopicPartition
from kfs.log.directory_name import CLUSTER_METADATA, DirectoryKind, DirectoryName
from kfs.log.log import Log
from kfs.log.log_dir import CLEAN_SHUTDOWN, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LogDir
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.problem import Problems
from kfs.log.storage import Storage
from kfs.recover.log_dir_recovery import (
    Advance,
    LogDirRecovery,
    Mode,
    Recoverable,
    copied,
    failures_told,
    log_bytes,
)
from kfs.recover.losses import consequence_of
from kfs.recover.report import Change, PartitionReport, RecoveryReport
from kfs.recover.witness import Witness
from kfs.storage.listing import list_directory
from kfs.storage.status import status_if_there


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaMode(Mode):
    """Recovery as a broker does it.

    With ``ignore_clean_shutdown``, all segments from the recovery point on are recovered, even after a clean stop.
    """

    ignore_clean_shutdown: bool = False

    def recovery(self, source: str, target: str, report: RecoveryReport, advance: Advance) -> LogDirRecovery:
        """See :meth:`Mode.recovery`."""
        return _KafkaRecovery(source, target, self, report, advance)


class _KafkaRecovery(LogDirRecovery):
    def __init__(self, source: str, target: str, mode: KafkaMode, report: RecoveryReport, advance: Advance) -> None:
        super().__init__(source, target, mode, report, advance)
        marker = os.path.join(source, CLEAN_SHUTDOWN)
        self._log_dir, self._storage = LogDir(source, Problems()), Storage()
        self._had_clean_shutdown = status_if_there(marker) is not None and not mode.ignore_clean_shutdown

    def on_corrupt_checkpoint(self, error: CorruptData) -> NoReturn:
        raise RecoveryRefused(str(error)) from error

    def on_strange_directory(self, path: str) -> NoReturn:
        raise RecoveryRefused(f"{path}: not a valid name for a partition directory")

    def recover(self, source: str, target: str, name: DirectoryName, report: PartitionReport) -> UnifiedLog | None:
        if name.kind is DirectoryKind.DELETE:
            what = "left as it is" if source == target else "left out"
            report.changes.append(Change(source, f"{what}: the topic was deleted"))
            return None
        size = log_bytes(source)
        remote = Log(PartitionDirectory(source, name, self._log_dir), self._storage).remote
        if remote is not None:
            report.consequences.append(consequence_of(remote))
        if source != target:
            try:
                _copy_partition(source, target, report)
            except CorruptData as error:
                raise RecoveryRefused(str(error)) from error
        witness = Witness(source, report)
        parameters = self._parameters(TopicPartition(name.topic, name.partition))
        try:
            log = UnifiedLog.open(target, self.mode.config, parameters, clock=self.mode.clock, observer=witness)
        except RecoveryRefused as refusal:
            raise RecoveryRefused(str(refusal).replace(target, source)) from refusal
        witness.loaded(log)
        log.close()
        self.advance(size)
        return log

    def _parameters(self, partition: TopicPartition) -> LoadParameters:
        if partition.topic == CLUSTER_METADATA:  # KafkaMetadataLog.apply always assumes an unclean stop
            return LoadParameters()
        return LoadParameters(
            had_clean_shutdown=self._had_clean_shutdown,
            recovery_point=self.checkpoints[RECOVERY_POINT_CHECKPOINT].get(partition, 0),
            log_start_offset=self.checkpoints[LOG_START_OFFSET_CHECKPOINT].get(partition, 0),
        )


def recover_in_place(log_dir: str, mode: KafkaMode, advance: Advance = lambda done: None) -> RecoveryReport:
    """Recover a log directory in place; lost records are gone for good.

    Raises:
        UnusableSource: it isn't a log directory.
        RecoveryRefused: a broker refuses to start on it; other partitions may be recovered already.
        KfsError: a broker has it open.
    """
    recoverable = Recoverable.at(log_dir)
    if recoverable.log_dir != log_dir:
        raise UnusableSource(f"{log_dir}: a partition directory: --in-place needs a whole log directory")
    report = RecoveryReport()
    with failures_told(log_dir), locked(log_dir):
        mode.recovery(log_dir, log_dir, report, advance).run(recoverable.names)
    return report


def _copy_partition(source: str, target: str, report: PartitionReport) -> None:
    os.mkdir(target)
    shutil.copystat(source, target)
    for found in sorted(list_directory(source)):
        if found.kind.may_be_file:
            copied(found.path, os.path.join(target, found.name), report.changes.append)
        else:
            report.changes.append(Change(found.path, "left out: not a file"))
