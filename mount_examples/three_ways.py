"""What was paid for a day's orders, computed by Spark from three sources of the same records.

::

    three_ways.py LOG_DIR MOUNTPOINT DATASET

For each of them, a file ``by-<source>.csv``.
"""

import csv
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kfs.spark


def from_log_directories(spark: SparkSession, log_dir: str) -> DataFrame:
    """Return the topic as the data source reads it from Kafka's own files."""
    return spark.read.format("kfs").option("subscribe", "orders").load(log_dir)


def from_mount(spark: SparkSession, mountpoint: str) -> DataFrame:
    """Return the topic as Spark reads JSON from any filesystem: kfs has to be on the driver only."""
    lines = spark.read.schema(kfs.spark.json_schema).json(f"{mountpoint}/orders/*/segment/*.jsonl")
    return kfs.spark.from_json_lines(lines)


def from_dataset(spark: SparkSession, dataset: str) -> DataFrame:
    """Return the topic as it was exported to Parquet."""
    return spark.read.parquet(dataset).where("topic = 'orders'")


def revenue(orders: DataFrame) -> DataFrame:
    """Return how many orders were paid each day, and what they brought in."""
    order = f.from_json(f.col("value").cast("string"), "status string, total double")
    paid = orders.select(f.to_date("timestamp").alias("date"), order.alias("order")).where("order.status = 'paid'")
    sums = [f.count("*").alias("orders"), f.round(f.sum("order.total"), 2).alias("revenue")]
    return paid.groupBy("date").agg(*sums).orderBy("date")


def main(log_dir: str, mountpoint: str, dataset: str) -> None:
    """Ask each of them."""
    spark = SparkSession.builder.appName("three-ways").getOrCreate()
    kfs.spark.register(spark)
    sources = {
        "source": from_log_directories(spark, log_dir),
        "mount": from_mount(spark, mountpoint),
        "dataset": from_dataset(spark, dataset),
    }
    for name, orders in sources.items():
        found = revenue(orders)
        with open(f"by-{name}.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([found.columns, *found.collect()])


if __name__ == "__main__":
    main(*sys.argv[1:])
