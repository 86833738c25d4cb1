"""The groups of log directories as a store that is only read, held to what brokers said of them."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfs.errors import CorruptStore, NotFound, OffsetStoreError, UnusableSource
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT64
from kfs.format.partition_metadata import PartitionMetadata, encode_partition_metadata
from kfs.format.uuid import Uuid
from kfs.internal.groups import OFFSETS_TOPIC
from kfs.spark.offsets import open_store, open_writable_store
from kfs.spark.offsets.group_store import GroupStore
from tests.internal.group_logs import TOPIC_ID, InternalPartition, commit, groups_of, legacy_commit
from tests.internal.test_recorded_groups import WITH_GROUPS
from tests.logs import dense, write_partition

Corpus = Callable[[str], Path]
ORDERS = TopicPartition("orders", 0)


def reported(path: Path) -> dict[str, dict[str, int]]:
    """Return the offsets that a broker reported of each group, by partition (``orders-0``)."""
    groups: dict[str, Any] = json.loads(path.read_text())
    return {name: {where: each["offset"] for where, each in group["offsets"].items()} for name, group in groups.items()}


def positions(store: GroupStore, group: str) -> dict[str, int]:
    return {str(partition): offset for partition, offset in store.load(group).positions.items()}


@pytest.mark.parametrize("file", ["groups.json", "groups_running.json"])
def test_positions_are_what_the_broker_reported(corpus: Corpus, file: str) -> None:
    expected = reported(corpus("d_groups") / file)
    with GroupStore([str(corpus("d_groups") / "data")]) as store:
        assert set(store.groups()) == {*expected, "share-grp"}
        assert {name: positions(store, name) for name in expected} == expected
        assert positions(store, "share-grp") == {}  # how far it got is in its state: it has no position


@pytest.mark.parametrize("name", WITH_GROUPS)
def test_groups_of_all_times_are_read(corpus: Corpus, name: str) -> None:
    groups = groups_of(corpus(name) / "data")
    with GroupStore([str(corpus(name) / "data")]) as store:
        assert store.groups() == list(groups.names())
        for group in store.groups():
            found = groups.group(group)
            assert found is not None
            assert store.load(group).positions == {
                TopicPartition(each.topic, each.partition): each.offset
                for each in found.partitions
                if each.offset is not None
            }


def test_each_group_can_be_named_by_itself(corpus: Corpus) -> None:
    data = str(corpus("d_groups") / "data")
    for name, expected in reported(corpus("d_groups") / "groups.json").items():
        with open_store(f"group:{name}", [data]) as store:
            assert store.name == f"group:{name}"
            assert store.groups() == [name]
            found = {str(partition): offset for partition, offset in store.load(name).positions.items()}
            assert found == expected


def test_every_group_of_a_broker_is_carried_over_to_every_store(corpus: Corpus, url: str) -> None:
    expected = reported(corpus("d_groups") / "groups.json")
    with (
        GroupStore([str(corpus("d_groups") / "data")]) as source,
        open_writable_store(url) as target,
    ):
        carried = [name for name in expected if expected[name] and (name.isascii() and " " not in name)]
        for name in carried:
            target.set_positions(name, source.load(name).positions)
        assert target.groups() == sorted(carried)
        for name in carried:
            assert target.load(name).positions == source.load(name).positions


def test_nothing_is_written_to_it(corpus: Corpus) -> None:
    data = str(corpus("d_groups") / "data")
    for url in (f"kafka:{data}", "group:classic-grp"):
        with pytest.raises(OffsetStoreError, match="the groups of a log directory are read-only"):
            open_writable_store(url)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_partition(tmp_path / "orders-0", {0: dense(0, 9)})
    return tmp_path


def load(root: Path, group: str = "billing") -> dict[TopicPartition, int]:
    with GroupStore([str(root)]) as store:
        return dict(store.load(group).positions)


def test_the_newest_commit_counts(root: Path) -> None:
    log = InternalPartition(root)
    log.append(legacy_commit("billing", "orders", 0, 3), commit("billing", "orders", 0, 4))
    log.append(commit("billing", "orders", 0, 5), producer=7)
    assert load(root) == {ORDERS: 4}
    log.end(7, is_commit=True)
    assert load(root) == {ORDERS: 5}


def test_partitions_of_groups_may_lie_in_several_log_directories(root: Path, tmp_path: Path) -> None:
    InternalPartition(root / "one").append(commit("billing", "orders", 0, 4))
    InternalPartition(root / "two", partition=1).append(commit("mail", "orders", 0, 6))
    with open_store(f"kafka:{root}/one,{root}/two") as store:
        assert {name: store.load(name).positions for name in store.groups()} == {
            "billing": {ORDERS: 4},
            "mail": {ORDERS: 6},
        }


def test_log_directories_without_groups_will_not_do(root: Path) -> None:
    for url, log_dirs in ((f"kafka:{root}", ()), ("group:billing", (str(root),))):
        with pytest.raises(UnusableSource, match=f"{root}: no partition of {OFFSETS_TOPIC}, where groups are kept"):
            open_store(url, log_dirs)
    with pytest.raises(UnusableSource, match="/nowhere"):
        open_store("kafka:/nowhere/at/all")


def test_a_group_that_nobody_knows_is_told_with_those_there_are(root: Path) -> None:
    InternalPartition(root).append(*(commit(f"g{number}", "orders", 0, 1) for number in range(7)))
    with pytest.raises(NotFound, match=r"no group 'nobody'; there are: g0, g1, g2, g3, g4 \.\.\.$"):
        load(root, "nobody")


def test_a_commit_for_another_topic_of_that_name_is_left_out(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    InternalPartition(root).append(commit("billing", "orders", 0, 4, topicId=TOPIC_ID, version=4))
    (root / "orders-0/partition.metadata").write_bytes(encode_partition_metadata(PartitionMetadata(TOPIC_ID)))
    assert load(root) == {ORDERS: 4}
    other = Uuid(bytes(range(1, 17)))
    (root / "orders-0/partition.metadata").write_bytes(encode_partition_metadata(PartitionMetadata(other)))
    with caplog.at_level(logging.WARNING, logger="kfs"):
        assert load(root) == {}
    assert "group 'billing': the committed offset of orders-0 is for another topic of that name" in caplog.text


def test_an_offset_that_is_none_is_an_error(root: Path) -> None:
    InternalPartition(root).append(commit("billing", "orders", 0, -2))
    with pytest.raises(CorruptStore, match=rf"{root}: group 'billing': orders-0: -2 is not an offset"):
        load(root)


def test_an_offset_that_stands_for_none_is_no_position(root: Path) -> None:
    InternalPartition(root).append(commit("billing", "orders", 0, -1), commit("billing", "orders", 1, 0))
    assert load(root) == {TopicPartition("orders", 1): 0}


def test_a_value_that_cannot_be_read_is_an_error(root: Path) -> None:
    key, _ = commit("billing", "orders", 0, 4)
    InternalPartition(root).append(commit("billing", "orders", 0, 4), (key, b"\x00\x03\x00"))
    with pytest.raises(CorruptStore, match=r"group 'billing': the committed offset of orders-0 can't be read: "):
        load(root)


def test_the_largest_offset_is_one(root: Path) -> None:
    InternalPartition(root).append(commit("billing", "orders", 0, MAX_INT64))
    assert load(root) == {ORDERS: MAX_INT64}


def test_nothing_of_the_directories_changes(root: Path, tmp_path: Path) -> None:
    InternalPartition(root).append(commit("billing", "orders", 0, 4))
    copy = tmp_path.parent / f"{tmp_path.name}-copy"
    shutil.copytree(root, copy)
    load(root)
    names = sorted(path.relative_to(root) for path in root.rglob("*"))
    assert names == sorted(path.relative_to(copy) for path in copy.rglob("*"))
    assert all((root / name).read_bytes() == (copy / name).read_bytes() for name in names if (root / name).is_file())
