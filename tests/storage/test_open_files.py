"""Descriptors and maps: pooled, bounded, and bound to the very file that a listing saw."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from kfs.log import segment
from kfs.log.index_file import IndexPool
from kfs.log.offset_index import LAYOUT
from kfs.log.storage import Storage
from kfs.storage import open_files
from kfs.storage.descriptors import BUDGET
from kfs.storage.listing import FoundFile
from kfs.storage.open_files import FileChanged, FilePool, OpenFile
from tests.logs import batch, find_record, open_log, record, write_partition


def descriptors() -> int:
    gc.collect()  # other tests' files are none of ours
    return len(os.listdir("/proc/self/fd"))


def maps_of(directory: Path) -> int:
    with open("/proc/self/maps") as maps:
        return sum(str(directory) in line for line in maps)


def files(directory: Path, count: int, size: int = 16) -> list[FoundFile]:
    found = []
    for number in range(count):
        path = directory / f"{number}.index"
        path.write_bytes(b"\x00\x00\x00\x01" * (size // 4))
        found.append(FoundFile(str(path), path.stat().st_ino))
    return found


# --- one file -------------------------------------------------------------------------------------------------------


def test_a_read_gives_what_is_there_and_less_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    file = OpenFile(str(tmp_path / "file"))
    assert [file.read(0, 4), file.read(8, 4), file.read(10, 4), file.read(100, 4)] == [b"0123", b"89", b"", b""]
    assert file.size() == 10


def test_a_read_that_comes_in_parts_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, position: pread(fd, min(length, 7), position))
    assert OpenFile(str(tmp_path / "file")).read(5, 90) == bytes(range(5, 95))


def test_a_file_is_closed_when_nobody_holds_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    gc.collect()  # files of tests before this one
    before = descriptors()
    file = OpenFile(str(tmp_path / "file"))
    assert descriptors() == before + 1
    del file
    gc.collect()
    assert descriptors() == before


@pytest.mark.parametrize("kind", ["missing", "fifo", "directory", "device"])
def test_what_is_not_a_regular_file_is_refused_and_closed(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "what"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/null")
    before = descriptors()
    with pytest.raises(FileChanged) as caught:
        OpenFile(str(path))
    assert caught.value.file == str(path)
    del caught
    gc.collect()
    assert descriptors() == before


def test_files_are_opened_for_reading_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    file = OpenFile(str(tmp_path / "file"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(file.descriptor().number, b"x")


def test_bad_pages_read_as_what_no_header_begins_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"a" * 4096 + b"b" * 4096 + b"c" * 100)
    file = OpenFile(str(tmp_path / "file"))
    pread = os.pread

    def failing(fd: int, length: int, position: int) -> bytes:
        if position < 8192 and position + length > 4096:
            raise OSError(5, "Input/output error")
        return pread(fd, length, position)

    monkeypatch.setattr(os, "pread", failing)
    assert file.read(4000, 5000) == b"a" * 96 + b"\xff" * 4096 + b"c" * 100
    assert file.read_error(0, 4096) is None
    assert file.read_error(4095, 2) == "read failed at 4096: Input/output error"
    assert file.read_error(8192, 10) is None
    assert file.read(0, 4096) == b"a" * 4096


# --- pools ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of eight, and nothing open that other tests have left to the collector."""
    gc.collect()
    monkeypatch.setattr(BUDGET, "_most", 8)


def test_the_pool_keeps_few_files_open(tmp_path: Path, few: None) -> None:
    pool = FilePool()
    before = descriptors()
    for found in files(tmp_path, 100) * 2:
        assert pool.open(found.path, found.inode).read(0, 4) == b"\x00\x00\x00\x01"
        assert descriptors() <= before + 9
    pool.close()
    assert descriptors() == before


def test_the_pool_gives_the_same_file_while_it_has_it(tmp_path: Path) -> None:
    (found,) = files(tmp_path, 1)
    pool = FilePool()
    assert pool.open(found.path, found.inode) is pool.open(found.path, found.inode)


def test_a_file_that_was_let_go_is_opened_again_by_who_holds_it(tmp_path: Path, few: None) -> None:
    pool = FilePool()
    first, *others = files(tmp_path, 20)
    file = pool.open(first.path, first.inode)
    kept = [pool.open(found.path, found.inode) for found in others]
    assert pool.open(first.path, first.inode) is not file
    before = descriptors()
    for each in [file, *kept]:
        assert each.read(0, 4) == b"\x00\x00\x00\x01"
        assert descriptors() <= before + 1


@pytest.mark.parametrize(
    ("asked", "call"),
    [("size", "fstat"), ("size_and_time", "fstat"), ("status", "fstat"), ("version", "fstat"), ("sought", "lseek")],
)
def test_a_file_that_is_let_go_while_something_is_asked_is_open_until_then(
    asked: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123")
    file = OpenFile(str(path))
    real = getattr(os, call)

    def as_another_thread_lets_it_go(number: int, *arguments: int) -> object:
        file.let_go()
        return real(number, *arguments)

    arguments = (0, os.SEEK_SET) if asked == "sought" else ()
    expected = getattr(file, asked)(*arguments)
    monkeypatch.setattr(os, call, as_another_thread_lets_it_go)
    # Its own look at a file that it lets go asks for nothing.
    monkeypatch.setattr(open_files._Left, "of", lambda _descriptor: open_files._Left(0, b""))
    assert getattr(file, asked)(*arguments) == expected


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_let_go_is_never_taken_for_another_one(replaced: bool, tmp_path: Path) -> None:
    (found,) = files(tmp_path, 1)
    file = OpenFile(found.path)
    file.let_go()
    os.rename(found.path, f"{found.path}.deleted")
    if replaced:
        Path(found.path).write_bytes(b"another")
    with pytest.raises(FileChanged):
        file.read(0, 4)


def test_a_path_that_names_another_file_now_is_refused(tmp_path: Path) -> None:
    (found,) = files(tmp_path, 1)
    (tmp_path / "other").write_bytes(b"other")
    os.replace(tmp_path / "other", found.path)
    with pytest.raises(FileChanged, match="replaced by another file"):
        FilePool().open(found.path, found.inode)


def test_indexes_of_closed_segments_are_mapped_and_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()  # what other tests held open is not to be counted
    monkeypatch.setattr(BUDGET, "_most", BUDGET.count + 200)
    opened = FilePool()
    pool = IndexPool(opened)
    before = descriptors()
    for found in files(tmp_path, 600):
        assert pool.bytes_of(found, LAYOUT, closed=True).entries == 2
        assert descriptors() <= before + 202
    gc.collect()
    assert 50 < maps_of(tmp_path) <= 101
    pool.close()
    opened.close()
    gc.collect()
    assert maps_of(tmp_path) == 0


def test_the_index_of_an_active_segment_is_never_mapped(tmp_path: Path) -> None:
    pool = IndexPool(FilePool())
    for found in files(tmp_path, 20):
        content = pool.bytes_of(found, LAYOUT, closed=False)
        assert isinstance(content.data, bytes)
    assert maps_of(tmp_path) == 0


def test_copies_of_active_indexes_are_bounded_in_bytes(tmp_path: Path) -> None:
    pool = IndexPool(FilePool())
    for found in files(tmp_path, 30, size=1 << 20):
        pool.bytes_of(found, LAYOUT, closed=False)
    assert 0 < sum(len(copy.data) for copy in pool._copies.values()) <= 8 * 1024 * 1024


@pytest.mark.parametrize("closed", [True, False])
def test_an_index_that_changed_is_read_anew(closed: bool, tmp_path: Path) -> None:
    (found,) = files(tmp_path, 1)
    pool = IndexPool(FilePool())
    first = pool.bytes_of(found, LAYOUT, closed=closed)
    assert pool.bytes_of(found, LAYOUT, closed=closed) is first
    with open(found.path, "ab") as file:
        file.write(b"\x00\x00\x00\x09" * 2)
    second = pool.bytes_of(found, LAYOUT, closed=closed)
    assert (first.entries, second.entries) == (2, 3)
    assert first.version != second.version


def test_a_log_of_many_segments_holds_few_descriptors_and_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "_SCANNED_BYTES", 0)  # else such small ones are read without their index
    gc.collect()  # what other tests held open is not to be counted
    monkeypatch.setattr(BUDGET, "_most", BUDGET.count + 290)
    segments = {base: [batch([record(base)]), batch([record(base + 1)])] for base in range(0, 1600, 2)}
    directory = write_partition(tmp_path / "t-0", segments)
    storage = Storage()
    log = open_log(directory, storage)
    before = descriptors()
    for offset in range(1600):
        assert find_record(log, offset) == record(offset)
    assert descriptors() - before <= 300
    assert 50 < maps_of(tmp_path) <= 150
    storage.close()
    gc.collect()
    assert descriptors() <= before
    assert maps_of(tmp_path) == 0
