"""The comparison of all partitions, in several processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kfs.diff.copies import ComparedPartition, report_on
from kfs.errors import CorruptData
from kfs.internal.broker_state import BrokerState
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import topic_filter
from kfs.log.log import Log
from kfs.log.storage import Storage
from kfs.read.workers.job import Job, OpenJob

#: The result for a partition: a report, or why there is none.
Outcome = ComparedPartition | CorruptData


@dataclass(frozen=True, slots=True)
class Copies:
    """The places of a partition's copies, and their total size in bytes."""

    places: tuple[tuple[str, tuple[str, ...]], ...]
    size: int


@dataclass(frozen=True, slots=True)
class CompareJob(Job[Copies, Outcome]):
    """The job that compares the partitions of several log directories; ``topics`` are patterns, none means all."""

    log_dirs: tuple[str, ...]
    topics: tuple[str, ...]
    max_batch_bytes: int

    def open(self) -> OpenComparison:
        """Open the log directories; raise :class:`~kfs.errors.UnusableSource` if one is unusable."""
        return OpenComparison(self)

    def bytes_of(self, task: Copies) -> int:
        """See :meth:`Job.bytes_of`."""
        return task.size


class OpenComparison(OpenJob[Copies, Outcome]):
    """Compares the partitions of open log directories."""

    def __init__(self, job: CompareJob) -> None:
        storage = Storage(max_batch_bytes=job.max_batch_bytes)
        self._data_dir = DataDir(job.log_dirs, storage, topic_filter=topic_filter(job.topics), heals=False)
        BrokerState(self._data_dir)
        self._logs: dict[tuple[str, tuple[str, ...]], Log] = {}

    def all_copies(self) -> list[Copies]:
        """Return the copies of each partition; partition directories on their own are copies whatever their names."""
        partitions = list(self._data_dir.copies())
        if not self._data_dir.log_dirs and all(len(logs) == 1 for logs in partitions):
            partitions = [[log for logs in partitions for log in logs]]
        return [Copies(tuple(map(_place_of, logs)), sum(log.size() for log in logs)) for logs in partitions]

    def do(self, task: Copies) -> Iterator[Outcome]:
        """Yield the result for a partition."""
        if not self._logs:
            self._logs = {_place_of(log): log for logs in self._data_dir.copies() for log in logs}
        try:
            yield report_on([self._log_at(place) for place in task.places])
        except CorruptData as error:
            yield error

    def _log_at(self, place: tuple[str, tuple[str, ...]]) -> Log:
        log = self._logs.get(place)
        if log is None:
            raise CorruptData("the directory is gone", 0, place[0])
        return log

    def close(self) -> None:
        """Close the log directories."""
        self._data_dir.close()


def _place_of(log: Log) -> tuple[str, tuple[str, ...]]:
    return log.directory.path, log.directory.loose
