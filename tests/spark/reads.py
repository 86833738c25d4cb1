"""The data source without Spark: options planned and read in this process, as its driver and its workers would."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.render.arrow_columns import SPARK_COLUMNS_WITH_HEADERS
from kfs.scan.request import Request
from kfs.spark.options import BatchOptions, parse_batch_options
from kfs.spark.paths import expand_paths
from kfs.spark.planning import Task, plan
from kfs.spark.ranges import ranges_of
from kfs.spark.reading import read_task

if TYPE_CHECKING:
    import pyarrow as pa

EVERYTHING = {"subscribePattern": ".*"}


def options_for(path: Path, **options: object) -> BatchOptions:
    """Return parsed options; without another strategy everything is read."""
    strategies = {"assign", "subscribe", "subscribePattern"}
    given = {"path": str(path), **({} if strategies & options.keys() else EVERYTHING)}
    return parse_batch_options(given | {name: str(value) for name, value in options.items()})


def planned(options: BatchOptions) -> list[Task]:
    """Return the tasks, as they arrive on another machine."""
    storage = Storage(max_batch_bytes=options.read.max_batch_bytes)
    with closing(DataDir(expand_paths(options.paths), storage)) as data_dir:
        tasks: list[Task] = pickle.loads(pickle.dumps(plan(ranges_of(data_dir, options), options.split)))
    return tasks


def batches_of(tasks: Sequence[Task], options: BatchOptions) -> Iterator[pa.RecordBatch]:
    """Yield what Spark gets of tasks, one task after another."""
    request = Request(SPARK_COLUMNS_WITH_HEADERS, isolation=options.read.isolation)
    for task in tasks:
        yield from read_task(task, request, options.read)


def read(tasks: Sequence[Task], options: BatchOptions) -> Iterator[dict[str, Any]]:
    """Yield the rows of tasks, one task after another, timestamps as microseconds."""
    import pyarrow as pa

    for batch in batches_of(tasks, options):
        arrays = [
            array.cast(pa.int64()) if name == "timestamp" else array
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield from pa.RecordBatch.from_arrays(arrays, names=batch.schema.names).to_pylist()


def rows_of(path: Path, **options: object) -> list[dict[str, Any]]:
    """Return the rows that a query with these options has."""
    parsed = options_for(path, **options)
    return list(read(planned(parsed), parsed))


def offsets_of(path: Path, **options: object) -> list[int]:
    """Return the offsets of the rows, of a source that has one partition."""
    return [row["offset"] for row in rows_of(path, **options)]
