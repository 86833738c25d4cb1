"""Making the format ``kfs`` known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfs.spark.session import check_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_format(spark: SparkSession) -> None:
    """See :func:`kfs.spark.register`."""
    check_workers(spark)
    from pyspark.errors import AnalysisException

    from kfs.spark.source import KfsDataSource

    try:
        spark.dataSource.register(KfsDataSource)
    except AnalysisException as error:  # PySpark 4.0 refuses what it has found by itself
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
