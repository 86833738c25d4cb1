"""A process holds the segments of few logs at a time; those of others are the same when they are asked again."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.errors import CorruptData
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.segment import Segment
from kfs.log.storage import ListedLogs, Storage
from kfs.storage.descriptors import BUDGET
from tests.logs import batch, dense, joined, log_name, record, records_in, set_log_start, write_partition

pytestmark = pytest.mark.usefixtures("quiet")

PARTITIONS = 12
SEGMENTS = {0: dense(0, 9), 10: dense(10, 19), 20: dense(20, 29)}
#: Of segments, with four for each log: two of these logs.
MOST = 14
#: A moment long ago, in seconds.
START = 1_700_000_000


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    """A data directory over more logs than may hold their segments."""
    for partition in range(PARTITIONS):
        write_partition(tmp_path / f"t-{partition}", SEGMENTS)
        os.utime(tmp_path / f"t-{partition}", (START, START))  # or it may change again within a tick of the clock
    set_log_start(tmp_path, "t", 0, 0)
    storage = Storage()
    storage.listed = ListedLogs(MOST)
    return DataDir([str(tmp_path)], storage)


def log_of(data_dir: DataDir, partition: int = 0) -> Log:
    log = data_dir.log("t", partition)
    assert log is not None
    return log


def let_go(log: Log) -> None:
    """Let go of the segments; nobody may have one."""
    log.let_go()
    assert log._kept is not None


def slots(log: Log) -> list[int]:
    return [segment.slot for segment in log.segments]


def test_few_logs_hold_their_segments(data_dir: DataDir) -> None:
    for log in data_dir.logs():
        assert len(records_in(log)) == 30
    gc.collect()
    assert data_dir.storage.listed.weight <= MOST
    assert sum(isinstance(each, Segment) and each.storage is data_dir.storage for each in gc.get_objects()) <= MOST


def test_they_are_the_same_when_they_are_asked_again(data_dir: DataDir) -> None:
    logs = list(data_dir.logs())
    first = [(slots(log), log.incarnation, records_in(log), log.visible()) for log in logs]
    assert [(slots(log), log.incarnation, records_in(log), log.visible()) for log in logs] == first


def test_one_log_may_hold_more_than_all_may(data_dir: DataDir) -> None:
    data_dir.storage.listed = ListedLogs(1)
    log = log_of(data_dir)
    assert log.segments[0] is log.segments[0]
    assert len(log.segments) == len(SEGMENTS)


def test_a_segment_in_use_stays_the_same_object(data_dir: DataDir) -> None:
    log = log_of(data_dir)
    used = log.segments[1]
    let_go(log)
    assert used.is_listed
    assert log.segments[1] is used
    assert [segment.next_base_offset for segment in log.segments] == [10, 20, None]


def test_a_segment_in_use_is_told_that_it_is_gone(data_dir: DataDir) -> None:
    log = log_of(data_dir)
    used = log.segments[1]
    let_go(log)
    os.unlink(used.files.log.path)
    log.look_again()
    assert len(log.segments) == 2
    assert not used.is_listed


def test_the_files_beside_are_listed_again(data_dir: DataDir) -> None:
    log = log_of(data_dir)
    before = log.segments[0].files
    assert before.index is not None
    (Path(log.directory.path) / f"{20:020d}.snapshot").write_bytes(b"")
    log.look_again()
    _ = log.segments
    let_go(log)
    assert log.segments[0].files == before
    let_go(log)
    assert list(log.files.snapshots) == [20]


def cut_closed(directory: Path) -> None:
    path = directory / log_name(10)
    os.truncate(path, path.stat().st_size - 1)


def write_closed(directory: Path) -> None:
    with (directory / log_name(0)).open("ab") as file:
        file.write(b"\0")


def replace_closed(directory: Path) -> None:
    path = directory / log_name(10)
    path.with_suffix(".new").write_bytes(path.read_bytes())
    path.with_suffix(".new").rename(path)


def delete_first(directory: Path) -> None:
    (directory / log_name(0)).unlink()


def make_again(directory: Path) -> None:
    aside = directory.rename(directory.with_name("aside"))
    directory.mkdir()
    for path in aside.iterdir():
        path.rename(directory / path.name)


def write_anew(directory: Path) -> None:
    """Cut the active segment, and write other records behind it until it is longer than it was."""
    BUDGET.let_all_go()
    with (directory / log_name(20)).open("r+b") as file:
        file.truncate()
        file.write(joined([batch([record(offset, b"another")]) for offset in range(20, 40)]))


@pytest.mark.parametrize(
    "change",
    [cut_closed, write_closed, replace_closed, delete_first, make_again, write_anew],
    ids=lambda one: one.__name__,
)
def test_a_change_meanwhile_is_noticed_as_if_the_log_had_held_them(
    data_dir: DataDir, change: Callable[[Path], None]
) -> None:
    held, other = log_of(data_dir, 0), log_of(data_dir, 1)
    before = {}
    for log in (held, other):
        records_in(log)
        assert log.log_end_offset == 30
        before[log] = slots(log)
    let_go(other)
    assert other.is_as_let_go()
    for log in (held, other):
        change(Path(log.directory.path))
    assert not other.is_as_let_go()
    assert other._kept is not None  # that listed nothing
    for log in (held, other):
        log.look_again()
        with_records = records_or_error(log)
        assert log.incarnation == 1, with_records
    same = [[slot in before[log] for slot in slots(log)] for log in (held, other)]
    assert same[0] == same[1]
    assert records_or_error(held) == records_or_error(other)


def records_or_error(log: Log) -> object:
    try:
        return records_in(log)
    except CorruptData as error:
        return error.reason


def test_growth_is_no_change(data_dir: DataDir) -> None:
    log = log_of(data_dir)
    records_in(log)
    before = slots(log)
    let_go(log)
    with (Path(log.directory.path) / log_name(20)).open("ab") as file:
        file.write(joined(dense(30, 34)))
    assert not log.is_as_let_go()
    assert len(records_in(log)) == 35
    assert slots(log) == before
    assert log.incarnation == 0


def test_a_roll_is_no_change(data_dir: DataDir) -> None:
    log = log_of(data_dir)
    records_in(log)
    before = slots(log)
    let_go(log)
    (Path(log.directory.path) / log_name(30)).write_bytes(joined(dense(30, 34)))
    log.look_again()
    assert slots(log)[:3] == before
    assert len(records_in(log)) == 35
    assert log.incarnation == 0


def test_segments_of_which_more_is_known_stay(data_dir: DataDir) -> None:
    log = log_of(data_dir)
    log.segments[1].is_pinned = True
    log.let_go()
    assert log._kept is None
    assert not log.is_as_let_go()


def test_a_log_whose_directory_goes_meanwhile_is_empty(data_dir: DataDir, tmp_path: Path) -> None:
    log = log_of(data_dir)
    _ = log.segments
    let_go(log)
    (tmp_path / "t-0").rename(tmp_path / "aside")
    assert not log.is_as_let_go()
    assert log.segments == ()
    assert log.incarnation == 1
