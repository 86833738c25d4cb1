"""The watch: what was promised to stay as it is and doesn't is told, by the directories that show it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.errors import NotFound
from kfs.storage.open_files import FileGone
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import LIVE, UNTIL_TOLD, File
from kfs.tree.record_files import FieldFile, RecordFile
from tests.logs import (
    batch,
    content_of,
    dense,
    directory_at,
    joined,
    log_name,
    names,
    open_tree,
    record,
    set_high_watermark,
    set_log_start,
    write_log,
    write_partition,
)

pytestmark = pytest.mark.usefixtures("eager", "quiet")

#: The directories of a partition below which something is promised for ever.
PROMISING = ("offset", "segment", "value", "key", "time")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    for topic in ("a", "b"):
        write_partition(data / f"{topic}-0", {0: dense(0, 9), 10: dense(10, 19)})
    return data


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look takes as long as it takes: on a busy machine a round would be made of many. Reports need no pause."""
    monkeypatch.setattr("kfs.tree.watch._LOOK_SECONDS", 60.0)
    monkeypatch.setattr("kfs.tree.pending_invalidations._APART_SECONDS", 0.0)


def watched(root: Path) -> KafkaTree:
    """Open a tree, look at everything, and let the watch see it so."""
    tree = open_tree(root)
    for topic in ("a", "b"):
        for name in names(directory_at(tree, f"{topic}/0/offset")):
            content_of(tree, f"{topic}/0/offset/{name}")
    assert told(tree) == set()
    return tree


def told(tree: KafkaTree) -> set[str]:
    """Ask until a whole round was made, and all of it told; return the partitions."""
    outdated = {each for _ in range(8) for each in tree.invalidations()}
    paths = {each.path for each in outdated}
    assert {each.parent_id for each in outdated} == {tree.context.ids.of_path(os.path.dirname(path)) for path in paths}
    partitions = {path.rpartition("/")[0] for path in paths}
    assert paths == {f"{partition}/{name}" for partition in partitions for name in PROMISING}
    return partitions


def test_as_long_as_nothing_changes_nothing_is_told(root: Path) -> None:
    assert told(watched(root)) == set()


def test_growth_breaks_no_promise(root: Path) -> None:
    tree = watched(root)
    with (root / "a-0" / log_name(10)).open("ab") as log:
        log.write(joined(dense(20, 24)))
    write_partition(root / "a-0", {25: dense(25, 29)})
    assert told(tree) == set()
    assert names(directory_at(tree, "a/0/offset"))[-1] == "29.json"


def test_a_segment_that_is_deleted_is_told_and_no_more_later(root: Path) -> None:
    tree = watched(root)
    for path in (root / "a-0").glob(log_name(0, ".*")):
        path.rename(f"{path}.deleted")
    assert told(tree) == {"a/0"}
    assert told(tree) == set()


def test_a_segment_that_is_swapped_is_told(root: Path) -> None:
    tree = watched(root)
    beside = write_log(root.parent / "beside", 0, batch([record(3, b"compacted")]).data)
    os.replace(beside, root / "b-0" / log_name(0))
    assert told(tree) == {"b/0"}


def test_a_closed_segment_that_is_cut_is_told(root: Path) -> None:
    tree = watched(root)
    os.truncate(root / "a-0" / log_name(0), 100)
    assert told(tree) == {"a/0"}


def test_an_active_segment_that_is_cut_is_told(root: Path) -> None:
    tree = watched(root)
    os.truncate(root / "a-0" / log_name(10), 100)
    assert told(tree) == {"a/0"}


def test_a_log_start_offset_that_moves_is_told(root: Path) -> None:
    tree = watched(root)
    set_log_start(root, "b", 0, 5)
    assert told(tree) == {"b/0"}
    assert told(tree) == set()


def test_a_partition_that_is_deleted_is_told(root: Path) -> None:
    tree = watched(root)
    (root / "a-0").rename(root / "a-0.d76a33fa3c734388981af789ddeff3e6-delete")
    assert told(tree) == {"a/0"}


def test_a_partition_that_was_never_shown_is_not_told(root: Path) -> None:
    tree = open_tree(root)
    assert told(tree) == set()
    os.truncate(root / "a-0" / log_name(0), 100)
    assert told(tree) == set()


def test_two_changes_are_both_told(root: Path) -> None:
    tree = watched(root)
    os.truncate(root / "a-0" / log_name(0), 100)
    set_log_start(root, "b", 0, 5)
    assert told(tree) == {"a/0", "b/0"}


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("name", ["offset/3.json", "value/3", "key/3"])
def test_what_was_found_never_gives_the_bytes_of_another_incarnation(root: Path, name: str, is_closed: bool) -> None:
    """Of the old file, which is closed soon after it was deleted: the bytes that it had, or ESTALE."""
    tree = watched(root)
    found = tree.resolve(f"a/0/{name}")
    attributes = found.attributes()
    node_id, before = attributes.node_id, content_of(tree, f"a/0/{name}")
    beside = write_log(root.parent / "beside", 0, batch([record(3, b"as long as it takes to be seen")]).data)
    os.replace(beside, root / "a-0" / log_name(0))
    told(tree)
    after = content_of(tree, f"a/0/{name}")
    assert isinstance(found, RecordFile | FieldFile)
    if is_closed:
        found.segment.storage.files.close()
    with contextlib.suppress(NotFound, FileGone):
        assert found.read(0, len(before)) == before
    with contextlib.suppress(NotFound, FileGone):
        assert found.attributes() == attributes
    with contextlib.suppress(NotFound, FileGone):
        assert tree.node(node_id).attributes() == attributes
    assert tree.resolve(f"a/0/{name}").attributes().node_id != node_id
    assert name.startswith("key") or after != before


# --- files of lines, which are told by their own names


def files_told(tree: KafkaTree) -> set[str]:
    return {each.path for _ in range(8) for each in tree.invalidations() if each.path.endswith(".jsonl")}


def lines_at(tree: KafkaTree, base: int, partition: str = "a/0") -> tuple[int, float, bytes]:
    """Look at a segment's file of lines: its id, how long that may be kept, and what it has."""
    path = f"{partition}/segment/{base}.jsonl"
    attributes = tree.resolve(path).attributes()
    return attributes.node_id, attributes.lifetime, content_of(tree, path)


def both_names(*bases: int, partition: str = "a/0") -> set[str]:
    return {f"{partition}/segment/{name}.jsonl" for base in bases for name in (f"{base:020d}", base)}


def test_only_the_lines_of_a_closed_segment_are_promised(root: Path) -> None:
    tree = open_tree(root)
    assert lines_at(tree, 0)[1] == UNTIL_TOLD
    assert lines_at(tree, 10)[1] == LIVE
    assert files_told(tree) == set()


def test_lines_that_the_high_watermark_ends_are_not_promised(root: Path) -> None:
    set_high_watermark(root, "a", 0, 5)
    tree = open_tree(root, until_high_watermark=True)
    assert lines_at(tree, 0)[1] == LIVE
    set_high_watermark(root, "a", 0, 10)
    assert lines_at(tree, 0)[1] == UNTIL_TOLD


def test_growth_takes_back_no_lines(root: Path) -> None:
    tree = open_tree(root)
    before = lines_at(tree, 0)
    write_partition(root / "a-0", {20: dense(20, 29)})
    assert lines_at(tree, 10)[1] == UNTIL_TOLD
    assert files_told(tree) == set()
    assert lines_at(tree, 0) == before


def delete_segment(root: Path) -> None:
    for path in (root / "a-0").glob(log_name(0, ".*")):
        path.rename(f"{path}.deleted")


def swap_segment(root: Path) -> None:
    beside = write_log(root.parent / "beside", 0, batch([record(3, b"compacted")]).data)
    os.replace(beside, root / "a-0" / log_name(0))


def cut_segment(root: Path) -> None:
    os.truncate(root / "a-0" / log_name(0), 100)


def raise_log_start(root: Path) -> None:
    set_log_start(root, "a", 0, 5)


def cut_what_follows(root: Path) -> None:
    for path in (root / "a-0").glob(log_name(10, ".*")):
        path.unlink()


def delete_partition(root: Path) -> None:
    shutil.rmtree(root / "a-0")


def make_partition_again(root: Path) -> None:
    delete_partition(root)
    write_partition(root / "a-0", {0: dense(0, 3), 4: []})


EVERY_CHANGE = pytest.mark.parametrize(
    "change",
    [
        *(delete_segment, swap_segment, cut_segment, raise_log_start),
        *(cut_what_follows, delete_partition, make_partition_again),
    ],
)


@EVERY_CHANGE
def test_lines_that_change_are_told_by_all_their_names(root: Path, change: Callable[[Path], None]) -> None:
    tree = open_tree(root)
    for partition in ("a/0", "b/0"):
        assert lines_at(tree, 0, partition)[1] == UNTIL_TOLD
    assert files_told(tree) == set()
    change(root)
    assert files_told(tree) == both_names(0)
    assert files_told(tree) == set()


@EVERY_CHANGE
def test_another_content_that_is_promised_is_another_file(root: Path, change: Callable[[Path], None]) -> None:
    tree = open_tree(root)
    before = lines_at(tree, 0)
    change(root)
    files_told(tree)
    with contextlib.suppress(NotFound):
        after = tree.resolve("a/0/segment/0.jsonl").attributes()
        assert after.lifetime == LIVE or after.node_id != before[0]


def test_who_has_the_lines_open_keeps_them_when_the_log_start_moves(root: Path) -> None:
    tree = open_tree(root)
    node_id, _, content = lines_at(tree, 0)
    raise_log_start(root)
    files_told(tree)
    after_id, lifetime, after = lines_at(tree, 0)
    assert (lifetime, after) == (UNTIL_TOLD, b"".join(content.splitlines(keepends=True)[5:]))
    opened = tree.node(node_id)
    assert isinstance(opened, File)
    assert opened.attributes().size == len(content)
    assert opened.attributes().lifetime == LIVE
    assert opened.read(0, len(content)) == content
    again = tree.node(after_id)
    assert isinstance(again, File)
    assert again.read(0, len(content)) == after


def test_lines_that_were_never_looked_at_are_not_told(root: Path) -> None:
    tree = watched(root)
    delete_segment(root)
    assert files_told(tree) == set()


def test_an_answer_that_was_late_is_told_later(root: Path) -> None:
    """It was computed before the change and given after that was told."""
    tree = open_tree(root)
    assert lines_at(tree, 0)[1] == UNTIL_TOLD
    view = {view.path: view for view in tree.views.shown()}["a/0"]
    late = dict(view.lines.promised_files)
    swap_segment(root)
    assert files_told(tree) == both_names(0)
    view.lines.promised_files.update(late)
    assert files_told(tree) == both_names(0)


def test_names_are_in_doubt_from_a_change_until_it_is_told(root: Path) -> None:
    tree = watched(root)

    def is_in_doubt(topic: str) -> bool:
        node = tree.resolve(f"{topic}/0/offset/3.json")
        assert isinstance(node, File)
        return node.is_new_there

    assert not is_in_doubt("a")
    shutil.rmtree(root / "a-0")
    write_partition(root / "a-0", {0: dense(0, 9), 10: dense(10, 19)})
    assert is_in_doubt("a")
    assert not is_in_doubt("b")
    tree.invalidations()
    assert is_in_doubt("a")
    told(tree)
    assert not is_in_doubt("a")


def test_names_are_in_doubt_where_a_topic_was_gone_for_a_while(root: Path) -> None:
    tree = watched(root)
    shutil.rmtree(root / "a-0")
    with pytest.raises(NotFound):
        tree.resolve("a/0/offset/3.json")
    write_partition(root / "a-0", {0: dense(0, 9), 10: dense(10, 19)})
    node = tree.resolve("a/0/offset/3.json")
    assert isinstance(node, File)
    assert node.is_new_there
    told(tree)
    assert not node.is_new_there
