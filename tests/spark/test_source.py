"""The data source in Spark itself: what only a session shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import kfs.spark
from kfs.errors import UnusableSession
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.spark.session import check_python
from tests.corpus import corpus_names
from tests.logs import dense, log_name, write_partition
from tests.recorded_damage import DAMAGED, CorpusPath
from tests.scan.scanning import expected_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: test_planning reads every corpus without a session every day; here a few stand for it.
_EVERY_DAY = {"b_txn", "f_0.8.2.2"}
EVERY_SOUND_CORPUS = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in _EVERY_DAY else pytest.mark.long)
        for name in corpus_names()
        if name != DAMAGED
    ],
)
#: What cuts a batch into one task, 2, 7, and one for each batch of records.
SPLITS: list[dict[str, object]] = [{"maxPartitionBytes": 1 << 40}, {"minPartitions": 7}, {"maxPartitionBytes": 1}]


def load(spark: SparkSession, path: Path | str, **options: object) -> DataFrame:
    return spark.read.format("kfs").options(**{name: str(value) for name, value in options.items()}).load(str(path))


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Return rows by topic, partition and offset, timestamps as microseconds, bytes as bytes."""
    from pyspark.sql import functions as f

    found = frame.withColumn("timestamp", f.unix_micros("timestamp")).collect()
    rows = [row.asDict(recursive=True) for row in found]
    for row in rows:
        row.update({name: _bytes(row[name]) for name in ("key", "value") if name in row})
        for header in row.get("headers") or ():
            header["value"] = _bytes(header["value"])
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def topics_of(data: Path) -> str:
    return ",".join(DataDir([str(data)], Storage()).topics())


@EVERY_SOUND_CORPUS
def test_a_data_frame_is_what_kafka_itself_reads(name: str, spark: SparkSession, corpus: CorpusPath) -> None:
    data = corpus(name) / "data"
    frame = load(spark, data, subscribe=topics_of(data), includeHeaders="true", minPartitions=2)
    assert rows_of(frame) == expected_rows(corpus(name))


@pytest.mark.long
@EVERY_SOUND_CORPUS
@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_a_data_frame_is_the_same_for_every_split(
    name: str, split: dict[str, object], spark: SparkSession, corpus: CorpusPath
) -> None:
    data = corpus(name) / "data"
    frame = load(spark, data, subscribe=topics_of(data), includeHeaders="true", **split)
    assert rows_of(frame) == expected_rows(corpus(name))


@pytest.mark.parametrize("name", ["b_txn", pytest.param("b39_txn", marks=pytest.mark.long)])
def test_a_committed_data_frame_is_what_a_consumer_got(name: str, spark: SparkSession, corpus: CorpusPath) -> None:
    partitions = json.loads((corpus(name) / "consumed.json").read_text())["read_committed"]
    topics = ",".join(sorted({partition.rpartition("-")[0] for partition in partitions}))
    options = {"subscribe": topics, "kafka.isolation.level": "read_committed", "minPartitions": 3}
    found = rows_of(load(spark, corpus(name) / "data", **options, columns="topic,partition,offset,timestamp"))
    for partition, ranges in partitions.items():
        expected = [offset for first, last in ranges for offset in range(first, last + 1)]
        assert [row["offset"] for row in found if f"{row['topic']}-{row['partition']}" == partition] == expected


def test_it_is_found_without_being_registered_and_can_be_registered(spark: SparkSession, tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    assert load(spark, tmp_path, subscribe="t").count() == 10
    kfs.spark.register(spark)
    assert load(spark, tmp_path, subscribe="t").count() == 10


def test_a_schema_or_an_option_names_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    reader = spark.read.format("kfs").option("subscribe", "t")
    narrow = reader.schema("Offset bigint, value binary").load(str(tmp_path))
    assert narrow.columns == ["Offset", "value"]
    assert [(row.Offset, bytes(row.value)) for row in narrow.collect()] == [(at, b"value %d" % at) for at in range(10)]
    assert load(spark, tmp_path, subscribe="t", columns="offset,codec").first() == (0, "none")
    with pytest.raises(Exception, match="column 'value' is of type binary, not string: cast it in the query"):
        reader.schema("value string").load(str(tmp_path)).collect()


@pytest.fixture
def filters(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


#: How many of the two tasks are left.
CONDITIONS = {
    "offset >= 100": 1,
    "offset = 150 and partition = 0": 1,
    "partition in (1, 2)": 0,
    "timestamp >= timestamp'2023-11-14 22:15:10Z'": 1,
    "timestamp < timestamp'2023-11-14 22:15:10Z'": 2,
    "offset > 10 or offset < 3": 2,
    "cast(value as string) = 'value 150'": 2,
}


@pytest.mark.usefixtures("filters")
def test_filters_leave_out_what_cannot_match(spark: SparkSession, tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 99), 100: dense(100, 199)})
    plain = load(spark, tmp_path, subscribe="t", minPartitions=2).cache()
    source = load(spark, tmp_path, subscribe="t", minPartitions=2)
    unwilling = load(spark, tmp_path, subscribe="t", minPartitions=2, filterPushdown="false")
    assert unwilling.where("offset >= 100").rdd.getNumPartitions() == 2
    for condition, tasks in CONDITIONS.items():
        pushed = source.where(condition)
        assert rows_of(pushed) == rows_of(plain.where(condition)), condition
        # Spark has one task even where there is nothing to read.
        assert pushed.rdd.getNumPartitions() == max(tasks, 1), condition
    plain.unpersist()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "InvalidOption: one of these options has to be given: assign, subscribe, subscribePattern"),
        ({"subscribe": "x"}, r"NotFound: no topic 'x' in .*; the topics there: damaged, t"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "InvalidOption: the starting offset can't be latest"),
        ({"subscribe": "t", "endingOffsets": '{"t":{"0":99}}'}, "DataLoss: offsets 0 to 98 of t-0 are to be read"),
        ({"subscribe": "damaged"}, r"CorruptData: .*\.log: position 0: record batch with stored CRC"),
        (
            {"subscribe": "t", "startingOffset": "latest"},
            "InvalidOption: there is no option 'startingoffset': is it 's",
        ),
        ({"subscribe": "t", "startingOffsets": '{"t":{"0":99}}'}, "InvalidOption: the resolved start offset 99 is"),
    ],
)
def test_an_error_ends_in_one_sentence(
    options: dict[str, str], sentence: str, spark: SparkSession, tmp_path: Path
) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    log = write_partition(tmp_path / "damaged-0", {0: dense(0, 9)}) / log_name(0)
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)
    with pytest.raises(Exception) as error:
        load(spark, tmp_path, **options).collect()
    *_, last = str(error.value).strip().splitlines()
    if "SQLSTATE" in last:  # Spark's own, behind what the driver said
        *_, last, state = str(error.value).strip().splitlines()
        assert re.fullmatch(" *SQLSTATE: [0-9A-Z]{5}", state)
    assert re.match(rf"kfs\.errors\.{sentence}", last)


def test_a_path_that_executors_do_not_see_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write_partition(tmp_path / "data" / "t-0", {0: dense(0, 9)})
    planned = load(spark, tmp_path / "data", subscribe="t").rdd
    assert planned.getNumPartitions() == 1
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    with pytest.raises(Exception, match=r"UnusableSource: .*/data/t-0 is not there on .*: every executor has to see"):
        planned.collect()


def test_sql_reads_a_view_or_a_table_with_its_options_and_a_table_alone_says_how(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    kfs.spark.register(spark)
    given = f"path '{tmp_path}', subscribe 't'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW a_view USING kfs OPTIONS ({given})")
    assert spark.sql("SELECT count(*) FROM a_view").collect()[0][0] == 10
    spark.sql(f"CREATE TABLE a_table USING kfs OPTIONS ({given})")
    try:
        with_options = given.replace(" '", " = '")
        assert spark.sql(f"SELECT count(*) FROM a_table WITH ({with_options})").collect()[0][0] == 10
        with pytest.raises(Exception, match=r"InvalidOption: no options were received: .* CREATE TEMPORARY VIEW"):
            spark.sql("SELECT count(*) FROM a_table").collect()
    finally:
        spark.sql("DROP TABLE a_table")


def test_an_older_pyspark_is_told_which_one_is_needed(tmp_path: Path) -> None:
    (tmp_path / "pyspark" / "sql").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.5.7'")
    (tmp_path / "pyspark" / "sql" / "__init__.py").write_text("")
    program = "import kfs.spark; kfs.spark.register(None)"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        f"kfs.errors.UnusableSession: kfs needs PySpark 4.0 or later, and PySpark 3.5.7 is in {sys.prefix}: "
        "pip install 'kfs[spark]'"
    )


def test_a_machine_without_pyarrow_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnusableSession, match=r"pyarrow is missing from .*: pip install 'kfs\[spark\]'"):
        kfs.spark.register(spark)


def test_a_python_for_the_workers_that_cannot_run_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnusableSession, match="no-python, which isn't there: set PYSPARK_PYTHON="):
        check_python("no-python")
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho \"No module named 'kfs'\" >&2; exit 1\n")
    python.chmod(0o755)
    with pytest.raises(UnusableSession, match=r"can't run kfs \(No module named 'kfs'\): set PYSPARK_PYTHON="):
        check_python(str(python))
    python.write_text("#!/bin/sh\necho 2.7\n")
    with pytest.raises(UnusableSession, match=r"Python 2\.7, the driver 3"):
        check_python(str(python))


@pytest.mark.parametrize(
    ("name", "topics"), [("a_v2", "shapes,append_time"), pytest.param("f_mixed", "", marks=pytest.mark.long)]
)
def test_lines_of_json_are_the_same_rows(
    name: str, topics: str, spark: SparkSession, corpus: CorpusPath, tmp_path: Path
) -> None:
    data = corpus(name) / "data"
    topics = topics or topics_of(data)
    for topic in topics.split(","):
        with (tmp_path / f"{topic}.jsonl").open("wb") as out:
            subprocess.run([sys.executable, "-m", "kfs", "cat", str(data), topic], stdout=out, check=True)
    lines = spark.read.schema(kfs.spark.json_schema).json(f"{tmp_path}/*.jsonl")
    restored = kfs.spark.from_json_lines(lines, include_headers=True)
    source = load(spark, data, subscribe=topics, includeHeaders="true")
    assert restored.dtypes == source.dtypes
    assert rows_of(restored) == rows_of(source)
