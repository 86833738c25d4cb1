"""A cluster as one or several log directories show it, with and without a metadata log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint
from kfs.format.partition_metadata import PartitionMetadata, encode_partition_metadata
from kfs.format.uuid import Uuid
from kfs.internal.cluster.names import metadata_version_name, name_of
from kfs.internal.cluster.sensitive import is_sensitive
from tests.internal.cluster.reading import cluster_of, rows_of
from tests.internal.cluster.writing import (
    DIRECTORY,
    batch,
    config,
    partition,
    snapshot_bytes,
    topic,
    uuid,
    value,
    write_log,
    write_segment,
    write_snapshot,
)
from tests.logs import dense, write_partition

HEX = "d76a33fa3c734388981af789ddeff3e6"


def broker(root: Path, node: int = 1, cluster_id: str = "ours") -> Path:
    """Make a log directory of a broker."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\nnode.id={node}\n")
    return root


def partition_of(root: Path, name: str, topic_id: Uuid | None, epochs: tuple[EpochEntry, ...] = ()) -> Path:
    """Make a partition's directory."""
    directory = write_partition(root / name, {0: dense(0, 4)})
    if topic_id is not None:
        (directory / "partition.metadata").write_bytes(encode_partition_metadata(PartitionMetadata(topic_id)))
    if epochs:
        (directory / "leader-epoch-checkpoint").write_bytes(encode_leader_epoch_checkpoint(epochs))
    return directory


def reasons(*roots: Path) -> list[str]:
    return rows_of(*roots).problem_reasons()


# --- several disks --------------------------------------------------------------------------------------------------


def test_of_several_metadata_logs_the_one_that_reaches_furthest_is_believed(tmp_path: Path) -> None:
    behind, ahead = broker(tmp_path / "a", 1), broker(tmp_path / "b", 2)
    write_log(behind, [[topic("old", 1)], [value("no_op")]])
    write_log(ahead, [[topic("old", 1)], [value("no_op")], [topic("new", 2)]])
    for roots in ((behind, ahead), (ahead, behind)):
        assert rows_of(*roots).topic_names() == ["new", "old"]


def test_a_higher_epoch_counts_more_than_a_longer_log(tmp_path: Path) -> None:
    long, later = broker(tmp_path / "a"), broker(tmp_path / "b")
    write_segment(long, batch(0, [topic("a", 1), value("no_op"), value("no_op")], leader_epoch=3))
    write_segment(later, batch(0, [topic("b", 2)], leader_epoch=4))
    assert rows_of(long, later).topic_names() == ["b"]


def test_a_snapshot_counts_for_where_a_log_ends(tmp_path: Path) -> None:
    log, snapshot = broker(tmp_path / "a"), broker(tmp_path / "b")
    write_log(log, [[topic("a", 1)]])
    write_snapshot(snapshot / DIRECTORY, 90, [topic("b", 2)])
    assert rows_of(log, snapshot).topic_names() == ["b"]


def test_the_metadata_log_may_lie_in_a_directory_of_its_own(tmp_path: Path) -> None:
    data, metadata = broker(tmp_path / "data"), broker(tmp_path / "metadata")
    partition_of(data, "a-0", uuid(1))
    write_log(metadata, [[topic("a", 1), partition(0, 1)]])
    assert [row["status"] for row in rows_of(data, metadata).directories()] == ["assigned"]
    assert rows_of(data, metadata / DIRECTORY).topic_names() == ["a"]


def test_directories_of_another_cluster_are_told_and_not_judged(tmp_path: Path) -> None:
    ours, theirs = broker(tmp_path / "a"), broker(tmp_path / "b", 1, "theirs")
    write_log(ours, [[topic("t", 1), partition(0, 1)]])
    partition_of(ours, "t-0", uuid(1))
    partition_of(theirs, f"t-0.{HEX}-stray", uuid(9))
    rows = rows_of(ours, theirs)
    assert [row["status"] for row in rows.directories()] == ["assigned", None]
    assert rows.problem_reasons() == [f"{theirs}: of another cluster, theirs"]
    cluster = rows.cluster
    assert "of the cluster theirs, not of ours" in next(problem.reason for problem in cluster.data_dir.problems)
    summary: Any = rows.summary()
    assert [row["otherCluster"] for row in summary["logDirs"]] == [False, True]


# --- what directories are -------------------------------------------------------------------------------------------


def test_each_directory_is_what_the_metadata_makes_of_it(tmp_path: Path) -> None:
    root = broker(tmp_path)
    removed = value("remove_topic", topicId=uuid(5))
    write_log(
        root,
        [
            [topic("t", 1), partition(0, 1), partition(1, 1, (2,)), topic("u", 2), partition(0, 2)],
            [topic("gone", 5), removed],
        ],
    )
    said = {
        partition_of(root, "t-0", uuid(1)): ("t", "assigned"),
        partition_of(root, "t-1", uuid(1)): ("t", "not assigned"),
        partition_of(root, "t-2", uuid(1)): ("t", "no such partition"),
        partition_of(root, "u-0", None): (None, "no topic id"),
        partition_of(root, "u-1", uuid(1)): ("t", "other topic"),
        partition_of(root, "gone-0", uuid(5)): ("gone", "no such topic"),
        partition_of(root, f"gone-0.{HEX}-delete", uuid(5)): ("gone", "deleted"),
        partition_of(root, f"t-0.{HEX}-stray", uuid(7)): (None, "older topic"),
        partition_of(root, f"t-0.{HEX}-future", uuid(1)): ("t", "assigned"),
        partition_of(root, "never-0", uuid(8)): (None, "no such topic"),
    }
    rows = list(rows_of(root).directories())
    assert {Path(str(row["path"])): (row["topicOfId"], row["status"]) for row in rows} == said


# --- without a metadata log -----------------------------------------------------------------------------------------


def test_directories_of_brokers_with_zookeeper_tell_what_they_can(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=zk\n")
    partition_of(tmp_path, "t-0", uuid(1), (EpochEntry(0, 0), EpochEntry(5, 3)))
    partition_of(tmp_path, "old-2", None)
    rows = rows_of(tmp_path)
    summary: Any = rows.summary()
    assert (summary["clusterId"], summary["source"], summary["metadata"]) == ("zk", "directories", None)
    assert summary["problems"] == ["no metadata log here: brokers, replicas, leaders, configs, users aren't known"]
    assert (summary["counts"]["topics"], summary["counts"]["partitions"]) == (2, 2)
    assert summary["counts"]["offlinePartitions"] is None
    assert rows.topic_names() == ["old", "t"]
    t, old = (json.loads(json.dumps(rows.topic(name))) for name in ("t", "old"))
    assert (t["id"], old["id"]) == (str(uuid(1)), None)
    assert [(one["partition"], one["leaderEpoch"], one["leader"]) for one in t["partitions"]] == [(0, 5, None)]
    assert [one["leaderEpoch"] for one in old["partitions"]] == [None]
    assert [(row["id"], row["fenced"]) for row in rows.brokers()] == [(7, None)]
    for lines in (rows.configs, rows.users, rows.acls, rows.quotas, rows.tokens, rows.snapshots, rows.problems):
        assert list(lines()) == []
    assert rows.topic("none") is None


@pytest.mark.parametrize("name", ["f_0.8.2.2", "f_0.9.0.1", "f_0.10.2.2", "f_2.8.2_formats", "f_mixed", "a_v2"])
def test_every_corpus_without_a_metadata_log_is_described(name: str, corpus: Callable[[str], Path]) -> None:
    rows = rows_of(corpus(name) / "data")
    topics: list[Mapping[str, Any]] = list(rows.topics())
    assert [one["topic"] for one in topics] == rows.topic_names()
    assert all(one["replicationFactor"] is None for one in topics)
    summary: Any = rows.summary()
    assert sum(one["partitionCount"] for one in topics) == summary["counts"]["partitions"] > 0


def test_the_bootstrap_snapshot_says_how_a_cluster_began(tmp_path: Path) -> None:
    root = broker(tmp_path)
    level = value("feature_level", name="metadata.version", featureLevel=21)
    (root / "bootstrap.checkpoint").write_bytes(snapshot_bytes([level]))
    (root / DIRECTORY).mkdir()
    partition_of(root, "t-0", uuid(1))
    for _ in range(2):
        summary: Any = rows_of(root).summary()
        assert summary["source"] == "bootstrap.checkpoint and directories"
        assert summary["metadataVersion"] == {"level": 21, "name": "3.9-IV0"}
        assert summary["counts"]["topics"] == 1
        (root / DIRECTORY).rmdir() if (root / DIRECTORY).exists() else None
    write_log(root, [[value("feature_level", name="metadata.version", featureLevel=30)]])
    summary = rows_of(root).summary()
    assert (summary["source"], summary["metadataVersion"]["name"]) == ("metadata log", "4.3-IV0")


def test_a_metadata_log_that_begins_while_it_is_looked_at_is_found(tmp_path: Path) -> None:
    root = broker(tmp_path)
    (root / "bootstrap.checkpoint").write_bytes(snapshot_bytes([topic("first", 9)]))
    directory = write_segment(root, b"")
    cluster = cluster_of(root)
    state = cluster.state()
    assert state is not None
    assert state.is_bootstrap
    (directory / f"{0:020d}.log").write_bytes(batch(0, [topic("t", 1)]))
    log = cluster.metadata_log()
    assert log is not None
    log.log.look_again()
    state = cluster.state()
    assert state is not None
    assert (state.is_bootstrap, list(state.image.topic_ids)) == (False, ["t"])


def test_a_garbage_bootstrap_snapshot_is_told(tmp_path: Path) -> None:
    root = broker(tmp_path)
    (root / "bootstrap.checkpoint").write_bytes(b"garbage")
    partition_of(root, "t-0", uuid(1))
    rows = rows_of(root)
    summary: Any = rows.summary()
    assert summary["source"] == "directories"
    assert any("bootstrap" in problem.file for problem in rows.cluster.data_dir.problems)


# --- what keeps it from being all -----------------------------------------------------------------------------------


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    begin = value("begin_transaction")
    write_log(broker(tmp_path / "open"), [[begin, topic("t", 1)]])
    assert reasons(tmp_path / "open") == ["1 records from offset 0 on aren't committed"]
    write_log(broker(tmp_path / "bad"), [[b"garbage", topic("t", 1)]])
    assert reasons(tmp_path / "bad") == ["1 records weren't applied"]
    write_log(broker(tmp_path / "cut"), [[topic("t", 1)]], offset=5)
    assert reasons(tmp_path / "cut") == ["the beginning of the metadata log is gone, and there is no snapshot of it"]
    write_log(broker(tmp_path / "gap"), [[topic("t", 1)]])
    write_log(tmp_path / "gap", [[topic("u", 1)]], offset=5)
    (reason,) = reasons(tmp_path / "gap")
    assert "not read to its end" in reason
    assert "offsets 1 to 4 are missing" in reason
    rows = list(rows_of(tmp_path / "bad").problems())
    assert [(row["offset"], row["position"]) for row in rows] == [(0, None)]


def test_a_quota_that_no_json_can_hold_is_text(tmp_path: Path) -> None:
    entity: Any = ({"entityType": "user", "entityName": "u"},)
    write_log(broker(tmp_path), [[value("client_quota", entity=entity, key="k", value=float("inf"))]])
    assert [row["value"] for row in rows_of(tmp_path).quotas()] == ["inf"]


# --- names ----------------------------------------------------------------------------------------------------------


def test_numbers_have_the_names_that_kafka_gives_them() -> None:
    levels = {1: "3.0-IV1", 7: "3.3-IV3", 14: "3.6-IV2", 19: "3.7-IV4", 21: "3.9-IV0", 25: "4.0-IV3", 30: "4.3-IV0"}
    assert {level: metadata_version_name(level) for level in levels} == levels
    assert metadata_version_name(0) is None
    assert metadata_version_name(99) is None
    assert name_of({1: "ONE"}, 5) == "UNKNOWN(5)"


#: ``ConfigDef`` of 4.3.1: every name of type PASSWORD.
PASSWORDS = """
    delegation.token.secret.key sasl.jaas.config sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.client.credentials.client.secret ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key
    ssl.keystore.password ssl.truststore.certificates ssl.truststore.password
"""


@pytest.mark.parametrize("resource_type", [2, 4, 16, 32, 77])
def test_what_kafka_takes_for_a_secret_is_one(resource_type: int) -> None:
    for name in PASSWORDS.split():
        for prefix in ("", "listener.name.internal.", "listener.name.x.scram-sha-512.", "LISTENER.NAME.X."):
            assert is_sensitive(resource_type, prefix + name)


@pytest.mark.parametrize("name", ["my.plugin.setting", "aws.secretAccessKey", "a.accesskey", "db_passwd", "x.Token.y"])
def test_what_kafka_does_not_define_for_brokers_is_one(name: str) -> None:
    assert is_sensitive(4, name)


@pytest.mark.parametrize(
    ("resource_type", "name"),
    [
        (2, "retention.ms"),
        (2, "some.setting.of.a.later.kafka"),
        (4, "max.connections"),
        (4, "listener.name.internal.ssl.keystore.location"),
        (4, "listener.name.internal.max.connections"),
        (16, "metrics"),
        (32, "consumer.session.timeout.ms"),
    ],
)
def test_ordinary_configs_are_none(resource_type: int, name: str) -> None:
    assert not is_sensitive(resource_type, name)


def test_a_config_that_is_a_secret_has_no_value(tmp_path: Path) -> None:
    write_log(
        broker(tmp_path), [[config(4, "1", "ssl.key.password", "hunter2"), config(4, "1", "max.connections", "5")]]
    )
    assert {row["name"]: (row["value"], row["sensitive"]) for row in rows_of(tmp_path).configs()} == {
        "ssl.key.password": (None, True),
        "max.connections": ("5", False),
    }
