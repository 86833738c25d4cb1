"""The number of an inode is given to another file as soon as it is free, at times under the same path.

A file system does so when it likes. Here it's made to happen: what is to look like another file of the same number is
the same file, moved and written anew, which nobody has open.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.format.partition_metadata import PartitionMetadata, encode_partition_metadata
from kfs.format.uuid import Uuid
from kfs.log.index_file import IndexPool
from kfs.log.log import Log
from kfs.log.offset_index import LAYOUT
from kfs.storage.descriptors import BUDGET
from kfs.storage.listing import FoundFile
from kfs.storage.open_files import FileChanged, FileGone, FilePool, OpenFile
from kfs.storage.side_file import Watched
from tests.logs import Batch, batch, joined, log_name, open_log, record, records_in, write_log

pytestmark = pytest.mark.usefixtures("eager")

LAST = batch([record(1, b"same in both")])
OLD = [batch([record(0, b"old")]), LAST]
NEW = [batch([record(0, b"new")]), LAST, batch([record(2)])]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "data" / "again-0"
    write_log(directory, 0, joined(OLD))
    write_topic_id(directory, 1)
    return directory


def write_topic_id(directory: Path, number: int) -> None:
    (directory / "partition.metadata").write_bytes(
        encode_partition_metadata(PartitionMetadata(Uuid(number.to_bytes(16))))
    )


def write_over(path: Path, content: list[Batch]) -> None:
    BUDGET.let_all_go()  # of a file that somebody has open the number isn't free
    number = path.stat().st_ino
    with path.open("r+b") as file:
        file.truncate()
        file.write(joined(content))
    assert path.stat().st_ino == number


def another_directory(directory: Path) -> None:
    """Delete the topic and make it again: the number of the ``.log`` is the same, that of the directory isn't."""
    aside = directory.rename(directory.parent.parent / "aside")
    directory.mkdir()
    (aside / log_name(0)).rename(directory / log_name(0))
    write_over(directory / log_name(0), NEW)


def another_topic_id(directory: Path) -> None:
    """Delete the topic and make it again: the numbers of both are the same."""
    write_over(directory / log_name(0), NEW)
    (directory / "partition.metadata").unlink()
    write_topic_id(directory, 2)


CHANGES = pytest.mark.parametrize("change", [another_directory, another_topic_id], ids=lambda each: each.__name__)


def first_value(log: Log) -> bytes | None:
    found = log.find(0)
    return None if found is None else found.columns.value(0)


@CHANGES
def test_a_topic_made_again_has_other_segments(directory: Path, change: Callable[[Path], None]) -> None:
    log = open_log(directory)
    before = log.segments
    assert (first_value(log), log.log_end_offset, len(records_in(log))) == (b"old", 2, 2)
    change(directory)
    assert log.segments[0] not in before
    assert (first_value(log), log.log_end_offset, len(records_in(log))) == (b"new", 3, 3)


@CHANGES
def test_who_holds_a_segment_of_the_old_topic_never_reads_the_new_one(
    directory: Path, change: Callable[[Path], None]
) -> None:
    log = open_log(directory)
    old = log.segments[0]
    assert first_value(log) == b"old"
    change(directory)
    assert first_value(log) == b"new"  # the new one's file is open now
    with pytest.raises(FileChanged):
        old.file()
    with pytest.raises(FileChanged):
        old.find(0)
    assert first_value(log) == b"new"


def test_a_topic_id_that_is_written_later_is_no_change(directory: Path) -> None:
    (directory / "partition.metadata").unlink()
    log = open_log(directory)
    before = log.segments
    write_topic_id(directory, 1)
    assert log.segments == before
    (directory / "partition.metadata").unlink()
    assert log.segments == before
    write_topic_id(directory, 2)
    assert log.segments != before


def test_an_old_segment_is_read_as_long_as_it_is_open(directory: Path) -> None:
    log = open_log(directory)
    old = log.segments[0]
    file = old.file()
    (directory / log_name(0)).rename(directory / f"{log_name(0)}.deleted")
    assert log.segments == ()
    assert old.file() is file
    assert old.find(0) is not None
    file.let_go()
    (directory / f"{log_name(0)}.deleted").rename(directory / log_name(0))
    with pytest.raises(FileGone):
        old.file()
    assert first_value(log) == b"old"


def test_a_file_that_was_let_go_is_known_again_by_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(joined(OLD))
    file = OpenFile(str(path))
    file.let_go()
    with path.open("ab") as log:
        log.write(joined(NEW[2:]))
    assert file.read(0, 1000) == joined([*OLD, NEW[2]])  # it has grown
    for other in (NEW, OLD[:1]):
        write_over(path, other)
        with pytest.raises(FileGone):
            file.read(0, 10)


def test_what_was_written_anew_with_the_old_size_and_time_is_noticed(tmp_path: Path) -> None:
    """As where a cleaner gives what it writes the time of what it was."""
    path = tmp_path / "00000000000000000000.index"

    def write(content: bytes) -> None:
        path.write_bytes(content)
        os.utime(path, ns=(10**18, 10**18))

    write(b"\x00\x00\x00\x01" * 4)
    pool = IndexPool(FilePool())
    found = FoundFile(str(path), path.stat().st_ino)
    before = bytes(pool.bytes_of(found, LAYOUT, closed=False).data)
    watched = Watched()
    assert watched.changed(str(path))
    assert not watched.changed(str(path))
    write(b"\x00\x00\x00\x02" * 4)
    assert watched.changed(str(path))
    assert bytes(pool.bytes_of(found, LAYOUT, closed=False).data) != before
