"""The benchmark of Spark, with few records: does it still run, and do its contenders have the same answers?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

for needed in ("pyspark", "pyarrow", "matplotlib"):
    pytest.importorskip(needed, reason="needs kfs[benchmarks,spark]")

from benchmarks.bulk_report import report
from benchmarks.chart import SPARK_PANELS, draw
from benchmarks.measurement import Measurement
from tests.requirements import need_java


@pytest.mark.long
def test_every_group_is_measured(tmp_path: Path) -> None:
    need_java()
    options = ["--records=3000", "--rounds=1", "--codec=lz4", f"--directory={tmp_path / 'kept'}"]
    chart = tmp_path / "chart.svg"
    command = [sys.executable, "-m", "benchmarks.spark", *options, f"--chart={chart}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    ratios = [line.split("  ")[0] for line in run.stdout.splitlines() if " : " in line]
    assert ratios == [
        "kfs : Kafka connector",
        "kfs : limit",
        "kfs : Kafka connector",
        "kfs : limit",
        "kfs, columns=offset : kfs",
        "kfs, columns=offset : Kafka connector",
        "kfs.spark.export : Kafka connector",
        "kfs : Kafka connector",
        "mount : files",
        "mount, again : files",
    ]
    assert "Kafka connector" in chart.read_text()


def test_ratios_are_medians_of_those_within_a_round(tmp_path: Path) -> None:
    found = [
        Measurement("spark", "lz4", "kfs", 10, 2.0, 2.0, (1.0, 2.0, 30.0)),
        Measurement("spark", "lz4", "Kafka connector", 10, 4.0, 3.0, (2.5, 4.0, 90.0)),
    ]
    lines = [line.split() for line in report(found)]
    assert ["kfs", ":", "Kafka", "connector", "2.50"] in lines
    assert ["by", "CPU", "time", "1.50"] in lines
    draw(found, tmp_path / "chart.svg", SPARK_PANELS)
    assert "million records a second" in (tmp_path / "chart.svg").read_text()
