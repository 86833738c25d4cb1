"""The data source ``kfs`` of PySpark's Python Data Source API: Kafka's log directories, with no broker."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from kfs.errors import KfsError, UnusableSession
from kfs.spark.columns import columns_of, conformed, ddl_of, default_columns
from kfs.spark.options import BatchOptions, includes_headers, only_for_streams, parse_batch_options, pushes_filters
from kfs.spark.planning import Task, plan
from kfs.spark.pushdown import Pushed

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger("kfs.spark")


class KfsDataSource(DataSource):
    """Reads the topics of Kafka's log directories as DataFrames with the columns of Spark's Kafka source.

    Name: ``kfs``

    Options: those of Spark's Kafka source, which mean the same; ``path``, the log directories; and those that
    docs/SPARK.md lists.

    Examples::

        kfs.spark.register(spark)
        spark.read.format("kfs").option("subscribe", "orders").load("/var/lib/kafka/data")
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kfs"

    def schema(self) -> str:
        """The columns, where the query names none; what is wrong with the options, ``load()`` then says at once."""
        try:
            parse_batch_options(self.options)
            return ddl_of(default_columns(self.options.get("columns"), include_headers=includes_headers(self.options)))
        except KfsError as error:
            raise _as_one_sentence(error) from None

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads a batch."""
        try:
            options = parse_batch_options(self.options)
            return (FilteringReader if pushes_filters(self.options) else KfsReader)(options, schema)
        except KfsError as error:
            raise _as_one_sentence(error) from None


class KfsReader(DataSourceReader):
    """Plans in the driver, reads in tasks: what is known here when it is pickled is all that a task knows."""

    def __init__(self, options: BatchOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = columns_of(schema)
        self._pushed = Pushed()
        self._version = _version()

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""
        _show_log()
        self._say_what_is_ignored()
        try:
            return [InputPartition(task) for task in self._plan()]
        except KfsError as error:
            raise _as_one_sentence(error) from None

    def _plan(self) -> list[Task]:
        from kfs.log.data_dir import DataDir
        from kfs.log.storage import Storage
        from kfs.spark.paths import expand_paths
        from kfs.spark.ranges import ranges_of

        storage = Storage(max_batch_bytes=self._options.read.max_batch_bytes)
        with closing(DataDir(expand_paths(self._options.paths), storage)) as data_dir:
            ranges = list(self._pushed.applied_to(ranges_of(data_dir, self._options)))
            return plan(ranges, self._options.split)

    def _say_what_is_ignored(self) -> None:
        if self._options.ignored:
            _LOG.warning("options that change nothing: %s", ", ".join(self._options.ignored))
        for name in only_for_streams(self._options.ignored):
            _LOG.warning("option %s is ignored in batch queries", name)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        _show_log()
        task = partition.value
        if isinstance(task, Task):  # and not Spark's stand-in where there is nothing to read
            try:
                yield from self._read(task)
            except KfsError as error:
                raise _as_one_sentence(error) from None

    def _read(self, task: Task) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        from kfs.scan.request import Request
        from kfs.spark.reading import read_task

        self._check_version()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        request = Request(self._columns, isolation=self._options.read.isolation)
        for batch in read_task(task, request, self._options.read):
            yield conformed(batch, schema)

    def _check_version(self) -> None:
        if self._version != _version():
            raise UnusableSession(
                f"the driver has kfs {self._version}, this executor kfs {_version()}: install the same one on both"
            )


class FilteringReader(KfsReader):
    """The reader for option ``filterPushdown``: Spark refuses whoever can do this unless the session allows it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take from the filters what saves reading; all of them are Spark's to evaluate, too."""
        for each in filters:
            self._pushed = self._pushed.and_also(each)
            yield each


def _as_one_sentence(error: KfsError) -> KfsError:
    """Return the error without where it comes from, which Spark would show above it."""
    return error.with_traceback(None)


def _version() -> str:
    from kfs import __version__

    return str(__version__)


def _show_log() -> None:
    """Let what is logged here reach the worker's standard error, which Spark keeps or shows."""
    if not _LOG.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("kfs: %(message)s"))
        _LOG.addHandler(handler)
