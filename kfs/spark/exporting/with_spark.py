"""An export in a Spark session, in any format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfs.log.problem import DamagePolicy
from kfs.log.storage import DEFAULT_MAX_BATCH_BYTES
from kfs.read.isolation_level import IsolationLevel
from kfs.spark.exporting.export import Export, ExportTotals, opened_export
from kfs.spark.exporting.frames import FileSink, TableSink
from kfs.spark.exporting.jobs import SparkJobs
from kfs.spark.exporting.options import FILE_FORMATS, PARQUET, BatchLimits, ExportOptions, parse_starting
from kfs.spark.exporting.sinks import ParquetSink, Sink
from kfs.spark.options import ReadOptions
from kfs.spark.strategies import Matching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_export(spark: SparkSession, options: ExportOptions) -> Iterator[Export]:
    """Open an export that runs in a session.

    Raises:
        UnusableSession: the session is unsuitable.
        KfsError: the dataset or the store is unusable.
    """
    jobs = SparkJobs(spark)
    with opened_export(options, _sink(spark, options, jobs), jobs.cores) as export:
        yield export


def _sink(spark: SparkSession, options: ExportOptions, jobs: SparkJobs) -> Sink:
    if options.format in FILE_FORMATS:
        return FileSink(spark, options)
    if options.format != PARQUET:
        return TableSink(spark, options)
    return ParquetSink(jobs, options)


def export_once(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    dataset: str,
    *,
    topics: Sequence[str] = (),
    start: str = "earliest",
    isolation: str = IsolationLevel.READ_UNCOMMITTED,
    on_damage: str = DamagePolicy.FAIL,
    fail_on_data_loss: bool = True,
    max_records: int | None = None,
    batch_bytes: int | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    compression: str | None = None,
    format: str = PARQUET,  # noqa: A002 - Spark's name
    table: str | None = None,
    store: str | None = None,
    group: str | None = None,
) -> ExportTotals:
    """See :func:`kfs.spark.export`."""
    options = ExportOptions(
        (log_dirs,) if isinstance(log_dirs, str) else tuple(log_dirs),
        dataset,
        Matching(tuple(topics)),
        parse_starting(start),
        ReadOptions(
            fail_on_data_loss, IsolationLevel(isolation), DamagePolicy(on_damage), max_batch_bytes=max_batch_bytes
        ),
        BatchLimits(max_records, batch_bytes),
        format,
        compression,
        table,
        store,
        group,
    )
    with spark_export(spark, options) as export:
        export.reach(export.look())
        return export.totals
