"""Listings that meet what goes while they are made: they look again, and are neither short nor ended by it.

What would be a race is made to happen: the broker's next step is done in the midst of the look that it disturbs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kfs.tree.raw_dir
import kfs.tree.time_dirs
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.mount.kernel.prefetch import Prefetch
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.raw_dir import RawDirectory
from tests.log.test_while_a_broker_works import interrupt, rename_segment
from tests.logs import START, batch, dense, directory_at, log_name, names, open_tree, record, write_partition

pytestmark = pytest.mark.usefixtures("eager")

HOUR = 3_600_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three segments, each with the records of two hours of its own."""
    content = {
        base: [batch([record(base + at, timestamp=START + (base + at) * HOUR)]) for at in range(2)]
        for base in (0, 10, 20)
    }
    write_partition(tmp_path / "t-0", content)
    return tmp_path


def hours(root: Path) -> list[str]:
    """Return the days and hours that a tree, made anew, lists."""
    tree = open_tree(root)
    return [f"{day}/{hour}" for day in names(directory_at(tree, "t/0/time")) for hour in hours_of(tree, day)]


def hours_of(tree: KafkaTree, day: str) -> list[str]:
    return names(directory_at(tree, f"t/0/time/{day}"))


def test_times_of_a_segment_that_goes_are_looked_for_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = open_tree(root)
    directory = directory_at(tree, "t/0/time")
    interrupt(monkeypatch, kfs.tree.time_dirs, "_segment_hours", lambda: unlink_segment(root / "t-0", 10))
    found = names(directory)
    assert found == names(directory_at(open_tree(root), "t/0/time"))
    assert found


def test_times_of_a_segment_that_was_merged_are_found_in_the_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = hours(root)
    tree = open_tree(root)

    def merge() -> None:
        merged = [batch([record(offset, timestamp=START + offset * HOUR)]) for offset in (0, 1, 10, 11)]
        write_partition(root / "beside", {0: merged})
        rename_segment(root / "t-0", 10)
        for suffix in (".log", ".index", ".timeindex"):
            os.replace(root / "beside" / log_name(0, suffix), root / "t-0" / log_name(0, suffix))

    interrupt(monkeypatch, kfs.tree.time_dirs, "_segment_hours", merge)
    found = names(directory_at(tree, "t/0/time"))
    assert [f"{day}/{hour}" for day in found for hour in hours_of(tree, day)] == before


def unlink_segment(directory: Path, base: int) -> None:
    for path in directory.glob(f"{base:020d}.*"):
        path.unlink()


@pytest.mark.parametrize("with_attributes", [True, False])
def test_a_raw_file_that_is_written_to_while_it_is_listed_is_listed(
    with_attributes: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        with (root / "t-0" / log_name(0, ".index")).open("ab") as index:
            index.write(bytes(8))

    tree = open_tree(root)
    expected = sorted(os.listdir(root / "t-0"))
    interrupt(monkeypatch, RawDirectory, "_file", write)
    assert names(directory_at(tree, "t/0/raw"), with_attributes=with_attributes) == expected


def test_a_raw_file_that_goes_while_it_is_listed_ends_no_listing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = open_tree(root)
    expected = sorted(os.listdir(root / "t-0"))
    interrupt(monkeypatch, RawDirectory, "_file", lambda: (root / "t-0" / log_name(0, ".index")).unlink())
    assert names(directory_at(tree, "t/0/raw")) == expected[1:]


def test_a_log_that_is_swapped_while_raw_is_listed_is_listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = open_tree(root)
    expected = sorted(os.listdir(root / "t-0"))
    beside = write_partition(root / "beside", {0: dense(0, 9)}) / log_name(0)
    segment_of = RawDirectory._segment_of

    def swapped(directory: RawDirectory, path: str, inode: int) -> object:
        found = segment_of(directory, path, inode)
        if beside.exists():
            os.replace(beside, root / "t-0" / log_name(0))
        return found

    monkeypatch.setattr(RawDirectory, "_segment_of", swapped)
    (root / "t-0" / log_name(0, ".index")).unlink()
    assert names(directory_at(tree, "t/0/raw")) == expected[1:]


def test_a_topic_whose_last_deleted_segment_goes_is_left_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_partition(root / "u-0", {0: dense(0, 9), 10: dense(10, 19)})
    for topic in ("t-0", "u-0"):
        rename_segment(root / topic, 0)
    tree = open_tree(root)
    directory = directory_at(tree, ".kfs/deleted")
    assert names(directory) == ["t", "u"]
    looks = DataDir.deleted_segments
    left = [1]

    def deleted_segments(data_dir: DataDir, log: Log) -> Log | None:
        found = looks(data_dir, log)
        if left and left.pop():
            for path in (root / "t-0").glob("*.deleted"):
                path.unlink()
        return found

    monkeypatch.setattr(DataDir, "deleted_segments", deleted_segments)
    assert names(directory) == ["u"]


def test_who_reads_a_file_that_is_forgotten_meanwhile_is_not_followed(root: Path) -> None:
    gone = directory_at(open_tree(root), "t/0/raw").attributes().node_id + 1000
    ahead = Prefetch(open_tree(root), -1, lambda: None)
    ahead._follow(gone)
    assert not ahead.follows(gone)
