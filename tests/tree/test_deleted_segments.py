"""Segments of successive compactions wait for their removal together: they overlap, and nothing of them is left out."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kfs.errors import CorruptData, NotFound
from kfs.format.codecs import Codec
from kfs.format.layout import MAGIC_V0, MAGIC_V1, MAGIC_V2
from kfs.format.record import Record
from kfs.read.isolation_level import IsolationLevel
from kfs.storage.open_files import FileChanged
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.options import TreeOptions
from tests.compactions import SUFFIXES, Compacted, compacted_thrice
from tests.logs import (
    batch,
    batches,
    content_of,
    dense,
    directory_at,
    file_at,
    joined,
    log_name,
    names,
    open_tree,
    record,
    target_of,
    write_log,
    write_partition,
    write_segment,
)
from tests.read.some_transactions import Data, Event, abort, commit, encoded, placed

pytestmark = pytest.mark.usefixtures("eager")

DELETED = ".kfs/deleted/t/0.deleted"


@pytest.fixture(autouse=True)
def no_warning(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What a broker leaves is not told as if something were wrong."""
    with caplog.at_level(logging.INFO, "kfs"):
        yield
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.fixture
def compacted(tmp_path: Path) -> Compacted:
    return compacted_thrice(tmp_path / "root")


def lines_of(tree: KafkaTree, path: str) -> list[int]:
    return [json.loads(line)["offset"] for line in content_of(tree, path).splitlines()]


def assert_complete(tree: KafkaTree, log: Compacted) -> None:
    assert names(directory_at(tree, f"{DELETED}/segment")) == [log_name(base, ".jsonl") for base in sorted(log.deleted)]
    for base, offsets in log.deleted.items():
        assert lines_of(tree, f"{DELETED}/segment/{base}.jsonl") == offsets
    union = log.union
    for with_attributes in (True, False):
        listed = names(directory_at(tree, f"{DELETED}/offset"), with_attributes=with_attributes)
        assert listed == [f"{offset}.json" for offset in union]
    each = b"".join(content_of(tree, f"{DELETED}/offset/{offset}.json") for offset in union)
    assert content_of(tree, f"{DELETED}/records.jsonl") == each
    assert [int(name) for name in names(directory_at(tree, f"{DELETED}/value"))] == union
    hours = [
        name
        for day in names(directory_at(tree, f"{DELETED}/time"))
        for hour in names(directory_at(tree, f"{DELETED}/time/{day}"))
        for name in names(directory_at(tree, f"{DELETED}/time/{day}/{hour}"))
    ]
    assert hours == [f"{offset}.json" for offset in union]
    assert target_of(tree, f"{DELETED}/first.json") == f"offset/{union[0]}.json"
    assert target_of(tree, f"{DELETED}/last.json") == f"offset/{union[-1]}.json"
    assert content_of(tree, f"{DELETED}/meta/problems.jsonl") == b""
    batches = [json.loads(line)["segment"] for line in content_of(tree, f"{DELETED}/meta/batches.jsonl").splitlines()]
    assert set(batches) == {base for base, offsets in log.deleted.items() if offsets}
    raw = names(directory_at(tree, f"{DELETED}/raw"))
    assert raw == [log_name(base, ".log.deleted") for base in sorted(log.deleted)]
    for name in raw:
        assert content_of(tree, f"{DELETED}/raw/{name}") == (log.directory / name).read_bytes()


def test_everything_in_overlapping_segments_is_shown(compacted: Compacted) -> None:
    assert sorted(compacted.deleted) == [0, 10, 20, 30, 40]
    assert_complete(open_tree(compacted.root), compacted)


@pytest.mark.parametrize("order", [(10, 20, 30, 40, 0), (0, 40, 30, 20, 10), (40, 20, 0, 30, 10)])
def test_what_is_left_is_shown_as_one_after_another_is_removed(compacted: Compacted, order: Sequence[int]) -> None:
    tree = open_tree(compacted.root)
    assert_complete(tree, compacted)
    for base in order[:-1]:
        compacted.remove(base)
        assert_complete(tree, compacted)
    compacted.remove(order[-1])
    with pytest.raises(NotFound):
        tree.resolve(f"{DELETED}/records.jsonl")


def test_what_is_deleted_meanwhile_takes_its_place(compacted: Compacted) -> None:
    log = Compacted(compacted.root.parent / "other")
    tree = open_tree(log.root)
    log.compact([0, 10, 20], range(0, 30, 3))
    assert_complete(tree, log)
    log.compact([0, 30], range(0, 40, 6))
    assert_complete(tree, log)
    log.compact([0, 40], range(0, 50, 12))
    assert_complete(tree, log)


def test_the_copy_in_the_segment_with_the_highest_base_offset_is_looked_up(tmp_path: Path) -> None:
    """As after a follower was cut, and wrote others in their place: the one that was cut off is in the later file."""

    def made(offset: int, by: str) -> Record:
        return record(offset, f"{by} {offset}".encode())

    directory = write_partition(tmp_path / "t-0", {100: dense(100, 109)})
    write_segment(directory, 0, [batch([made(offset, "new")]) for offset in range(30)], interval=0)
    write_segment(directory, 10, [batch([made(offset, "old")]) for offset in range(10, 20)], interval=0)
    for base in (0, 10):
        for suffix in SUFFIXES:
            path = directory / log_name(base, suffix)
            path.rename(f"{path}.deleted")
    tree = open_tree(tmp_path)
    want = ["new"] * 10 + ["old"] * 10 + ["new"] * 10
    values = [content_of(tree, f"{DELETED}/value/{offset}").decode().split()[0] for offset in range(30)]
    assert values == want
    lines = content_of(tree, f"{DELETED}/records.jsonl").splitlines()
    assert [json.loads(line)["value"].split()[0] for line in lines] == want
    whole = content_of(tree, f"{DELETED}/segment/0.jsonl").splitlines()
    assert [json.loads(line)["value"].split()[0] for line in whole] == ["new"] * 30
    at = json.loads(lines[25])["time"]
    assert target_of(tree, f"{DELETED}/at/{at}.json") == "../offset/25.json"


@pytest.mark.parametrize("level", list(IsolationLevel))
def test_records_are_those_of_the_level_of_isolation(tmp_path: Path, level: IsolationLevel) -> None:
    """The cleaner took records out of a transaction that was aborted by a marker in another file."""
    events: list[Event] = [
        Data(1, 4),
        Data(2, 2),
        Data(None, 4),
        Data(1, 2),
        Data(None, 4),
        abort(1),
        commit(2),
        Data(None),
    ]
    every = {one.offsets.start: encoded(one) for one in placed(events)}
    files = {0: [0, 4, 6, 10, 12, 16, 17, 18], 10: [10, 12], 16: [16, 17, 18]}
    for base, begins in files.items():
        write_log(tmp_path / "t-0", base, b"".join(every[begin] for begin in begins), ".log.deleted")
    write_partition(tmp_path / "t-0", {100: dense(100, 104)})
    tree = open_tree(tmp_path, options=TreeOptions(isolation=level))
    shown = [*range(16), 18] if level is IsolationLevel.READ_UNCOMMITTED else [4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 18]
    assert [int(name.removesuffix(".json")) for name in names(directory_at(tree, f"{DELETED}/offset"))] == shown
    assert lines_of(tree, f"{DELETED}/records.jsonl") == shown
    for base, begins in files.items():
        own = [offset for offset in shown if begins[0] <= offset and (base != 10 or offset < 16)]
        assert lines_of(tree, f"{DELETED}/segment/{base}.jsonl") == own


def test_what_is_removed_while_it_is_read_is_what_it_was_or_gone(compacted: Compacted) -> None:
    tree = open_tree(compacted.root)
    held = {
        name: (file_at(tree, f"{DELETED}/{name}"), content_of(tree, f"{DELETED}/{name}"))
        for name in ("records.jsonl", "segment/20.jsonl", "offset/21.json", f"raw/{log_name(20, '.log.deleted')}")
    }
    compacted.remove(20)
    for file, content in held.values():
        try:
            assert file.read(0, len(content)) == content
        except FileChanged:
            continue
    for name in list(held)[1:]:
        with pytest.raises(NotFound):
            tree.resolve(f"{DELETED}/{name}")
    assert_complete(tree, compacted)


def test_a_file_that_gets_name_and_number_of_another_is_shown_in_its_place(compacted: Compacted) -> None:
    """The broker renames over the ``.deleted`` file of an earlier compaction, whose number a later one may have."""
    tree = open_tree(compacted.root)
    assert_complete(tree, compacted)
    other = Compacted(compacted.root.parent / "other")
    other.compact([0], [0, 7])
    other.compact([0], [0])
    for suffix in SUFFIXES:
        path = compacted.directory / log_name(0, f"{suffix}.deleted")
        path.write_bytes((other.directory / path.name).read_bytes())  # which leaves it its number
        os.utime(path, (1_700_000_000, 1_700_000_000))  # it was written long before it was renamed
    compacted.deleted[0] = other.deleted[0]
    os.utime(compacted.directory)
    assert_complete(tree, compacted)


@pytest.mark.parametrize(
    ("magic", "codec"), [(MAGIC_V2, Codec.NONE), (MAGIC_V1, Codec.NONE), (MAGIC_V1, Codec.GZIP), (MAGIC_V0, Codec.GZIP)]
)
def test_of_batches_across_a_base_offset_that_is_another_ones_only_a_part_counts(
    tmp_path: Path, magic: int, codec: Codec
) -> None:
    def made(by: str, *offsets: int) -> list[Record]:
        return [record(offset, f"{by} {offset}".encode()) for offset in offsets]

    low = [made("low", *range(8)), made("low", 8, 12), made("low", *range(13, 30))]
    high = [made("high", *range(10, 20))]
    for base, content in ((0, low), (10, high)):
        data = b"".join(joined(batches(one, magic=magic, codec=codec)) for one in content)
        write_log(tmp_path / "t-0", base, data, ".log.deleted")
    write_partition(tmp_path / "t-0", {100: dense(100, 104)})
    tree = open_tree(tmp_path)
    want = {offset: "high" if 10 <= offset < 20 else "low" for offset in (*range(9), *range(10, 30))}
    for with_attributes in (True, False):
        listed = names(directory_at(tree, f"{DELETED}/offset"), with_attributes=with_attributes)
        assert listed == [f"{offset}.json" for offset in want]
    for offset, by in want.items():
        assert content_of(tree, f"{DELETED}/value/{offset}") == f"{by} {offset}".encode()
    lines = [json.loads(line) for line in content_of(tree, f"{DELETED}/records.jsonl").splitlines()]
    assert {line["offset"]: line["value"].split()[0] for line in lines} == want
    assert len(lines) == len(want)
    assert lines_of(tree, f"{DELETED}/segment/0.jsonl") == [each.offset for one in low for each in one]


def test_an_empty_segment_answers_for_nothing(compacted: Compacted) -> None:
    """It was just rolled when all of them were deleted."""
    for base in (20, 30, 40):
        compacted.remove(base)
    write_log(compacted.directory, 25, b"", ".log.deleted")
    compacted.deleted[25] = []
    tree = open_tree(compacted.root)
    assert_complete(tree, compacted)


def test_damage_in_a_segment_that_others_overlap_is_damage(
    compacted: Compacted, caplog: pytest.LogCaptureFixture
) -> None:
    path = compacted.directory / log_name(20, ".log.deleted")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    tree = open_tree(compacted.root)
    last = compacted.deleted[20][-1]
    with pytest.raises(CorruptData):
        tree.resolve(f"{DELETED}/offset/{last}.json")
    (problem,) = content_of(tree, f"{DELETED}/meta/problems.jsonl").splitlines()
    assert json.loads(problem)["file"] == str(path)
    caplog.clear()
