"""The job that turns splits of logs into output bytes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kfs.cat.output import OutputFormat, Renderer
from kfs.errors import CorruptData, SourceLost
from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.read import plan
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_source import LogJob, LogsOfWorker, LogSource, LogTask, OpenLogJob, OpenLogs
from kfs.read.plan import Split, splits_of
from kfs.read.selection import Selection
from kfs.read.split_reader import SplitReader
from kfs.read.wanted_offsets import wanted_offsets
from kfs.read.workers.job import Output
from kfs.storage.listing import list_sizes


@dataclass(frozen=True, slots=True)
class CatTask(LogTask):
    """A part of a log, and the path of its partition in the tree, such as ``orders/0``.

    It is one split, or several small ones in a row. A small log is a task as a whole: its ``splits`` are None, and who
    does the task makes them.
    """

    path: str
    splits: tuple[Split, ...] | None


def size_of_small(log: Log) -> int | None:
    """Return the size in bytes of a log that can be a task as a whole, None for any other; the log isn't opened.

    That saves a second listing of its directory, and planning in one process what others have to look at anyway.

    Raises:
        Shortage: no descriptor is available.
    """
    directory = log.directory
    if not directory.is_whole or log.until_high_watermark or log.is_frozen:
        return None
    try:
        sizes = list_sizes(directory.path, ".log")
    except OSError:  # opening the log raises the error
        return None
    size = sum(sizes.values())
    first = min(sizes, default="").removesuffix(".log")
    is_small = size <= plan.SPLIT_BYTES and first.isascii() and first.isdigit()
    return size if is_small and log.has_all_from(int(first)) else None


def tasks_of(source: LogSource, path: str, splits: Iterable[Split]) -> Iterator[CatTask]:
    """Yield the tasks for the splits of a log, each with as many small ones as are together no larger than a split.

    If ``splits`` raises an error, the splits before it are yielded first.
    """
    together: list[Split] = []
    size = 0
    try:
        for split in splits:
            if together and size + split.size > plan.SPLIT_BYTES:
                yield _task(source, path, together, size)
                together, size = [], 0
            together.append(split)
            size += split.size
    except (CorruptData, SourceLost):
        if together:
            yield _task(source, path, together, size)
        raise
    if together:
        yield _task(source, path, together, size)


def _task(source: LogSource, path: str, splits: list[Split], size: int) -> CatTask:
    return CatTask(source, size, path, tuple(splits))


class Found(NamedTuple):
    """The path in the tree, the number of wanted records and the approximate number of bytes read for a task."""

    path: str
    records: int
    bytes: int


Item: TypeAlias = Output | Problem | Found


@dataclass(frozen=True, slots=True)
class CatJob(LogJob[Item]):
    """Selects the records to write, and how to write them; with ``output=None`` they are only counted.

    With ``counts`` each task ends with :class:`Found`, and offsets that were deleted meanwhile are a problem.
    """

    selection: Selection
    output: OutputFormat | None
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    counts: bool = False

    def open(self) -> OpenCatJob:
        """See :meth:`~kfs.read.workers.job.Job.open`."""
        return self.open_on(LogsOfWorker())

    def open_on(self, logs: OpenLogs) -> OpenCatJob:
        """Open the job on ``logs``, which are open already or open on demand."""
        return OpenCatJob(self, logs)


class OpenCatJob(OpenLogJob[Item]):
    """Renders splits; unreadable or deleted data is a problem, yielded after the output of the records before it."""

    def __init__(self, job: CatJob, logs: OpenLogs) -> None:
        super().__init__(logs)
        self.reader = SplitReader(
            job.selection, job.isolation, by_header=job.output is None, tells_what_is_gone=job.counts
        )
        self._renderer = None if job.output is None else Renderer(job.output)
        self._counts = job.counts

    def read(self, log: Log, task: LogTask) -> Iterator[Item]:
        """See :meth:`OpenLogJob.read`."""
        assert isinstance(task, CatTask)
        found = 0
        try:
            for split in self._planned(log) if task.splits is None else task.splits:
                found += yield from self._read_split(log, task.path, split)
        except (CorruptData, SourceLost) as error:
            yield Problem.of_unread(log.directory.path, error)
        if self._counts:
            yield Found(task.path, found, task.size)

    def _planned(self, log: Log) -> Iterator[Split]:
        return splits_of(log, wanted_offsets(log, self.reader.selection, self.reader.isolation))

    def _read_split(self, log: Log, path: str, split: Split) -> Generator[Item, None, int]:
        """Yield the output and the problems of a split; return the number of records found."""
        found = 0
        try:
            for selected in self.reader.select(log, split.batches, split.offsets):
                found += selected.count
                if self._renderer is not None:
                    data = self._renderer.render(path, log, selected)
                    if data:
                        yield Output(data)
                yield from selected.problems
        except CorruptData as error:
            yield Problem.of(error)
        return found
