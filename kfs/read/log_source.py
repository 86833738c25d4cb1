"""Logs for workers: what another process needs to open one, and splits on it."""

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


@dataclass(frozen=True, slots=True)
class LogSource:
    """Where a log is, so that another process can open it; what part of it is visible, it isn't to be asked for there.

    ``copies`` are other copies of it, each with the log directory that it is in; of the log itself that is ``log_dir``.
    ``tier`` is what is known of offsets that it should begin with and aren't there. With ``is_of_deleted`` it has the
    segments that were deleted, and none of the log's.
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
    def of(cls, log: Log) -> LogSource:
        """Return the source of a log that is open here."""
        directory = log.directory
        copies = tuple((each.path, each.name, _path_of(each)) for each in log.other_copies())
        limit, tier = log.storage.max_batch_bytes, Tier.NONE if log.remote is None else log.remote.tier
        return cls(
            *(directory.path, directory.name, directory.loose, limit, _path_of(directory), copies, tier),
            directory.is_of_deleted,
        )

    def open(self, problems: Problems | None = None) -> Log:
        """Open the log; nothing is read yet. What is found wrong goes to ``problems``, if they are given."""
        directory = _directory(self.path, self.name, self.log_dir, self.loose)
        if self.is_of_deleted:
            directory = replace(directory, is_of_deleted=True)
        storage = Storage(max_batch_bytes=self.max_batch_bytes)
        return Log(directory, storage, tier=lambda _: self.tier, copies=self._other_copies(), problems=problems)

    def _other_copies(self) -> OtherCopies | None:
        if not self.copies:
            return None
        from kfs.log.healing import Healer  # only here: most logs have no copies, and each worker would wait for it

        itself, *others = (_directory(*each) for each in ((self.path, self.name, self.log_dir), *self.copies))
        return Healer(itself, lambda: others)


def _directory(path: str, name: DirectoryName, log_dir: str | None, loose: tuple[str, ...] = ()) -> PartitionDirectory:
    """Return a directory of a log, in a log directory of which it was said elsewhere what is wrong with it."""
    known = None if log_dir is None else LogDir(log_dir, Problems(_NOT_LOGGED))
    return PartitionDirectory(path, name, known, loose)


def _path_of(directory: PartitionDirectory) -> str | None:
    return None if directory.log_dir is None else directory.log_dir.path


@dataclass(frozen=True, slots=True)
class LogTask:
    """A split: where, which offsets of it are wanted, and about how many bytes are read for it."""

    source: LogSource
    batches: BatchRange
    offsets: WantedOffsets
    size: int = 0


class NotedProblem(NamedTuple):
    """A problem of a worker's log, to be added to its parent's log; it is not part of the result."""

    source: LogSource
    problem: Problem
    is_settled: bool


class LogJob(Job[LogTask, Item | NotedProblem]):
    """A job on splits of logs, each by itself."""

    groups_ahead: ClassVar[int] = 1  # a split is a few megabytes
    groups_open: ClassVar[int] = 2

    def bytes_of(self, task: LogTask) -> int:
        """See :meth:`Job.bytes_of`."""
        return task.size


class OpenLogs(Protocol):
    """The logs that tasks are of."""

    def log_of(self, source: LogSource) -> Log:
        """Return a log."""
        ...

    def noted(self) -> Iterator[NotedProblem]:
        """Yield what was found wrong with logs, which another process has to report."""
        ...

    def close(self) -> None:
        """Give back what is open."""
        ...


class OpenLogJob(OpenJob[LogTask, Item | NotedProblem]):
    """A job on splits of logs, as one process does it."""

    def __init__(self, logs: OpenLogs) -> None:
        self._logs = logs
        self._source: LogSource | None = None

    @abstractmethod
    def read(self, log: Log, task: LogTask) -> Iterator[Item]:
        """Yield what is made of a task."""

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
    """The logs of a worker, opened for their tasks: one at a time. What is wrong with them is noted, not logged."""

    def __init__(self) -> None:
        self._source: LogSource | None = None
        self._log: Log | None = None
        self._noted: list[NotedProblem] = []

    def log_of(self, source: LogSource) -> Log:
        """See :meth:`OpenLogs.log_of`."""
        if self._log is None or source != self._source:
            self.close()
            self._source, self._log = source, source.open(_Noting(source, self._noted))
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
    """The logs of the process that makes the tasks, as they are open there."""

    def __init__(self) -> None:
        self._logs: dict[LogSource, Log] = {}

    def source_of(self, log: Log) -> LogSource:
        """Return the source of a log that there will be tasks of."""
        source = LogSource.of(log)
        self._logs[source] = log
        return source

    def log_of(self, source: LogSource) -> Log:
        """See :meth:`OpenLogs.log_of`."""
        return self._logs[source]

    def noted(self) -> Iterator[NotedProblem]:
        """See :meth:`OpenLogs.noted`: the logs have their problems themselves."""
        return iter(())

    def note(self, noted: NotedProblem) -> None:
        """Have a log know a problem that a worker has found in it; it is logged unless it was known."""
        self._logs[noted.source].problems.add(noted.problem, is_settled=noted.is_settled)

    def close(self) -> None:
        """See :meth:`OpenLogs.close`: they go on being open where they were opened."""


class _Noting(Problems):
    """The problems of a worker's log: each is noted once, and logged elsewhere."""

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


#: Below every level that there is.
_NOT_LOGGED: Final = 0
