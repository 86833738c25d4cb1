"""A log that changes while it is open: it grows, is cut, compacted, or loses files, and kfs neither lies nor dies."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.log.block import Block
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from tests.logs import (
    START,
    Batch,
    batch,
    bytes_read,
    dense,
    find_record,
    joined,
    log_name,
    open_log,
    positions,
    record,
    records,
    records_in,
    set_log_start,
    watch_reads,
    write_log,
    write_partition,
    write_segment,
)

pytestmark = pytest.mark.usefixtures("eager", "quiet")

EVERYTHING = OffsetRange(0, MAX_INT64)


def append(directory: Path, base: int, data: bytes) -> None:
    with (directory / log_name(base)).open("ab") as log:
        log.write(data)


def offsets_of(log: Log) -> list[int]:
    return [one.offset for one in records_in(log)]


def later(first: int, last: int) -> list[Batch]:
    """Return batches that can be told from those of ``dense``."""
    return [batch([record(offset, b"later %d" % offset)]) for offset in range(first, last + 1)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two closed segments and an active one: 0 to 9, 10 to 19, 20 to 29."""
    return write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19), 20: dense(20, 29)})


# --- growth ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_is_appended_is_there_at_once(magic: int, tmp_path: Path) -> None:
    content = dense(0, 29, magic=magic)
    directory = write_log(tmp_path / "t-0", 0, b"").parent
    log = open_log(directory)
    expected: list[int] = []
    assert log.log_end_offset == 0
    for one in content:
        append(directory, 0, one.data)
        expected += [each.offset for each in one.records]
        assert log.log_end_offset == one.last_offset + 1
        assert find_record(log, one.last_offset) == one.records[-1]
        assert offsets_of(log) == expected
        assert find_record(log, one.last_offset + 1) is None


def test_a_batch_that_is_still_being_written_is_not_there_yet(tmp_path: Path) -> None:
    first, second, third = dense(0, 14)
    directory = write_log(tmp_path / "t-0", 0, first.data).parent
    log = open_log(directory)
    for size in range(1, len(second.data)):
        append(directory, 0, second.data[size - 1 : size])
        assert log.log_end_offset == 5
        assert find_record(log, 5) is None
    append(directory, 0, second.data[-1:] + third.data)
    assert offsets_of(log) == list(range(15))
    assert find_record(log, 7) == record(7)
    assert list(log.problems) == []


def test_zeros_that_become_batches_are_read(tmp_path: Path) -> None:
    first, second = dense(0, 9)
    directory = write_log(tmp_path / "t-0", 0, first.data + bytes(5000)).parent
    log = open_log(directory)
    assert log.log_end_offset == 5
    with (directory / log_name(0)).open("r+b") as file:
        file.seek(len(first.data))
        file.write(second.data)
    os.truncate(directory / log_name(0), len(first.data) + 6000)
    assert offsets_of(log) == list(range(10))


def test_a_new_segment_is_found(directory: Path) -> None:
    log = open_log(directory)
    assert log.log_end_offset == 30
    write_segment(directory, 30, dense(30, 39))
    assert log.log_end_offset == 40
    assert find_record(log, 35) == record(35)
    assert [segment.base_offset for segment in log.segments] == [0, 10, 20, 30]
    assert [segment.is_last for segment in log.segments] == [False, False, False, True]
    assert log.incarnation == 0


def test_segments_stay_the_same_while_their_files_do(directory: Path) -> None:
    log = open_log(directory)
    before = log.segments
    write_segment(directory, 30, dense(30, 39))
    append(directory, 20, b"")
    assert log.segments[:3] == before


def test_an_active_index_grows_with_its_log(tmp_path: Path) -> None:
    content = dense(0, 99)
    directory = write_partition(tmp_path / "t-0", {0: content})
    whole = (directory / log_name(0, ".index")).read_bytes()
    index = directory / log_name(0, ".index")
    with index.open("r+b") as file:
        file.truncate(16)
        file.truncate(4096)
    log = open_log(directory)
    assert find_record(log, 80) == record(80)
    with index.open("r+b") as file:
        file.write(whole)
    assert [find_record(log, offset) for offset in range(100)] == records(0, 99)
    assert log.segments[0].position_before(95)[0] == positions(content)[18]  # its last offset, 94, is in the index


def test_the_end_of_a_log_that_has_grown_much_is_found_by_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = bytes(60_000)
    content = [batch([record(offset, value)]) for offset in range(200)]
    directory = write_partition(tmp_path / "t-0", {0: content[:3]})
    log = open_log(directory)
    assert log.log_end_offset == 3
    append(directory, 0, joined(content[3:]))
    write_partition(tmp_path / "grown", {0: content})
    (tmp_path / "grown" / log_name(0, ".index")).rename(directory / log_name(0, ".index"))
    reads = watch_reads(monkeypatch)
    assert log.log_end_offset == 200
    assert bytes_read(reads) < 1_000_000
    append(directory, 0, batch([record(200)]).data)
    assert log.log_end_offset == 201


def test_the_end_of_a_log_that_has_grown_much_is_found_without_an_index(tmp_path: Path) -> None:
    content = [batch([record(offset, bytes(60_000))]) for offset in range(200)]
    directory = write_partition(tmp_path / "t-0", {0: content[:3]})
    log = open_log(directory)
    assert log.log_end_offset == 3
    append(directory, 0, joined(content[3:]))
    (directory / log_name(0, ".index")).unlink()
    assert log.log_end_offset == 200


# --- files that go --------------------------------------------------------------------------------------------------


def test_a_segment_deleted_by_retention_disappears(directory: Path) -> None:
    log = open_log(directory)
    assert offsets_of(log) == list(range(30))
    for path in directory.glob(log_name(0, ".*")):
        path.rename(f"{path}.deleted")
    assert offsets_of(log) == list(range(10, 30))
    assert log.log_start_offset == 10
    assert find_record(log, 5) is None
    assert log.incarnation == 1
    for path in directory.glob("*.deleted"):
        path.unlink()
    assert offsets_of(log) == list(range(10, 30))


def test_a_walk_that_has_begun_goes_on_over_a_deleted_segment(directory: Path) -> None:
    log = open_log(directory)
    walk = log.walk(EVERYTHING)
    next(walk)
    for path in directory.glob(log_name(0, ".*")):
        path.unlink()
    assert [item.position for _, item in walk]
    assert offsets_of(log) == list(range(10, 30))


@pytest.mark.parametrize("base", [0, 10, 20])
def test_a_log_that_is_removed_takes_its_records_alone(base: int, directory: Path) -> None:
    log = open_log(directory)
    assert offsets_of(log) == list(range(30))
    (directory / log_name(base)).unlink()
    left = [offset for offset in range(30) if not base <= offset < base + 10]
    assert offsets_of(log) == left
    for offset in left:
        assert find_record(log, offset) == record(offset)
    for offset in range(base, base + 10):
        assert find_record(log, offset) in (None, CorruptData)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.unlink(),
        lambda path: os.truncate(path, 0),
        lambda path: os.truncate(path, 8),
        lambda path: os.truncate(path, 5),
        lambda path: os.truncate(path, 1 << 20),
        lambda path: path.write_bytes(b"\xff" * 64),
        lambda path: (path.unlink(), path.write_bytes(bytes(64))),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["removed", "emptied", "cut", "cut oddly", "longer", "garbage", "replaced", "a directory"],
)
def test_whatever_happens_to_an_open_index_changes_no_answer(
    change: Callable[[Path], object], suffix: str, directory: Path
) -> None:
    log = open_log(directory)
    offsets = [3, 17, 24, 9, 29]
    expected = [record(offset) for offset in offsets]
    assert [find_record(log, offset) for offset in offsets] == expected
    assert log.offset_for_time(START + 7000, EVERYTHING) == 7
    for base in (0, 10, 20):
        change(directory / log_name(base, suffix))
    for _ in range(2):
        assert [find_record(log, offset) for offset in offsets] == expected
        assert [log.offset_for_time(START + at * 1000, EVERYTHING) for at in (7, 15, 28)] == [7, 15, 28]
        assert offsets_of(log) == list(range(30))


def test_a_cut_index_that_is_mapped_kills_nothing(tmp_path: Path) -> None:
    # A read of a map beyond the end of its file would be a SIGBUS, the end of this process.
    content = [batch([record(at)]) for at in range(3000)]
    directory = write_partition(tmp_path / "t-0", {0: content, 3000: dense(3000, 3009)})
    index = directory / log_name(0, ".index")
    assert index.stat().st_size > 3 * 4096
    log = open_log(directory)
    for size in (3 * 4096, 4096, 100, 0):
        assert find_record(log, 2900) == record(2900)
        os.truncate(index, size)
        assert find_record(log, 2990) == record(2990)
        assert find_record(log, 10) == record(10)


# --- files that are cut or replaced ---------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [0, 10, 20])
def test_a_log_that_is_cut_loses_what_was_cut_and_no_more(base: int, directory: Path) -> None:
    log = open_log(directory)
    assert offsets_of(log) == list(range(30))
    os.truncate(directory / log_name(base), len(joined(dense(base, base + 4))))
    left = [offset for offset in range(30) if not base + 5 <= offset < base + 10]
    for _ in range(2):  # the first question may be the one that finds out
        offsets_of(log)
    assert offsets_of(log) == left
    for offset in left:
        assert find_record(log, offset) == record(offset)


def test_a_log_that_is_emptied_is_empty(directory: Path) -> None:
    log = open_log(directory)
    assert log.log_end_offset == 30
    os.truncate(directory / log_name(20), 0)
    assert log.log_end_offset == 20
    assert offsets_of(log) == list(range(20))


def test_what_takes_the_place_of_what_was_cut_is_read(directory: Path) -> None:
    """A follower truncates to the leader's log and fetches on: other records, same offsets, same file."""
    log = open_log(directory)
    assert find_record(log, 27) == record(27)
    os.truncate(directory / log_name(20), len(joined(dense(20, 24))))
    assert log.log_end_offset == 25
    append(directory, 20, joined(later(25, 34)))
    assert find_record(log, 27) == record(27, b"later 27")
    assert [one.value for one in records_in(log, 24)] == [b"value 24", *(b"later %d" % at for at in range(25, 35))]
    assert log.incarnation == 1


def test_a_segment_swapped_by_compaction_is_read_anew(directory: Path) -> None:
    log = open_log(directory)
    assert find_record(log, 3) == record(3)
    old_slot = log.segments[0].slot
    compacted = [one for one in later(0, 9) if one.last_offset % 3 == 0]
    (directory / "new").mkdir()
    swap = write_segment(directory / "new", 0, compacted)
    os.replace(swap, directory / log_name(0))
    assert find_record(log, 3) == record(3, b"later 3")
    assert find_record(log, 4) is None
    assert offsets_of(log) == [0, 3, 6, 9, *range(10, 30)]
    assert log.segments[0].slot != old_slot
    assert log.incarnation == 1


def test_a_topic_that_is_created_again_is_another_log(directory: Path) -> None:
    log = open_log(directory)
    assert offsets_of(log) == list(range(30))
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    assert offsets_of(log) == []
    write_partition(directory, {0: later(0, 4)})
    assert [one.value for one in records_in(log)] == [b"later %d" % at for at in range(5)]
    assert find_record(log, 3) == record(3, b"later 3")


def test_damage_that_is_repaired_is_forgotten(directory: Path) -> None:
    log = open_log(directory)
    path = directory / log_name(10)
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[:-1] + b"\xff")
    assert find_record(log, 17) is CorruptData
    assert len(log.problems) == 1
    path.unlink()
    path.write_bytes(whole)
    assert find_record(log, 17) == record(17)
    assert list(log.problems) == []


def test_a_log_start_offset_that_moves_is_followed(directory: Path) -> None:
    log = open_log(directory)
    assert log.visible() == OffsetRange(0, 30)
    for start in (3, 12, 30):
        set_log_start(directory.parent, "t", 0, start)
        assert log.visible() == OffsetRange(start, 30)
        assert log.deleted() == OffsetRange(0, start)


def test_a_file_cut_under_a_walk_ends_it_with_a_problem(tmp_path: Path) -> None:
    content = [batch([record(at, bytes(5000))]) for at in range(400)]
    directory = write_partition(tmp_path / "t-0", {0: content, 400: dense(400, 409)})
    log = open_log(directory)
    walk = log.walk(EVERYTHING)
    next(walk)
    os.truncate(directory / log_name(0), 100_000)
    rest = list(walk)
    assert rest[-1][0].base_offset == 400
    assert any("truncated" in problem.reason for problem in log.problems)


def test_records_that_become_one_batch_under_a_walk_are_found_once(tmp_path: Path) -> None:
    directory = write_log(tmp_path / "t-0", 0, joined([batch([record(at, bytes(5000))]) for at in range(400)])).parent
    log = open_log(directory)
    found: list[int] = []
    for segment, item in log.walk(EVERYTHING):
        assert isinstance(item, Block)
        if not found:
            os.truncate(directory / log_name(0), 100)
            os.replace(write_log(tmp_path / "beside", 0, joined(dense(0, 399))), directory / log_name(0))
        found += segment.load(item).columns.offsets
    assert found == list(range(400))
    assert find_record(log, 199) == record(199)


# --- while others look ----------------------------------------------------------------------------------------------


def test_readers_of_a_log_that_is_rewritten_all_the_time_see_one_state_or_another(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19)})
    log = open_log(directory)
    allowed = {record(at).value for at in range(20)} | {b"later %d" % at for at in range(20)}
    wrong: list[object] = []
    stop = threading.Event()

    def look() -> None:
        try:
            while not stop.is_set():
                for offset in (3, 13, 9):
                    found = find_record(log, offset)
                    if not (found in (None, CorruptData) or getattr(found, "value", None) in allowed):
                        wrong.append(found)
                offsets = offsets_of(log)
                if offsets != sorted(set(offsets)):
                    wrong.append(offsets)
        except BaseException as error:
            wrong.append(error)
            raise

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(60):
        base = 10 * (turn % 2)
        content = later(base, base + 9) if turn % 4 < 2 else dense(base, base + 9)
        beside = write_log(tmp_path / "beside", base, joined(content))
        if turn % 3 == 0:
            os.truncate(directory / log_name(base), 100)
        os.replace(beside, directory / log_name(base))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
