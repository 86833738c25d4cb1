"""``.kfs/cluster/``: what the metadata log says, read when somebody looks; topics' names by their ids."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfs.errors import NotFound
from kfs.tree.kafka_tree import KafkaTree
from tests.internal.cluster.reading import recorded
from tests.internal.cluster.test_cluster import HEX, broker, partition_of
from tests.internal.cluster.writing import DIRECTORY, log_bytes, partition, topic, uuid, value, write_log
from tests.logs import bytes_read, content_of, dense, directory_at, names, open_tree, watch_reads, write_partition

FILES = [
    *("cluster.json", "topics", "brokers.jsonl", "topics.jsonl", "configs.jsonl", "users.jsonl", "acls.jsonl"),
    *("quotas.jsonl", "tokens.jsonl", "directories.jsonl", "snapshots.jsonl", "problems.jsonl"),
]


def loaded(tree: KafkaTree, path: str) -> Any:
    return json.loads(content_of(tree, f".kfs/cluster/{path}"))


def rows(tree: KafkaTree, path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content_of(tree, f".kfs/cluster/{path}").splitlines()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    data = broker(tmp_path / "data")
    write_log(data, [[topic("t", 1), partition(0, 1), topic("u", 2)]])
    partition_of(data, "t-0", uuid(1))
    return data


def test_it_holds_a_file_for_everything_and_one_for_each_topic(root: Path) -> None:
    tree = open_tree(root)
    assert names(directory_at(tree, ".kfs/cluster")) == FILES
    assert names(directory_at(tree, ".kfs/cluster/topics")) == ["t.json", "u.json"]
    assert loaded(tree, "cluster.json")["clusterId"] == "ours"
    assert loaded(tree, "topics/t.json")["partitions"][0]["leader"] == 1
    assert loaded(tree, "topics/u.json")["partitions"] == []
    assert [row["topic"] for row in rows(tree, "topics.jsonl")] == ["t", "u"]
    for name in ("v.json", "t", "t.jsonl", ".json"):
        with pytest.raises(NotFound):
            tree.resolve(f".kfs/cluster/topics/{name}")


@pytest.mark.parametrize("name", ["e_meta", "e39_meta", "g_running", "f_0.9.0.1", "a_v2"])
def test_every_file_of_every_kind_of_corpus_can_be_read(name: str, corpus: Callable[[str], Path]) -> None:
    tree = open_tree(corpus(name) / "data")
    for file in FILES:
        if file.endswith(".jsonl"):
            rows(tree, file)
    topics = names(directory_at(tree, ".kfs/cluster/topics"))
    assert topics
    for file in ["cluster.json", *(f"topics/{topic_file}" for topic_file in topics)]:
        assert isinstance(loaded(tree, file), dict)


def test_hostile_names_of_topics_are_encoded(tmp_path: Path) -> None:
    data = broker(tmp_path)
    write_log(data, [[topic("../../etc", 1), topic("a\x1b[31m\n", 2), topic("..", 3), topic("", 4)]])
    tree = open_tree(data)
    listed = names(directory_at(tree, ".kfs/cluster/topics"))
    assert listed == [".json", "%2E%2E.json", "..%2F..%2Fetc.json", "a%1B%5B31m%0A.json"]
    for name in listed:
        content = content_of(tree, f".kfs/cluster/topics/{name}")
        assert b"\x1b" not in content
        assert json.loads(content)["topic"] in ("", "..", "../../etc", "a\x1b[31m\n")


def test_nothing_is_read_before_somebody_looks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition_of(root, f"gone-0.{HEX}-delete", uuid(9))
    tree = open_tree(root)
    reads = watch_reads(monkeypatch)
    for path in ("", "t", "t/0", ".kfs", ".kfs/deleted", ".kfs/replicas"):
        names(directory_at(tree, path))
    directory_at(tree, ".kfs/cluster")
    metadata = str(root / DIRECTORY)
    assert [read for read in reads if metadata in str(read)] == []
    content_of(tree, ".kfs/cluster/topics.jsonl")
    assert bytes_read(reads) > 0


def test_what_is_appended_appears(root: Path, eager: None) -> None:
    tree = open_tree(root)
    assert [row["topic"] for row in rows(tree, "topics.jsonl")] == ["t", "u"]
    with (root / DIRECTORY / f"{0:020d}.log").open("ab") as file:
        file.write(log_bytes([[topic("v", 3), value("remove_topic", topicId=uuid(2))]], 3))
    tree.context._generated.clear()
    assert [row["topic"] for row in rows(tree, "topics.jsonl")] == ["t", "v"]
    assert names(directory_at(tree, ".kfs/cluster/topics")) == ["t.json", "v.json"]


def test_files_have_the_time_of_the_log(root: Path) -> None:
    os.utime(root / DIRECTORY / f"{0:020d}.log", ns=(1, 1_600_000_000_000_000_000))
    assert open_tree(root).resolve(".kfs/cluster/topics.jsonl").attributes().mtime_ns == 1_600_000_000_000_000_000


# --- names by ids ---------------------------------------------------------------------------------------------------


def test_a_deleted_topic_has_its_whole_name(tmp_path: Path) -> None:
    """The broker cut the name off to fit the directory's; the log still says it."""
    tree = open_tree(recorded("rich", tmp_path))
    assert names(directory_at(tree, ".kfs/deleted")) == ["again", "gone", "x" * 249]
    (partition_name,) = names(directory_at(tree, f".kfs/deleted/{'x' * 249}"))
    assert partition_name.startswith("0.")
    assert partition_name.endswith("-delete")
    statuses = {(row["topic"], row["kind"], row["status"]) for row in rows(tree, "directories.jsonl")}
    assert ("x" * 249, "delete", "deleted") in statuses
    assert ("again", "delete", "deleted") in statuses
    assert ("again", "current", "assigned") in statuses


def test_records_of_a_deleted_topic_have_its_whole_name(tmp_path: Path) -> None:
    name = "long." * 49 + "end"
    data = broker(tmp_path)
    write_log(data, [[topic(name, 1), value("remove_topic", topicId=uuid(1))]])
    suffix = f"-0.{HEX}-delete"
    partition_of(data, name[: 255 - len(suffix)] + suffix, uuid(1))
    tree = open_tree(data)
    line = json.loads(content_of(tree, f".kfs/deleted/{name}/0.{HEX}-delete/offset/0.json"))
    assert line["topic"] == name


def test_what_is_left_of_an_older_topic_is_not_a_copy_of_the_new_one(tmp_path: Path) -> None:
    data = broker(tmp_path)
    again = [topic("t", 1), partition(0, 1), value("remove_topic", topicId=uuid(1)), topic("t", 2), partition(0, 2)]
    write_log(data, [again])
    partition_of(data, f"t-0.{HEX}-stray", uuid(1))
    write_partition(data / "u-0", {0: dense(0, 1)})
    tree = open_tree(data)
    assert names(tree.root) == ["__cluster_metadata", "u"]
    assert names(directory_at(tree, ".kfs/deleted/t")) == [f"0.{HEX}-stray"]
    assert "of an older topic t" in content_of(tree, ".kfs/problems.jsonl").decode()
    assert [row["status"] for row in rows(tree, "directories.jsonl") if row["kind"] == "stray"] == ["older topic"]
