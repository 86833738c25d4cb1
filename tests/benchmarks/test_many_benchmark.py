"""The benchmark of very many partitions, over few: does each task still run, and are its logs what they are called?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kfs
from benchmarks.many import HEAD, rows
from benchmarks.many_logs import many_logs


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    many_logs(tmp_path / "logs", 2, 3, 2)
    return tmp_path / "logs"


def test_its_logs_are_intact(logs: Path) -> None:
    with kfs.open(logs) as data:
        counts = [[len(list(data[topic][partition].read())) for partition in range(3)] for topic in data]
    assert counts == [[6, 6, 6], [6, 6, 6]]
    names = [path.name for path in (logs / "topic000-0").iterdir()]
    assert all(os.stat(logs / "topic000-0" / name).st_nlink >= 3 for name in names)


@pytest.mark.fuse
def test_every_task_is_measured(logs: Path, tmp_path: Path) -> None:
    found = list(rows(logs, tmp_path, 1024))
    assert all(len(row) == len(HEAD) for row in found)
    assert [row[0] for row in found][:2] == ["mount", "ls"]
