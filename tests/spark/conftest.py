"""One small Spark session for the tests of a process that need one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from benchmarks.maven_jars import fetched_jars
from tests.requirements import need_java, need_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The newest Kafka source that there is for Scala 2.13, with what it needs and PySpark lacks: 4.2.0 runs in 4.3.0.
_KAFKA_SOURCE: Final = Path(__file__).parents[2] / "benchmarks" / "java" / "spark_kafka.sha256"


def kafka_source() -> Path:
    """Return the directory of the jars of Spark's Kafka source."""
    return fetched_jars(_KAFKA_SOURCE)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two cores, with Spark's Kafka source where a test of the run is about it."""
    need_java()
    need_pyspark()
    from pyspark import sql

    wants_kafka = any("both" in getattr(item, "fixturenames", ()) for item in request.session.items)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            sql.SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.extraClassPath", f"{kafka_source()}/*" if wants_kafka else "")
            .config("spark.driver.memory", "768m")
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # starts sooner
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
