"""Lines of JSON that a real mount serves, read by Spark: the same rows as the data source has."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import kfs.spark
from kfs.format.codecs import Codec
from kfs.format.record import Record
from tests.corpus import corpus_names
from tests.logs import START, batches, dense, log_name, write_partition
from tests.recorded_damage import DAMAGED, CorpusPath
from tests.scan.scanning import expected_rows, row_of
from tests.spark.test_source import EVERY_SOUND_CORPUS, load, rows_of, topics_of
from tests.system.kafka_mount import KafkaMount
from tests.system.kafka_mount import kfs as kfs_command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.fuse

Mount = Callable[..., Path]
THREE_WAYS = Path(__file__).parents[2] / "mount_examples" / "three_ways.py"


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Return the function that mounts a log directory and returns where."""
    made: list[KafkaMount] = []

    def mount_at(source: Path, *options: str) -> Path:
        made.append(KafkaMount(tmp_path / f"mnt{len(made)}", source, options=options))
        made[-1].start()
        return made[-1].point

    yield mount_at
    for mounted in made:
        mounted.discard()


@pytest.fixture
def small_splits(spark: SparkSession) -> Iterator[None]:
    """Files are read in parts of a few kilobytes."""
    small = {"spark.sql.files.maxPartitionBytes": "4k", "spark.sql.files.openCostInBytes": "0"}
    for name, value in small.items():
        spark.conf.set(name, value)
    yield
    for name in small:
        spark.conf.unset(name)


def restored(spark: SparkSession, point: Path, *topics: str) -> DataFrame:
    """Return what is in a mount, in all topics or in some."""
    segments = [f"{point}/{topic}/*/segment/*.jsonl" for topic in topics or ("*",)]
    return kfs.spark.from_json_lines(spark.read.schema(kfs.spark.json_schema).json(segments), include_headers=True)


@EVERY_SOUND_CORPUS
def test_a_mounted_corpus_is_what_kafka_itself_reads(
    name: str, spark: SparkSession, corpus: CorpusPath, mount: Mount
) -> None:
    assert rows_of(restored(spark, mount(corpus(name) / "data"))) == expected_rows(corpus(name))


@pytest.mark.usefixtures("small_splits")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) for name in corpus_names() if name != DAMAGED]
)
def test_it_is_the_same_where_files_are_split(name: str, spark: SparkSession, corpus: CorpusPath, mount: Mount) -> None:
    assert rows_of(restored(spark, mount(corpus(name) / "data"))) == expected_rows(corpus(name))


def every_kind(offset: int) -> Record:
    """Return records of which one in seven is a tombstone, others have bytes, no key, headers or hardly any time."""
    key = [b"key", None, b"\xff\x00", "klíč".encode(), b"", b'"\\\n', b"gone"][offset % 7]
    value = [b"v" * (offset % 300), b"\x80\xfe", b"", "\u2028\U0001f600".encode(), b"null", b'{"a":"\\n"}', None]
    headers = [(), ((b"h", b"1"), (b"h", None)), ((b"\xff", b"\xfe"), ("ž".encode(), b""))][offset % 3]
    return Record(offset, START + offset if offset % 11 else 0, key, value[offset % 7], headers)


@pytest.mark.usefixtures("small_splits")
def test_a_large_file_is_read_in_parts(spark: SparkSession, tmp_path: Path, mount: Mount) -> None:
    records = [every_kind(offset) for offset in range(2000)]
    content = [one for at in range(0, 2000, 50) for one in batches(records[at : at + 50], codec=Codec.LZ4)]
    write_partition(tmp_path / "data" / "t-0", {0: content})
    frame = restored(spark, mount(tmp_path / "data"))
    assert frame.rdd.getNumPartitions() > 50
    found = rows_of(frame)
    assert found == [row_of("t", 0, record) for record in records]
    source = load(spark, tmp_path / "data", subscribe="t", includeHeaders="true")
    assert frame.dtypes == source.dtypes
    assert found == rows_of(source)


def test_damage_fails_or_is_left_out(spark: SparkSession, tmp_path: Path, mount: Mount) -> None:
    directory = write_partition(tmp_path / "data" / "t-0", {0: dense(0, 49), 50: dense(50, 99)})
    log = bytearray((directory / log_name(0)).read_bytes())
    log[70] ^= 1  # in the first batch, of five
    (directory / log_name(0)).write_bytes(log)
    with pytest.raises(Exception, match="Input/output error"):
        restored(spark, mount(tmp_path / "data")).collect()
    kept = rows_of(restored(spark, mount(tmp_path / "data", "--on-damage", "skip")))
    assert [row["offset"] for row in kept] == list(range(5, 100))


def test_topics_with_an_underscore_are_not_hidden(spark: SparkSession, tmp_path: Path, mount: Mount) -> None:
    for name in ("t-0", "_internal-0"):
        write_partition(tmp_path / "data" / name, {0: dense(0, 9)})
    assert topics_of(tmp_path / "data") == "_internal,t"
    point = mount(tmp_path / "data")
    assert {row["topic"] for row in rows_of(restored(spark, point))} == {"_internal", "t"}
    assert len(rows_of(restored(spark, point, "_internal"))) == 10


def test_the_example_has_one_answer_from_three_sources(
    spark: SparkSession, tmp_path: Path, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What mount_examples/three_ways.py finds in the log directory, a mount, an export; its script is a long test."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    assert kfs_command("demo", data).returncode == 0
    kfs.spark.export(spark, str(data), str(lake), topics=["orders"])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(THREE_WAYS))["main"](str(data), str(mount(data)), str(lake))
    answers = {(tmp_path / f"by-{source}.csv").read_text() for source in ("source", "mount", "dataset")}
    assert len(answers) == 1
    assert "\n2020-11-24,85,15177.75\n" in answers.pop()
