"""The limit of every data source in Python: one that yields batches that are ready, out of a file in the page cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import kfs
from benchmarks.events import EventLog
from kfs.render.arrow_columns import SPARK_COLUMNS_WITH_HEADERS
from kfs.spark.columns import ddl_of

_TASKS = 2


def ready_batches(log: EventLog) -> Path:
    """Return a file of the record batches of a log, beside it, written unless it is there."""
    path = log.directory.parent.with_suffix(".arrow")
    if not path.exists():
        partial_path = path.with_suffix(".partial")
        with kfs.open(log.directory.parent) as data:
            scan = data.scan(include_headers=True)
            with pa.ipc.new_file(partial_path, scan.schema) as out:
                for batch in scan:
                    out.write_batch(batch)
        partial_path.rename(path)
    return path


class ReadyMadeSource(DataSource):
    """Yields the columns that are asked for of the batches in option ``path``, in two tasks."""

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def schema(self) -> str:
        return ddl_of(SPARK_COLUMNS_WITH_HEADERS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options["path"], schema.fieldNames())


class _Reader(DataSourceReader):
    def __init__(self, path: str, columns: list[str]) -> None:
        self._path = path
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        with pa.memory_map(self._path) as file:
            count = pa.ipc.open_file(file).num_record_batches
        return [InputPartition(range(count * at // _TASKS, count * (at + 1) // _TASKS)) for at in range(_TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batches = pa.ipc.open_file(pa.memory_map(self._path))
        for number in partition.value:
            yield batches.get_batch(number).select(self._columns)
