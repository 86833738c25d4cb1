"""A broker appends, rolls, deletes and compacts while threads look: change is seen as change, and never as damage.

What would be a race is made to happen: the broker's next step is done in the midst of the look that it disturbs.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import kfs.storage.side_file
import kfs.tree.meta_dir
from kfs.format.layout import MAX_INT64
from kfs.format.producer_snapshot import encode_producer_snapshot
from kfs.format.record import Record
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.segment import Segment
from kfs.read.log_reader import LogReader
from kfs.storage.open_files import FileChanged, OpenFile
from tests.logs import (
    batch,
    content_of,
    dense,
    find_record,
    joined,
    log_name,
    open_log,
    open_tree,
    record,
    records_in,
    write_partition,
    write_segment,
)

pytestmark = pytest.mark.usefixtures("eager")

EVERYTHING = OffsetRange(0, MAX_INT64)
SUFFIXES = (".log", ".index", ".timeindex")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19), 20: dense(20, 29)})


@pytest.fixture(autouse=True)
def no_warning(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that a broker does is told as if something were wrong."""
    with caplog.at_level(logging.INFO, "kfs"):
        yield
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


def precede(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, step: Callable[[], object]) -> None:
    """Have ``step`` done once, right before a method of ``owner`` looks."""
    method = getattr(owner, name)
    left = [step]

    def answer(*arguments: object, **named: object) -> object:
        if left:
            left.pop()()
        return method(*arguments, **named)

    monkeypatch.setattr(owner, name, answer)


def append(directory: Path, base: int, first: int, last: int) -> None:
    with (directory / log_name(base)).open("ab") as log:
        log.write(joined(dense(first, last)))


def rename_segment(directory: Path, base: int, state: str = ".deleted") -> None:
    for suffix in SUFFIXES:
        path = directory / log_name(base, suffix)
        path.rename(f"{path}{state}")


def interrupt(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, step: Callable[[], object]) -> None:
    """Have ``step`` done once, right after a method of ``owner`` has found its answer."""
    method = getattr(owner, name)
    left = [step]

    def answer(*arguments: object, **named: object) -> object:
        found = method(*arguments, **named)
        if left:
            left.pop()()
        return found

    monkeypatch.setattr(owner, name, answer)


def test_a_compacted_segment_with_the_number_of_the_one_before_is_no_damage(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(directory)
    assert len(log.segments) == 3
    sized_file = Segment._sized_file

    def compacted_then(segment: Segment) -> tuple[OpenFile, int]:
        if segment.base_offset == 0 and (directory / log_name(10)).exists():  # its bounds were looked at before
            rename_segment(directory, 10)
            (directory / log_name(0)).write_bytes(joined(dense(0, 19)))  # the same inode, that nobody has looked into
        return sized_file(segment)

    monkeypatch.setattr(Segment, "_sized_file", compacted_then)
    assert [each.offset for each in records_in(log)] == list(range(30))
    assert list(log.problems) == []


# --- sizes


def test_who_saw_an_older_size_does_not_take_growth_for_a_cut(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = open_log(directory).segments[-1]
    segment.file()
    found: list[object] = []

    def another_reader() -> None:
        try:
            found.append(segment.file())
        except FileChanged as error:
            found.append(error)

    def grow() -> None:
        append(directory, 20, 30, 34)
        thread = threading.Thread(target=another_reader)
        thread.start()
        thread.join(1.0)  # it may have to wait for us
        threads.append(thread)

    threads: list[threading.Thread] = []
    append(directory, 20, 30, 30)
    interrupt(monkeypatch, OpenFile, "size_and_time", grow)
    segment.file()
    threads[0].join()
    assert [type(each) for each in found] == [OpenFile]
    assert not segment.is_stale


def test_a_log_that_is_written_to_and_rolled_during_a_look_was_not_written_to_when_closed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(directory)
    active = log.segments[-1]
    active.file()

    threads: list[threading.Thread] = []

    def look() -> None:
        log.look_again()
        assert len(log.segments) == 4
        log.segments[2].file()

    def roll() -> None:
        append(directory, 20, 30, 34)
        write_segment(directory, 35, dense(35, 39))
        threads.append(threading.Thread(target=look))
        threads[0].start()
        threads[0].join(1.0)  # it may have to wait for us

    interrupt(monkeypatch, OpenFile, "size_and_time", roll)
    active.file()
    threads[0].join()
    assert active.file().size() == (directory / log_name(20)).stat().st_size
    assert log.segments[2] is active
    assert log.incarnation == 0


def test_half_a_batch_that_was_seen_before_a_roll_is_no_damage(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(directory)
    whole = joined(dense(30, 34))
    with (directory / log_name(20)).open("ab") as file:
        file.write(whole[:50])

    def roll() -> None:
        with (directory / log_name(20)).open("ab") as file:
            file.write(whole[50:])
        write_segment(directory, 35, dense(35, 39))
        log.look_again()
        assert len(log.segments) == 4

    active = log.segments[-1]
    active.file()
    interrupt(monkeypatch, OpenFile, "size_and_time", roll)
    assert [item.problem.reason for item in active.walk() if hasattr(item, "problem")] == []
    assert [one.offset for one in records_in(log)] == list(range(40))
    assert list(log.problems) == []


# --- names


def test_an_index_whose_log_was_renamed_first_is_no_problem(directory: Path) -> None:
    log = open_log(directory)
    path = directory / log_name(0)
    path.rename(f"{path}.deleted")
    assert [segment.base_offset for segment in log.segments] == [10, 20]
    rename_rest = [directory / log_name(0, suffix) for suffix in SUFFIXES[1:]]
    for each in rename_rest:
        each.rename(f"{each}.deleted")
    assert len(log.segments) == 2
    assert list(log.problems) == []


def test_a_log_that_a_listing_missed_because_it_was_renamed_is_found(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction gives files their last names while the directory is listed: in neither of two places."""
    log = open_log(directory)
    (directory / "beside").mkdir()
    swap = write_segment(directory / "beside", 0, dense(0, 9))
    for suffix in SUFFIXES:
        (swap.parent / log_name(0, suffix)).rename(directory / log_name(0, f"{suffix}.swap"))
    scandir = os.scandir
    missed = [True]

    class Missing:
        """A listing without the segment that is being renamed."""

        def __enter__(self) -> Iterator[os.DirEntry[str]]:
            rename_segment(directory, 0)
            for suffix in SUFFIXES:
                (directory / log_name(0, f"{suffix}.swap")).rename(directory / log_name(0, suffix))
            with scandir(directory) as entries:
                return iter([entry for entry in entries if not entry.name.startswith(log_name(0, ""))])

        def __exit__(self, *_: object) -> None: ...

    def listed(path: str) -> object:
        return Missing() if missed and missed.pop() else scandir(path)

    monkeypatch.setattr(os, "scandir", listed)
    assert [segment.base_offset for segment in log.segments] == [0, 10, 20]


def test_a_directory_that_goes_while_it_is_listed_is_gone(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(directory)
    interrupt(monkeypatch, os, "stat", lambda: directory.rename(directory.with_name("t-0.x-delete")))
    assert log.segments == ()
    assert list(log.problems) == []


def test_a_swapped_segment_keeps_its_slot_when_it_gets_its_last_name(directory: Path) -> None:
    log = open_log(directory)
    rename_segment(directory, 0, ".swap")
    swapped = log.segments[0]
    for suffix in SUFFIXES:
        (directory / log_name(0, f"{suffix}.swap")).rename(directory / log_name(0, suffix))
    assert log.segments[0] is swapped
    assert find_record(log, 3) == record(3)


# --- what goes on


def test_a_walk_goes_on_in_the_file_that_took_a_segments_place(directory: Path) -> None:
    log = open_log(directory)
    walk = log.walk(EVERYTHING)
    first = next(walk)[1]
    beside = write_segment(directory.parent, 10, [batch([record(offset)]) for offset in (10, 13, 16)])
    os.replace(beside, directory / log_name(10))
    items = [first, *(item for _, item in walk)]
    offsets = [item.header.base_offset for item in items if hasattr(item, "header")]
    assert offsets == [0, 5, 10, 13, 16, 20, 25]


def test_a_record_of_a_segment_that_is_replaced_is_looked_up_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(directory)
    beside = write_segment(directory.parent, 10, [batch([record(13, b"new")])])
    interrupt(monkeypatch, Log, "segment_for", lambda: os.replace(beside, directory / log_name(10)))
    located = LogReader(log).find(13)
    assert located is not None
    assert located.loaded.columns.value(located.record_index) in (b"new", record(13).value)


def test_change_is_told_without_a_warning(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(directory)
    assert len(log.segments) == 3
    rename_segment(directory, 0)
    assert len(log.segments) == 2
    said = f"{directory / log_name(0)}: deleted: renamed to .deleted"
    assert said in [each.getMessage() for each in caplog.records]


def test_change_is_estale_and_damage_is_eio(directory: Path) -> None:
    segment = open_log(directory).segments[0]
    (directory / log_name(0)).unlink()
    with pytest.raises(FileChanged) as caught:
        segment.file()
    assert caught.value.errno == errno.ESTALE


# --- a leader that changes


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("more", [0, 5, 30])
def test_a_log_that_was_cut_and_written_on_between_two_looks_is_another_one(
    magic: int, more: int, tmp_path: Path
) -> None:
    """A follower cuts its log and fetches on: the file is soon as long as before, or longer."""
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 29, magic=magic)})
    log = open_log(directory)
    assert log.log_end_offset == 30
    before = log.segments[0]
    kept = len(joined(dense(0, 19, magic=magic)))
    others = [batch([record(offset, b"other %d" % offset)], magic=magic) for offset in range(20, 30 + more)]
    os.truncate(directory / log_name(0), kept)
    with (directory / log_name(0)).open("ab") as file:
        file.write(joined(others))
    found = find_record(log, 25)
    assert isinstance(found, Record)
    assert found.value == b"other 25"
    assert log.segments[0] is not before
    with pytest.raises(FileChanged):
        before.file()


def test_a_closed_log_that_is_the_last_one_again_and_goes_on_otherwise_is_another_one(directory: Path) -> None:
    log = open_log(directory)
    assert find_record(log, 17) == record(17)
    before = log.segments[1]
    for base in (20, 10):
        if base == 20:
            rename_segment(directory, base)
    os.truncate(directory / log_name(10), len(joined(dense(10, 14))))
    with (directory / log_name(10)).open("ab") as file:
        file.write(joined([batch([record(offset, b"other %d" % offset)]) for offset in range(15, 40)]))
    assert find_record(log, 17) == record(17, b"other 17")
    assert log.segments[1] is not before


def test_what_was_cut_and_closed_again_between_two_looks_is_another_one(directory: Path) -> None:
    """Nobody who has the old records at hand looks at the file."""
    log = open_log(directory)
    assert find_record(log, 17) == record(17)
    before = log.segments
    rename_segment(directory, 20)
    os.truncate(directory / log_name(10), len(joined(dense(10, 14))))
    with (directory / log_name(10)).open("ab") as file:
        file.write(joined([batch([record(offset, b"other %d" % offset)]) for offset in range(15, 20)]))
    write_segment(directory, 20, dense(20, 29))
    assert log.segments[0] is before[0]
    assert log.segments[1] is not before[1]


def test_the_zeros_of_a_preallocated_log_that_are_cut_off_change_nothing(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    path = directory / log_name(0)
    size = path.stat().st_size
    os.truncate(path, 1 << 20)
    log = open_log(directory)
    assert log.log_end_offset == 10
    before = log.segments[0]
    os.truncate(path, size)
    write_segment(directory, 10, dense(10, 19))
    assert find_record(log, 7) == record(7)
    assert log.segments[0] is before


def test_what_is_removed_file_by_file_while_it_is_listed_is_no_damage(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory was quiet for long; its topic is deleted, each ``.log`` before what belongs to it."""
    os.utime(directory, (1, 1))
    precede(monkeypatch, PartitionDirectory, "list", (directory / log_name(10)).unlink)
    log = open_log(directory)
    assert [segment.base_offset for segment in log.segments] == [0, 20]
    assert list(log.problems.with_rest()) == []


def test_a_swap_that_takes_its_time_is_no_problem(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker doesn't get to rename the next file before the second look."""
    for suffix in SUFFIXES:
        path = directory / log_name(10, suffix)
        shutil.copy(path, f"{path}.swap")
    os.utime(directory, (time.time() + 3600,) * 2)
    looks = []

    def sleep(_seconds: float) -> None:
        looks.append(1)
        if len(looks) == 2:
            rename_segment(directory, 10)
            for suffix in SUFFIXES:
                (directory / log_name(10, f"{suffix}.swap")).rename(directory / log_name(10, suffix))

    tree = open_tree(directory.parent)
    monkeypatch.setattr(kfs.tree.meta_dir, "time", SimpleNamespace(sleep=sleep, time_ns=time.time_ns))
    assert content_of(tree, "t/0/meta/problems.jsonl") == b""
    assert len(looks) >= 2


def test_a_smaller_file_of_two_compactions_later_that_has_the_same_number_was_not_cut(directory: Path) -> None:
    """The first compaction freed the number, the second got it; a cleaned file has the time of those it is made of."""
    log = open_log(directory)
    assert len(records_in(log)) == 30
    for suffix, content in ((".log", joined(dense(10, 14))), (".index", b""), (".timeindex", b"")):
        path = directory / log_name(10, suffix)
        path.write_bytes(content)  # which leaves it its number
        os.utime(path, (1_700_000_000, 1_700_000_000))
    os.utime(directory)
    assert [each.offset for each in records_in(log)] == [*range(15), *range(20, 30)]
    assert list(log.problems.with_rest()) == []


def test_a_snapshot_that_is_being_written_is_read_when_it_is_whole(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = directory / log_name(20, ".snapshot")
    path.touch()
    clock = path.stat().st_mtime_ns
    written = []

    def sleep(_seconds: float) -> None:
        written.append(path.write_bytes(encode_producer_snapshot([])))

    monkeypatch.setattr(
        kfs.storage.side_file, "time", SimpleNamespace(sleep=sleep, time_ns=lambda: clock), raising=False
    )
    log = open_log(directory)
    assert list(log.producer_snapshots()) == [(20, ())]
    assert len(written) == 1
    assert list(log.problems.with_rest()) == []


def test_a_snapshot_that_stays_short_is_a_problem(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = directory / log_name(20, ".snapshot")
    path.touch()
    clock = [path.stat().st_mtime_ns]

    def sleep(seconds: float) -> None:
        clock[0] += int(seconds * 1e9)

    monkeypatch.setattr(kfs.storage.side_file, "time", SimpleNamespace(sleep=sleep, time_ns=lambda: clock[0]))
    log = open_log(directory)
    assert list(log.producer_snapshots()) == []
    (problem,) = log.problems.with_rest()
    assert problem.file == str(path)
    caplog.clear()


def test_what_is_seen_to_change_during_a_look_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    monkeypatch.setattr("kfs.log.log_segments.LOOK_AGAIN_SECONDS", 1000.0)
    found = Log._found

    def finding(log: Log, mtime_ns: int) -> object:
        monkeypatch.setattr(Log, "_found", found)
        before = log._found(mtime_ns)
        write_segment(directory, 10, dense(10, 19))
        log.look_again()  # as another thread does that has met the new segment
        return before

    log = open_log(directory)
    monkeypatch.setattr(Log, "_found", finding)
    assert [segment.base_offset for segment in log.segments] == [0]
    assert [segment.base_offset for segment in log.segments] == [0, 10]
