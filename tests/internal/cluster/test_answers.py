"""What kfs reads from the disk, against what brokers said of the same, and Kafka's own ``MetadataImage``."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfs.format.partition_metadata import parse_partition_metadata
from kfs.internal.cluster.image import MetadataImage
from kfs.internal.cluster.replay import Replay
from kfs.internal.cluster.rows import ClusterRows
from tests.internal.cluster.reading import RECORDED, metadata_log, recorded, rows_of

CLUSTERS = ("rich", "e_meta", "e39_meta")


def answers_of(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return loaded


def topics_of(rows: ClusterRows) -> dict[str, Any]:
    """Return topics as the answers have them."""
    fields = {"partition": "partition", "leader": "leader", "replicas": "replicas", "isr": "isr"}
    fields["elr"] = "eligibleLeaderReplicas"
    topics: dict[str, Any] = {}
    for name in rows.topic_names():
        topic: Any = rows.topic(name)
        partitions = [{ours: one[theirs] for ours, theirs in fields.items()} for one in topic["partitions"]]
        topics[name] = json.loads(json.dumps({"id": topic["id"], "partitions": partitions}))
    return topics


def configs_of(said: Any) -> set[tuple[Any, ...]]:
    names = ("resourceType", "resourceName", "name", "value", "sensitive")
    return {tuple(row[name] for name in names) for row in said}


def users_of(rows: ClusterRows) -> dict[str, dict[str, Any]]:
    users: dict[str, dict[str, Any]] = {}
    for row in rows.users():
        users.setdefault(str(row["user"]), {})[str(row["mechanism"])] = row["iterations"]
    return users


def quotas_of(rows: ClusterRows) -> dict[str, dict[str, Any]]:
    quotas: dict[str, dict[str, Any]] = {}
    for row in rows.quotas():
        quotas.setdefault(json.dumps(row["entity"], sort_keys=True), {})[str(row["key"])] = row["value"]
    return quotas


def acls_of(rows: ClusterRows) -> set[tuple[Any, ...]]:
    names = ("principal", "host", "permission", "operation", "resourceType", "resourceName", "patternType")
    return {tuple(row[name] for name in names) for row in rows.acls()}


def assert_lists_agree(rows: ClusterRows, said: dict[str, Any]) -> None:
    """Compare all that doesn't change when a broker starts."""
    assert configs_of(rows.configs()) == configs_of(said["configs"])
    assert users_of(rows) == {
        user: {mechanism.replace("_", "-"): iterations for mechanism, iterations in each.items()}
        for user, each in said["users"].items()
    }
    assert quotas_of(rows) == {json.dumps(one["entity"], sort_keys=True): one["limits"] for one in said["quotas"]}
    assert acls_of(rows) == {tuple(one) for one in said["acls"]}
    assert [row["id"] for row in rows.brokers()] == said["brokers"]
    summary: Any = rows.summary()
    assert summary["clusterId"] == said["clusterId"]
    assert summary["features"] == said["features"]
    assert summary["source"] == "metadata log"
    assert summary["problems"] == []
    assert [voter["id"] for voter in summary["quorum"]["voters"]] == said["quorum"]["voters"]
    assert summary["quorum"]["leaderId"] == said["quorum"]["leaderId"]


@pytest.mark.parametrize("name", CLUSTERS)
def test_all_is_as_the_broker_answered(name: str, tmp_path: Path) -> None:
    rows, said = rows_of(recorded(name, tmp_path)), answers_of(name)
    assert said["topics"]
    assert said["configs"]
    assert topics_of(rows) == said["topics"]
    assert_lists_agree(rows, said)
    summary: Any = rows.summary()
    assert summary["quorum"]["leaderEpoch"] == said["quorum"]["leaderEpoch"]
    assert summary["counts"]["offlinePartitions"] == 0


@pytest.mark.parametrize("name", ["e_meta", "e39_meta"])
def test_the_corpora_are_as_a_broker_started_on_them_answered(name: str, corpus: Callable[[str], Path]) -> None:
    rows, said = rows_of(corpus(name) / "data"), answers_of(name)

    def without_leaders(topics: dict[str, Any]) -> dict[str, Any]:
        lasting = ("partition", "replicas")
        return {
            topic: {"id": one["id"], "partitions": [{key: each[key] for key in lasting} for each in one["partitions"]]}
            for topic, one in topics.items()
        }

    assert without_leaders(topics_of(rows)) == without_leaders(said["topics"])
    assert_lists_agree(rows, said)


@pytest.mark.parametrize("name", ["e_meta", "e39_meta", "g_running"])
def test_topic_ids_are_those_of_the_directories(name: str, corpus: Callable[[str], Path]) -> None:
    data = corpus(name) / "data"
    rows = rows_of(data)
    found = {(row["topic"], row["partition"]): row["topicId"] for row in rows.directories() if row["kind"] == "current"}
    said: dict[tuple[Any, Any], Any] = {}
    for topic_name in rows.topic_names():
        topic: Any = rows.topic(topic_name)
        said |= {(topic_name, one["partition"]): topic["id"] for one in topic["partitions"]}
    assert found == said
    on_disk = {
        str(parse_partition_metadata(path.read_bytes()).topic_id)
        for path in data.glob("*/partition.metadata")
        if path.parent.name != "__cluster_metadata-0" and not path.parent.name.endswith("-delete")
    }
    assert on_disk == set(said.values())
    assert {row["status"] for row in rows.directories()} <= {"assigned", "deleted"}


def test_a_topic_deleted_while_the_broker_ran_is_known_by_its_id(corpus: Callable[[str], Path]) -> None:
    rows = rows_of(corpus("g_running") / "data")
    gone = [row for row in rows.directories() if row["kind"] == "delete"]
    assert [(row["topicOfId"], row["status"]) for row in gone] == [("live-gone", "deleted")] * 2
    assert "live-gone" not in rows.topic_names()


# --- Kafka's own image ----------------------------------------------------------------------------------------------


def comparable(image: MetadataImage) -> MetadataImage:
    """Return what Kafka's image holds, too."""
    ids = image.producer_ids
    return replace(
        image.copy(),
        removed_topics={},
        zk_migration_state=0,
        producer_ids=replace(ids, broker_id=-1, broker_epoch=-1) if ids and ids.next_producer_id else None,
    )


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("histories", tmp_path_factory.mktemp("histories"))


@pytest.mark.parametrize("number", range(6))
def test_a_history_makes_the_image_that_it_makes_in_kafka(number: int, histories: Path) -> None:
    root = histories / str(number)
    state = metadata_log(root).state()
    kafka = Replay()
    for line in (root / "image.b64").read_text().split():
        kafka.record("", 0, b64decode(line))
    assert not kafka.skipped
    assert not state.replay.skipped
    assert len(kafka.image.topics) + len(kafka.image.acls) > 0
    assert comparable(state.image) == comparable(kafka.image)
