"""``groups()``, ``transactions()``, ``transactional_ids()`` and ``cluster()`` say what the commands say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import kfs
from tests.cli.running import printed
from tests.logs import dense, write_partition
from tests.system.kafka_mount import kfs as command

CorpusPath = Callable[[str], Path]


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed(*arguments).splitlines()]


def without_ages(value: Any) -> Any:
    """Leave out what says how long ago something was."""
    if isinstance(value, Mapping):
        return {key: without_ages(each) for key, each in value.items() if not key.lower().startswith("age")}
    return [without_ages(each) for each in value] if isinstance(value, list | tuple) else value


def test_groups_are_those_of_the_command(corpus: CorpusPath) -> None:
    root = corpus("d_groups") / "data"
    with kfs.open(root) as data:
        groups = data.groups()
        expected = rows("groups", root, "--json")
        assert list(groups) == [row["group"] for row in expected]
        assert len(groups) == len(expected) > 10
        for row in expected:
            group = groups[row["group"]]
            assert without_ages(json.loads(json.dumps(group.json()))) == without_ages(row)
            assert (group.name, group.type, group.state) == (row["group"], row["type"], row["state"])
            assert [member.member_id for member in group.members] == [member["memberId"] for member in row["members"]]
            assert len(group.offsets) == len(row["offsets"])
            for offset, said in zip(group.offsets, row["offsets"], strict=True):
                for name, field in (
                    *(("topic", "topic"), ("partition", "partition"), ("offset", "offset"), ("lag", "lag")),
                    *(("log_end_offset", "logEndOffset"), ("high_watermark", "highWatermark"), ("note", "note")),
                ):
                    assert getattr(offset, name) == said[field]
                oldest = said["oldestUnread"]
                assert offset.next_offset == (oldest and oldest["offset"])
                if oldest and oldest["time"]:
                    assert offset.next_time is not None
                    assert offset.next_time.isoformat(timespec="milliseconds") == oldest["time"].replace("Z", "+00:00")
        lags = [offset["lag"] for offset in expected[0]["offsets"]]
        assert groups[expected[0]["group"]].lag == sum(lags)
        assert groups.problems == ()


def test_a_group_that_is_not_there(corpus: CorpusPath) -> None:
    with kfs.open(corpus("d_groups") / "data") as data:
        groups = data.groups()
        assert "nobody" not in groups
        assert groups.get("nobody") is None
        with pytest.raises(kfs.NotFound, match="no group 'nobody'"):
            groups["nobody"]
        assert "classic-grp" in groups


@pytest.mark.parametrize("name", ["b_txn", "b39_txn", "d_groups"])
def test_transactions_are_those_of_the_command(name: str, corpus: CorpusPath) -> None:
    root = corpus(name) / "data"
    with kfs.open(root) as data:
        for ended in (False, True):
            expected = rows("txn", root, "--json", *(["--all"] if ended else []))
            found = [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "state": each.state,
                    "producerId": each.producer_id,
                    "producerEpoch": each.producer_epoch,
                    "coordinatorEpoch": each.coordinator_epoch,
                    "startOffset": each.start_offset,
                    "endOffset": each.end_offset,
                    "startTimestamp": each.start_timestamp,
                    "lastTimestamp": each.last_timestamp,
                    "transactionalId": each.transactional_id,
                }
                for each in data.transactions(ended=ended)
            ]
            assert found == [
                {field: row.get(field, row.get("endTimestamp") if field == "lastTimestamp" else None) for field in one}
                for one, row in zip(found, expected, strict=True)
            ]
        assert any(each["endOffset"] is not None for each in found)
        ids = data.transactional_ids()
        known = rows("txn", root, "--ids", "--json")
        assert [(name, one.state, one.producer_id) for name, one in ids.items()] == [
            (row["transactionalId"], row["state"], row["producerId"]) for row in known
        ]
        assert ids.problems == ()
        with pytest.raises(kfs.NotFound, match="no transactional id 'nobody'"):
            ids["nobody"]


def test_what_hangs_is_for_the_timeout_to_say(tmp_path: Path, corpus: CorpusPath) -> None:
    root = corpus("b_txn") / "data"
    for directory in root.glob("ledger-*"):
        (tmp_path / directory.name).symlink_to(directory)
    with kfs.open(tmp_path) as data:
        assert {each.state for each in data.transactions()} == {"unknown"}
        assert {each.state for each in data.transactions(max_timeout=timedelta(days=30_000))} == {"open"}


@pytest.mark.parametrize("name", ["e_meta", "e39_meta", "b_txn"])
def test_the_cluster_is_that_of_the_command(name: str, corpus: CorpusPath) -> None:
    root = corpus(name) / "data"
    with kfs.open(root) as data:
        cluster = data.cluster()
        assert json.loads(json.dumps(cluster.summary()))["clusterId"] == _summary(root)["clusterId"]
        assert [row["topic"] for row in cluster.topics()] == cluster.topic_names()
        assert (cluster.summary()["metadata"] is None) == (name == "b_txn")


def _summary(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("cluster", root, "--json").stdout)
    return found


def test_what_is_not_here_is_said(tmp_path: Path, corpus: CorpusPath) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 4)})
    without = kfs.open(tmp_path)
    left_out = kfs.open(corpus("d_groups") / "data", topics="payments")
    for data in (without, left_out):
        with pytest.raises(kfs.UnusableSource, match="no partition of __consumer_offsets, which is"):
            data.groups()
        with pytest.raises(kfs.UnusableSource, match="no partition of __transaction_state"):
            data.transactional_ids()
        assert list(data.transactions()) == []
        data.close()
    assert kfs.open(tmp_path).cluster().summary()["clusterId"] is None


def test_what_was_closed_says_so(corpus: CorpusPath) -> None:
    data = kfs.open(corpus("d_groups") / "data")
    groups, ids = data.groups(), data.transactional_ids()
    data.close()
    uses: list[Callable[[], object]] = [data.groups, data.transactional_ids, data.cluster, data.transactions]
    uses += [lambda: list(groups), lambda: list(ids)]
    for use in uses:
        with pytest.raises(ValueError, match="closed"):
            use()


def test_they_are_followed_as_the_logs_change(tmp_path: Path, corpus: CorpusPath) -> None:
    source = corpus("d_groups") / "data"
    for directory in source.glob("__consumer_offsets-*"):
        (tmp_path / directory.name).symlink_to(directory)
    with kfs.open(tmp_path) as data:
        assert data.groups()["classic-grp"].lag is None
        (tmp_path / "payments-2").symlink_to(source / "payments-2")
        _until(lambda: data.groups()["classic-grp"].lag == 44)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
