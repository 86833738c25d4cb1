"""The common part of the readers of batches and of streams: reading a task in a worker of Spark."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from kfs.errors import KfsError
from kfs.spark.columns import columns_of, conformed
from kfs.spark.options import ReadOptions
from kfs.spark.planning import Task
from kfs.spark.session import as_one_sentence, check_version, own_version, show_log

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType


class TaskReader:
    """Reads tasks; a task has only the state that was pickled."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._read_options = options
        self._schema = schema
        self._columns = columns_of(schema)
        self._version = own_version()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        show_log()
        task = partition.value
        if isinstance(task, Task):  # else Spark's placeholder when there is nothing to read
            try:
                yield from self._read(task)
            except KfsError as error:
                raise as_one_sentence(error) from None

    def _read(self, task: Task) -> Iterator[pa.RecordBatch]:
        from kfs.scan.request import Request
        from kfs.spark.reading import read_task

        check_version(self._version)
        _spare_the_collector()
        schema = _arrow_schema(self._schema)
        request = Request(self._columns, isolation=self._read_options.isolation)
        for batch in read_task(task, request, self._read_options):
            yield conformed(batch, schema)


@cache
def _spare_the_collector() -> None:
    """Exclude all present objects, mostly modules, from garbage collection.

    Spark runs the collector after each task, while the next one waits: for 30 ms, enough to read 2 MB.
    """
    gc.freeze()


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema that Spark compares batches with."""
    from pyspark.sql.pandas import types

    try:
        return types.to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # PySpark 4.0 supports no other time zone
        return types.to_arrow_schema(schema)
