"""A job for Spark's Kafka source: archives the orders that are new, then reports on all there are.

::

    kafka_job.py BROKER OUTPUT

It is an ordinary one, and knows nothing of kfs; kafka_job.sh moves it there.
"""

import sys

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import DataStreamReader

ORDER = "status string, total double, customer struct<city: string>"


def orders(reader: DataFrameReader | DataStreamReader, broker: str) -> DataFrame:
    """Return the topic, as a table or as a stream."""
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", broker)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )


def archive(messages: DataFrame, output: str) -> None:
    """Append what isn't in the archive yet."""
    text = [f.col(name).cast("string").alias(name) for name in ("key", "value")]
    writer = messages.select("partition", "offset", "timestamp", *text).writeStream.format("json")
    query = writer.option("checkpointLocation", f"{output}/checkpoint").trigger(availableNow=True)
    query.start(f"{output}/archive").awaitTermination()


def report(messages: DataFrame, output: str) -> None:
    """Write what was sold, by city and state of the order."""
    order = messages.select(f.from_json(f.col("value").cast("string"), ORDER).alias("order")).select("order.*")
    sums = order.groupBy("customer.city", "status").agg(
        f.count("*").alias("orders"), f.round(f.sum("total"), 2).alias("revenue")
    )
    sums.orderBy("city", "status").coalesce(1).write.mode("overwrite").csv(f"{output}/report", header=True)


def main(broker: str, output: str) -> None:
    """Do both."""
    spark = SparkSession.builder.appName("orders").getOrCreate()
    archive(orders(spark.readStream, broker), output)
    report(orders(spark.read, broker), output)


if __name__ == "__main__":
    main(*sys.argv[1:])
