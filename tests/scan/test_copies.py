"""Processes of a scan read what one copy of a log has lost from another, as the one that asks them does."""

from __future__ import annotations

from pathlib import Path

import pytest

import kfs
from tests.logs import dense, log_name, positions, write_partition

pytestmark = pytest.mark.usefixtures("own_pool")


def test_processes_know_the_other_copies(tmp_path: Path) -> None:
    content = dense(0, 599, 10)
    for number, name in enumerate(("one", "two")):
        path = write_partition(tmp_path / name / "t-0", {0: content}) / log_name(0)
        data = bytearray(path.read_bytes())
        for position in positions(content)[number:50:2]:
            data[position + 70] ^= 1
        path.write_bytes(data)
    with kfs.open(tmp_path / "one", tmp_path / "two") as opened:
        table = opened["t"][0].scan(columns=["offset"], jobs=2).to_table()
    assert table["offset"].to_pylist() == list(range(600))
