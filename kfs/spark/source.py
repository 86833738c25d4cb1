"""The data source ``kfs`` of PySpark's Python Data Source API: Kafka's log directories, with no broker."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kfs.errors import KfsError
from kfs.spark.columns import ddl_of, default_columns
from kfs.spark.options import (
    BatchOptions,
    check_options,
    includes_headers,
    only_for_streams,
    parse_batch_options,
    parse_stream_options,
    pushes_filters,
)
from kfs.spark.planning import Task, plan
from kfs.spark.pushdown import Pushed
from kfs.spark.session import as_one_sentence, is_asked_for_filters, say_what_is_ignored, show_log
from kfs.spark.task_reader import TaskReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, Filter


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
        """Return the default columns; errors in the options are raised at ``load()``."""
        try:
            check_options(self.options)
            return ddl_of(default_columns(self.options.get("columns"), include_headers=includes_headers(self.options)))
        except KfsError as error:
            raise as_one_sentence(error) from None

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader that plans and reads a batch."""
        try:
            options = parse_batch_options(self.options)
            takes_filters = pushes_filters(self.options, default=is_asked_for_filters())
            return (FilteringReader if takes_filters else KfsReader)(options, schema)
        except KfsError as error:
            raise as_one_sentence(error) from None

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query, or one that raises the error in its options when used.

        Spark would hide an exception raised here behind its own.
        """
        from kfs.spark.streaming import KfsStreamReader, RefusedStreamReader

        try:
            return KfsStreamReader(parse_stream_options(self.options), schema)
        except KfsError as error:
            return RefusedStreamReader(as_one_sentence(error))


class KfsReader(TaskReader, DataSourceReader):
    """Plans a batch in the driver, and reads it in tasks."""

    def __init__(self, options: BatchOptions, schema: StructType) -> None:
        super().__init__(options.read, schema)
        self._options = options
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""
        show_log()
        say_what_is_ignored(self._options.ignored, only_for_streams(self._options.ignored))
        try:
            return [InputPartition(task) for task in self._plan()]
        except KfsError as error:
            raise as_one_sentence(error) from None

    def _plan(self) -> list[Task]:
        from kfs.internal.broker_state import BrokerState
        from kfs.log.data_dir import DataDir
        from kfs.log.storage import Storage
        from kfs.spark.paths import expand_paths
        from kfs.spark.ranges import ranges_of

        storage = Storage(max_batch_bytes=self._options.read.max_batch_bytes)
        with closing(DataDir(expand_paths(self._options.paths), storage)) as data_dir:
            BrokerState(data_dir)
            ranges = list(self._pushed.applied_to(ranges_of(data_dir, self._options)))
            return plan(ranges, self._options.split)


class FilteringReader(KfsReader):
    """The reader that takes filters: Spark refuses such a reader unless the session allows it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Use the filters that save reading; Spark evaluates all of them, too."""
        for each in filters:
            self._pushed = self._pushed.and_also(each)
            yield each
