"""``.kfs/groups``: consumer groups as files, and links from committed offsets to the records they point at."""

from __future__ import annotations

import json
import posixpath
from pathlib import Path
from typing import Any

import pytest

from kfs.errors import NotFound
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import Directory, File
from kfs.tree.options import TreeOptions
from tests.every_node import every_node
from tests.internal.group_logs import InternalPartition, classic_group, commit, member
from tests.logs import (
    START,
    content_of,
    dense,
    directory_at,
    names,
    object_at,
    open_tree,
    target_of,
    watch_reads,
    write_partition,
)

GROUPS = ".kfs/groups"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    write_partition(root / "orders-0", {0: [*dense(0, 9), *dense(20, 29)]})
    write_partition(root / "orders-1", {0: dense(0, 4)})
    return root


@pytest.fixture
def log(root: Path) -> InternalPartition:
    """The only partition of the topic that groups are kept in."""
    return InternalPartition(root)


def lines_at(tree: KafkaTree, path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content_of(tree, f"{GROUPS}/{path}").splitlines()]


def test_there_is_a_file_and_a_directory_of_each_group(root: Path, log: InternalPartition) -> None:
    log.append(commit("billing", "orders", 1, 2), commit("a/b", "orders", 0, 3), commit("", "orders", 0, 1))
    tree = open_tree(root)
    assert sorted(names(directory_at(tree, GROUPS))) == sorted(
        ["%", "%.json", "a%2Fb", "a%2Fb.json", "billing", "billing.json", "problems.jsonl"]
    )
    assert names(directory_at(tree, f"{GROUPS}/billing")) == ["orders"]
    assert names(directory_at(tree, f"{GROUPS}/billing/orders")) == ["1.json", "1.next.json"]
    assert object_at(tree, f"{GROUPS}/%.json")["group"] == ""
    assert object_at(tree, f"{GROUPS}/a%2Fb.json")["group"] == "a/b"


@pytest.mark.parametrize(
    "path", ["nobody", "nobody.json", "a/b", "a/nothing", "a/orders/1.json", "a/orders/0", "a.json.json"]
)
def test_what_is_not_there_is_not_found(root: Path, log: InternalPartition, path: str) -> None:
    log.append(commit("a", "orders", 0, 3))
    with pytest.raises(NotFound):
        open_tree(root).resolve(f"{GROUPS}/{path}")


def test_a_groups_file_says_everything_of_it(root: Path, log: InternalPartition) -> None:
    log.append(
        classic_group("billing", [member("m")]),
        commit("billing", "orders", 1, 2, metadata="mark", leaderEpoch=3),
    )
    found = object_at(open_tree(root), f"{GROUPS}/billing.json")
    (offset,) = found.pop("offsets")
    assert found == {
        "group": "billing",
        "type": "Classic",
        "state": "Stable",
        "protocolType": "consumer",
        "assignor": "range",
        "isSimple": False,
        "coordinator": "__consumer_offsets-0",
        "generation": 7,
        "protocol": "range",
        "leader": "m",
        "currentStateTimestamp": START,
        "currentStateTime": "2023-11-14T22:13:20.000Z",
        "members": [
            {
                "memberId": "m",
                "instanceId": None,
                "clientId": "m-client",
                "clientHost": "/10.0.0.1",
                "partitions": [],
                "rebalanceTimeout": 300000,
                "sessionTimeout": 45000,
                "subscription": "",
                "assignment": "",
            }
        ],
        "totalLag": 3,
        "notes": [],
        "problems": [],
    }
    assert offset["oldestUnread"].pop("ageMs") > 0
    assert offset == {
        "topic": "orders",
        "partition": 1,
        "topicId": None,
        "offset": 2,
        "leaderEpoch": 3,
        "metadata": "mark",
        "commitTimestamp": START,
        "commitTime": "2023-11-14T22:13:20.000Z",
        "expireTimestamp": None,
        "expireTime": None,
        "recordOffset": 1,
        "version": 4,
        "logStartOffset": 0,
        "logEndOffset": 5,
        "highWatermark": None,
        "lag": 3,
        "oldestUnread": {"offset": 2, "timestamp": START + 2000, "time": "2023-11-14T22:13:22.000Z"},
        "note": None,
        "members": [],
        "pending": [],
    }


def test_a_partitions_file_is_the_same_by_itself(root: Path, log: InternalPartition) -> None:
    log.append(commit("billing", "orders", 1, 2), commit("billing", "orders", 0, 5))
    tree = open_tree(root)
    group = object_at(tree, f"{GROUPS}/billing.json")
    for number in (0, 1):
        found = object_at(tree, f"{GROUPS}/billing/orders/{number}.json")
        assert (found.pop("group"), found.pop("type"), found.pop("state")) == ("billing", "Classic", "Empty")
        assert found["oldestUnread"].pop("ageMs") - group["offsets"][number]["oldestUnread"].pop("ageMs") < 60_000
        assert found == group["offsets"][number]


@pytest.mark.parametrize(("offset", "expected"), [(3, 3), (10, 20), (15, 20), (29, 29), (-7, 0)])
def test_a_link_leads_to_the_record_that_is_read_next(
    root: Path, log: InternalPartition, offset: int, expected: int
) -> None:
    log.append(commit("g", "orders", 0, offset))
    tree = open_tree(root)
    path = f"{GROUPS}/g/orders/0.next.json"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), target_of(tree, path)))
    assert target == f"orders/0/offset/{expected}.json"
    assert json.loads(content_of(tree, target))["offset"] == expected


@pytest.mark.parametrize(("topic", "offset"), [("orders", 30), ("orders", 31), ("elsewhere", 0)])
def test_there_is_no_link_where_nothing_is_to_be_read(
    root: Path, log: InternalPartition, topic: str, offset: int
) -> None:
    log.append(commit("g", topic, 0, offset))
    tree = open_tree(root)
    assert names(directory_at(tree, f"{GROUPS}/g/{topic}")) == ["0.json"]
    with pytest.raises(NotFound):
        tree.resolve(f"{GROUPS}/g/{topic}/0.next.json")


def test_what_cannot_be_read_is_listed_with_its_bytes(root: Path, log: InternalPartition) -> None:
    log.append((b"\x00\x63new", b"\xff"), commit("g", "orders", 0, 1))
    damaged = log.active.stat().st_size
    log.append(commit("g", "orders", 0, 2))
    data = bytearray(log.active.read_bytes())
    data[-1] ^= 0xFF
    log.active.write_bytes(bytes(data) + b"".join(each.data for each in dense(4, 4)))
    problem, share, unknown = lines_at(open_tree(root), "problems.jsonl")[:3]
    assert "it is unknown how many partitions __consumer_offsets has" in share["reason"]
    assert (problem["file"], problem["position"]) == (str(log.active), damaged)
    assert (unknown["offset"], unknown["key"], unknown["value"]) == (0, "AGNuZXc=", "/w==")
    assert "unknown record type 99" in unknown["reason"]


def test_nothing_of_it_is_read_before_somebody_looks(
    root: Path, log: InternalPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(commit("g", "orders", 0, 1))
    reads = watch_reads(monkeypatch)
    tree = open_tree(root, options=TreeOptions(views=True))
    about = directory_at(tree, ".kfs")
    assert "groups" in names(about)
    node = about.lookup("groups")
    node.attributes()
    assert reads == []
    assert isinstance(node, Directory)
    assert "g.json" in names(node)
    assert reads


def test_a_listing_reckons_no_lag(root: Path, log: InternalPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(*[commit(f"g{number}", "orders", 0, 1) for number in range(20)])
    tree = open_tree(root)
    tree.context.broker.groups.names()
    reads = watch_reads(monkeypatch)
    entries = list(directory_at(tree, GROUPS).entries())
    assert len(entries) == 41
    assert all(entry.attributes is None for entry in entries if entry.name.endswith((".json", ".jsonl")))
    assert reads == []


@pytest.mark.usefixtures("eager")
def test_it_follows_the_log(root: Path, log: InternalPartition) -> None:
    log.append(commit("g", "orders", 0, 1))
    tree = open_tree(root)
    assert object_at(tree, f"{GROUPS}/g/orders/0.json")["offset"] == 1
    log.append(commit("g", "orders", 0, 4), commit("h", "orders", 0, 4))
    assert object_at(tree, f"{GROUPS}/g/orders/0.json")["offset"] == 4
    assert target_of(tree, f"{GROUPS}/g/orders/0.next.json").endswith("/4.json")
    assert "h.json" in names(directory_at(tree, GROUPS))
    log.append(commit("g", "orders", 0, None))
    assert "g.json" not in names(directory_at(tree, GROUPS))


def test_a_directory_of_no_groups_is_empty_but_for_its_problems(tmp_path: Path) -> None:
    write_partition(tmp_path / "orders-0", {0: dense(0, 9)})
    tree = open_tree(tmp_path)
    assert names(directory_at(tree, GROUPS)) == ["problems.jsonl"]
    assert content_of(tree, f"{GROUPS}/problems.jsonl") == b""


def test_every_node_has_attributes_and_an_id_that_leads_back(root: Path, log: InternalPartition) -> None:
    log.append(commit("a.json", "orders", 0, 1), commit("x" * 300, "orders", 1, 1))
    tree = open_tree(root, options=TreeOptions(views=True))
    found = [listed.path for listed in every_node(tree, GROUPS)]
    assert len(found) == 1 + 2 * 5
    for path in found:
        node = tree.resolve(path)
        attributes = node.attributes()
        assert tree.path(attributes.node_id) == path
        if isinstance(node, File):
            assert attributes.size == len(content_of(tree, path))
