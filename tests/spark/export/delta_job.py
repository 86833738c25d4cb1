"""Exports to a Delta table, of which one ends between the table's commit and the store's.

::

    python -m tests.spark.export.delta_job JARS LOG_DIR DATASET

prints how many rows the table has, how many of them differ, and what the exports came to.
"""

from __future__ import annotations

import json
import sys
from unittest.mock import patch

from pyspark.sql import SparkSession

import kfs.spark
from kfs.spark.offsets.staged_output import StagedOutput


class Killed(BaseException):
    """Nothing after this is done."""


def main(jars: str, log_dir: str, dataset: str) -> None:
    """Export, fail, and export again."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraClassPath", f"{jars}/*")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    commit = StagedOutput.commit
    batches = 0

    def killed_at_second_batch(output: StagedOutput, ranges: list[object], files: list[object]) -> None:
        nonlocal batches
        batches += any(each.until_offset > each.from_offset for each in ranges)  # type: ignore[attr-defined]
        if batches == 2:
            raise Killed
        commit(output, ranges, files)  # type: ignore[arg-type]

    try:
        with patch.object(StagedOutput, "commit", killed_at_second_batch):
            kfs.spark.export(spark, log_dir, dataset, format="delta", max_records=60)
    except Killed:
        pass
    before = spark.read.format("delta").load(dataset).count()
    again = kfs.spark.export(spark, log_dir, dataset, format="delta", max_records=70)
    last = kfs.spark.export(spark, log_dir, dataset, format="delta")
    table = spark.read.format("delta").load(dataset)
    different = table.select("topic", "partition", "offset").distinct().count()
    print(json.dumps([before, again.records, last.records, table.count(), different]))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
