"""Transactions and groups in a mount, while a broker goes on writing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.internal.group_logs import InternalPartition, commit
from tests.read.some_transactions import Data, abort
from tests.read.some_transactions import commit as commit_marker
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KafkaMount
from tests.system.test_following import soon, through_each_kind_of_front
from tests.system.toy_broker import ToyPartition
from tests.tree.test_read_committed import LiveLog

pytestmark = pytest.mark.fuse

Corpus = Callable[[str], Path]
COMMITTED = ("--isolation", "read_committed")


def ls(path: Path) -> list[str]:
    return subprocess.run(["ls", path], check=True, capture_output=True).stdout.decode().split()


def cat(*paths: Path) -> bytes:
    return subprocess.run(["cat", *paths], check=True, capture_output=True).stdout


# --- read_committed -------------------------------------------------------------------------------------------------


class Shown:
    """A partition in a mount at ``read_committed``."""

    def __init__(self, mounted: KafkaMount) -> None:
        self.directory = mounted.path("t/0")

    def offsets(self) -> list[int]:
        """What ``ls`` lists, in order."""
        return sorted(int(name.removesuffix(".json")) for name in ls(self.directory / "offset"))

    def assert_soon(self, expected: list[int], end: int) -> None:
        """Check that within a second the records are these, in every file, and that there are no others."""
        assert soon(lambda: self.offsets() == expected), f"{self.offsets()}, not {expected}"
        lines = [cat(self.directory / f"offset/{offset}.json") for offset in expected]
        assert [json.loads(line)["offset"] for line in lines] == expected
        segments = [self.directory / "segment" / name for name in ls(self.directory / "segment")]
        whole = b"".join(lines)
        assert soon(lambda: cat(*segments) == whole)
        assert soon(lambda: sum(path.stat().st_size for path in segments) == len(whole))
        assert soon(lambda: cat(self.directory / "records.jsonl") == whole)
        for offset in set(range(end)) - set(expected):
            assert not (self.directory / f"offset/{offset}.json").exists()
            assert not (self.directory / f"value/{offset}").exists()
        last = os.readlink(self.directory / "last.json")
        assert last == f"offset/{expected[-1]}.json"

    def last_stable_offset(self) -> int:
        """What ``meta/log.json`` says."""
        return int(json.loads((self.directory / "meta/log.json").read_text())["lastStableOffset"])


@through_each_kind_of_front
def test_records_appear_when_their_transaction_commits_and_never_when_it_aborts(
    front: str, tmp_path: Path, mount_kafka: MountKafka
) -> None:
    live = LiveLog(tmp_path / "root")
    live.append(Data(None, 2), Data(1, 3), Data(None))
    shown = Shown(mount_kafka(tmp_path / "root", front=front, options=COMMITTED))
    shown.assert_soon([0, 1], live.end)
    assert shown.last_stable_offset() == 2
    live.append(commit_marker(1))
    shown.assert_soon([0, 1, 2, 3, 4, 5], live.end)
    live.append(Data(1, 2), Data(2, 2))
    shown.assert_soon([0, 1, 2, 3, 4, 5], live.end)
    live.append(abort(1))
    shown.assert_soon([0, 1, 2, 3, 4, 5], live.end)
    assert soon(lambda: shown.last_stable_offset() == 9), "where the other one is open"
    live.append(commit_marker(2))
    shown.assert_soon([0, 1, 2, 3, 4, 5, 9, 10], live.end)
    assert soon(lambda: shown.last_stable_offset() == live.end)


def test_a_closed_segment_fills_when_the_marker_comes_in_a_later_one(tmp_path: Path, mount_kafka: MountKafka) -> None:
    live = LiveLog(tmp_path / "root", segment_bytes=300)
    live.append(Data(None), Data(1, 2), Data(2, 2), Data(2, 2), Data(2, 2), Data(1, 2))
    assert len(list(live.directory.glob("*.log"))) > 1
    shown = Shown(mount_kafka(tmp_path / "root", options=COMMITTED))
    shown.assert_soon([0], live.end)
    live.append(abort(2))
    shown.assert_soon([0], live.end)
    live.append(commit_marker(1))
    shown.assert_soon([0, 1, 2, 9, 10], live.end)


def test_a_reader_who_follows_a_segment_gets_a_transaction_when_it_is_committed(
    tmp_path: Path, mount_kafka: MountKafka
) -> None:
    live = LiveLog(tmp_path / "root")
    live.append(Data(None, 2), Data(1, 2), Data(2, 2))
    mounted = mount_kafka(tmp_path / "root", options=COMMITTED)
    path = mounted.path(f"t/0/segment/{0:020d}.jsonl")
    with path.open("rb") as file:
        assert [json.loads(line)["offset"] for line in file] == [0, 1]
        live.append(abort(1), commit_marker(2))
        got = b""

        def has_come() -> bool:
            nonlocal got
            got += file.read()
            return got.count(b"\n") == 2

        assert soon(has_come)
        assert [json.loads(line)["offset"] for line in got.splitlines()] == [4, 5]


@pytest.mark.parametrize("name", ["b_txn", "b39_txn", "d_groups"])
def test_a_mount_shows_what_a_consumer_got(
    name: str, corpus: Corpus, mounted_corpus: Callable[..., KafkaMount]
) -> None:
    mounted = mounted_corpus(name, options=COMMITTED)
    consumed: dict[str, Any] = json.loads((corpus(name) / "consumed.json").read_text())["read_committed"]
    for partition, ranges in consumed.items():
        topic, _, number = partition.rpartition("-")
        expected = [offset for first, last in ranges for offset in range(first, last + 1)]
        assert sorted(mounted.offsets(f"{topic}/{number}")) == expected
        lines = cat(mounted.path(f"{topic}/{number}/records.jsonl")).splitlines()
        assert [json.loads(line)["offset"] for line in lines] == expected


def test_what_is_open_and_its_id_are_followed(tmp_path: Path, mount_kafka: MountKafka) -> None:
    live = LiveLog(tmp_path / "root")
    live.append(Data(None), Data(1, 3))
    mounted = mount_kafka(tmp_path / "root")
    path = mounted.path("t/0/meta/transactions.json")
    (found,) = json.loads(cat(path))["open"]
    assert (found["producerId"], found["startOffset"], found["state"]) == (1, 1, "unknown")
    live.append(abort(1), Data(2))

    def is_told() -> bool:
        said = json.loads(cat(path))
        return said["aborted"]["count"] == 1 and [each["producerId"] for each in said["open"]] == [2]

    assert soon(is_told)


# --- groups ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    orders = ToyPartition(root, "orders")
    orders.append_messages(10)
    orders.skip(10)
    orders.append_messages(10)
    return root


@through_each_kind_of_front
def test_groups_are_followed_and_lead_to_the_records_they_read_next(
    front: str, root: Path, mount_kafka: MountKafka
) -> None:
    log = InternalPartition(root)
    log.append(commit("billing", "orders", 0, 3), commit("a/b", "orders", 0, 12))
    mounted = mount_kafka(root, front=front)
    groups = mounted.path(".kfs/groups")
    assert sorted(ls(groups)) == ["a%2Fb", "a%2Fb.json", "billing", "billing.json", "problems.jsonl"]
    assert ls(groups / "billing") == ["orders"]
    assert sorted(ls(groups / "billing/orders")) == ["0.json", "0.next.json"]
    whole = json.loads(cat(groups / "billing.json"))
    assert [(each["offset"], each["lag"]) for each in whole["offsets"]] == [(3, 27)]
    one = json.loads(cat(groups / "billing/orders/0.json"))
    assert (one["group"], one["offset"], one["lag"], one["oldestUnread"]["offset"]) == ("billing", 3, 27, 3)

    link = groups / "billing/orders/0.next.json"
    assert link.is_symlink()
    assert link.resolve() == mounted.path("orders/0/offset/3.json")
    assert cat(link) == cat(mounted.path("orders/0/offset/3.json")) != b""
    assert (groups / "a%2Fb/orders/0.next.json").resolve() == mounted.path("orders/0/offset/20.json"), "12 is not there"

    log.append(commit("billing", "orders", 0, 25), commit("late", "orders", 0, 30))
    assert soon(lambda: json.loads(cat(groups / "billing/orders/0.json"))["offset"] == 25)
    assert soon(lambda: link.resolve() == mounted.path("orders/0/offset/25.json"))
    assert soon(lambda: "late.json" in ls(groups))
    assert ls(groups / "late/orders") == ["0.json"], "all is read"
    log.append(commit("a/b", "orders", 0, None))
    assert soon(lambda: not (groups / "a%2Fb.json").exists())
    assert soon(lambda: sorted(ls(groups)) == ["billing", "billing.json", "late", "late.json", "problems.jsonl"])


def test_lag_grows_with_the_topic(root: Path, mount_kafka: MountKafka) -> None:
    InternalPartition(root).append(commit("billing", "live", 0, 5))
    live = ToyPartition(root, "live")
    live.append_messages(5)
    groups = mount_kafka(root).path(".kfs/groups")
    path, link = groups / "billing/live/0.json", groups / "billing/live/0.next.json"
    assert json.loads(cat(path))["lag"] == 0
    assert not link.exists()
    for count in (1, 6):
        live.append_messages(count)
        assert soon(partial(lambda expected: json.loads(cat(path))["lag"] == expected, live.next_offset - 5))
    assert soon(link.exists)
    assert cat(link) == live.line(5)


def test_every_committed_offset_of_a_recorded_broker_is_in_a_file(
    corpus: Corpus, mounted_corpus: Callable[..., KafkaMount]
) -> None:
    groups = mounted_corpus("d_groups").path(".kfs/groups")
    said = json.loads((corpus("d_groups") / "groups.json").read_text())
    found = {}
    for path in groups.glob("*.json"):
        each = json.loads(path.read_bytes())
        found[each["group"]] = {f"{one['topic']}-{one['partition']}": one["offset"] for one in each["offsets"]}
    for name, group in said.items():
        committed = {where: offset["offset"] for where, offset in group["offsets"].items()}
        assert {where: offset for where, offset in found[name].items() if offset is not None} == committed
    links = list(groups.glob("*/*/*.next.json"))
    assert links
    for link in links:
        topic, number = link.parent.name, link.name.removesuffix(".next.json")
        one = json.loads((link.parent / f"{number}.json").read_bytes())
        record = json.loads(link.read_bytes())
        assert (record["topic"], str(record["partition"])) == (topic, number)
        assert record["offset"] == one["oldestUnread"]["offset"] >= one["offset"]
