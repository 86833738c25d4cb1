"""Kafka's log directories in Spark, with no broker; docs/SPARK.md tells when to use which way.

:mod:`kfs.spark.offsets` keeps how far jobs got, with Spark or without. Importing this imports neither
Spark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kfs.spark.exporting.export import ExportTotals

__all__ = ["export", "from_json_lines", "json_schema", "register"]


def register(spark: SparkSession) -> None:
    """Make the format ``kfs`` known to a session, whatever else of that kind is installed.

    Raises:
        UnusableSession: this PySpark, or Spark's Python workers on this machine, could not run it.
    """
    from kfs.spark.registration import register_format

    register_format(spark)


def export(spark: SparkSession, log_dirs: str | Sequence[str], dataset: str, **options: Any) -> ExportTotals:
    """Export what is new in log directories to a dataset, Parquet files by topic and date, each record once.

    ``options`` are those of ``kfs export`` (docs/EXPORT.md): ``topics`` (shell patterns), ``start``,
    ``isolation``, ``on_damage``, ``fail_on_data_loss``, ``max_records``, ``batch_bytes``, ``max_batch_bytes``,
    ``compression``, ``format``, ``table``, ``store``, ``group``.

    Raises:
        Fenced: another export has taken the group over.
        UnusableSession: the session can't do it.
        ValueError: an option has a value that it can't have.
        KfsError: what else is wrong; what was exported before is in the dataset, and the next one goes on behind it.
    """
    from kfs.spark.exporting.with_spark import export_once

    return export_once(spark, log_dirs, dataset, **options)


def from_json_lines(lines: DataFrame, *, include_headers: bool = False) -> DataFrame:
    """Return lines that were read with ``json_schema`` with the columns and types of the data source."""
    from kfs.spark import json_lines

    return json_lines.from_json_lines(lines, include_headers=include_headers)


def __getattr__(name: str) -> str:
    if name == "json_schema":
        from kfs.spark.json_lines import JSON_SCHEMA

        return JSON_SCHEMA
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
