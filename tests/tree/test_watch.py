"""The watch: what was promised to stay as it is and doesn't is told, by the directories that show it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from kfs.errors import NotFound
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import File
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
    paths = {path for _ in range(8) for path in tree.outdated()}
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


@pytest.mark.parametrize("name", ["offset/3.json", "value/3", "key/3"])
def test_what_was_found_never_gives_the_bytes_of_another_incarnation(root: Path, name: str) -> None:
    tree = watched(root)
    found = tree.resolve(f"a/0/{name}")
    node_id, before = found.attributes().node_id, content_of(tree, f"a/0/{name}")
    beside = write_log(root.parent / "beside", 0, batch([record(3, b"as long as it takes to be seen")]).data)
    os.replace(beside, root / "a-0" / log_name(0))
    told(tree)
    after = content_of(tree, f"a/0/{name}")
    assert isinstance(found, File)
    with contextlib.suppress(NotFound):
        assert found.read(0, len(before)) == before
    with pytest.raises(NotFound):
        found.attributes()
    with pytest.raises(NotFound):
        tree.node(node_id).attributes()
    assert tree.resolve(f"a/0/{name}").attributes().node_id != node_id
    assert name.startswith("key") or after != before
