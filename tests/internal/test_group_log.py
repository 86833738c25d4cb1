"""Following a log of groups: what grows is read on, what was rewritten is read anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kfs.internal.groups import Groups
from tests.internal.group_logs import InternalPartition, classic_group, commit, groups_of, member
from tests.logs import Read, bytes_read, dense, set_high_watermark, set_log_start, watch_reads, write_partition

pytestmark = pytest.mark.usefixtures("eager")


def offsets(groups: Groups, name: str = "g") -> dict[str, int | None]:
    group = groups.group(name)
    return {} if group is None else {each.topic: each.offset for each in group.partitions}


@pytest.fixture
def log(tmp_path: Path) -> InternalPartition:
    log = InternalPartition(tmp_path)
    for number in range(50):
        log.append(*[commit("g", f"topic-{at}", 0, number) for at in range(20)])
    return log


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return groups_of(tmp_path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Read]:
    return watch_reads(monkeypatch)


def test_nothing_is_read_before_somebody_asks(log: InternalPartition, groups: Groups, reads: list[Read]) -> None:
    assert groups.are_here
    assert reads == []
    assert len(offsets(groups)) == 20
    assert bytes_read(reads) >= log.active.stat().st_size


def test_what_has_not_changed_is_not_read_again(log: InternalPartition, groups: Groups, reads: list[Read]) -> None:
    groups.names()
    reads.clear()
    assert groups.names() == ("g",)
    assert [read for read in reads if read.path == str(log.active)] == []


def test_of_a_log_that_has_grown_only_the_growth_is_read(
    log: InternalPartition, groups: Groups, reads: list[Read]
) -> None:
    groups.names()
    size = log.active.stat().st_size
    log.append(commit("g", "topic-3", 0, 99), commit("h", "a", 0, 1))
    log.append(commit("g", "topic-4", 0, 98), producer=1)
    log.end(1, is_commit=True)
    reads.clear()
    assert groups.names() == ("g", "h")
    assert {topic: offset for topic, offset in offsets(groups).items() if offset != 49} == {
        "topic-3": 99,
        "topic-4": 98,
    }
    assert min(read.position for read in reads if read.path == str(log.active)) >= size


def test_new_segments_are_read_and_old_ones_are_not(log: InternalPartition, groups: Groups, reads: list[Read]) -> None:
    groups.names()
    first = log.active
    log.append(commit("g", "topic-1", 0, 60))
    log.roll()
    log.append(commit("g", "topic-2", 0, 61))
    log.roll()
    size = first.stat().st_size
    reads.clear()
    assert {offset for offset in offsets(groups).values() if offset != 49} == {60, 61}
    assert all(read.position >= size - 2000 for read in reads if read.path == str(first))


def test_a_batch_that_is_half_written_is_read_when_it_is_whole(log: InternalPartition, groups: Groups) -> None:
    groups.names()
    before = log.active.read_bytes()
    log.append(commit("g", "topic-3", 0, 99))
    whole = log.active.read_bytes()
    log.active.write_bytes(whole[: len(before) + 30])
    assert offsets(groups)["topic-3"] == 49
    log.active.write_bytes(whole)
    assert offsets(groups)["topic-3"] == 99
    assert not groups.state_problems().is_damaged


def test_what_compaction_rewrote_is_read_anew(tmp_path: Path, log: InternalPartition, groups: Groups) -> None:
    closed = log.active
    log.append(classic_group("gone", [member("m")]))
    log.roll()
    log.append(commit("g", "topic-0", 0, 70))
    assert groups.names() == ("g", "gone")
    compacted = InternalPartition(tmp_path / "elsewhere")
    compacted.append(*[commit("g", f"topic-{at}", 0, 49) for at in range(20)])
    os.replace(compacted.active, closed)
    assert groups.names() == ("g",)
    assert set(offsets(groups).values()) == {49, 70}


def test_a_log_that_was_cut_is_read_anew(log: InternalPartition, groups: Groups) -> None:
    size = log.active.stat().st_size
    log.append(commit("g", "topic-3", 0, 99))
    assert offsets(groups)["topic-3"] == 99
    os.truncate(log.active, size)
    assert offsets(groups)["topic-3"] == 49


def test_a_log_start_offset_that_was_raised_is_heeded(tmp_path: Path, log: InternalPartition, groups: Groups) -> None:
    log.append(commit("h", "a", 0, 1))
    assert groups.names() == ("g", "h")
    set_log_start(tmp_path, "__consumer_offsets", 0, log.next_offset - 1)
    assert groups.names() == ("h",)


def test_a_partition_may_come_and_go(tmp_path: Path, log: InternalPartition, groups: Groups) -> None:
    assert groups.names() == ("g",)
    other = InternalPartition(tmp_path, partition=1)
    other.append(commit("h", "a", 0, 1))
    assert groups.names() == ("g", "h")
    log.directory.rename(tmp_path / "away")
    assert groups.names() == ("h",)


# --- where an offset stands -----------------------------------------------------------------------------------------


def standing(root: Path, offset: int, until_high_watermark: bool = False, topic: str = "t") -> object:
    InternalPartition(root).append(commit("g", topic, 0, offset))
    groups = groups_of(root, until_high_watermark=until_high_watermark)
    group = groups.group("g")
    assert group is not None
    found = groups.standing(group.partitions[0])
    return found.lag, found.next_offset, found.log_end_offset, found.note and found.note.split()[0]


def test_lag_is_the_end_less_the_offset(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    assert standing(tmp_path, 4) == (6, 4, 10, None)


def test_at_the_end_nothing_is_unread(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    assert standing(tmp_path, 10) == (0, None, 10, None)


def test_lag_may_be_reckoned_to_the_high_watermark(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    set_high_watermark(tmp_path, "t", 0, 7)
    assert standing(tmp_path, 4, until_high_watermark=True) == (3, 4, 7, None)


def test_an_offset_below_the_log_start_is_said_to_be_there(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    set_log_start(tmp_path, "t", 0, 6)
    assert standing(tmp_path, 4) == (6, 6, 10, "below")


def test_an_offset_above_the_end_is_said_to_be_there(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    assert standing(tmp_path, 14) == (-4, None, 10, "above")


def test_of_a_hole_the_next_record_is_the_one_behind_it(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: [*dense(0, 3), *dense(8, 9)]})
    assert standing(tmp_path, 5) == (5, 8, 10, None)


def test_control_records_are_not_what_is_read_next(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path, "t")
    log.append((b"k", b"v"), producer=1)
    log.end(1, is_commit=True)
    assert standing(tmp_path, 1) == (1, None, 2, None)


def test_damage_before_the_next_record_is_said(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 19)})
    (log,) = directory.glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 4 + 70] ^= 0xFF
    log.write_bytes(data)
    assert standing(tmp_path, 5) == (15, 10, 20, "damaged")


def test_a_topic_that_is_not_here_has_no_lag(tmp_path: Path) -> None:
    assert standing(tmp_path, 5, topic="elsewhere") == (None, None, None, "this")
