"""A driver of its own, whose session is that of a cluster: what it reads comes into ``WORK/rows``, pickled.

::

    python -m tests.spark.cluster_job MASTER WORK DATA TOPICS batch|gone|available-now|follow [options]

``batch`` reads what there is, ``gone`` after its log directories are no longer where they were when the query was
planned. The others are streams into Parquet files; ``follow`` stops after so many ``--offsets``. With ``--dawdle``
each record takes its time and leaves a file in ``WORK/marks``.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.servers.spark_cluster import small_executors
from tests.spark.test_source import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SECONDS: Final = 150


def session(master: str, settings: list[str]) -> SparkSession:
    """Return a session with small executors."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master)
    for name, value in small_executors().items():
        builder = builder.config(name, value)
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    return found


def dawdling(rows: DataFrame, marks: Path) -> DataFrame:
    """Return the rows, each of which takes its time and leaves a file in ``marks``."""
    marks.mkdir(exist_ok=True)
    directory = str(marks)

    def dawdle(partition: int) -> int:
        open(os.path.join(directory, uuid.uuid4().hex), "wb").close()
        time.sleep(0.01)
        return partition

    return rows.withColumn("partition", f.udf(dawdle, "int")("partition"))


def gone(rows: DataFrame, data: Path) -> list[dict[str, Any]]:
    """Return the rows of a batch whose log directories the driver has seen, and executors don't."""
    planned = rows.rdd
    assert planned.getNumPartitions()
    data.parent.rename(data.parent.with_suffix(".elsewhere"))
    planned.collect()
    return []


def stream(rows: DataFrame, work: Path, offsets: int | None) -> list[dict[str, Any]]:
    """Return the rows that a streaming query has written when it is done, or has come so many offsets far."""
    out = str(work / "out")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(work / "checkpoint"))
    query = writer.trigger(availableNow=True).start(out) if offsets is None else writer.start(out)
    until = time.monotonic() + _SECONDS
    while query.isActive and time.monotonic() < until:
        progress = query.lastProgress
        if offsets is not None and progress is not None and _offsets(progress["sources"][0]["endOffset"]) >= offsets:
            query.stop()
        time.sleep(0.2)
    if query.exception() is not None or query.isActive:
        raise RuntimeError(f"the query ended with {query.exception()}, or not at all: {query.lastProgress}")
    return rows_of(rows.sparkSession.read.parquet(out))


def _offsets(reached: Any) -> int:
    ends = json.loads(reached) if isinstance(reached, str) else reached
    return sum(offset for partitions in (ends or {}).values() for offset in partitions.values())


def main() -> None:
    """Do as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("master")
    parser.add_argument("work", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("topics")
    parser.add_argument("job", choices=["batch", "gone", "available-now", "follow"])
    parser.add_argument("--offsets", type=int)
    parser.add_argument("--dawdle", action="store_true")
    parser.add_argument("--conf", action="append", default=[])
    given = parser.parse_args()
    spark = session(given.master, given.conf)
    is_stream = given.job in ("available-now", "follow")
    options = {"subscribe": given.topics, "includeHeaders": "true", "minPartitions": "7"}
    if is_stream:
        options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "150"}
    reader = (spark.readStream if is_stream else spark.read).format("kfs").options(**options)
    rows = reader.load(str(given.data))
    if given.dawdle:
        rows = dawdling(rows, given.work / "marks")
    if given.job == "gone":
        found = gone(rows, given.data)
    else:
        found = stream(rows, given.work, given.offsets) if is_stream else rows_of(rows)
    (given.work / "rows").write_bytes(pickle.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
