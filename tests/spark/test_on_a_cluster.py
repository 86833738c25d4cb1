"""The same jobs on a standalone cluster of one master and two workers, with an executor killed in the middle."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.corpus import corpus_names
from tests.logs import dense, log_name, write_partition
from tests.recorded_damage import DAMAGED, CorpusPath
from tests.scan.scanning import Row, expected_rows
from tests.servers.spark_cluster import SparkCluster, small_executors
from tests.spark.export.exports import exported
from tests.spark.test_source import topics_of
from tests.spark.test_unusable_workers import OTHER_VERSION

_SECONDS: Final = 240
#: Records of which each takes 10 ms, on two cores: an executor is killed after some of them.
_RECORDS: Final = 600
_SOME: Final = 40
Rows = list[Row]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster")).start()
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topics t and u: 0 to 599, in two segments each."""
    half = _RECORDS // 2
    for name in ("t-0", "u-0"):
        segments = {0: dense(0, half - 1), half: dense(half, _RECORDS - 1)}
        write_partition(tmp_path / "logs" / "data" / name, segments)
    return tmp_path / "logs" / "data"


class Driver:
    """A driver in a process of its own."""

    def __init__(self, cluster: SparkCluster, work: Path, command: Sequence[str]) -> None:
        self._cluster = cluster
        self._work = work
        self._process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def output(self) -> str:
        """Return what it has said when it has ended."""
        text, _ = self._process.communicate(timeout=_SECONDS)
        return text

    def rows(self) -> Rows:
        """Return what it has read when it has ended."""
        text = self.output()
        assert self._process.returncode == 0, text[-6000:]
        rows: Rows = pickle.loads((self._work / "rows").read_bytes())
        return rows

    def kill_executor(self) -> None:
        """Kill an executor as soon as some records are done."""
        marks = self._work / "marks"
        self.kill_executor_when(lambda: marks.is_dir() and len(os.listdir(marks)) >= _SOME)

    def kill_executor_when(self, is_time: Callable[[], bool]) -> None:
        """Kill an executor as soon as it is time, and before the job is done."""
        until = time.monotonic() + _SECONDS
        while not is_time():
            assert self._process.poll() is None, self.output()[-6000:]
            assert time.monotonic() < until
            time.sleep(0.02)
        self._cluster.kill_executor()
        assert self._process.poll() is None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def running(cluster: SparkCluster, work: Path, command: Sequence[str]) -> Iterator[Driver]:
    """Run Python as a driver."""
    work.mkdir(exist_ok=True)
    started = Driver(cluster, work, command)
    try:
        yield started
    finally:
        started.close()


@contextmanager
def driver(cluster: SparkCluster, work: Path, data: Path, topics: str, *job: str) -> Iterator[Driver]:
    """Run a job of :mod:`tests.spark.cluster_job`."""
    arguments = [cluster.master, str(work), str(data), topics, *job]
    with running(cluster, work, ["-m", "tests.spark.cluster_job", *arguments]) as started:
        yield started


def offsets_of(rows: Rows) -> list[tuple[str, int]]:
    return [(row["topic"], row["offset"]) for row in rows]


EVERY_RECORD: Final = [(topic, offset) for topic in ("t", "u") for offset in range(_RECORDS)]


def test_a_batch_on_a_cluster_is_what_kafka_itself_reads(
    cluster: SparkCluster, corpus: CorpusPath, tmp_path: Path
) -> None:
    data = corpus("b_txn") / "data"
    with driver(cluster, tmp_path / "work", data, topics_of(data), "batch") as job:
        assert job.rows() == expected_rows(corpus("b_txn"))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["batch", "available-now"])
@pytest.mark.parametrize("name", [name for name in corpus_names() if name != DAMAGED])
def test_every_corpus_is_what_kafka_itself_reads(
    name: str, kind: str, cluster: SparkCluster, corpus: CorpusPath, tmp_path: Path
) -> None:
    data = corpus(name) / "data"
    if not (topics := topics_of(data)):
        pytest.skip("nothing to be read")
    with driver(cluster, tmp_path / "work", data, topics, kind) as job:
        assert job.rows() == expected_rows(corpus(name))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["batch", "available-now"])
def test_an_executor_that_is_killed_costs_no_record(
    kind: str, cluster: SparkCluster, data: Path, tmp_path: Path
) -> None:
    with driver(cluster, tmp_path / "work", data, "t,u", kind, "--dawdle") as job:
        job.kill_executor()
        assert offsets_of(job.rows()) == EVERY_RECORD


@pytest.mark.long
def test_a_log_that_grows_is_followed_while_executors_are_killed(
    cluster: SparkCluster, data: Path, tmp_path: Path
) -> None:
    until = _RECORDS + 400
    last = data / "t-0" / log_name(_RECORDS // 2)
    everything = str(until + _RECORDS)
    with driver(cluster, tmp_path / "work", data, "t,u", "follow", "--dawdle", "--offsets", everything) as job:
        job.kill_executor()
        for first in range(_RECORDS, until, 100):
            with last.open("ab") as log:
                log.writelines(each.data for each in dense(first, first + 99))
            time.sleep(0.5)
        job.kill_executor()
        found = offsets_of(job.rows())
    assert found == [("t", offset) for offset in range(until)] + [("u", offset) for offset in range(_RECORDS)]


@pytest.mark.long
def test_a_path_that_executors_do_not_see_is_named(cluster: SparkCluster, data: Path, tmp_path: Path) -> None:
    with driver(cluster, tmp_path / "work", data, "t,u", "gone") as job:
        text = job.output()
    [sentence] = {line for line in text.splitlines() if "UnusableSource: " in line and not line.startswith(" ")}
    assert f"{data}" in sentence
    assert "every executor has to see the log directories under the same path" in sentence


@pytest.mark.long
def test_an_executor_without_pyarrow_says_so(cluster: SparkCluster, data: Path, tmp_path: Path) -> None:
    stand_in = tmp_path / "lacking" / "pyarrow.py"
    stand_in.parent.mkdir()
    stand_in.write_text("raise ModuleNotFoundError(\"No module named 'pyarrow'\", name='pyarrow')\n")
    lacking = ["--conf", f"spark.executorEnv.PYTHONPATH={stand_in.parent}"]
    with driver(cluster, tmp_path / "work", data, "t,u", "batch", *lacking) as job:
        lines = job.output().strip().splitlines()
    assert lines[-1] == "ModuleNotFoundError: No module named 'pyarrow'"


@pytest.mark.long
def test_an_executor_of_another_python_says_so(cluster: SparkCluster, data: Path, tmp_path: Path) -> None:
    begin = tmp_path / "other" / "sitecustomize.py"
    begin.parent.mkdir()
    begin.write_text(OTHER_VERSION)
    other = ["--conf", f"spark.executorEnv.PYTHONPATH={begin.parent}"]
    with driver(cluster, tmp_path / "work", data, "t,u", "batch", *other) as job:
        text = job.output()
    assert re.search(r"\[PYTHON_VERSION_MISMATCH\] .*: 3\.8 than that in driver: 3\.\d+", text)


@pytest.mark.long
def test_an_export_has_every_record_once_whatever_becomes_of_executors(
    cluster: SparkCluster, data: Path, tmp_path: Path
) -> None:
    dataset = tmp_path / "dataset"
    settings = [f"--conf={name}={value}" for name, value in small_executors().items()]
    limits = ["--max-records=40", "--master", cluster.master]
    with running(cluster, tmp_path, ["-m", "kfs", "export", str(data), str(dataset), *limits, *settings]) as job:
        job.kill_executor_when(lambda: len(list(dataset.glob("topic=*/date=*/*.parquet"))) >= 4)
        text = job.output()
    assert "1,200 records" in text
    assert Counter(offsets_of(exported(dataset))) == Counter(EVERY_RECORD)
