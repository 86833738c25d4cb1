"""An export in Spark itself: jobs, the other formats, and what the session reads back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import kfs.spark
from kfs.errors import CorruptData, DataLoss, InvalidOption, KfsError, UnusableSession
from kfs.spark.exporting.export import ExportTotals, opened_export
from kfs.spark.exporting.frames import TableSink
from kfs.spark.exporting.jobs import SparkJobs, reason_of
from kfs.spark.exporting.options import BatchLimits, ExportOptions
from kfs.spark.exporting.tasks import TaskDone
from kfs.spark.offsets import ConsumedRange, StagedOutput
from kfs.spark.planning import Task
from tests.logs import batch, dense, log_name, positions, record, write_partition
from tests.recorded_damage import CorpusPath
from tests.scan.scanning import expected_rows
from tests.spark.export.exports import date_of, exported
from tests.spark.test_source import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


@pytest.fixture
def data(tmp_path: Path, eager: None) -> Path:
    """Two partitions of a topic: 200 and 10 records in batches of five, some without a timestamp."""
    odd = batch([record(200, timestamp=-1), record(201, timestamp=-2), record(202, timestamp=2**62)])
    write_partition(tmp_path / "data" / "t-0", {0: dense(0, 99), 100: [*dense(100, 199), odd]})
    write_partition(tmp_path / "data" / "t-1", {0: dense(0, 9)})
    return tmp_path / "data"


@pytest.mark.parametrize("name", ["b_txn", pytest.param("f_mixed", marks=pytest.mark.long)])
def test_spark_reads_what_kafka_itself_reads(
    name: str, spark: SparkSession, corpus: CorpusPath, tmp_path: Path
) -> None:
    expected = expected_rows(corpus(name))
    topics = sorted({row["topic"] for row in expected})
    for records in (None, len(expected) // 2 + 1):
        dataset = tmp_path / f"dataset{records}"
        totals = kfs.spark.export(spark, str(corpus(name) / "data"), str(dataset), topics=topics, max_records=records)
        assert totals.records == len(expected)
        assert exported(dataset) == expected
    found = spark.read.parquet(str(dataset))
    assert found.schema["date"].dataType.simpleString() == "date"
    assert rows_of(found.select(*COLUMNS)) == expected
    wrong = found.where("date <> to_date(timestamp)").count()
    assert wrong == 0


def test_a_task_that_fails_says_why_in_one_sentence(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    path = data / "t-0" / log_name(0)
    content = bytearray(path.read_bytes())
    content[positions(dense(0, 99))[7] + 70] ^= 1
    path.write_bytes(content)
    with pytest.raises(KfsError, match=rf"\A{path}: position \d+: .*CRC.*") as error:
        kfs.spark.export(spark, str(data), str(tmp_path / "dataset"))
    assert "\n" not in str(error.value)
    assert exported(tmp_path / "dataset") == []
    totals = kfs.spark.export(spark, str(data), str(tmp_path / "dataset"), on_damage="skip")
    assert (totals.records, len(totals.skipped)) == (208, 1)


class _Raises:
    """A task of which an executor makes something else."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self, _task: Task) -> TaskDone:
        raise self._error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (CorruptData("not a batch", 7, "f.log"), "f.log: position 7: not a batch"),
        (DataLoss("gone"), "gone"),
        (ModuleNotFoundError("No module named 'kfs'"), "an executor lacks what the driver has: No module named 'kfs'"),
        (MemoryError("no more"), r"Spark's job failed: MemoryError: no more"),
    ],
)
def test_whatever_a_task_raises_is_one_sentence(error: Exception, message: str, spark: SparkSession) -> None:
    with pytest.raises(KfsError, match=message) as raised:
        SparkJobs(spark).run([Task(())], _Raises(error), lambda done: None)
    assert "\n" not in str(raised.value)


def test_what_nobody_knows_is_one_sentence_too() -> None:
    assert str(reason_of(RuntimeError(""))) == "Spark's job failed: RuntimeError"
    assert str(reason_of(RuntimeError("first\nsecond"))) == "Spark's job failed: first"
    assert isinstance(reason_of(RuntimeError("x")), UnusableSession)


@pytest.mark.parametrize("file_format", [pytest.param("orc", marks=pytest.mark.long), "json"])
def test_files_of_other_formats_are_exported_once(
    file_format: str, spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    dataset = tmp_path / "dataset"
    options: dict[str, Any] = {"format": file_format, "max_records": 150}
    totals = kfs.spark.export(spark, str(data), str(dataset), **options)
    assert (totals.records, totals.batches) == (213, 2)
    assert kfs.spark.export(spark, str(data), str(dataset), **options).batches == 0
    write_partition(data / "t-2", {0: dense(0, 4)})
    assert kfs.spark.export(spark, str(data), str(dataset), **options).records == 5
    found = spark.read.format(file_format).load(str(dataset))
    names = found.groupBy("topic", "partition", "offset").count()
    assert names.count() == 218
    assert names.where("count > 1").count() == 0
    dates = {(row.partition, row.offset): row.date for row in found.select("partition", "offset", "date").collect()}
    expected = {0: "2023-11-14", 200: None, 201: "1969-12-31", 202: None}
    assert {offset: dates[0, offset] and str(dates[0, offset]) for offset in expected} == expected
    assert date_of(-2000) == "1969-12-31"
    files = [path.name for path in dataset.rglob(f"*.{file_format}") if not path.name.startswith((".", "_"))]
    assert totals.files < len(files)
    assert [path for path in (dataset / "_kfs" / "staging").rglob("*") if path.is_file()] == []


def test_a_format_that_the_session_does_not_have_is_one_sentence(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    for options in ({"format": "avro"}, {"format": "icecream"}, {"format": "icecream", "table": "lake.t"}):
        with pytest.raises(KfsError) as error:
            kfs.spark.export(spark, str(data), str(tmp_path / "dataset"), **options)
        assert "\n" not in str(error.value)
    with pytest.raises(InvalidOption, match="of a format whose commits are atomic"):
        kfs.spark.export(spark, str(data), str(tmp_path / "dataset"), table="lake.t")


def test_damage_is_told_of_other_formats_too(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    path = data / "t-0" / log_name(0)
    content = bytearray(path.read_bytes())
    position = positions(dense(0, 99))[7]
    content[position + 70] ^= 1
    path.write_bytes(content)
    with pytest.raises(KfsError, match=rf"{path}: position {position}: .*CRC"):
        kfs.spark.export(spark, str(data), str(tmp_path / "orc"), format="orc")
    totals = kfs.spark.export(spark, str(data), str(tmp_path / "orc"), format="orc", on_damage="skip")
    assert [(problem.file, problem.position) for problem in totals.skipped] == [(str(path), position)]
    assert totals.records == 208


class _Killed(BaseException):
    """Nothing after this is done."""


def test_a_table_that_is_ahead_of_the_positions_is_not_written_to_again(
    spark: SparkSession, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any table will do here: what is tested is the look into it. Real ones are in test_delta."""
    monkeypatch.setattr("kfs.spark.exporting.options.FILE_FORMATS", frozenset())
    options = ExportOptions(
        (str(data),), str(tmp_path / "own"), limits=BatchLimits(120), format="orc", table="of_this_test"
    )
    commit = StagedOutput.commit

    def killed_at_second_batch(output: StagedOutput, ranges: Sequence[ConsumedRange], *rest: Any) -> None:
        if any(each.from_offset for each in ranges):
            raise _Killed
        commit(output, ranges, *rest)

    def export_to_table() -> ExportTotals:
        with opened_export(options, TableSink(spark, options), 2) as exporting:
            exporting.reach(exporting.look())
            return exporting.totals

    try:
        monkeypatch.setattr(StagedOutput, "commit", killed_at_second_batch)
        with pytest.raises(_Killed):
            export_to_table()
        monkeypatch.undo()
        assert spark.table("of_this_test").count() == 213
        assert export_to_table().batches == 0
        write_partition(data / "t-2", {0: dense(0, 4)})
        assert export_to_table().records == 5
        table = spark.table("of_this_test")
        assert table.count() == table.select("topic", "partition", "offset").distinct().count() == 218
        assert rows_of(table.where("partition = 2").select(*COLUMNS))[0]["value"] == b"value 0"
    finally:
        spark.sql("DROP TABLE IF EXISTS of_this_test")
