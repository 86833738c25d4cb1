"""Logs for workers: the data with which another process opens a log, and tasks on its splits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol, TypeVar

from kfs.log.directory_name import DirectoryName
from kfs.log.log import Log
from kfs.log.log_dir import LogDir
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.problem import Problem, Problems
from kfs.log.remote_offsets import Tier
from kfs.log.storage import Storage
from kfs.read.plan import BatchRange
from kfs.read.wanted_offsets import WantedOffsets
from kfs.read.workers.job import Job, OpenJob

if TYPE_CHECKING:
    from kfs.log.completion import OtherCopies

Item = TypeVar("Item")
#: Log directories by path, each opened once: its checkpoints cover all partitions in it.
LogDirs = dict[str, LogDir]


@dataclass(frozen=True, slots=True)
class LogSource:
    """The location of a log, so that another process can open it; which offsets are visible isn't known there.

    ``log_dir`` is the path of the log directory. ``copies`` are the paths, names and log directories of other copies of
    the log. ``tier`` is what is known of the topic's tiered storage, for offsets that are missing at the beginning of
    the log. With ``is_of_deleted``, the log has only segments that were deleted.
    """

    path: str
    name: DirectoryName
    loose: tuple[str, ...]
    max_batch_bytes: int
    log_dir: str | None = None
    copies: tuple[tuple[str, DirectoryName, str | None], ...] = ()
    tier: Tier = Tier.NONE
    is_of_deleted: bool = False

    @classmethod
    def of(cls, log: Log, *, has_all: bool = False) -> LogSource:
        """Return the source of an open log; with ``has_all`` it is known that no offsets are in remote storage."""
        directory = log.directory
        copies = tuple((each.path, each.name, _path_of(each)) for each in log.other_copies())
        remote = None if has_all else log.remote
        limit, tier = log.storage.max_batch_bytes, Tier.NONE if remote is None else remote.tier
        return cls(
            *(directory.path, directory.name, directory.loose, limit, _path_of(directory), copies, tier),
            directory.is_of_deleted,
        )

    def open(self, problems: Problems | None = None, log_dirs: LogDirs | None = None) -> Log:
        """Open the log, without reading anything yet; problems are added to ``problems`` if that isn't None.

        ``log_dirs`` are the log directories that other logs of this process have opened.
        """
        log_dirs = {} if log_dirs is None else log_dirs
        directory = _directory(self.path, self.name, self.log_dir, log_dirs, self.loose)
        if self.is_of_deleted:
            directory = replace(directory, is_of_deleted=True)
        storage = Storage(max_batch_bytes=self.max_batch_bytes)
        return Log(directory, storage, tier=lambda _: self.tier, copies=self._other_copies(log_dirs), problems=problems)

    def _other_copies(self, log_dirs: LogDirs) -> OtherCopies | None:
        if not self.copies:
            return None
        from kfs.log.healing import Healer  # only here: slow to import for each worker, and most logs have no copies

        paths = ((self.path, self.name, self.log_dir), *self.copies)
        itself, *others = (_directory(*each, log_dirs) for each in paths)
        return Healer(itself, lambda: others)


def _directory(
    path: str, name: DirectoryName, log_dir: str | None, log_dirs: LogDirs, loose: tuple[str, ...] = ()
) -> PartitionDirectory:
    """Return a partition directory; problems of its log directory aren't logged, as the parent reports them."""
    known = None if log_dir is None else log_dirs.get(log_dir)
    if known is None and log_dir is not None:
        known = log_dirs[log_dir] = LogDir(log_dir, Problems(_NOT_LOGGED))
    return PartitionDirectory(path, name, known, loose)


def _path_of(directory: PartitionDirectory) -> str | None:
    return None if directory.log_dir is None else directory.log_dir.path


@dataclass(frozen=True, slots=True)
class LogTask:
    """A part of a log, and the approximate number of bytes to read."""

    source: LogSource
    size: int


@dataclass(frozen=True, slots=True)
class SplitTask(LogTask):
    """A split of a log: its batches, and the wanted offsets."""

    batches: BatchRange
    offsets: WantedOffsets


class NotedProblem(NamedTuple):
    """A problem of a worker's log, to be added to the same log in the parent; it isn't part of the result."""

    source: LogSource
    problem: Problem
    is_settled: bool


class LogJob(Job[LogTask, Item | NotedProblem]):
    """A job whose tasks are independent parts of logs."""

    groups_ahead: ClassVar[int] = 1  # a split is a few megabytes
    groups_open: ClassVar[int] = 2

    def bytes_of(self, task: LogTask) -> int:
        """See :meth:`Job.bytes_of`."""
        return task.size


class OpenLogs(Protocol):
    """The logs that the tasks refer to."""

    def log_of(self, source: LogSource) -> Log:
        """Return the log of a source."""
        ...

    def noted(self) -> Iterator[NotedProblem]:
        """Yield problems of the logs that another process has to report."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


class OpenLogJob(OpenJob[LogTask, Item | NotedProblem]):
    """A job on parts of logs, open in one process."""

    def __init__(self, logs: OpenLogs) -> None:
        self._logs = logs
        self._source: LogSource | None = None

    @abstractmethod
    def read(self, log: Log, task: LogTask) -> Iterator[Item]:
        """Yield the results of a task."""

    def do(self, task: LogTask) -> Iterator[Item | NotedProblem]:
        """See :meth:`OpenJob.do`."""
        self._source = task.source
        for item in self.read(self._logs.log_of(task.source), task):
            yield from self._logs.noted()
            yield item
            del item  # its memory may be used again once it is dropped
        yield from self._logs.noted()

    def close(self) -> None:
        """See :meth:`OpenJob.close`."""
        self._logs.close()


class LogsOfWorker:
    """The logs of a worker, which has one of them open at a time; their problems are noted, not logged."""

    def __init__(self) -> None:
        self._source: LogSource | None = None
        self._log: Log | None = None
        self._noted: list[NotedProblem] = []
        self._log_dirs: LogDirs = {}

    def log_of(self, source: LogSource) -> Log:
        """See :meth:`OpenLogs.log_of`."""
        if self._log is None or source != self._source:
            self.close()
            self._source, self._log = source, source.open(_Noting(source, self._noted), self._log_dirs)
        return self._log

    def noted(self) -> Iterator[NotedProblem]:
        """See :meth:`OpenLogs.noted`."""
        while self._noted:
            yield self._noted.pop(0)

    def close(self) -> None:
        """See :meth:`OpenLogs.close`."""
        if self._log is not None:
            self._log.storage.close()
        self._source = self._log = None


class LogsOfParent:
    """The open logs of the process that makes the tasks."""

    def __init__(self) -> None:
        self._logs: dict[LogSource, Log] = {}

    def source_of(self, log: Log, *, has_all: bool = False) -> LogSource:
        """Return the source of a log, as :meth:`LogSource.of` does, and keep the log for :meth:`log_of`."""
        source = LogSource.of(log, has_all=has_all)
        self._logs[source] = log
        return source

    def log_of(self, source: LogSource) -> Log:
        """See :meth:`OpenLogs.log_of`."""
        return self._logs[source]

    def noted(self) -> Iterator[NotedProblem]:
        """See :meth:`OpenLogs.noted`: there are none, because the logs report their own problems."""
        return iter(())

    def note(self, noted: NotedProblem) -> None:
        """Add a problem that a worker found to the log; this logs it unless it is already known."""
        self._logs[noted.source].problems.add(noted.problem, is_settled=noted.is_settled)

    def close(self) -> None:
        """See :meth:`OpenLogs.close`: does nothing, as the logs stay open for the code that opened them."""


class _Noting(Problems):
    """The problems of a worker's log: each is noted once, and the parent logs it."""

    def __init__(self, source: LogSource, noted: list[NotedProblem]) -> None:
        super().__init__(_NOT_LOGGED)
        self._source = source
        self._noted = noted

    def add(self, problem: Problem, *, is_settled: bool = False) -> None:
        """See :meth:`Problems.add`."""
        before = len(self), self.dropped
        super().add(problem, is_settled=is_settled)
        if (len(self), self.dropped) != before:
            self._noted.append(NotedProblem(self._source, problem, is_settled))


#: A level below all others, so that nothing is logged.
_NOT_LOGGED: Final = 0
