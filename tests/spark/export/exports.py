"""Exports without Spark, and what is in a dataset."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import dataset as datasets

from kfs.spark.exporting.export import Export, ExportTotals, opened_export
from kfs.spark.exporting.jobs import Advance, Doing
from kfs.spark.exporting.options import BatchLimits, ExportOptions
from kfs.spark.exporting.sinks import ParquetSink
from kfs.spark.exporting.tasks import TaskDone
from kfs.spark.options import ReadOptions
from kfs.spark.planning import Task
from kfs.spark.strategies import Matching
from tests.scan.scanning import Row, rows_of

_PARTITIONING = datasets.partitioning(pa.schema([("topic", pa.string()), ("date", pa.string())]), flavor="hive")


class HereJobs:
    """Does tasks in this process, each as often as a cluster may: what all but the last time came to is dropped."""

    def __init__(self, cores: int = 2, times: int = 1) -> None:
        self.cores = cores
        self.times = times
        self.tasks: list[int] = []

    def run(self, tasks: Sequence[Task], doing: Doing, advance: Advance) -> list[TaskDone]:
        self.tasks.append(len(tasks))
        done = []
        for task in tasks:
            for _ in range(self.times):
                result: TaskDone = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(doing))(task)))
            done.append(result)
            advance(task.size)
        return done


def options_for(
    data: Path | Sequence[Path],
    dataset: Path,
    *,
    topics: tuple[str, ...] = (),
    records: int | None = None,
    size: int | None = None,
    read: ReadOptions | None = None,
    **more: Any,
) -> ExportOptions:
    """Return the options of an export."""
    paths = (str(data),) if isinstance(data, Path) else tuple(map(str, data))
    return ExportOptions(
        paths, str(dataset), Matching(topics), read=read or ReadOptions(), limits=BatchLimits(records, size), **more
    )


def export(
    options: ExportOptions, jobs: HereJobs | None = None, at_batch: Callable[[Export], None] | None = None
) -> ExportTotals:
    """Export what there is; ``at_batch`` is called before each batch."""
    jobs = jobs or HereJobs()
    with opened_export(options, ParquetSink(jobs, options), jobs.cores) as exporting:
        end = exporting.look()
        while (batch := exporting.next_batch(end)) is not None:
            if at_batch is not None:
                at_batch(exporting)
            exporting.do(batch)
        return exporting.totals


def exported(dataset: Path) -> list[Row]:
    """Return the rows of a dataset as any reader has them, by topic, partition and offset."""
    return [{name: row[name] for name in row if name != "date"} for row in dated(dataset)]


def dated(dataset: Path) -> list[Row]:
    """Return the same with the dates of the directories that the rows are in."""
    if not any(dataset.rglob("*.parquet")):
        return []
    table = datasets.dataset(dataset, partitioning=_PARTITIONING, format="parquet").to_table()
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "date"]
    rows = rows_of(table.select(names))
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def date_of(micros: int | None) -> str | None:
    """Return the date of a timestamp, None where it has none."""
    if micros is None or micros == -1000:
        return None
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).date().isoformat()
    except OverflowError:
        return None


def files_of(dataset: Path) -> list[str]:
    """Return the paths of all Parquet files that any reader finds."""
    return sorted(str(path.relative_to(dataset)) for path in dataset.rglob("*.parquet"))
