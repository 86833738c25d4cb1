"""The sinks that batches are written to: the only difference between formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kfs.format.checkpoint import TopicPartition
from kfs.log.problem import Problem
from kfs.spark.exporting.batches import PlannedBatch
from kfs.spark.exporting.jobs import Advance, Jobs
from kfs.spark.exporting.options import DEFAULT_COMPRESSION, ExportOptions
from kfs.spark.exporting.tasks import ParquetWriting
from kfs.spark.offsets.progress import StagedFile
from kfs.spark.offsets.staged_output import Staging
from kfs.spark.stream_offsets import Offsets


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A written batch: its records, by partition if known, and the skipped ranges of the logs.

    ``files`` become part of the dataset with the positions; ``size`` is their bytes.
    """

    records: int
    by_partition: Mapping[TopicPartition, int]
    skipped: tuple[Problem, ...]
    files: tuple[StagedFile, ...] = ()
    size: int = 0


class Sink(Protocol):
    """Writes batches."""

    def reached(self, positions: Offsets) -> Offsets:
        """Return the ends of partitions that the sink has beyond these positions."""
        ...

    def write(self, batch: PlannedBatch, staging: Staging, advance: Advance) -> WrittenBatch:
        """Write a batch; ``advance`` gets bytes of log.

        Raises:
            KfsError: it could not be written.
        """
        ...


class ParquetSink:
    """Parquet files that the tasks write themselves: no record goes through the JVM."""

    def __init__(self, jobs: Jobs, options: ExportOptions) -> None:
        self._jobs = jobs
        self._options = options

    def reached(self, _positions: Offsets) -> Offsets:
        """See :meth:`Sink.reached`: files and positions are stored in one step."""
        return {}

    def write(self, batch: PlannedBatch, staging: Staging, advance: Advance) -> WrittenBatch:
        """See :meth:`Sink.write`."""
        writing = ParquetWriting(staging, self._options.read, self._options.compression or DEFAULT_COMPRESSION)
        done = self._jobs.run(batch.tasks, writing, advance) if batch.tasks else []
        files = [file for each in done for file in each.files]
        records: Counter[TopicPartition] = Counter()
        for file in files:
            records[file.partition] += file.records
        return WrittenBatch(
            records.total(),
            records,
            tuple(problem for each in done for problem in each.skipped),
            tuple(each.file for each in files),
            sum(each.size for each in files),
        )
