"""The benchmark of freshness, over few changes: is each of them seen, and is the log what it is called?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kfs
from benchmarks.freshness import APPENDED, DELETED, HEAD, measure, parse
from benchmarks.growing_log import BATCH, GrowingLog

BATCHES, SEGMENTS = 30, 3


@pytest.mark.fuse
def test_every_change_is_seen_in_both_places(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    result = measure(tmp_path, parse([f"--batches={BATCHES}", f"--deleted={SEGMENTS}", "--interval=0.01", "--idle=0"]))
    assert {(each.change, each.place): len(each.seconds) for each in result.seen} == {
        (APPENDED, "mount"): BATCHES,
        (APPENDED, "source"): BATCHES,
        (DELETED, "mount"): SEGMENTS,
        (DELETED, "source"): SEGMENTS,
    }
    assert all(seconds > 0 for each in result.seen for seconds in each.seconds)
    assert all(len(each.row()) == len(HEAD) for each in result.seen)


def test_its_log_grows_and_loses_its_oldest_segment(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "logs/t-0", 4)
    for number in range(10):
        log.append()
        path, size = log.file_of(number)
        assert path.stat().st_size == size
    log.delete_oldest()
    log.close()
    with kfs.open(tmp_path / "logs") as data:
        assert [each.offset for each in data["t"][0].read()] == list(range(4 * BATCH, 10 * BATCH))
