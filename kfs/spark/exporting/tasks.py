"""A task of an export, on any machine: reads its ranges of bytes and writes Parquet files."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from itertools import groupby

from kfs.errors import KfsError
from kfs.log.problem import Problem
from kfs.spark.exporting.files import COLUMNS, DailyFileWriter, WrittenFile
from kfs.spark.offsets.staged_output import Staging
from kfs.spark.options import ReadOptions
from kfs.spark.planning import SourceSplit, Task
from kfs.spark.session import as_one_sentence, check_version, own_version, show_log


@dataclass(frozen=True, slots=True)
class TaskDone:
    """The files that a task has written, and the ranges it skipped."""

    files: tuple[WrittenFile, ...]
    skipped: tuple[Problem, ...]


class ParquetWriting:
    """Writes a task's records; it is pickled and sent to the executors, and may run a task twice."""

    def __init__(self, staging: Staging, read: ReadOptions, compression: str) -> None:
        self._staging = staging
        self._read = read
        self._compression = compression
        self._version = own_version()

    def __call__(self, task: Task) -> TaskDone:
        """Run a task.

        Raises:
            KfsError: the message says what is wrong, and where.
        """
        show_log()
        try:
            check_version(self._version)
            return self._do(task)
        except KfsError as error:
            raise as_one_sentence(error) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else f"{self._staging.root}: "
            raise KfsError(f"{where}{error.strerror} (on {socket.gethostname()})") from None

    def _do(self, task: Task) -> TaskDone:
        from kfs.scan.request import Request
        from kfs.spark.reading import read_task
        from kfs.spark.skipped import SkippedRanges

        request = Request(COLUMNS, isolation=self._read.isolation)
        skipped = SkippedRanges(task, None)
        written: list[WrittenFile] = []
        for (topic, partition), splits in groupby(task.splits, _partition_of):
            files = DailyFileWriter(self._staging, topic, partition, self._compression)
            try:
                for batch in read_task(Task(tuple(splits)), request, self._read, skipped):
                    files.write(batch)
                written += files.finish()
            except BaseException:
                files.abandon()
                raise
        return TaskDone(tuple(written), skipped.problems)


def _partition_of(split: SourceSplit) -> tuple[str, int]:
    return split.batches.topic, split.batches.partition
