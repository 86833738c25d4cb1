"""Streaming queries in Spark itself: triggers, checkpoints, progress."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.corpus import corpus_names
from tests.logs import dense, log_name, write_partition
from tests.recorded_damage import DAMAGED, CorpusPath
from tests.scan.scanning import expected_rows
from tests.spark.test_source import rows_of, topics_of
from tests.spark.topics import A, B, make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t: 0 to 99."""
    write_partition(tmp_path / "data" / "t-0", {0: dense(0, 49), 50: dense(50, 99)})
    return tmp_path / "data"


@pytest.fixture
def queries(spark: SparkSession) -> Iterator[list[StreamingQuery]]:
    """Queries that are stopped in the end."""
    started: list[StreamingQuery] = []
    yield started
    for query in started:
        query.stop()


def append(data: Path, first: int, last: int) -> None:
    with (data / "t-0" / log_name(50)).open("ab") as log:
        log.writelines(one.data for one in dense(first, last))


class Job:
    """A streaming job from log directories to Parquet files, which knows where it is by its checkpoint alone."""

    def __init__(self, spark: SparkSession, data: Path, directory: Path, **options: object) -> None:
        self._spark = spark
        self._data = data
        self._out, self._checkpoint = directory / "out", directory / "checkpoint"
        self._options = {"startingOffsets": "earliest", **{name: str(value) for name, value in options.items()}}

    def start(self, **trigger: Any) -> StreamingQuery:
        rows = self._spark.readStream.format("kfs").options(**self._options).load(str(self._data))
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(**trigger).start(str(self._out))

    def run(self, **trigger: Any) -> list[dict[str, Any]]:
        """Run until all is done that was there when it started; return the progress of each micro-batch."""
        query = self.start(**(trigger or {"availableNow": True}))
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        return [json.loads(progress.json) for progress in query.recentProgress]

    def offsets(self) -> list[int]:
        return [row["offset"] for row in rows_of(self._spark.read.parquet(str(self._out)))]

    def rows(self) -> list[dict[str, Any]]:
        return rows_of(self._spark.read.parquet(str(self._out)))

    @property
    def checkpoint(self) -> list[object]:
        """The offsets that Spark wrote down, of each micro-batch."""
        files = (self._checkpoint / "offsets").glob("[0-9]*")
        return [json.loads(file.read_text().splitlines()[2]) for file in sorted(files, key=lambda file: int(file.name))]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in corpus_names() if name != DAMAGED])
def test_a_corpus_is_streamed_as_kafka_itself_reads_it(
    name: str, spark: SparkSession, corpus: CorpusPath, tmp_path: Path
) -> None:
    data = corpus(name) / "data"
    job = Job(spark, data, tmp_path, subscribe=topics_of(data), includeHeaders="true", minPartitions=2)
    job.run()
    assert job.rows() == expected_rows(corpus(name))


def test_available_now_does_all_there_is_in_parts_and_goes_on_from_its_checkpoint(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    job = Job(spark, data, tmp_path, subscribe="t", maxOffsetsPerTrigger=40)
    progress = job.run()
    assert job.offsets() == list(range(100))
    assert job.checkpoint == [{"t": {"0": end}} for end in (40, 80, 100)]
    source = progress[0]["sources"][0]
    assert source["numInputRows"] == 40
    assert (source["endOffset"], source["latestOffset"]) == ({"t": {"0": 40}}, {"t": {"0": 100}})
    append(data, 100, 109)
    write_partition(data / "t-1", {0: dense(0, 4)})
    job.run()
    assert job.offsets() == list(range(110)) + list(range(5))
    (data / "t-0" / log_name(0)).unlink()
    (data / "t-0" / log_name(50)).write_bytes(b"")
    with pytest.raises(Exception, match=r"DataLoss: the log of t-0 ended at 110 and ends at 50 now: .*=false"):
        job.run()


def test_a_topic_made_anew_is_data_loss_after_a_restart(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    make_topic(data, 100, A)
    for fails in ("true", "false"):
        directory = tmp_path / fails
        make_topic(data, 100, A)
        Job(spark, data, directory, subscribe="t").run()
        make_topic(data, 250, B)
        job = Job(spark, data, directory, subscribe="t", failOnDataLoss=fails)
        assert job.checkpoint == [{"t": {"0": 100}, f"kfs:t?topicId={A}&leaderEpochs=0:0": {}}]
        if fails == "true":
            with pytest.raises(Exception, match=f"DataLoss: topic t was deleted and re-created: .*{A}.*{B}"):
                job.run()
            assert job.offsets() == list(range(100))
        else:
            job.run()
            assert sorted(job.offsets()) == sorted([*range(100), *range(250)])
            assert job.checkpoint[-1] == {"t": {"0": 250}, f"kfs:t?topicId={B}&leaderEpochs=0:0": {}}


def test_a_topic_made_anew_under_a_running_query_is_data_loss(
    spark: SparkSession, data: Path, tmp_path: Path, queries: list[StreamingQuery]
) -> None:
    make_topic(data, 100, A)
    job = Job(spark, data, tmp_path, subscribe="t")
    queries.append(job.start(processingTime="0 seconds"))
    queries[0].processAllAvailable()
    make_topic(data, 250, B)
    with pytest.raises(
        Exception, match=rf"DataLoss: (topic t was deleted and re-created: .*{A}.*{B}|partitions t-0 are)"
    ):
        queries[0].awaitTermination(120)
    assert job.offsets() == list(range(100))


def test_a_first_micro_batch_that_is_done_again_loses_nothing(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    job = Job(spark, data, tmp_path, subscribe="t", startingOffsets="latest")
    job.run()
    assert job.checkpoint == [{"t": {"0": 100}}]
    for file in (tmp_path / "checkpoint" / "commits").iterdir():
        file.unlink()  # as if the driver had died before it was done
    append(data, 100, 109)
    job.run()
    assert job.checkpoint == [{"t": {"0": 100}}, {"t": {"0": 110}}]
    assert job.offsets() == list(range(100, 110))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "x"}, r"NotFound: no topic 'x' in .*; the topics there: t"),
        (
            {"subscribe": "t", "endingOffsets": "latest"},
            "InvalidOption: option 'endingOffsets' is not valid in streaming",
        ),
        (
            {"subscribe": "t", "startingOffsets": '{"t":{"0":1000}}'},
            "DataLoss: the log of t-0 ended at 1000 and ends at",
        ),
    ],
)
def test_an_error_of_a_query_has_one_sentence(
    options: dict[str, str], sentence: str, spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=sentence) as error:
        Job(spark, data, tmp_path, **options).run()
    assert "UnboundLocalError" not in str(error.value)  # Spark's own, where a reader can't be made


def test_a_corrupt_batch_stops_a_query_with_one_sentence(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    segment = data / "t-0" / log_name(0)
    log = bytearray(segment.read_bytes())
    log[70] ^= 1
    segment.write_bytes(log)
    with pytest.raises(Exception, match=r"CorruptData: .*\.log: position 0: record batch with stored CRC"):
        Job(spark, data, tmp_path, subscribe="t").run()


def test_once_ignores_the_limit_as_it_should(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    job = Job(spark, data, tmp_path, subscribe="t", maxOffsetsPerTrigger=40)
    job.run(once=True)
    assert job.offsets() == list(range(100))
    assert len(job.checkpoint) == 1


def test_a_running_query_reads_what_is_appended(
    spark: SparkSession, data: Path, tmp_path: Path, queries: list[StreamingQuery]
) -> None:
    job = Job(spark, data, tmp_path, subscribePattern=".", startingOffsets="latest")
    queries.append(job.start(processingTime="0 seconds"))
    queries[0].processAllAvailable()
    append(data, 100, 109)
    write_partition(data / "u-0", {0: dense(0, 4)})
    _wait_for_more(queries[0], {"t": {"0": 110}, "u": {"0": 5}})
    queries[0].stop()
    assert job.offsets() == list(range(100, 110)) + list(range(5))
    append(data, 110, 114)
    job.run()
    assert job.offsets() == list(range(100, 115)) + list(range(5))


def _wait_for_more(query: StreamingQuery, end: object) -> None:
    """Wait until a query has come so far; what is new may be seen a moment late."""
    for _ in range(100):
        query.processAllAvailable()
        progress = query.lastProgress
        if progress is not None and json.loads(progress.sources[0].endOffset) == end:
            return
    raise AssertionError(f"the query came to {query.lastProgress}")
