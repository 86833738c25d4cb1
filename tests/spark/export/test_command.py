"""``kfs export`` as a user starts it: a process with a JVM of its own, so few of these."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.logs import dense, log_name, positions, write_partition
from tests.requirements import need_java
from tests.servers.kept_classes import small_session
from tests.spark.export.exports import exported
from tests.system.kafka_mount import KFS, kfs


def small() -> list[str]:
    """Return what makes a session small."""
    settings = [f"--conf={name}={value}" for name, value in small_session().items()]
    return ["--master", "local[2]", *settings]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_partition(tmp_path / "data" / "t-0", {0: dense(0, 99), 100: dense(100, 199)})
    write_partition(tmp_path / "data" / "u-0", {0: dense(0, 9)})
    return tmp_path / "data"


def run(*arguments: object, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(KFS), "export", *map(str, arguments)]
    environment = {**os.environ, **(environment or {})}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def wait_until(is_so: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_it_exports_says_what_and_follows_until_it_is_told_to_stop(data: Path, tmp_path: Path) -> None:
    need_java()
    dataset = tmp_path / "dataset"
    done = run(data, dataset, "--topic", "t", "--json", *small())
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "records": 200,
        "files": 1,
        "bytes": sum(path.stat().st_size for path in dataset.rglob("*.parquet")),
        "batches": 1,
        "complete": True,
        "skipped": [],
        "partitions": [{"topic": "t", "partition": 0, "fromOffset": 0, "untilOffset": 200, "records": 200}],
    }
    command = [str(KFS), "export", str(data), str(dataset), "--topic", "t", "--follow", "--interval", "0.2", *small()]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for last in (204, 209):
        with (data / "t-0" / log_name(100)).open("ab") as log:
            log.writelines(one.data for one in dense(last - 4, last))
        wait_until(lambda last=last: len(exported(dataset)) == last + 1)  # type: ignore[misc]
    following.send_signal(signal.SIGINT)
    output, errors = following.communicate(timeout=60)
    assert following.returncode == 0, errors
    assert output.splitlines()[1].split("\t") == ["t", "0", "200", "210", "10"]
    assert errors.splitlines()[0] == "kfs: stopping after this batch"
    assert errors.splitlines()[1].startswith("kfs: 10 records in 2 files, ")
    assert [row["offset"] for row in exported(dataset)] == list(range(210))


def damage(data: Path) -> tuple[Path, int]:
    """Break a batch; return its file and position."""
    path = data / "t-0" / log_name(0)
    content = bytearray(path.read_bytes())
    position = positions(dense(0, 99))[7]
    content[position + 70] ^= 1
    path.write_bytes(content)
    return path, position


@pytest.mark.long
def test_damage_is_one_sentence(data: Path, tmp_path: Path) -> None:
    need_java()
    path, position = damage(data)
    done = run(data, tmp_path / "dataset", *small())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"kfs: {path}: position {position}: ")
    assert done.stderr.count("\n") == 1


def test_damage_that_is_skipped_is_said(data: Path, tmp_path: Path) -> None:
    need_java()
    path, position = damage(data)
    done = run(data, tmp_path / "dataset", "--on-damage", "skip", *small())
    assert done.returncode == 1
    assert [line.split("\t") for line in done.stdout.splitlines()] == [
        ["TOPIC", "PARTITION", "FROM-OFFSET", "UNTIL-OFFSET", "RECORDS"],
        ["t", "0", "0", "200", "195"],
        ["u", "0", "0", "10", "10"],
    ]
    assert done.stderr.startswith(f"kfs: {path}: position {position}: skipped ")
    assert "kfs: 205 records in 2 files, " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topic", "orders"), "no topic 'orders' in "),
        (("--store", "redis://localhost"), "needs the name of a group"),
        (("--table", "lake.t"), "of a format whose commits are atomic"),
        (("--spark-log", "/nowhere/at/all"), "/nowhere/at/all: No such file or directory"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(
    arguments: tuple[str, ...], message: str, data: Path, tmp_path: Path
) -> None:
    done = kfs("export", data, tmp_path / "dataset", *arguments)
    assert (done.returncode, done.stdout) == (1, b"")
    assert message in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert not (tmp_path / "dataset").exists()


def test_a_dataset_in_a_log_directory_is_refused(data: Path) -> None:
    done = kfs("export", data, data / "dataset")
    assert done.returncode == 1
    assert b"choose a directory outside of it" in done.stderr
    assert not (data / "dataset").exists()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"JAVA_HOME": "/nowhere"}, "Spark needs Java 17 or later, and JAVA_HOME=/nowhere has no bin/java"),
        ({"JAVA_HOME": "", "PATH": "/nowhere"}, "Spark needs Java 17 or later, and none was found"),
    ],
)
def test_a_missing_java_is_one_sentence(environment: dict[str, str], message: str, data: Path, tmp_path: Path) -> None:
    done = run(data, tmp_path / "dataset", environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"kfs: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("package", "message"), [("pyspark", "needs PySpark"), ("pyarrow", "need pyarrow")])
def test_a_missing_package_is_one_sentence(package: str, message: str, data: Path, tmp_path: Path) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from kfs.cli.main import main\n"
        f"main(['export', {str(data)!r}, {str(tmp_path / 'dataset')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("kfs: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.long
def test_it_runs_under_spark_submit(data: Path, tmp_path: Path) -> None:
    need_java()
    script = subprocess.run([sys.executable, "-m", "kfs.cli.spark_submit"], capture_output=True, text=True, check=True)
    submit = Path(sys.executable).parent / "spark-submit"
    command = [
        str(submit),
        "--master",
        "local[2]",
        script.stdout.strip(),
        str(data),
        str(tmp_path / "dataset"),
        "--json",
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["records"] == 210
    assert len(exported(tmp_path / "dataset")) == 210
