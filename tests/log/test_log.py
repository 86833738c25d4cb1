"""A partition: where its log begins and ends, lookups, and what lies beside its segments."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.aborted_txn import AbortedTxn, encode_aborted_transactions
from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint
from kfs.format.layout import MAX_INT64
from kfs.format.record import Record
from kfs.log.log_dir import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kfs.log.offset_range import OffsetRange
from tests.log.some_logs import some_segments
from tests.logs import (
    START,
    Batch,
    batch,
    dense,
    find_record,
    joined,
    log_name,
    open_log,
    record,
    records_in,
    set_high_watermark,
    set_log_start,
    write_checkpoint,
    write_log,
    write_partition,
)

EVERYTHING = OffsetRange(0, MAX_INT64)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A partition ``t-0`` with the offsets 10 to 39 in two segments."""
    return write_partition(tmp_path / "t-0", {10: dense(10, 24), 25: dense(25, 39)})


# --- the range that is visible --------------------------------------------------------------------------------------


def test_a_log_begins_at_its_first_base_and_ends_after_its_last_batch(directory: Path) -> None:
    log = open_log(directory)
    assert (log.log_start_offset, log.log_end_offset) == (10, 40)
    assert log.visible() == OffsetRange(10, 40)
    assert log.deleted() == OffsetRange(10, 10)
    assert (log.checkpointed_log_start_offset, log.high_watermark) == (None, None)


@pytest.mark.parametrize(
    ("checkpoint", "start"), [(0, 10), (9, 10), (10, 10), (11, 11), (17, 17), (25, 25), (33, 33), (40, 40)]
)
def test_the_log_start_offset_is_the_greater_of_checkpoint_and_first_base(
    checkpoint: int, start: int, directory: Path
) -> None:
    set_log_start(directory.parent, "t", 0, checkpoint)
    log = open_log(directory)
    assert log.visible() == OffsetRange(start, 40)
    assert log.deleted() == OffsetRange(10, start)
    # What lies between a lower one and the first base offset isn't here, and nothing says that it was deleted.
    missing = [f"offsets {checkpoint} to 9 are not on this disk"] if checkpoint < 10 else []
    assert [problem.reason.partition(",")[0] for problem in log.problems] == missing


@pytest.mark.parametrize("checkpoint", [41, 10**6, MAX_INT64])
def test_a_log_start_offset_above_the_end_is_a_problem_and_ignored(checkpoint: int, directory: Path) -> None:
    set_log_start(directory.parent, "t", 0, checkpoint)
    log = open_log(directory)
    assert log.visible() == OffsetRange(10, 40)
    (problem,) = log.problems
    assert problem.file == str(directory.parent / LOG_START_OFFSET_CHECKPOINT)
    assert f"log start offset {checkpoint} of t-0 is above the log's end" in problem.reason


@pytest.mark.parametrize(
    "garbage",
    [b"0\n1\nt 0 -5\n", b"0\n2\nt 0 20\n", b"1\n1\nt 0 20\n", b"\xff" * 50, b"0\n1\nt 0\n", b"0\n1\nt 0 twenty\n"],
)
def test_a_checkpoint_that_makes_no_sense_is_a_problem_and_ignored(garbage: bytes, directory: Path) -> None:
    (directory.parent / LOG_START_OFFSET_CHECKPOINT).write_bytes(garbage)
    (directory.parent / HIGH_WATERMARK_CHECKPOINT).write_bytes(garbage)
    log = open_log(directory, until_high_watermark=True)
    assert log.visible() == OffsetRange(10, 40)
    assert log.directory.log_dir is not None
    assert {problem.file for problem in log.directory.log_dir.problems} == {
        str(directory.parent / name) for name in (LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
    }


def test_checkpoints_of_other_partitions_mean_nothing(directory: Path) -> None:
    write_checkpoint(directory.parent, LOG_START_OFFSET_CHECKPOINT, {("t", 1): 20, ("u", 0): 30, ("t-0", 0): 35})
    assert open_log(directory).log_start_offset == 10


@pytest.mark.parametrize(("watermark", "end"), [(0, 10), (10, 10), (23, 23), (40, 40), (41, 40), (MAX_INT64, 40)])
def test_the_high_watermark_ends_the_log_only_where_that_is_asked_for(
    watermark: int, end: int, directory: Path
) -> None:
    set_high_watermark(directory.parent, "t", 0, watermark)
    assert open_log(directory).visible() == OffsetRange(10, 40)
    assert open_log(directory, until_high_watermark=True).visible() == OffsetRange(10, end)
    assert open_log(directory).high_watermark == watermark


def test_without_a_high_watermark_nothing_is_hidden(directory: Path) -> None:
    assert open_log(directory, until_high_watermark=True).visible() == OffsetRange(10, 40)


def test_an_empty_last_segment_counts_by_its_base(directory: Path) -> None:
    write_log(directory, 50, b"")
    assert open_log(directory).visible() == OffsetRange(10, 50)


def test_a_partition_without_segments_is_empty_at_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    set_log_start(tmp_path, "t", 0, 77)
    log = open_log(tmp_path / "t-0")
    assert log.log_end_offset == 77
    assert log.visible().start >= log.visible().end
    assert log.find(0) is None
    assert records_in(log) == []
    assert log.last_leader_epoch() == -1


def test_a_directory_that_is_gone_is_empty(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    assert log.segments == ()
    assert records_in(log) == []


# --- lookup and iteration -------------------------------------------------------------------------------------------


def test_an_offset_lies_in_the_segment_with_the_greatest_base_at_or_below(directory: Path) -> None:
    log = open_log(directory)
    bases = {offset: log.segment_for(offset) for offset in (0, 9, 10, 24, 25, 39, 40, 10**9)}
    found = {offset: None if segment is None else segment.base_offset for offset, segment in bases.items()}
    assert found == {0: None, 9: None, 10: 10, 24: 10, 25: 25, 39: 25, 40: 25, 10**9: 25}


@settings(max_examples=40)
@given(segments=some_segments(), data=st.data())
def test_iteration_from_any_offset_has_all_that_follows(
    tmp_path_factory: pytest.TempPathFactory, segments: dict[int, list[Batch]], data: st.DataObject
) -> None:
    log = open_log(write_partition(tmp_path_factory.mktemp("root") / "t-0", segments))
    everything = [one for content in segments.values() for batch in content for one in batch.records]
    starts = st.integers(everything[0].offset - 2, everything[-1].offset + 2)
    for start in data.draw(st.lists(starts, min_size=1, max_size=6)):
        assert records_in(log, max(start, 0)) == [one for one in everything if one.offset >= start]


def test_a_walk_stays_within_the_range_asked_for(directory: Path) -> None:
    log = open_log(directory)
    blocks = [item for _, item in log.walk(OffsetRange(17, 27))]
    assert [(item.position, item.end) for item in blocks][:1] == [(joined_size(1), joined_size(2))]
    offsets = [block.header.base_offset for block in blocks if hasattr(block, "header")]
    assert offsets == [15, 20, 25]


def joined_size(batches: int) -> int:
    return len(joined(dense(10, 24)[:batches]))


# --- lookup by time -------------------------------------------------------------------------------------------------


def times(*pairs: tuple[int, int]) -> list[Batch]:
    """Return a batch for each pair of an offset and the seconds of its time."""
    return [batch([record(offset, timestamp=START + seconds * 1000)]) for offset, seconds in pairs]


def test_a_time_leads_to_the_lowest_offset_at_or_after_it(tmp_path: Path) -> None:
    # Times go back: 1 is later than 2 and 3.
    content = times((0, 10), (1, 50), (2, 20), (3, 30), (4, 60))
    log = open_log(write_partition(tmp_path / "t-0", {0: content, 5: times((5, 40), (6, 70))}))
    expected = {0: 0, 10: 0, 11: 1, 20: 1, 50: 1, 51: 4, 60: 4, 61: 6, 70: 6, 71: None}
    assert {at: log.offset_for_time(START + at * 1000, EVERYTHING) for at in expected} == expected


def test_a_time_is_looked_for_only_in_the_range_asked_for(tmp_path: Path) -> None:
    log = open_log(write_partition(tmp_path / "t-0", {0: times((0, 10), (1, 50), (2, 20)), 3: times((3, 30), (4, 60))}))
    assert log.offset_for_time(START + 20_000, OffsetRange(2, 5)) == 2
    assert log.offset_for_time(START + 20_000, OffsetRange(3, 5)) == 3
    assert log.offset_for_time(START + 40_000, OffsetRange(2, 4)) is None
    assert log.offset_for_time(START + 40_000, OffsetRange(2, 5)) == 4


def test_records_without_a_timestamp_are_at_no_time(tmp_path: Path) -> None:
    content = [*dense(0, 4, magic=0), *times((5, 10))]
    log = open_log(write_partition(tmp_path / "t-0", {0: content}))
    assert log.offset_for_time(0, EVERYTHING) == 5
    log = open_log(write_partition(tmp_path / "u-0", {0: dense(0, 4, magic=0)}))
    assert log.offset_for_time(0, EVERYTHING) is None


def test_a_time_in_a_broken_batch_leads_to_the_next_that_can_be_read(tmp_path: Path) -> None:
    content = times((0, 10), (1, 20), (2, 30))
    directory = write_partition(tmp_path / "t-0", {0: content})
    data = bytearray((directory / log_name(0)).read_bytes())
    data[len(content[0].data) + 60] ^= 1
    (directory / log_name(0)).write_bytes(data)
    assert open_log(directory).offset_for_time(START + 15_000, EVERYTHING) == 2


def test_times_before_1970_are_found(tmp_path: Path) -> None:
    content = [
        batch([record(0, timestamp=-5000)]),
        batch([record(1, timestamp=-1)]),
        batch([record(2, timestamp=-2000)]),
    ]
    log = open_log(write_partition(tmp_path / "t-0", {0: content, 3: times((3, 0))}))
    assert log.offset_for_time(-10_000, EVERYTHING) == 0
    assert log.offset_for_time(-4000, EVERYTHING) == 2
    assert log.offset_for_time(-1, EVERYTHING) == 3


# --- beside the segments --------------------------------------------------------------------------------------------


def test_the_leader_epoch_is_that_of_the_checkpoint_else_of_the_last_batch(directory: Path) -> None:
    assert open_log(directory).last_leader_epoch() == -1
    write_log(directory, 40, batch([record(40)], partition_leader_epoch=6).data)
    assert open_log(directory).last_leader_epoch() == 6
    entries = (EpochEntry(0, 0), EpochEntry(9, 30))
    (directory / "leader-epoch-checkpoint").write_bytes(encode_leader_epoch_checkpoint(entries))
    log = open_log(directory)
    assert log.leader_epochs() == entries
    assert log.last_leader_epoch() == 9


def test_side_files_that_cannot_be_read_are_problems(directory: Path) -> None:
    for name in ("leader-epoch-checkpoint", "partition.metadata", log_name(25, ".snapshot"), log_name(10, ".txnindex")):
        (directory / name).write_bytes(b"garbage, of any length")
    log = open_log(directory)
    assert log.leader_epochs() == ()
    assert log.partition_metadata() is None
    assert list(log.producer_snapshots()) == []
    assert list(log.aborted_transactions()) == []
    assert {os.path.basename(problem.file) for problem in log.problems} == {
        "leader-epoch-checkpoint",
        "partition.metadata",
        log_name(25, ".snapshot"),
        log_name(10, ".txnindex"),
    }
    assert len(records_in(log)) == 30


def test_aborted_transactions_come_with_their_segment(directory: Path) -> None:
    first = AbortedTxn(producer_id=1, first_offset=11, last_offset=14, last_stable_offset=15)
    second = AbortedTxn(producer_id=2, first_offset=26, last_offset=30, last_stable_offset=31)
    for base, entry in ((10, first), (25, second)):
        (directory / log_name(base, ".txnindex")).write_bytes(encode_aborted_transactions([entry]))
    log = open_log(directory)
    assert [(segment.base_offset, entry) for segment, entry in log.aborted_transactions()] == [
        (10, first),
        (25, second),
    ]


def test_orphaned_indexes_are_problems(directory: Path) -> None:
    (directory / log_name(90, ".index")).write_bytes(bytes(8))
    log = open_log(directory)
    assert len(log.segments) == 2
    assert list(log.problems) == []  # a broker may be about to rename it
    os.utime(directory, (0, 0))
    log.look_again()
    assert len(log.segments) == 2
    (problem,) = log.problems
    assert problem.file == str(directory / log_name(90, ".index"))


# --- what is not a file ---------------------------------------------------------------------------------------------


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_directory(path: Path) -> None:
    path.mkdir()


def make_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_socket(path: Path) -> None:
    os.mknod(path, 0o140644)


EVERY_KIND = pytest.mark.parametrize("make", [make_fifo, make_directory, make_dangling_link, make_loop, make_socket])


@pytest.mark.parametrize("base", [0, 25, 40])
@EVERY_KIND
def test_something_else_in_the_place_of_a_segment_does_not_hang(
    make: Callable[[Path], None], base: int, directory: Path
) -> None:
    path = directory / log_name(base)
    path.unlink(missing_ok=True)
    make(path)
    log = open_log(directory)
    assert [one.offset for one in records_in(log)][:15] == list(range(10, 25))
    assert log.log_start_offset == base if base == 0 else log.log_start_offset == 10
    assert find_record(log, base) in (None, CorruptData)
    assert log.visible().end >= base


@EVERY_KIND
def test_something_else_in_the_place_of_an_index_changes_nothing(make: Callable[[Path], None], directory: Path) -> None:
    for base in (10, 25):
        for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            (directory / log_name(base, suffix)).unlink(missing_ok=True)
            make(directory / log_name(base, suffix))
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        make(directory / name)
    log = open_log(directory)
    assert [find_record(log, offset) for offset in range(10, 40)] == records_in(log)
    assert len(records_in(log)) == 30
    assert log.offset_for_time(START + 17_000, EVERYTHING) == 17
    assert log.leader_epochs() == ()
    assert list(log.producer_snapshots()) == []


# --- a disk that fails ----------------------------------------------------------------------------------------------


def fail_reads_of(monkeypatch: pytest.MonkeyPatch, name: str, page: int) -> None:
    """Have every read that touches that page of 4 KiB fail as on a bad sector."""
    pread = os.pread

    def failing(fd: int, length: int, position: int) -> bytes:
        bad = range(page * 4096, page * 4096 + 4096)
        touches = position < bad.stop and position + length > bad.start
        if touches and os.readlink(f"/proc/self/fd/{fd}").endswith(name):
            raise OSError(5, "Input/output error")
        return pread(fd, length, position)

    monkeypatch.setattr(os, "pread", failing)


def test_an_unreadable_sector_costs_the_batches_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = [batch([record(at, bytes([at]) * 600)]) for at in range(40)]
    directory = write_partition(tmp_path / "t-0", {0: content}, interval=4096)
    fail_reads_of(monkeypatch, log_name(0), 2)
    log = open_log(directory)
    position = 0
    expected: list[Record] = []
    for one in content:
        if position + len(one.data) <= 8192 or position >= 12288:
            expected += one.records
        position += len(one.data)
    assert records_in(log) == expected
    assert 25 < len(expected) < 40
    assert {problem.reason for problem in log.problems} == {"read failed at 8192: Input/output error"}
    lost = {one.offset for each in content for one in each.records} - {one.offset for one in expected}
    assert all(find_record(log, offset) is CorruptData for offset in lost)


def test_an_unreadable_sector_of_an_index_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 99)})
    fail_reads_of(monkeypatch, ".index", 0)
    log = open_log(directory)
    assert [find_record(log, offset) for offset in range(100)] == records_in(log)


def test_a_whole_disk_that_fails_is_damage_and_no_crash(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(directory)
    assert len(log.segments) == 2

    def failing(fd: int, length: int, position: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", failing)
    assert records_in(log) == []
    assert find_record(log, 12) is CorruptData
    assert {log_name(10), log_name(25)} <= {os.path.basename(problem.file) for problem in log.problems}
