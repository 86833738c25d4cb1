"""Kafka 4.3.1 itself: the jars of a broker and its tools from Maven Central.

``java/jars.sha256`` names them. After a change of ``java/pom.xml`` it is made anew from what Maven fetches::

    mvn dependency:copy-dependencies -Dmdep.useRepositoryLayout=true -DoutputDirectory=jars
    (cd jars && find . -name '*.jar' -printf '%P\\n' | sort | xargs sha256sum) > jars.sha256

The benchmarks run Kafka's readers, and tests a broker; what is needed is Java, and Maven is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.maven_jars import fetched_jars

_LISTS: Final = Path(__file__).with_name("java")


def kafka_jars(cache: Path | None = None) -> Path:
    """Return the directory of the jars (55 MB), as :func:`~benchmarks.maven_jars.fetched_jars` does."""
    return fetched_jars(_LISTS / "jars.sha256", cache)


def spark_kafka_jars(cache: Path | None = None) -> Path:
    """Return the directory of the jars of Spark's Kafka source, with what it needs and PySpark lacks, in the same way.

    It is the newest that there is for Scala 2.13: 4.2.0, which runs in 4.3.0.
    """
    return fetched_jars(_LISTS / "spark_kafka.sha256", cache)
