"""One small Spark session for the tests of a process that need one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from benchmarks.kafka_jars import spark_kafka_jars
from tests.requirements import need_jars, need_java, need_pyspark
from tests.servers.kept_classes import small_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two cores, with Spark's Kafka source where a test of the run is about it."""
    need_java()
    need_pyspark()
    from pyspark import sql

    wants_kafka = any("both" in getattr(item, "fixturenames", ()) for item in request.session.items)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        builder = sql.SparkSession.builder.master("local[2]")
        for name, value in small_session().items():
            builder = builder.config(name, value)
        if wants_kafka:
            jars = need_jars("Spark", spark_kafka_jars)
            builder = builder.config("spark.jars", ",".join(map(str, jars.iterdir())))
        session = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse"))).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
