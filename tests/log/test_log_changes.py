"""What a broker does to a log is counted and logged, each under its own name, and nothing of it as damage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfs.log.change import Change
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.storage import Storage
from tests.logs import batch, dense, log_name, look_every_time, open_log, record, write_log, write_partition

TOPIC_ID = "version: 0\ntopic_id: {}\n"


@pytest.fixture(autouse=True)
def always_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three segments of ten records each."""
    return write_partition(tmp_path / "data" / "t-0", {base: dense(base, base + 9) for base in (0, 10, 20)})


@pytest.fixture
def log(directory: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Log]:
    """The log, listed once, and the last segment read."""
    with caplog.at_level(logging.INFO, "kfs"):
        opened = open_log(directory)
        assert [segment.base_offset for segment in opened.segments] == [0, 10, 20]
        assert opened.log_end_offset == 30
        yield opened
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def changes(log: Log) -> dict[Change, int]:
    """Look at the log again; return the changes that were counted."""
    _ = log.segments
    return {change: number for change, number in log.storage.changes.items() if number}


def delete(directory: Path, base_offset: int) -> None:
    for path in directory.glob(f"{base_offset:020d}.*"):
        path.rename(f"{path}.deleted")


def test_what_stays_as_it_is_is_no_change(log: Log) -> None:
    assert changes(log) == {}


def test_a_roll(log: Log, directory: Path) -> None:
    write_partition(directory, {30: dense(30, 31)})
    assert changes(log) == {Change.ROLLED: 1}


def test_retention(log: Log, directory: Path) -> None:
    for base in (0, 10):
        delete(directory, base)
    assert changes(log) == {Change.DELETED: 2}


def test_retention_of_everything_after_a_roll(log: Log, directory: Path) -> None:
    for base in (0, 10, 20):
        delete(directory, base)
    write_partition(directory, {30: []})
    assert changes(log) == {Change.DELETED: 3, Change.ROLLED: 1}


def test_compaction_of_two_segments_into_one(log: Log, directory: Path) -> None:
    for base in (0, 10):
        delete(directory, base)
    write_partition(directory, {0: [batch([record(3), record(14)], base_offset=0, last_offset=19)]})
    assert changes(log) == {Change.COMPACTED: 2}


def test_a_cut_within_the_last_segment(log: Log, directory: Path) -> None:
    path = directory / log_name(20)
    path.write_bytes(path.read_bytes()[: len(dense(20, 24)[0].data)])
    assert changes(log) == {Change.TRUNCATED: 1}
    assert log.log_end_offset == 25


def test_a_cut_that_removes_the_last_segment(log: Log, directory: Path) -> None:
    delete(directory, 20)
    assert changes(log) == {Change.TRUNCATED: 1}


def test_another_topic_at_the_same_path(directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (directory / "partition.metadata").write_text(TOPIC_ID.format("AAAAAAAAAAAAAAAAAAAAAQ"))
    log = open_log(directory)
    assert len(log.segments) == 3
    directory.rename(tmp_path / "data" / f"t-0.{'a' * 32}-delete")
    write_partition(directory, {0: dense(0, 1)})
    (directory / "partition.metadata").write_text(TOPIC_ID.format("AAAAAAAAAAAAAAAAAAAAAg"))
    with caplog.at_level(logging.INFO, "kfs"):
        assert changes(log) == {Change.RECREATED: 1}
    (said,) = caplog.records
    assert said.levelno == logging.INFO
    assert said.getMessage() == f"{directory}: recreated: another directory or topic is at this path"


def test_a_topic_that_is_deleted_and_created_anew_between_two_listings_of_topics(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "data" / "other-0", 0, b"")
    data_dir = DataDir([str(tmp_path / "data")], Storage())
    log = data_dir.log("t", 0)
    assert log is not None
    assert len(log.segments) == 3
    directory.rename(tmp_path / "data" / f"t-0.{'a' * 32}-delete")
    assert data_dir.topics() == ["other"]
    assert changes(log) == {Change.REMOVED: 1}
    write_partition(directory, {0: dense(0, 1)})
    again = data_dir.log("t", 0)
    assert again is not None
    assert again is not log
    assert changes(again) == changes(log) == {Change.REMOVED: 1, Change.RECREATED: 1}


def test_who_logs_says_which_log_and_file(log: Log, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    delete(directory, 0)
    assert changes(log) == {Change.DELETED: 1}
    (said,) = caplog.records
    assert said.__dict__["fields"] == {
        "topic": "t",
        "partition": 0,
        "file": str(directory / log_name(0)),
        "change": "deleted",
        "reason": "renamed to .deleted",
    }
