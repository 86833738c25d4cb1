"""Counts the words of a topic, read from the broker's log directory, and sends the counts on to another topic.

::

    word_count.py [--follow] LOG_DIR DATASET STORE BROKER

Without ``--follow`` it stops when it has read what is there. How far it got is in STORE and nowhere else; the counts of
a micro-batch, in files in DATASET, become valid in one step with that. So every line counts once, whenever this is
killed.
"""

import argparse
import json
from collections.abc import Iterator

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

import kfs
import kfs.spark
from kfs.spark.offsets import (
    ConsumedRange,
    Progress,
    StagedOutput,
    TopicPartition,
    open_writable_store,
    range_file_name,
)

GROUP = "word-count"
LINES = "lines"
COUNTS = "word-counts"
LINES_A_BATCH = 1000


class WordCount:
    """What is done with each micro-batch."""

    def __init__(self, output: StagedOutput, broker: str) -> None:
        self._output = output
        self._broker = broker

    def count(self, batch: DataFrame, _number: int) -> None:
        """Count the words of a micro-batch, and send on how often these words were there so far."""
        batch.persist()
        ranges = consumed(batch, self._output.progress)
        words = words_of(batch).groupBy("partition", "word").count().collect()
        files = [
            self._output.staging.write(range_file_name(each, ".jsonl"), json_lines(words, each)) for each in ranges
        ]
        self._output.commit(ranges, files)
        self.send(self.totals().join(words_of(batch), "word", "leftsemi"))
        batch.unpersist()
        print(*ranges, sep=", ", flush=True)

    def totals(self) -> DataFrame:
        """Return how often each word was there so far."""
        counts = SparkSession.active().read.schema("word string, count bigint").json(self._output.dataset)
        return counts.groupBy("word").agg(f.sum("count").alias("total"))

    def send(self, totals: DataFrame) -> None:
        """Send totals on, each under its word. They only grow: the largest is right, whatever is sent twice or late."""
        messages = totals.select(f.col("word").alias("key"), f.col("total").cast("string").alias("value"))
        messages.write.format("kafka").option("kafka.bootstrap.servers", self._broker).option("topic", COUNTS).save()


def words_of(lines: DataFrame) -> DataFrame:
    """Return the words of lines, one a row."""
    text = f.lower(f.col("value").cast("string"))
    return lines.select("partition", f.explode(f.split(text, "[^a-z]+")).alias("word")).where("word <> ''")


def consumed(batch: DataFrame, progress: Progress) -> list[ConsumedRange]:
    """Return the offsets that a micro-batch has: from where the last one ended, as there may be gaps in between."""
    ends = batch.groupBy("topic", "partition").agg(f.min("offset").alias("first"), f.max("offset").alias("last"))
    ranges = []
    for row in sorted(ends.collect()):
        start = progress.positions.get(TopicPartition(row.topic, row.partition), row.first)
        ranges.append(ConsumedRange(row.topic, row.partition, start, row.last + 1))
    return ranges


def json_lines(words: list[Row], counted: ConsumedRange) -> Iterator[bytes]:
    """Yield the counts of one partition."""
    for row in words:
        if row.partition == counted.partition:
            yield json.dumps({"word": row.word, "count": row["count"]}).encode() + b"\n"


def starting_offsets(log_dir: str, progress: Progress) -> str:
    """Return where to go on, as Spark's Kafka source is told; -2 is the start of a partition."""
    with kfs.open(log_dir) as data:
        partitions = data[LINES].partitions
    return json.dumps(
        {LINES: {str(each): progress.positions.get(TopicPartition(LINES, each), -2) for each in partitions}}
    )


def main() -> None:
    """Run the stream."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--follow", action="store_true")
    for name in ("log_dir", "dataset", "store", "broker"):
        parser.add_argument(name)
    arguments = parser.parse_args()
    spark = SparkSession.builder.appName(GROUP).getOrCreate()
    kfs.spark.register(spark)
    with (
        open_writable_store(arguments.store) as store,
        StagedOutput(store, GROUP, arguments.dataset) as output,
    ):
        job = WordCount(output, arguments.broker)
        if output.progress.positions:
            job.send(job.totals())  # the last run may have been killed before it sent them
        lines = (
            spark.readStream.format("kfs")
            .option("subscribe", LINES)
            .option("startingOffsets", starting_offsets(arguments.log_dir, output.progress))
            .option("maxOffsetsPerTrigger", LINES_A_BATCH)
            .load(arguments.log_dir)
        )
        trigger = {"processingTime": "1 second"} if arguments.follow else {"availableNow": True}
        lines.writeStream.foreachBatch(job.count).trigger(**trigger).start().awaitTermination()


if __name__ == "__main__":
    main()
