"""Which inode a path leads to: another one as soon as its content isn't what it was, with more at its end at most."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from kfs.errors import KfsError, Stale
from kfs.read.isolation_level import IsolationLevel
from kfs.storage.open_files import FileChanged
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import File
from kfs.tree.node_ids import PLACE, Content, Exactly, NodeIds, Parts
from kfs.tree.options import TreeOptions
from tests.logs import (
    batch,
    content_of,
    dense,
    file_at,
    joined,
    log_name,
    open_tree,
    record,
    set_high_watermark,
    set_log_start,
    write_partition,
    write_segment,
)

pytestmark = pytest.mark.usefixtures("eager", "quiet")

RECORDS = "t/0/records.jsonl"
SUFFIXES = (".log", ".index", ".timeindex")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_partition(tmp_path / "data" / "t-0", {0: dense(0, 9), 10: dense(10, 19), 20: dense(20, 29)})


def tree_of(directory: Path) -> KafkaTree:
    return open_tree(directory.parent)


def id_of(tree: KafkaTree, path: str) -> int:
    return tree.resolve(path).attributes().node_id


def rename(directory: Path, base: int) -> None:
    for suffix in SUFFIXES:
        path = directory / log_name(base, suffix)
        path.rename(f"{path}.deleted")


def retention(directory: Path) -> None:
    rename(directory, 0)


def delete_records(directory: Path) -> None:
    set_log_start(directory.parent, "t", 0, 5)


def compaction(directory: Path) -> None:
    beside = write_segment(directory.parent.parent, 10, [batch([record(13, b"new")])])
    os.replace(beside, directory / log_name(10))


def truncation(directory: Path) -> None:
    os.truncate(directory / log_name(20), len(joined(dense(20, 24))))
    with (directory / log_name(20)).open("ab") as log:
        log.write(joined([batch([record(offset, b"another %d" % offset)]) for offset in range(25, 45)]))


def topic_made_again(directory: Path) -> None:
    directory.rename(directory.with_name(f"t-0.{'0a' * 16}-delete"))
    write_partition(directory, {0: dense(0, 9), 10: dense(10, 19), 20: dense(20, 29)})


CHANGES = pytest.mark.parametrize(
    "change", [retention, delete_records, compaction, truncation, topic_made_again], ids=lambda change: change.__name__
)


def read_or_stale(file: File, start: int) -> bytes:
    try:
        return file.read(start, 300)
    except KfsError as error:
        return errno.errorcode[error.errno].encode()


@CHANGES
def test_records_that_begin_elsewhere_or_are_others_are_another_file(
    directory: Path, change: Callable[[Path], None]
) -> None:
    tree = tree_of(directory)
    before, content = id_of(tree, RECORDS), content_of(tree, RECORDS)
    change(directory)
    assert id_of(tree, RECORDS) != before
    with pytest.raises(Stale):
        tree.node(before)
    assert content_of(tree, RECORDS) != content or change is topic_made_again


@CHANGES
@pytest.mark.parametrize("was_read", [True, False], ids=["read before", "looked at before"])
def test_who_has_records_open_gets_the_old_ones_or_an_error(
    directory: Path, change: Callable[[Path], None], was_read: bool
) -> None:
    tree = tree_of(directory)
    content = content_of(tree, RECORDS)
    file = file_at(tree, RECORDS)
    file.attributes()
    if was_read:
        assert file.read(0, 300) == content[:300]
    change(directory)
    for start in range(0, len(content), 300):
        assert read_or_stale(file, start)[: len(content) - start] in (content[start : start + 300], b"ESTALE")


def test_records_grow_at_their_end_over_rolls(directory: Path) -> None:
    tree = tree_of(directory)
    before, content = id_of(tree, RECORDS), content_of(tree, RECORDS)
    opened = file_at(tree, RECORDS)
    with (directory / log_name(20)).open("ab") as log:
        log.write(joined(dense(30, 34)))
    assert opened.attributes().size > len(content)
    write_segment(directory, 35, dense(35, 39))
    write_segment(directory, 40, dense(40, 44))
    assert id_of(tree, RECORDS) == before
    whole = content_of(tree, RECORDS)
    assert whole.startswith(content)
    assert whole.count(b"\n") == 45
    assert opened.read(0, 1 << 20) == whole
    assert opened.attributes().size == len(whole)


LEVELS = pytest.mark.parametrize("level", list(IsolationLevel))


@LEVELS
def test_what_was_opened_before_a_retention_goes_on_behind_it(directory: Path, level: IsolationLevel) -> None:
    tree = open_tree(directory.parent, options=TreeOptions(isolation=level))
    content = content_of(tree, RECORDS)
    opened = file_at(tree, RECORDS)
    assert opened.attributes().size == len(content)
    retention(directory)
    assert content_of(tree, RECORDS) == content[content.index(b'{"topic":"t","partition":0,"offset":10,') :]
    write_segment(directory, 30, dense(30, 39))
    wanted = content_of(tree, RECORDS)
    more = opened.read(len(content), 1 << 20)
    assert more == wanted[wanted.index(b'{"topic":"t","partition":0,"offset":30,') :]
    assert opened.attributes().size == len(content) + len(more)


def removal(directory: Path) -> None:
    shutil.rmtree(directory)


def roll_and_compaction(directory: Path) -> None:
    write_segment(directory, 30, dense(30, 39))
    rename(directory, 20)
    write_segment(directory, 20, [batch([record(29, b"new")])])


def start_behind_the_last_segment(directory: Path) -> None:
    write_segment(directory, 30, dense(30, 39))
    set_log_start(directory.parent, "t", 0, 32)


@LEVELS
@pytest.mark.parametrize(
    "change",
    [truncation, topic_made_again, removal, roll_and_compaction, start_behind_the_last_segment],
    ids=lambda change: change.__name__,
)
def test_who_waits_at_an_end_that_stays_is_told(
    directory: Path, change: Callable[[Path], None], level: IsolationLevel
) -> None:
    tree = open_tree(directory.parent, options=TreeOptions(isolation=level))
    opened = file_at(tree, RECORDS)
    size = opened.attributes().size
    assert opened.read(size, 1000) == b""
    change(directory)
    with pytest.raises(FileChanged):
        opened.attributes()
    with pytest.raises(FileChanged):
        opened.read(size, 1000)
    assert read_or_stale(opened, size) == b"ESTALE"


@LEVELS
def test_who_waits_for_a_first_segment_is_told(tmp_path: Path, level: IsolationLevel) -> None:
    directory = tmp_path / "data" / "t-0"
    directory.mkdir(parents=True)
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    tree = open_tree(directory.parent, options=TreeOptions(isolation=level))
    opened = file_at(tree, RECORDS)
    assert opened.attributes().size == 0
    write_partition(directory, {0: dense(0, 9)})
    assert read_or_stale(opened, 0) == b"ESTALE"


def test_an_active_segment_that_is_closed_while_somebody_reads_it_is_shown_to_its_end(directory: Path) -> None:
    tree = tree_of(directory)
    opened = file_at(tree, "t/0/segment/20.jsonl")
    assert opened.attributes().size > 0
    with (directory / log_name(20)).open("ab") as log:
        log.write(joined(dense(30, 34)))
    write_segment(directory, 35, dense(35, 39))
    assert content_of(tree, "t/0/segment/20.jsonl").count(b"\n") == 15
    assert opened.read(0, 1 << 20) == content_of(tree, "t/0/segment/20.jsonl")


def test_records_up_to_a_high_watermark_that_falls_are_another_file(directory: Path) -> None:
    set_high_watermark(directory.parent, "t", 0, 25)
    tree = open_tree(directory.parent, until_high_watermark=True)
    paths = (RECORDS, "t/0/segment/20.jsonl")
    before = [id_of(tree, path) for path in paths]
    set_high_watermark(directory.parent, "t", 0, 27)
    assert [id_of(tree, path) for path in paths] == before
    set_high_watermark(directory.parent, "t", 0, 22)
    after = [id_of(tree, path) for path in paths]
    assert not set(before) & set(after)
    assert content_of(tree, "t/0/segment/20.jsonl").count(b"\n") == 2
    for node_id in before:
        with pytest.raises(Stale):
            tree.node(node_id)


def test_a_generated_file_is_read_by_its_id_when_another_was_made(directory: Path) -> None:
    """The kernel may have the id for a moment longer, and reads it without looking the name up."""
    tree = tree_of(directory)
    path = ".kfs/stats.json"
    node = tree.resolve(path)
    assert isinstance(node, File)
    before, content = node.attributes().node_id, node.read(0, 1 << 20)
    content_of(tree, "t/0/offset/20.json")  # which fills a cache that the file tells of
    tree.context._latest.clear()
    kept = tree.node(before)
    assert isinstance(kept, File)
    assert kept.read(0, 1 << 20) == content
    assert kept.attributes().size == len(content)
    assert id_of(tree, path) != before
    kept = tree.node(before)
    assert isinstance(kept, File)
    assert kept.read(5, 10) == content[5:15]


def test_committed_lines_are_another_file_when_a_segment_behind_them_is_replaced(directory: Path) -> None:
    """It may have had the marker that decided about them."""
    tree = open_tree(directory.parent, options=TreeOptions(isolation=IsolationLevel.READ_COMMITTED))
    path = "t/0/segment/0.jsonl"
    before = id_of(tree, path)
    compaction(directory)
    assert id_of(tree, path) != before
    with pytest.raises(Stale):
        tree.node(before)


def test_batches_are_another_file_when_a_segment_among_them_is(directory: Path) -> None:
    tree = tree_of(directory)
    before = id_of(tree, "t/0/meta/batches.jsonl")
    write_segment(directory, 30, dense(30, 39))
    assert id_of(tree, "t/0/meta/batches.jsonl") == before
    compaction(directory)
    assert id_of(tree, "t/0/meta/batches.jsonl") != before


def test_what_is_made_anew_between_two_reads_is_never_mixed_into_what_was_made_before(directory: Path) -> None:
    tree = tree_of(directory)
    path = "t/0/meta/segments.jsonl"
    opened = file_at(tree, path)
    size = opened.attributes().size
    start = opened.read(0, 40)
    before = content_of(tree, path)
    retention(directory)
    tree.context._latest.clear()
    after = content_of(tree, path)
    assert after != before
    assert start + opened.read(40, size) == before
    assert opened.attributes().size == size
    tree.context._generated.clear()  # it is kept for a while only
    with pytest.raises(Stale):
        opened.read(40, size)


def test_what_is_made_anew_with_more_at_its_end_is_the_same_file(directory: Path) -> None:
    tree = tree_of(directory)
    path = "t/0/meta/leader-epochs.jsonl"
    checkpoint = directory / "leader-epoch-checkpoint"
    checkpoint.write_text("0\n1\n0 0\n")
    opened = file_at(tree, path)
    before, content = opened.attributes().node_id, opened.read(0, 1000)
    checkpoint.write_text("0\n2\n0 0\n3 15\n")
    tree.context._latest.clear()
    assert id_of(tree, path) == before
    assert opened.read(0, 1000).startswith(content)
    assert opened.attributes().size > len(content)
    checkpoint.write_text("0\n1\n1 0\n")
    tree.context._latest.clear()
    assert id_of(tree, path) != before


def test_an_old_id_is_never_issued_again() -> None:
    ids = NodeIds()
    issued = [ids.of_path("a", Exactly(number)) for number in range(5)]
    issued += [ids.of_path("b"), ids.of_path("a", Exactly(0))]
    assert len(set(issued)) == len(issued)
    assert ids.path_of(issued[-1]) == "a"
    for old in issued[:5]:
        with pytest.raises(Stale):
            ids.path_of(old)


def test_a_listing_names_the_file_that_is_found_next() -> None:
    ids = NodeIds()
    listed = ids.last_of("a")
    assert ids.of_path("a", Content(b"text")) == listed == ids.last_of("a")
    assert ids.of_path("d", PLACE) == ids.of_path("d") == ids.last_of("d")


@pytest.fixture(params=["t/0/meta/log.json", ".kfs/stats.json"], ids=["in a block", "by its path"])
def generated(request: pytest.FixtureRequest) -> tuple[NodeIds, str]:
    """Ids in which the directories above a generated file have theirs, and its path."""
    ids = NodeIds()
    for directory in ("t", "t/0", "t/0/meta", ".kfs"):
        ids.of_path(directory)
    return ids, str(request.param)


def test_generated_content_that_only_grew_keeps_its_id(generated: tuple[NodeIds, str]) -> None:
    ids, path = generated
    listed = ids.last_of(path)
    assert [ids.of_path(path, Content(text)) for text in (b"", b"ab", b"ab", b"abc")] == [listed] * 4
    assert ids.path_of(listed) == path


def test_other_generated_content_is_another_file(generated: tuple[NodeIds, str]) -> None:
    ids, path = generated
    texts = (b"abc", b"xyz", b"abc", b"ab")
    issued = [ids.of_path(path, Content(text)) for text in texts]
    assert len(set(issued)) == len(texts)
    assert ids.last_of(path) == ids.of_path(path, Content(b"abcd")) == issued[-1]
    assert ids.path_of(issued[-1]) == path
    for old in issued[:-1]:
        with pytest.raises(Stale):
            ids.path_of(old)


def test_ids_in_a_block_are_of_one_file_each() -> None:
    ids = NodeIds()
    for directory in ("t", "t/0", "t/0/meta", "t/1", "t/1/meta"):
        ids.of_path(directory)
    names = ("meta/log.json", "meta/segments.jsonl", "meta/transactions.json", "meta/problems.jsonl")
    paths = [f"t/{partition}/{name}" for partition in (0, 1) for name in names]
    issued = {path: ids.of_path(path, Content(path.encode())) for path in paths}
    issued |= {path: ids.of_path(path) for path in ("t/0/offset", "t/0/raw", "t/1/offset", "t/1/meta")}
    assert {path: ids.path_of(node_id) for path, node_id in issued.items()} == {path: path for path in issued}


@pytest.mark.parametrize(
    ("later", "is_same"),
    [
        (Parts(5, (1, 2)), True),
        (Parts(5, (1, 2, 3)), True),
        (Parts(5, (1,)), False),
        (Parts(6, (1, 2)), False),
        (Parts(5, (2, 3)), False),
        (Parts(5, (1, 4, 3)), False),
    ],
)
def test_parts_may_be_added_at_the_end(later: Parts, is_same: bool) -> None:
    assert later.continues(Parts(5, (1, 2)).mark) is is_same


def test_a_symlink_is_asked_where_it_leads(directory: Path) -> None:
    tree = tree_of(directory)
    before = id_of(tree, "t/0/first.json")
    retention(directory)
    assert id_of(tree, "t/0/first.json") == before
    assert not isinstance(tree.node(before), File)


def topic_deleted(directory: Path) -> None:
    directory.rename(directory.with_name(f"t-0.{'0a' * 16}-delete"))


def topic_made_again_shorter(directory: Path) -> None:
    topic_deleted(directory)
    write_partition(directory, {0: dense(0, 4)})


@LEVELS
@pytest.mark.parametrize("base", [0, 10, 20])
@pytest.mark.parametrize(
    "change", [topic_deleted, topic_made_again_shorter, retention, truncation], ids=lambda change: change.__name__
)
def test_who_has_a_segment_open_gets_all_of_it_or_an_error(
    directory: Path, change: Callable[[Path], None], base: int, level: IsolationLevel
) -> None:
    tree = open_tree(directory.parent, options=TreeOptions(isolation=level))
    path = f"t/0/segment/{base:020}.jsonl"
    content, node_id = content_of(tree, path), id_of(tree, path)
    start = len(content) // 2
    change(directory)

    def read_on() -> bytes:
        try:
            file = cast(File, tree.node(node_id))
        except KfsError as error:
            return errno.errorcode[error.errno].encode()
        return read_or_stale(file, start)

    for _ in range(3):  # what is known of the log is that of before, then that of now
        assert read_on() in (content[start : start + 300], b"ESTALE")
