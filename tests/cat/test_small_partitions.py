"""A partition smaller than a split is planned, read and listed by one process, and shown as any other."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.cat.records import CatRequest, CatTotals
from kfs.cli.places import places_of
from kfs.log import partition_directory, segment_files
from kfs.log.data_dir import DataDir
from kfs.log.problem import Problem
from kfs.log.segment_files import PartitionFiles
from kfs.log.storage import Storage
from kfs.read import plan
from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Selection
from kfs.storage.open_files import OpenFile
from tests.cat.printing import LINES, offsets_in, printed, written
from tests.logs import dense, log_name, positions, set_high_watermark, set_log_start, write_partition

JOBS = pytest.mark.parametrize("jobs", [1, 2])
CONTENT = {0: dense(0, 9), 10: dense(10, 19), 20: dense(20, 29)}
#: More than a small partition has, and less than a large one.
SPLIT_BYTES = 2000
SELECTIONS = [
    Selection(),
    Selection(start=7, end=24),
    Selection(since=1_700_000_012_000),
    Selection(keys=frozenset((b"no such key",))),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Small partitions (0, 2, 3) and a large one: 0 begins above offset 0, 2 has a broken batch, 3 is cut."""
    write_partition(tmp_path / "t-0", {base: CONTENT[base] for base in (10, 20)})
    write_partition(tmp_path / "t-1", {0: dense(0, 99), 100: dense(100, 199)}, interval=1)
    write_partition(tmp_path / "t-2", CONTENT)
    write_partition(tmp_path / "t-3", CONTENT)
    broken, cut = tmp_path / "t-2" / log_name(10), tmp_path / "t-3" / log_name(20)
    data = bytearray(broken.read_bytes())
    data[positions(CONTENT[10])[1] + 70] ^= 1
    broken.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-1])
    set_log_start(tmp_path, "t", 0, 12)
    return tmp_path


@JOBS
@pytest.mark.parametrize("selection", SELECTIONS, ids=["all", "offsets", "time", "nothing"])
@pytest.mark.parametrize("isolation", IsolationLevel)
@pytest.mark.usefixtures("eager_workers")
def test_small_ones_are_shown_as_if_they_were_cut(
    root: Path, selection: Selection, isolation: IsolationLevel, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[bytes, set[Problem]]] = []
    for split_bytes in (1, SPLIT_BYTES, 10**9):
        monkeypatch.setattr(plan, "SPLIT_BYTES", split_bytes)
        lines, problems = printed(root, "t", selection=selection, isolation=isolation, jobs=jobs)
        found.append((lines, set(problems)))
    assert found[1] == found[0]
    assert found[2] == found[0]
    assert (b'"offset":18' in found[0][0]) == (selection != SELECTIONS[-1])


@pytest.mark.usefixtures("eager_workers")
def test_offsets_that_may_be_in_remote_storage_are_a_problem(root: Path) -> None:
    set_log_start(root, "t", 0, 3)
    _, problems = printed(root, "t", 0)
    assert [problem.reason for problem in problems] == [
        "offsets 3 to 9 are not on this disk, but in remote storage, or they were deleted"
    ]


def test_a_directory_is_listed_once_and_each_file_opened_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_partition: Callable[..., PartitionFiles] = segment_files.list_partition
    listed: Counter[str] = Counter()
    opened: Counter[str] = Counter()
    opened_by = OpenFile._opened

    def counting(directory: str, *rest: object) -> PartitionFiles:
        listed[directory] += 1
        return list_partition(directory, *rest)

    def counted(self: OpenFile) -> object:
        opened[self.path] += 1
        return opened_by(self)

    for path in root.glob("t-*"):
        settle(path)
    monkeypatch.setattr(partition_directory, "list_partition", counting)
    monkeypatch.setattr(OpenFile, "_opened", counted)
    printed(root, "t", 0)
    assert listed == {str(root / "t-0"): 1}
    assert {path: count for path, count in opened.items() if path.endswith(".log")} == {
        str(root / "t-0" / log_name(base)): 1 for base in (10, 20)
    }


def settle(directory: Path) -> None:
    """Make a directory look as if it had not changed lately, when one listing doesn't suffice."""
    os.utime(directory, (1_700_000_000, 1_700_000_000))


def test_the_high_watermark_and_totals_are_for_the_process_that_plans(root: Path) -> None:
    """They need the log that was asked for, so its partitions aren't tasks as a whole."""
    set_high_watermark(root, "t", 0, 15)
    data_dir = DataDir([str(root)], Storage(), until_high_watermark=True)
    totals = CatTotals()
    problems = list(CatRequest(Selection(), None).write(1, places_of(data_dir, [], deleted=False), totals))
    assert totals.records["t/0"] == 3
    assert {problem.file for problem in problems} == {str(root / "t-2" / log_name(10))}
    data_dir.close()


@pytest.mark.usefixtures("eager_workers")
@JOBS
def test_what_is_appended_to_frozen_ones_is_not_printed(root: Path, jobs: int) -> None:
    data_dir = DataDir([str(root)], Storage())
    data_dir.freeze()
    for partition in (0, 2):
        with (root / f"t-{partition}" / log_name(20)).open("ab") as file:
            file.write(dense(30, 39)[0].data)
    for _ in range(5):  # any worker may get any task
        lines, _ = written(CatRequest(Selection(end=100), LINES, jobs=jobs), data_dir, "t")
        assert sorted(offset for offset in offsets_in(lines) if 30 <= offset < 40) == list(range(30, 40))  # of t-1
    data_dir.close()
