"""A small session of Spark that does a little of what tests do: so their classes are loaded.

::

    python -m tests.servers.spark_training JAVA_OPTIONS
"""

from __future__ import annotations

import sys
import tempfile

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.servers.kept_classes import SMALL


def main(java_options: str) -> None:
    """Run it, and wait until its Java has ended, which makes the archive then."""
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", java_options)
    for name, value in SMALL.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    with tempfile.TemporaryDirectory() as directory:
        rows = session.range(1000).selectExpr("id % 7 as key", "cast(id as string) as value")
        rows.groupBy("key").count().orderBy("key").collect()
        for name in ("parquet", "json"):
            rows.write.format(name).save(f"{directory}/{name}")
            session.read.format(name).load(f"{directory}/{name}").count()
        stream = session.readStream.format("rate").load().writeStream.format("noop")
        stream.option("checkpointLocation", f"{directory}/stream").trigger(availableNow=True).start().awaitTermination()
        rows.rdd.map(tuple).count()
        session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
