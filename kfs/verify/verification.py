"""The verification of everything that the given paths name: the units to check, and their findings in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kfs.errors import SourceLost, UnusableSource
from kfs.format.properties import MetaProperties
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.partition_directory import PARTITION_METADATA
from kfs.log.storage import Storage
from kfs.storage.listing import list_sizes
from kfs.storage.status import PathKind, is_there, kind_at, size_at
from kfs.verify.finding import Finding, FindingKind, Findings, Severity
from kfs.verify.kraft_snapshot import kraft_task
from kfs.verify.log_directory import LogDirectoryCheck, check_directory_ids, check_twice
from kfs.verify.partition import PartitionCheck, PartitionResult
from kfs.verify.segment import SegmentReport
from kfs.verify.segment_task import SegmentTask
from kfs.verify.single_file import FileCheck


class Unit(Protocol):
    """A partition, log directory or file, whose findings are complete once its tasks are done."""

    def tasks(self) -> Sequence[SegmentTask]:
        """Return the tasks, the same each time until the findings are complete, and none after that."""
        ...

    def size(self) -> int:
        """Return about how many bytes of batches the tasks read."""
        ...

    def findings(self, reports: Sequence[SegmentReport]) -> Iterable[Finding]:
        """Combine the tasks' reports; return all findings."""
        ...


@dataclass(slots=True)
class VerifyTotals:
    """What was checked, in segments and single files, and how many findings there are per severity."""

    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    findings: dict[Severity, int] = field(default_factory=lambda: dict.fromkeys(Severity, 0))

    @property
    def is_clean(self) -> bool:
        """Whether there are no errors or warnings."""
        return not (self.findings[Severity.ERROR] or self.findings[Severity.WARNING])


class Verification:
    """The checks of log directories, partition directories and single files."""

    def __init__(
        self, paths: Sequence[str], storage: Storage, *, topic_filter: Callable[[str], bool] | None = None
    ) -> None:
        """Find the units that ``paths`` name; list no partitions yet.

        Raises:
            UnusableSource: a path is missing, unreadable, or not Kafka's.
        """
        each_once = dict.fromkeys(map(os.path.abspath, paths))
        directories = [path for path in each_once if kind_at(path) is PathKind.DIRECTORY]
        files = [path for path in each_once if path not in directories]
        #: The data directory of all paths that aren't single files.
        self.data_dir = DataDir(directories, storage, topic_filter=topic_filter, heals=False)
        self._log_dirs = {log_dir.path: _listed(log_dir.path) for log_dir in self.data_dir.log_dirs}
        self._nodes: dict[str, MetaProperties | None] = {}
        self._results: list[PartitionResult] = []
        self.totals = VerifyTotals()
        self.units: list[Unit] = [_FileUnit(FileCheck(path, storage)) for path in files]
        self.units += self._units_of_directories()

    def _units_of_directories(self) -> Iterator[Unit]:
        copies = [copy for copies in self.data_dir.copies() for copy in copies]
        for path in self._log_dirs:
            own = [log for log in copies if _parent(log) == path]
            needs_metadata = any(is_there(os.path.join(log.directory.path, PARTITION_METADATA)) for log in own)
            for log in own:
                yield self._unit_of(log, needs_metadata=needs_metadata)
            yield _LogDirectoryUnit(self, path)
        for log in copies:
            if _parent(log) not in self._log_dirs:
                yield self._unit_of(log, needs_metadata=False)
        yield _LastUnit(self)

    def _unit_of(self, log: Log, *, needs_metadata: bool) -> Unit:
        parent = self._log_dirs.get(_parent(log))
        log_dir = log.directory.log_dir
        if parent is None and log_dir is not None:
            parent = _listed(log_dir.path)
        is_stopped = parent is not None and parent.is_stopped
        return _PartitionUnit(self, log, is_stopped=is_stopped, needs_metadata=needs_metadata)

    def deleted_in(self, path: str) -> Iterator[Log]:
        """Yield the partitions of deleted topics in the log directory ``path``."""
        for _, log in self.data_dir.deleted():
            if _parent(log) == path:
                yield log

    def run(self, reports: Iterable[SegmentReport]) -> Iterator[Finding]:
        """Yield the findings unit by unit; ``reports`` are those of all tasks, in order."""
        coming = iter(reports)
        for unit in self.units:
            own = [next(coming) for _ in unit.tasks()]
            for report in own:
                self._count(report)
            for finding in unit.findings(own):
                self.totals.findings[finding.severity] += 1
                yield finding

    def _count(self, report: SegmentReport) -> None:
        self.totals.segments += 1
        self.totals.bytes += report.size
        self.totals.batches += report.batches
        self.totals.records += report.records

    def tasks(self) -> Iterator[SegmentTask]:
        """Yield the tasks of all units; a partition is listed when its turn comes."""
        for unit in self.units:
            yield from unit.tasks()

    def size(self) -> int:
        """Return about how many bytes of batches there are to read."""
        return sum(unit.size() for unit in self.units)

    def take(self, result: PartitionResult) -> None:
        """Keep a partition's result for the checks of its log directory and of all together."""
        self._results.append(result)

    def finish_log_directory(self, path: str, findings: Findings) -> None:
        """Check a log directory after all its partitions."""
        own = [result for result in self._results if _parent(result.log) == path]
        self._nodes[path] = self._log_dirs[path].finish(own, findings)

    def finish(self, findings: Findings) -> None:
        """Check what all log directories must agree on."""
        check_twice(self._results, self._nodes, findings)
        check_directory_ids(self._nodes, findings)

    def bootstrap_task(self, path: str) -> SegmentTask | None:
        """Return the task of a log directory's bootstrap snapshot, if it has one."""
        found = self._log_dirs[path].bootstrap_checkpoint
        return None if found is None else kraft_task(found)


class _FileUnit:
    """A single file."""

    def __init__(self, check: FileCheck) -> None:
        self._check = check

    def tasks(self) -> Sequence[SegmentTask]:
        return self._check.tasks()

    def size(self) -> int:
        return sum(size_at(task.files.log.path) for task in self.tasks())

    def findings(self, reports: Sequence[SegmentReport]) -> Iterable[Finding]:
        return self._check.finish(reports)


class _PartitionUnit:
    """A partition directory: listed for its tasks, and forgotten with its findings.

    One that can't be listed is a finding, and has no tasks.
    """

    def __init__(self, verification: Verification, log: Log, *, is_stopped: bool, needs_metadata: bool) -> None:
        self._verification = verification
        self._log = log
        self._is_stopped = is_stopped
        self._needs_metadata = needs_metadata
        self._check: PartitionCheck | None = None
        self._failure: SourceLost | None = None
        self._is_finished = False

    def tasks(self) -> Sequence[SegmentTask]:
        check = self._listed()
        return () if check is None else check.tasks

    def size(self) -> int:
        try:
            return sum(list_sizes(self._log.directory.path, ".log").values())
        except OSError:
            return 0

    def findings(self, reports: Sequence[SegmentReport]) -> Iterable[Finding]:
        check = self._listed()
        self._check, self._is_finished = None, True
        if check is not None:
            try:
                result, found = check.finish(reports)
            except SourceLost as error:
                self._failure = error
            else:
                self._verification.take(result)
                return found
        findings = Findings()
        findings.add(FindingKind.READ_ERROR, self._log.directory.path, self._reason())
        return findings.all()

    def _reason(self) -> str:
        return str(self._failure).removeprefix(f"{self._log.directory.path}: ")

    def _listed(self) -> PartitionCheck | None:
        if self._check is None and self._failure is None and not self._is_finished:
            is_stopped, needs_metadata = self._is_stopped, self._needs_metadata
            try:
                self._check = PartitionCheck(self._log, is_stopped=is_stopped, needs_metadata=needs_metadata)
            except SourceLost as error:
                self._failure = error
        return self._check


class _LogDirectoryUnit:
    """What a log directory contains besides partitions."""

    def __init__(self, verification: Verification, path: str) -> None:
        self._verification = verification
        self._path = path

    def tasks(self) -> Sequence[SegmentTask]:
        task = self._verification.bootstrap_task(self._path)
        return () if task is None else (task,)

    def size(self) -> int:
        return sum(size_at(task.files.log.path) for task in self.tasks())

    def findings(self, reports: Sequence[SegmentReport]) -> Iterable[Finding]:
        findings = Findings()
        for report in reports:
            for finding in report.findings:
                findings.take(finding)
        self._verification.finish_log_directory(self._path, findings)
        for log in self._verification.deleted_in(self._path):
            _list_deleted(log, findings)
        return findings.all()


class _LastUnit:
    """The checks across all log directories."""

    def __init__(self, verification: Verification) -> None:
        self._verification = verification

    def tasks(self) -> Sequence[SegmentTask]:
        return ()

    def size(self) -> int:
        return 0

    def findings(self, reports: Sequence[SegmentReport]) -> Iterable[Finding]:
        findings = Findings()
        self._verification.finish(findings)
        return findings.all()


def _list_deleted(log: Log, findings: Findings) -> None:
    """Report the directory of a deleted topic's partition, and how much of its data remains."""
    segments = log.segments
    size = sum(size_at(segment.files.log.path) for segment in segments)
    reason = f"{log.topic_partition} of a deleted topic, waiting for deletion: {len(segments)} segments, {size} bytes"
    offsets = (segments[0].base_offset, log.log_end_offset - 1) if segments else None
    if offsets is not None and offsets[1] < offsets[0]:
        offsets = None
    findings.add(FindingKind.DELETED_DIRECTORY, log.directory.path, reason, offsets=offsets)


def _parent(log: Log) -> str:
    return os.path.dirname(log.directory.path)


def _listed(path: str) -> LogDirectoryCheck:
    try:
        return LogDirectoryCheck(path)
    except OSError as error:
        raise UnusableSource(f"{path}: {error.strerror}") from None
