"""The benchmark of our own front, with few records: does it still run, and do all four show the same?"""

from __future__ import annotations

import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from benchmarks.front import Measurement, main, make_files, measure, parse
from tests.requirements import need_fuse

pytestmark = pytest.mark.fuse

RECORDS, READS = 250, 40
TASKS = ("random cat, one process", "the same again, warm", "grep -r", "find -newermt", "ls -l")
SIZES = [f"--records={RECORDS}", f"--reads={READS}", "--repeat=1"]


@pytest.fixture(scope="module")
def _compiler() -> None:
    need_fuse()
    if shutil.which("cc") is None or shutil.which("pkg-config") is None:
        pytest.skip("there is no C compiler, or no pkg-config")
    if subprocess.run(["pkg-config", "--exists", "fuse3"], check=False).returncode != 0:
        pytest.skip("there are no headers of libfuse 3")


@pytest.fixture(scope="module")
def measured(_compiler: None, tmp_path_factory: pytest.TempPathFactory) -> list[Measurement]:
    files = make_files(tmp_path_factory.mktemp("front"), RECORDS)
    assert len(files.lines.read_bytes().splitlines()) == RECORDS
    return list(measure(files, parse([*SIZES, "--unpinned"])))


def test_every_task_is_measured_on_every_variant(measured: list[Measurement]) -> None:
    assert {(each.task, each.variant) for each in measured} == set(product(TASKS, ("kfs", "C", "mfusepy", "tmpfs")))


def test_all_four_find_the_same(measured: list[Measurement]) -> None:
    for task in TASKS:
        assert len({each.result for each in measured if each.task == task}) == 1
    assert {each.result for each in measured if each.task == "ls -l"} == {RECORDS + 1}  # and the total


def test_only_reading_again_asks_nothing_of_kfs(measured: list[Measurement]) -> None:
    writes = {(each.task, each.variant): each.writes for each in measured}
    assert writes["the same again, warm", "kfs"] == 0
    assert writes["the same again, warm", "C"] > 0
    assert writes["random cat, one process", "kfs"] < writes["random cat, one process", "C"]


@pytest.mark.usefixtures("_compiler")
def test_the_tables_name_every_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*SIZES, "--pinned", "--listed=3000", f"--tmpfs={tmp_path}"])
    printed = capsys.readouterr().out
    assert all(f"\n{task} " in printed for task in TASKS)
    assert "first of 3000 entries, pinned: " in printed
    assert list(tmp_path.iterdir()) == []
