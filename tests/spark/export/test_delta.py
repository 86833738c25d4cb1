"""A real Delta table: killed between its commit and that of the positions, it has every record once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from benchmarks.maven_jars import fetched_jars
from tests.logs import dense, write_partition
from tests.requirements import need_jars, need_java


@pytest.mark.long
def test_a_batch_that_was_committed_and_not_stored_is_not_written_again(tmp_path: Path) -> None:
    import pyspark

    need_java()
    if not pyspark.__version__.startswith("4.2."):
        pytest.skip("this Delta is made for PySpark 4.2")
    jars = need_jars("Delta", lambda: fetched_jars(Path(__file__).with_name("delta.sha256")))
    write_partition(tmp_path / "data" / "t-0", {0: dense(0, 99), 100: dense(100, 199)})
    write_partition(tmp_path / "data" / "t-1", {0: dense(0, 9)})
    command = [
        sys.executable,
        "-m",
        "tests.spark.export.delta_job",
        str(jars),
        str(tmp_path / "data"),
        str(tmp_path / "table"),
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [120, 90, 0, 210, 210]
