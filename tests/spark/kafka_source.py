"""Spark's Kafka source itself: its jars from Maven Central, put into a session that runs already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.maven_jars import fetched_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The newest that there is for Scala 2.13, with what it needs and PySpark lacks. 4.2.0 runs in a session of 4.3.0.
_LIST: Final = Path(__file__).parents[2] / "benchmarks" / "java" / "spark_kafka.sha256"


def add_kafka_source(spark: SparkSession) -> None:
    """Make the format ``kafka`` known to a session."""
    for jar in sorted(fetched_jars(_LIST).glob("*.jar")):
        spark.sql(f"ADD JAR '{jar}'")
