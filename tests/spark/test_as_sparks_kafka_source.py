"""Option by option the same as Spark's own Kafka source, on a real broker that holds the same data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.broker.real_broker import RealBroker
from tests.logs import START, dense, write_partition
from tests.requirements import need_kafka
from tests.spark.test_source import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.long

CorpusPath = Callable[[str], Path]


@dataclass(frozen=True, slots=True)
class Both:
    """A session, and the two sources of the same data."""

    spark: SparkSession
    broker: RealBroker

    def kafka(self, options: dict[str, str]) -> DataFrame:
        """Return what Spark's Kafka source reads."""
        servers = f"127.0.0.1:{self.broker.port}"
        return self.spark.read.format("kafka").options(**{"kafka.bootstrap.servers": servers, **options}).load()

    def kfs(self, options: dict[str, str]) -> DataFrame:
        """Return what kfs reads."""
        servers = f"127.0.0.1:{self.broker.port}"
        reader = self.spark.read.format("kfs").options(**{"kafka.bootstrap.servers": servers, **options})
        return reader.load(str(self.broker.data))

    def stream(self, format_name: str, directory: Path, options: dict[str, str]) -> list[Any]:
        """Run a streaming query to its end; return the offsets that are in its checkpoint."""
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{self.broker.port}", **options}
        if format_name == "kfs":
            given["path"] = str(self.broker.data)
        rows = self.spark.readStream.format(format_name).options(**given).load()
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(directory / "out"))
        try:
            assert query.awaitTermination(200)
        finally:
            query.stop()
        files = (directory / "checkpoint" / "offsets").glob("[0-9]*")
        return [json.loads(file.read_text().splitlines()[2]) for file in sorted(files, key=lambda file: int(file.name))]


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, corpus: CorpusPath) -> Iterator[Both]:
    """A running broker: transactions, all codecs, headers, log starts above 0, several partitions."""
    root = tmp_path_factory.mktemp("both")
    write_partition(root / "t-0", {0: dense(0, 49), 50: dense(50, 99)})
    write_partition(root / "t-1", {30: dense(30, 39)})
    recorded = [corpus("b_txn") / "data" / f"ledger-{partition}" for partition in range(3)]
    recorded += sorted((corpus("a_v2") / "data").glob("shapes-*"))
    directories = [root / "t-0", root / "t-1", *recorded]
    broker = RealBroker.make(root / "broker", need_kafka(), {})
    broker.take_over(directories, {"empty": 1})
    with broker.running():
        yield Both(spark, broker)


def offsets(**topics: dict[int, int]) -> str:
    return json.dumps(topics)


ALL = {"subscribe": "t,ledger,shapes"}
T = {"subscribe": "t"}
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}


@pytest.mark.parametrize(
    "options",
    [
        ALL,
        {**ALL, "includeHeaders": "true"},
        {**ALL, "kafka.isolation.level": "read_committed"},
        {**ALL, "minPartitions": "7"},
        {**ALL, "maxRecordsPerPartition": "9"},
        {**ALL, "MINPARTITIONS": "7", "IncludeHeaders": "TRUE"},
        {"subscribe": " t , empty "},
        {"subscribe": "empty"},
        {"subscribePattern": "t"},
        {"subscribePattern": "l.*r|^t$"},
        {"subscribePattern": "nothing"},
        {"subscribePattern": ".*"},
        {"assign": '{"t":[1],"ledger":[0,2]}'},
        {"assign": '{"t":[0,9]}'},
        {**T, "startingOffsets": "earliest", "endingOffsets": "latest"},
        {**T, "startingOffsets": "EARLIEST"},
        {**T, "startingOffsets": offsets(t={0: 20, 1: -2}), "endingOffsets": offsets(t={0: 30, 1: -1})},
        {**T, "startingOffsets": offsets(t={0: 13, 1: 33}), "endingOffsets": offsets(t={0: 13, 1: 35})},
        {**T, "startingTimestamp": str(START + 35_000)},
        {**T, "startingTimestamp": str(START + 35_000), "startingOffsets": offsets(t={0: 0, 1: 30})},
        {**T, "startingTimestamp": str(START + 90_000), **LATEST},
        {**T, "startingTimestamp": str(START + 10_000), "endingTimestamp": str(START + 34_500)},
        {**T, "endingTimestamp": str(START + 500_000)},
        {**T, "startingOffsetsByTimestamp": offsets(t={0: START + 90_000, 1: START + 31_000})},
        {**T, "endingOffsetsByTimestamp": offsets(t={0: START + 20_000, 1: START})},
        {
            **T,
            "startingOffsetsByTimestamp": offsets(t={0: START, 1: START}),
            "endingOffsetsByTimestamp": offsets(t={0: START + 9_000, 1: START + 38_000}),
            "endingOffsets": offsets(t={0: 1, 1: 31}),
        },
        {**T, "startingOffsets": offsets(t={0: 90, 1: 0}), "failOnDataLoss": "false"},
        {**T, "endingOffsets": offsets(t={0: 500, 1: 31}), "failOnDataLoss": "false"},
        {**T, "maxOffsetsPerTrigger": "3", "kafka.max.poll.records": "5", "fetchOffset.numRetries": "2"},
        {**T, "kafka.group.id": "g", "groupIdPrefix": "p", "kafkaConsumer.pollTimeoutMs": "60000"},
        {**T, "minOffsetsPerTrigger": "3", "maxTriggerDelay": "9m"},
    ],
    ids=str,
)
def test_the_rows_and_the_schema_are_the_same(options: dict[str, str], both: Both) -> None:
    kafka, ours = both.kafka(options), both.kfs(options)
    assert ours.schema == kafka.schema
    assert rows_of(ours) == rows_of(kafka)


#: The exceptions of Spark's source for a kind of error, and ours.
OPTION = (
    "IllegalArgumentException|NumberFormatException|NoSuchElementException|start offsets don't match",
    "InvalidOption",
)
NO_TOPIC = ("UnknownTopicOrPartitionException", "NotFound")
BEHIND = (
    "The resolved start offset .* is greater than the resolved end offset",
    "InvalidOption: the resolved start off",
)
LOSS = ("KafkaIllegalStateException|OffsetOutOfRange|failOnDataLoss", "DataLoss")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, OPTION),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, OPTION),
        ({"subscribe": ""}, OPTION),
        ({"subscribe": " , "}, OPTION),
        ({"subscribePattern": " "}, OPTION),
        ({"assign": "t"}, OPTION),
        ({"assign": "{t"}, OPTION),
        ({**T, "startingOffsets": "latest"}, OPTION),
        ({**T, "endingOffsets": "earliest"}, OPTION),
        ({**T, "startingOffsets": offsets(t={0: -1, 1: 30})}, OPTION),
        ({**T, "endingOffsets": offsets(t={0: -2, 1: 30})}, OPTION),
        ({**T, "startingOffsets": offsets(t={0: 3})}, OPTION),
        ({**T, "startingOffsets": offsets(t={0: 3, 1: 30}, u={0: 1})}, OPTION),
        ({**T, "startingOffsets": "{x"}, OPTION),
        ({**T, "startingTimestamp": "yesterday"}, OPTION),
        ({**T, "startingTimestamp": str(START + 500_000)}, OPTION),
        ({**T, "startingTimestamp": str(START + 500_000), "startingOffsetsByTimestampStrategy": "x"}, OPTION),
        ({**T, "startingOffsets": offsets(t={0: 9, 1: 30}), "endingOffsets": offsets(t={0: 8, 1: 30})}, OPTION),
        ({**T, "minPartitions": "0"}, OPTION),
        ({**T, "minPartitions": "many"}, OPTION),
        ({**T, "maxRecordsPerPartition": "0"}, OPTION),
        ({**T, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, OPTION),
        ({**T, "kafka.auto.offset.reset": "earliest"}, OPTION),
        ({**T, "kafka.key.deserializer": "x"}, OPTION),
        ({**T, "kafka.value.deserializer": "x"}, OPTION),
        ({**T, "kafka.enable.auto.commit": "true"}, OPTION),
        ({**T, "kafka.interceptor.classes": "x"}, OPTION),
        ({**T, "failOnDataLoss": "perhaps"}, OPTION),
        ({**T, "includeHeaders": "perhaps"}, OPTION),
        ({**T, "kafka.isolation.level": "none"}, ("ConfigException|isolation.level", "InvalidOption")),
        ({"subscribe": "missing"}, NO_TOPIC),
        ({"assign": '{"missing":[0]}'}, NO_TOPIC),
        ({**T, "startingOffsets": offsets(t={0: 90, 1: 0})}, LOSS),
        ({**T, "endingOffsets": offsets(t={0: 500, 1: 31})}, LOSS),
        *(
            ({**T, **ends, "failOnDataLoss": fails}, BEHIND)
            for fails in ("true", "false")
            for ends in (
                {"startingOffsets": offsets(t={0: 500, 1: 31})},
                {"startingOffsets": offsets(t={0: 0, 1: 41})},
                {"startingOffsets": offsets(t={0: 50, 1: 31}), "endingTimestamp": str(START + 31_000)},
                {"startingTimestamp": str(START + 35_000), "endingOffsets": offsets(t={0: 20, 1: 40})},
                {"endingOffsets": offsets(t={0: 20, 1: 20})},
            )
        ),
    ],
    ids=str,
)
def test_the_error_is_of_the_same_kind(options: dict[str, str], kind: tuple[str, str], both: Both) -> None:
    with pytest.raises(Exception) as error:
        both.kafka(options).collect()
    assert re.search(kind[0], f"{type(error.value).__name__}: {error.value}")
    with pytest.raises(Exception, match=kind[1] if ": " in kind[1] else rf"{kind[1]}: .+"):
        both.kfs(options).collect()


@pytest.mark.parametrize(
    "limit",
    [{}, {"maxOffsetsPerTrigger": "40"}, {"minOffsetsPerTrigger": "1"}, {"endingTimestamp": str(START)}],  # ignored
    ids=str,
)
def test_a_stream_has_the_same_micro_batches(limit: dict[str, str], both: Both, tmp_path: Path) -> None:
    options = {**T, "startingOffsets": "earliest", **limit}
    found = {name: both.stream(name, tmp_path / name, options) for name in ("kafka", "kfs")}
    assert [without_identities(each) for each in found["kfs"]] == found["kafka"]
    rows = {name: rows_of(both.spark.read.parquet(str(tmp_path / name / "out"))) for name in found}
    assert rows["kfs"] == rows["kafka"]
    assert len(rows["kfs"]) == 110


def without_identities(topics: dict[str, Any]) -> dict[str, Any]:
    """Return the offsets alone, which is what Spark's source takes from a checkpoint of ours."""
    assert any(name.startswith("kfs:t?topicId=") for name in topics)
    return {topic: offsets for topic, offsets in topics.items() if not topic.startswith("kfs:")}


def test_a_job_moves_back_with_its_checkpoint(both: Both, tmp_path: Path) -> None:
    options = {**T, "startingOffsets": "earliest"}
    (found,) = both.stream("kfs", tmp_path, options)
    assert without_identities(found) == {"t": {"0": 100, "1": 40}}
    checkpoint = tmp_path / "checkpoint" / "offsets" / "0"
    lines = checkpoint.read_text().splitlines()
    (tmp_path / "checkpoint" / "offsets" / ".0.crc").unlink()
    checkpoint.write_text("\n".join([*lines[:2], json.dumps({**found, "t": {"0": 50, "1": 35}})]))
    both.stream("kafka", tmp_path, options)
    assert len(rows_of(both.spark.read.parquet(str(tmp_path / "out")))) == 110 + 50 + 5


def test_a_job_moves_over_with_its_checkpoint(both: Both, tmp_path: Path) -> None:
    half = offsets(t={0: 50, 1: 35})
    options = {**T, "startingOffsets": "earliest"}
    both.stream("kafka", tmp_path, options)
    checkpoint = tmp_path / "checkpoint" / "offsets" / "0"
    lines = checkpoint.read_text().splitlines()
    assert json.loads(lines[2]) == {"t": {"0": 100, "1": 40}}
    (tmp_path / "checkpoint" / "offsets" / ".0.crc").unlink()
    checkpoint.write_text("\n".join([*lines[:2], half]))  # as if it had been stopped there
    both.stream("kfs", tmp_path, options)
    rows = rows_of(both.spark.read.parquet(str(tmp_path / "out")))
    assert len(rows) == 110 + 50 + 5
    assert [row["offset"] for row in rows if row["partition"] == 1] == sorted([*range(30, 40), *range(35, 40)])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingOffsetsByTimestamp", offsets(t={0: START, 1: START})),
    ],
)
def test_a_stream_takes_no_end(option: str, value: str, both: Both, tmp_path: Path) -> None:
    for name, kind in (("kafka", "not valid in streaming"), ("kfs", "InvalidOption: .*not valid in streaming")):
        with pytest.raises(Exception, match=kind):
            both.stream(name, tmp_path / name, {**T, option: value})
