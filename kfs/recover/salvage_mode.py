"""Salvage mode: keeps every intact batch of a log directory, even after damage, in a copy that a broker starts on."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from kfs.broker_log.unified_log import UnifiedLog
from kfs.errors import CorruptData, RecoveryRefused, SourceLost
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import DirectoryKind, DirectoryName
from kfs.log.log import Log
from kfs.log.log_dir import LogDir
from kfs.log.partition_directory import LEADER_EPOCH_CHECKPOINT, PartitionDirectory
from kfs.log.problem import Problems
from kfs.log.producer_state import ProducerState
from kfs.log.storage import Storage
from kfs.recover.log_dir_recovery import Advance, LogDirRecovery, Mode
from kfs.recover.report import Change, PartitionReport, RecoveryReport
from kfs.recover.salvage import salvage_partition
from kfs.recover.salvage_plan import plan_salvage
from kfs.recover.sources import Copy, Deleted, Source
from kfs.recover.undelete import Undeleted, undelete_segments
from kfs.storage.listing import FoundFile, check_listable
from kfs.storage.status import is_there

#: The suffixes of segment files. Their damage is reported as a loss.
_LOGS: Final = (".log", ".log.swap", ".log.deleted", ".log.cleaned")


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageMode(Mode):
    """Recovery that keeps everything intact, and leaves out what a broker refuses to start on.

    With ``undelete``, deleted data that is still on disk comes back: records below the log start offset, ``.deleted``
    segments, partitions of deleted topics. Lost records are taken from ``also``, if that has copies of the same
    history.
    """

    storage: Storage
    undelete: bool = False
    also: tuple[str, ...] = ()

    def other_sources(self) -> Sequence[str]:
        """See :meth:`Mode.other_sources`."""
        return self.also

    def recovery(self, source: str, target: str, report: RecoveryReport, advance: Advance) -> LogDirRecovery:
        """See :meth:`Mode.recovery`."""
        return _Salvage(source, target, self, report, advance)


class _Salvage(LogDirRecovery):
    def __init__(self, source: str, target: str, mode: SalvageMode, report: RecoveryReport, advance: Advance) -> None:
        super().__init__(source, target, mode, report, advance)
        self._storage = mode.storage
        self._undelete = mode.undelete
        self._log_dir = LogDir(source, Problems())
        self._copies = DataDir([source, *mode.also], mode.storage, heals=False)

    def on_corrupt_checkpoint(self, error: CorruptData) -> None:
        assert error.file is not None
        self.report.changes.append(Change(error.file, f"ignored: at byte {error.position}: {error.reason}"))

    def on_strange_directory(self, path: str) -> None:
        self.report.changes.append(Change(path, "left out: not a valid name for a partition directory"))

    def recover(self, source: str, target: str, name: DirectoryName, report: PartitionReport) -> UnifiedLog | None:
        if name.kind is DirectoryKind.DELETE:
            target = os.path.join(self.target, f"{name.topic}-{name.partition}")
            taken = is_there(target) or is_there(os.path.join(self.source, os.path.basename(target)))
            if taken or not self._undelete:
                what = "the topic was deleted" + (", and another of that name exists" if taken else "")
                report.changes.append(Change(source, f"left out: {what}"))
                return None
            report.changes.append(Change(source, f"undeleted, as {os.path.basename(target)}"))
        log = Log(PartitionDirectory(source, name, self._log_dir), self._storage)
        try:
            check_listable(source)
        except OSError as error:
            report.left_out = f"{source}: {error.strerror}"
            return None
        _ = log.segments  # lists the directory
        undeleted = undelete_segments(log, self._storage) if self._undelete else Undeleted(log)
        try:
            sources = partial(self._sources, log)
            plan = plan_salvage(undeleted.log, log.files, sources, self._new_state, self.advance)
            copy = salvage_partition(plan, self._others(log), target, self.mode, report)
            undeleted.set_aside(target, report)
        except (CorruptData, RecoveryRefused) as error:
            with suppress(FileNotFoundError):
                shutil.rmtree(target)
            report.left_out = str(error)
            report.segments, report.losses, report.taken, report.consequences = [], [], [], []
            return None
        self._tell_better(log, report)
        self._tell_leftovers(log, lambda path: undeleted.has(path) or plan.arrangement.has(path), report)
        return copy

    def _new_state(self) -> ProducerState:
        return ProducerState(self.mode.config.producer_id_expiration_ms)

    def _sources(self, log: Log, arranged: Log) -> list[Source]:
        """Return the sources of a log's lost records, best first: segments deleted from it, then other copies."""
        directory = log.directory
        sources: list[Source] = []
        if log.files.deleted:
            deleted = PartitionDirectory(directory.path, directory.name, None, is_of_deleted=True)
            sources.append(Deleted(arranged, Log(deleted, self._storage)))
        copies = [Copy(arranged, Log(other, self._storage)) for other in self._copies_of(directory)]
        return [*sources, *sorted(copies, key=self._standing, reverse=True)]

    def _copies_of(self, directory: PartitionDirectory) -> list[PartitionDirectory]:
        path = os.path.realpath(directory.path)
        for known in self._copies.directories():
            if os.path.realpath(known.path) == path:
                others = self._copies.other_copies(known)
                return [other for other in others if os.path.realpath(other.path) != path]
        return []

    def _tell_better(self, log: Log, report: PartitionReport) -> None:
        """Report copies that a broker would prefer; nothing is taken beyond the log's end, as nothing proves it."""
        end = report.log_end_offset
        for directory in self._copies_of(log.directory):
            itself, other = (
                Log(each, self._storage, problems=Problems(logging.DEBUG)) for each in (log.directory, directory)
            )
            with suppress(CorruptData, SourceLost):  # then the copy is no better
                epoch, (other_epoch, other_end, _) = itself.last_leader_epoch(), other.standing()
                if (other_epoch, other_end) > (epoch, end):
                    theirs, ours = f"{other_end} of leader epoch {other_epoch}", f"{end} of {epoch}"
                    what = f"it ends at offset {theirs}, the recovered log at {ours}: recover this copy for the rest"
                    report.changes.append(Change(directory.path, what))

    @staticmethod
    def _standing(copy: Copy) -> tuple[int, int, int]:
        try:
            return copy.log.standing()
        except (CorruptData, SourceLost) as error:
            copy.failure = str(error)
            return -1, -1, -1

    def _others(self, log: Log) -> list[FoundFile]:
        others = dict(log.files.others)
        if self._undelete:  # it doesn't have the epochs of undeleted segments; their batches do
            others.pop(LEADER_EPOCH_CHECKPOINT, None)
        return [others[name] for name in sorted(others)]

    @staticmethod
    def _tell_leftovers(log: Log, is_kept: Callable[[str], bool], report: PartitionReport) -> None:
        orphans = {found.path for found in log.files.orphans}
        taken = {each.source for each in report.taken}
        for found in (*log.files.superseded, *log.files.orphans):
            if not is_kept(found.path):
                what = "an index without its .log" if found.path in orphans else "superseded, or waiting for deletion"
                left_out = "left out, except for the records taken" if found.path in taken else "left out"
                report.changes.append(Change(found.path, f"{left_out}: {what}"))
        for problem in log.problems:
            is_remote = log.remote is not None and problem == log.remote.problem()
            if not problem.file.endswith(_LOGS) and problem.file not in orphans and not is_remote:
                report.changes.append(Change(problem.file, f"rebuilt: {problem.reason}"))
