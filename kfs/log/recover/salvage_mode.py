"""Every batch of a log directory that is intact, behind damage too, in a copy that a broker starts on."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass

from kfs.errors import CorruptData, RecoveryRefused
from kfs.log.directory_name import DirectoryKind, DirectoryName
from kfs.log.log import Log
from kfs.log.log_dir import LogDir
from kfs.log.partition_directory import LEADER_EPOCH_CHECKPOINT, PartitionDirectory
from kfs.log.problem import Problems
from kfs.log.recover.log_dir_recovery import Advance, LogDirRecovery, Mode
from kfs.log.recover.report import Change, PartitionReport, RecoveryReport
from kfs.log.recover.salvage import salvage_partition
from kfs.log.recover.undelete import Undeleted, undelete_segments
from kfs.log.segment_files import FoundFile
from kfs.log.storage import Storage
from kfs.log.unified_log import UnifiedLog


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageMode(Mode):
    """All that is intact is kept, and where a broker would refuse to start, what it would refuse is left out.

    With ``undelete`` what was deleted and is still there comes back: records below the log start offset, ``.deleted``
    segments, partitions of deleted topics.
    """

    storage: Storage
    undelete: bool = False

    def recovery(self, source: str, target: str, report: RecoveryReport, advance: Advance) -> LogDirRecovery:
        """See :meth:`Mode.recovery`."""
        return _Salvage(source, target, self, report, advance)


class _Salvage(LogDirRecovery):
    def __init__(self, source: str, target: str, mode: SalvageMode, report: RecoveryReport, advance: Advance) -> None:
        super().__init__(source, target, mode, report, advance)
        self._storage = mode.storage
        self._undelete = mode.undelete
        self._log_dir = LogDir(source, Problems())

    def on_corrupt_checkpoint(self, error: CorruptData) -> None:
        assert error.file is not None
        self.report.changes.append(Change(error.file, f"ignored: at byte {error.position}: {error.reason}"))

    def on_strange_directory(self, path: str) -> None:
        self.report.changes.append(Change(path, "left out: not named as a partition is"))

    def recover(self, source: str, target: str, name: DirectoryName, report: PartitionReport) -> UnifiedLog | None:
        if name.kind is DirectoryKind.DELETE:
            target = os.path.join(self.target, f"{name.topic}-{name.partition}")
            taken = os.path.exists(target) or os.path.exists(os.path.join(self.source, os.path.basename(target)))
            if taken or not self._undelete:
                what = "the topic was deleted" + (", and there is one of that name" if taken else "")
                report.changes.append(Change(source, f"left out: {what}"))
                return None
            report.changes.append(Change(source, f"undeleted, as {os.path.basename(target)}"))
        log = Log(PartitionDirectory(source, name, self._log_dir), self._storage)
        try:
            os.listdir(source)
        except OSError as error:
            report.left_out = f"{source}: {error.strerror}"
            return None
        _ = log.segments  # which lists the directory
        undeleted = undelete_segments(log, self._storage) if self._undelete else Undeleted(log)
        try:
            copy = salvage_partition(undeleted.log, self._others(log), target, self.mode, report, self.advance)
            undeleted.set_aside(target, report)
        except (CorruptData, RecoveryRefused) as error:
            with suppress(FileNotFoundError):
                shutil.rmtree(target)
            report.left_out = str(error)
            report.segments, report.losses, report.consequences = [], [], []
            return None
        self._tell_leftovers(log, undeleted, report)
        return copy

    def _others(self, log: Log) -> list[FoundFile]:
        others = dict(log.files.others)
        if self._undelete:  # it knows nothing of what was deleted; the batches do
            others.pop(LEADER_EPOCH_CHECKPOINT, None)
        return [others[name] for name in sorted(others)]

    @staticmethod
    def _tell_leftovers(log: Log, undeleted: Undeleted, report: PartitionReport) -> None:
        orphans = {found.path for found in log.files.orphans}
        for found in (*log.files.superseded, *log.files.orphans):
            if not undeleted.has(found.path):
                what = "an index without its .log" if found.path in orphans else "superseded, or to be removed"
                report.changes.append(Change(found.path, f"left out: {what}"))
        for problem in log.problems:
            is_remote = log.remote is not None and problem == log.remote.problem()
            if not problem.file.endswith(".log") and problem.file not in orphans and not is_remote:
                report.changes.append(Change(problem.file, f"made again: {problem.reason}"))
