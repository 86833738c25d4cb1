"""Workers of a real session that can't run the data source: what a user reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import kfs.spark
from kfs.errors import UnusableSession
from kfs.spark.source import KfsDataSource
from tests.logs import dense, write_partition
from tests.spark.test_source import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHER_VERSION = """
import collections, sys
version = collections.namedtuple("version", "major minor micro releaselevel serial")
sys.version_info = version(3, 8, *sys.version_info[2:])
"""


@pytest.fixture
def run_workers(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return the function that gives the session a Python that lacks a module, or begins by running some code.

    ``only`` says in which of Spark's Python processes it does.
    """

    def start_with(lacks: str | None = None, begin: str = "", only: str = "") -> None:
        modules = tmp_path / "modules"
        modules.mkdir()
        (modules / "sitecustomize.py").write_text(begin)
        if lacks is not None:
            missing = f"raise ModuleNotFoundError(\"No module named '{lacks}'\", name='{lacks}')"
            (modules / f"{lacks}.py").write_text(missing)
        python = tmp_path / "python3"
        python.write_text(
            f'#!/bin/sh\ncase "$*" in *"{only}") export PYTHONPATH={modules}:$PYTHONPATH;; esac\n'
            f'exec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
        monkeypatch.chdir(tmp_path)  # where no kfs is

    yield start_with
    monkeypatch.undo()
    kfs.spark.register(spark)  # what was registered is run by the Python of that moment


@pytest.mark.parametrize(
    ("worker", "sentence"),
    [
        ({"lacks": "kfs"}, r"can't run kfs \(ModuleNotFoundError: No module named 'kfs'\)"),
        ({"lacks": "pyarrow"}, r"can't run kfs \(ModuleNotFoundError: No module named 'pyarrow'\)"),
        ({"begin": OTHER_VERSION}, r"Python 3\.8, the driver 3\.\d+"),
    ],
    ids=["no kfs", "no pyarrow", "another version"],
)
def test_to_register_says_it(
    worker: dict[str, str], sentence: str, spark: SparkSession, run_workers: Callable[..., None]
) -> None:
    run_workers(**worker)
    with pytest.raises(UnusableSession, match=f"^Spark's workers run .*/python3, .*{sentence}: set PYSPARK_PYTHON="):
        kfs.spark.register(spark)


@pytest.mark.parametrize(
    ("worker", "sentence"),
    [
        ({"lacks": "pyarrow"}, "ModuleNotFoundError: No module named 'pyarrow'"),
        ({"begin": OTHER_VERSION}, r"\[PYTHON_VERSION_MISMATCH\] .*: 3\.8 than that in driver: 3\.\d+"),
    ],
    ids=["no pyarrow", "another version"],
)
def test_a_task_that_runs_elsewhere_says_it(
    worker: dict[str, str], sentence: str, spark: SparkSession, run_workers: Callable[..., None], tmp_path: Path
) -> None:
    write_partition(tmp_path / "data" / "t-0", {0: dense(0, 9)})
    run_workers(**worker, only="pyspark.daemon pyspark.worker")
    spark.dataSource.register(KfsDataSource)
    with pytest.raises(Exception, match=sentence):
        load(spark, tmp_path / "data", subscribe="t").collect()
