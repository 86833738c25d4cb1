"""``.kfs/``: about the mount and the broker whose files these are; and what ``--views`` lists."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from kfs import __version__
from kfs.errors import NotFound
from kfs.log.problem import DamagePolicy
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import Directory
from kfs.tree.options import TreeOptions
from tests.every_node import every_node
from tests.logs import (
    batch,
    content_of,
    dense,
    directory_at,
    names,
    open_tree,
    record,
    set_high_watermark,
    set_log_start,
    target_of,
    write_checkpoint,
    write_partition,
)

ID = "d76a33fa3c734388981af789ddeff3e6"
ABOUT = [
    *("README", "stats.json", "metrics", "log-dirs.jsonl", "problems.jsonl", "checkpoints"),
    *("cluster", "deleted", "replicas", "groups", "transactions"),
]
LISTED = ["offset", "segment", "first.json", "last.json", "meta"]
UNLISTED = ["value", "key", "records.jsonl", "time", "at", "raw"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory with two topics and what a broker puts beside them."""
    data = tmp_path / "data"
    write_partition(data / "a-0", {0: dense(0, 9)})
    write_partition(data / "a-1", {0: dense(0, 4)})
    write_partition(data / "b-0", {5: dense(5, 9)})
    (data / "meta.properties").write_text("version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id=3\n")
    return data


def rows(tree: KafkaTree, path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content_of(tree, path).splitlines()]


# --- what is listed -------------------------------------------------------------------------------------------------


def test_by_default_a_partition_lists_what_the_design_lists(root: Path) -> None:
    tree = open_tree(root)
    assert names(tree.root) == ["a", "b"]
    assert names(directory_at(tree, "a")) == ["0", "1"]
    assert names(directory_at(tree, "a/0")) == LISTED


def test_all_else_resolves_by_name(root: Path) -> None:
    tree = open_tree(root)
    for name in UNLISTED:
        assert tree.resolve(f"a/0/{name}").attributes().node_id > 1
    assert isinstance(tree.resolve(".kfs"), Directory)


def test_with_views_everything_is_listed(root: Path) -> None:
    tree = open_tree(root, options=TreeOptions(views=True))
    assert names(tree.root) == ["a", "b", ".kfs"]
    assert names(directory_at(tree, "a/0")) == LISTED + UNLISTED


def test_an_empty_partition_has_no_first_and_no_last(root: Path) -> None:
    (root / "empty-0").mkdir()
    tree = open_tree(root)
    assert names(directory_at(tree, "empty/0")) == ["offset", "segment", "meta"]
    assert names(directory_at(tree, "empty/0/offset")) == []


def test_partitions_are_listed_by_number(tmp_path: Path) -> None:
    for number in (10, 2, 0, 1, 11):
        write_partition(tmp_path / f"t-{number}", {0: dense(0, 1)})
    assert names(directory_at(open_tree(tmp_path), "t")) == ["0", "1", "2", "10", "11"]


# --- .kfs -----------------------------------------------------------------------------------------------------------


def test_it_says_what_it_holds(root: Path) -> None:
    tree = open_tree(root)
    assert names(directory_at(tree, ".kfs")) == ABOUT
    assert tree.resolve(".kfs").attributes().mode == stat.S_IFDIR | 0o555


def test_the_readme_names_everything_there_is(root: Path) -> None:
    text = content_of(open_tree(root), ".kfs/README").decode()
    for name in [*LISTED, *UNLISTED, *ABOUT[1:]]:
        assert re.search(rf"^  .*\b{re.escape(name)}", text, re.MULTILINE), name


def test_stats_say_what_is_held(root: Path) -> None:
    tree = open_tree(root, options=TreeOptions(on_damage=DamagePolicy.SKIP), until_high_watermark=True)
    for offset in range(10):
        content_of(tree, f"a/0/offset/{offset}.json")
        content_of(tree, f"a/0/value/{offset}")
    stats = json.loads(content_of(tree, ".kfs/stats.json"))
    assert stats["version"] == __version__
    assert (stats["metrics"]["kfs_topics"], stats["metrics"]["kfs_partitions"]) == (2, 3)
    held = {each["cache"]: each["value"] for each in stats["metrics"]["kfs_cache_bytes"]}
    assert held["decoded"] > 0
    assert held["rendered"] > 0
    assert stats["onDamage"] == "skip"
    assert stats["untilHighWatermark"] is True


def test_the_log_directories_and_their_properties(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_partition(other / "c-0", {0: dense(0, 1)})
    (other / ".kafka_cleanshutdown").write_bytes(b"")
    tree = open_tree(root, other)
    assert rows(tree, ".kfs/log-dirs.jsonl") == [
        {
            "number": 0,
            "path": str(root),
            "clusterId": "abcdefghijklmnopqrstuv",
            "nodeId": 3,
            "directoryId": None,
            "cleanShutdown": False,
        },
        {
            "number": 1,
            "path": str(other),
            "clusterId": None,
            "nodeId": None,
            "directoryId": None,
            "cleanShutdown": True,
        },
    ]
    assert names(tree.root) == ["a", "b", "c"]


def test_checkpoints_are_shown_as_json(root: Path) -> None:
    set_log_start(root, "a", 0, 3)
    write_checkpoint(root, "recovery-point-offset-checkpoint", {("b", 0): 9, ("a", 1): 5, ("a", 0): 10})
    tree = open_tree(root)
    assert sorted(names(directory_at(tree, ".kfs/checkpoints/0"))) == [
        "log-start-offset-checkpoint.jsonl",
        "recovery-point-offset-checkpoint.jsonl",
    ]
    assert rows(tree, ".kfs/checkpoints/0/log-start-offset-checkpoint.jsonl") == [
        {"topic": "a", "partition": 0, "offset": 3}
    ]
    assert rows(tree, ".kfs/checkpoints/0/recovery-point-offset-checkpoint.jsonl") == [
        {"topic": "a", "partition": 0, "offset": 10},
        {"topic": "a", "partition": 1, "offset": 5},
        {"topic": "b", "partition": 0, "offset": 9},
    ]
    for path in (".kfs/checkpoints/1", ".kfs/checkpoints/0/cleaner-offset-checkpoint.jsonl"):
        with pytest.raises(NotFound):
            tree.resolve(path)


def test_without_anything_deleted_or_copied_those_are_empty(root: Path) -> None:
    tree = open_tree(root)
    assert names(directory_at(tree, ".kfs/deleted")) == []
    assert names(directory_at(tree, ".kfs/replicas")) == []
    assert content_of(tree, ".kfs/problems.jsonl") == b""


def test_deleted_records_are_a_partition_of_their_own(root: Path) -> None:
    set_log_start(root, "a", 0, 4)
    tree = open_tree(root)
    assert names(directory_at(tree, ".kfs/deleted")) == ["a"]
    assert names(directory_at(tree, ".kfs/deleted/a")) == ["0"]
    assert names(directory_at(tree, ".kfs/deleted/a/0/offset")) == [f"{at}.json" for at in range(4)]
    assert names(directory_at(tree, "a/0/offset")) == [f"{at}.json" for at in range(4, 10)]
    ends = [target_of(tree, f".kfs/deleted/a/0/{name}") for name in ("first.json", "last.json")]
    assert ends == ["offset/0.json", "offset/3.json"]


def test_deleted_topics_and_other_copies_have_their_place(root: Path) -> None:
    write_partition(root / f"gone-0.{ID}-delete", {0: dense(0, 2)})
    write_partition(root / f"a-0.{ID}-future", {0: dense(0, 2)})
    write_partition(root / f"odd name-0.{ID}-delete", {0: dense(0, 2)})
    tree = open_tree(root)
    assert names(directory_at(tree, ".kfs/deleted")) == ["gone", "odd%20name"]
    assert names(directory_at(tree, ".kfs/deleted/gone")) == [f"0.{ID}-delete"]
    assert names(directory_at(tree, f".kfs/deleted/gone/0.{ID}-delete/offset")) == ["0.json", "1.json", "2.json"]
    assert names(directory_at(tree, ".kfs/replicas/a")) == [f"0.{ID}-future"]
    assert len(rows(tree, ".kfs/problems.jsonl")) == 1
    assert names(tree.root) == ["a", "b"]


def delete_segment(directory: Path, base_offset: int) -> None:
    """Do what a broker does with a segment that retention or compaction has no more use for."""
    for path in directory.glob(f"{base_offset:020d}.*"):
        path.rename(f"{path}.deleted")


def test_segments_that_were_deleted_are_there_until_they_are_removed(root: Path, eager: None) -> None:
    write_partition(root / "c-0", {base: dense(base, base + 9) for base in (0, 10, 20)})
    tree = open_tree(root)
    assert names(directory_at(tree, ".kfs/deleted")) == []
    before = content_of(tree, "c/0/segment/10.jsonl")
    for base in (0, 10):
        delete_segment(root / "c-0", base)
    assert names(directory_at(tree, ".kfs/deleted")) == ["c"]
    assert names(directory_at(tree, ".kfs/deleted/c")) == ["0.deleted"]
    assert names(directory_at(tree, ".kfs/deleted/c/0.deleted/offset")) == [f"{at}.json" for at in range(20)]
    assert content_of(tree, ".kfs/deleted/c/0.deleted/segment/10.jsonl") == before
    assert names(directory_at(tree, "c/0/offset")) == [f"{at}.json" for at in range(20, 30)]
    for path in (root / "c-0").glob(f"{0:020d}.*.deleted"):
        path.unlink()
    assert names(directory_at(tree, ".kfs/deleted/c/0.deleted/offset")) == [f"{at}.json" for at in range(10, 20)]
    for path in (root / "c-0").glob("*.deleted"):
        path.unlink()
    assert names(directory_at(tree, ".kfs/deleted")) == []
    with pytest.raises(NotFound):
        tree.resolve(".kfs/deleted/c")


def test_segments_that_compaction_replaced_are_told_from_what_replaced_them(root: Path) -> None:
    directory = write_partition(root / "c-0", {base: dense(base, base + 9) for base in (0, 10, 20)})
    for base in (0, 10):
        delete_segment(directory, base)
    write_partition(directory, {0: [batch([record(3), record(14)], base_offset=0, last_offset=19)]})
    tree = open_tree(root)
    assert names(directory_at(tree, "c/0/offset")) == ["3.json", "14.json", *(f"{at}.json" for at in range(20, 30))]
    assert names(directory_at(tree, ".kfs/deleted/c/0.deleted/offset")) == [f"{at}.json" for at in range(20)]


def test_a_topic_called_like_it_is_encoded(root: Path) -> None:
    write_partition(root / ".kfs-0", {0: dense(0, 1)})
    tree = open_tree(root)
    assert names(tree.root) == ["%2Ekfs", "a", "b"]
    assert names(directory_at(tree, ".kfs")) == ABOUT
    assert names(directory_at(tree, "%2Ekfs/0/offset")) == ["0.json", "1.json"]


def test_nothing_anywhere_may_be_written(root: Path) -> None:
    set_log_start(root, "a", 0, 4)
    set_high_watermark(root, "a", 0, 9)
    for path in [root, *root.rglob("*")]:
        path.chmod(0o777)
    tree = open_tree(root, options=TreeOptions(views=True))
    seen = 0
    for listed in every_node(tree):
        mode = listed.node.attributes().mode
        assert stat.S_ISLNK(mode) or mode & 0o222 == 0, listed.path
        seen += 1
    assert seen > 100


def test_a_closed_tree_gives_back_what_it_held(root: Path) -> None:
    tree = open_tree(root)
    content_of(tree, "a/0/offset/3.json")
    tree.close()
    assert tree.context.data_dir.storage.cache.nbytes == 0
