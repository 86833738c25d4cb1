"""Groups of the recorded directories, held to what their brokers and Kafka's own tools said of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfs.format.java_text import java_hash
from kfs.format.layout import MAX_INT64
from kfs.internal.group_records import GroupType
from kfs.internal.groups import OFFSETS_TOPIC, Group, Groups
from kfs.log.data_dir import DataDir
from kfs.log.offset_range import OffsetRange
from kfs.log.storage import Storage
from tests.internal.group_logs import groups_of

Corpus = Callable[[str], Path]

#: Those with a log of groups; of most it is empty.
WITH_GROUPS = [
    *("a_v2", "b39_txn", "b_txn", "c_clean", "d_groups", "e39_meta", "e_meta", "f_0.10.2.2", "f_0.8.2.2", "f_0.9.0.1"),
    *("f_2.8.2_formats", "f_mixed", "g_running"),
]
_RECORD = re.compile(r"\| offset: (\d+) .*? key: (\{.*\}|\S*) payload: (.*)$")


def reported(corpus: Corpus, file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((corpus("d_groups") / file).read_text())
    return found


def shown_by_the_client(metadata: str) -> str | None:
    """The client that asked for the recorded answers takes strings for C's: they end at a NUL, and empty is none."""
    return metadata.partition("\0")[0] or None


@pytest.fixture(scope="module")
def groups(corpus: Corpus) -> Groups:
    return groups_of(corpus("d_groups") / "data")


def group_in(groups: Groups, name: str) -> Group:
    group = groups.group(name)
    assert group is not None
    return group


@pytest.mark.parametrize("file", ["groups.json", "groups_running.json"])
def test_the_groups_are_those_that_the_broker_had(corpus: Corpus, groups: Groups, file: str) -> None:
    shares = {name for name in groups.names() if group_in(groups, name).description.type is GroupType.SHARE}
    assert shares == {"share-grp"}  # which the client that asked didn't know of
    assert {*groups.names()} - shares == set(reported(corpus, file))


@pytest.mark.parametrize("file", ["groups.json", "groups_running.json"])
def test_every_committed_offset_is_what_the_broker_reported(corpus: Corpus, groups: Groups, file: str) -> None:
    for name, expected in reported(corpus, file).items():
        found = {
            f"{each.topic}-{each.partition}": {
                "offset": each.offset,
                "metadata": shown_by_the_client(each.committed.metadata or ""),
                "leader_epoch": each.committed.leader_epoch,
            }
            for each in group_in(groups, name).partitions
            if each.committed is not None
        }
        assert found == expected["offsets"], name


@pytest.mark.parametrize("file", ["groups.json", "groups_running.json"])
def test_every_state_and_member_is_what_the_broker_reported(corpus: Corpus, groups: Groups, file: str) -> None:
    for name, expected in reported(corpus, file).items():
        description = group_in(groups, name).description
        assert description.state is not None
        assert (description.state.upper(), description.type.upper()) == (expected["state"], expected["type"]), name
        assert description.is_simple == expected["simple"], name
        members = [
            [
                member.client_id,
                member.instance_id or "",
                [f"{each.topic}-{partition}" for each in member.assignment for partition in each.partitions],
            ]
            for member in description.members
        ]
        assert members == expected["members"], name
        if description.type is GroupType.CLASSIC:  # which assignor is the default is in no log
            assert (description.assignor or "") == expected["assignor"], name


def test_every_lag_is_reckoned_to_the_end_that_the_broker_reported(corpus: Corpus, groups: Groups) -> None:
    ends = json.loads((corpus("d_groups") / "offsets.json").read_text())["read_uncommitted"]
    lags = 0
    for name in groups.names():
        for partition in group_in(groups, name).partitions:
            standing = groups.standing(partition)
            end = ends[f"{partition.topic}-{partition.partition}"]["latest"][0]
            assert standing.log_end_offset == standing.high_watermark == end
            if partition.offset is not None:
                assert standing.lag == end - partition.offset
                lags += 1
    assert lags == sum(len(group["offsets"]) for group in reported(corpus, "groups.json").values())


def test_the_oldest_unread_record_is_the_one_at_the_offset(corpus: Corpus, groups: Groups) -> None:
    data = DataDir([str(corpus("d_groups") / "data")], Storage())
    for name in groups.names():
        for partition in group_in(groups, name).partitions:
            log = data.log(partition.topic, partition.partition)
            assert log is not None
            if partition.offset is None:
                continue
            unread = [
                (offset, loaded.columns.timestamps[index])
                for segment, block in log.walk(OffsetRange(partition.offset, MAX_INT64))
                for loaded in [segment.load(block)]  # type: ignore[arg-type]
                if not loaded.header.is_control
                for index, offset in enumerate(loaded.columns.offsets)
                if offset >= partition.offset
            ]
            standing = groups.standing(partition)
            assert (standing.next_offset, standing.next_timestamp) == (unread[0] if unread else (None, None))


def test_a_pending_commit_is_pending(groups: Groups) -> None:
    pending = {each.partition: each.pending for each in group_in(groups, "txn-grp").partitions}
    assert {partition: [commit.offset for commit in commits] for partition, commits in pending.items()} == {
        0: [40],
        1: [10],
    }


def test_a_share_group_has_its_members_state_and_shares(groups: Groups) -> None:
    group = group_in(groups, "share-grp")
    assert (group.description.state, group.description.members) == ("Empty", ())
    assert [(each.topic, each.partition, each.offset) for each in group.partitions] == [
        ("payments", partition, None) for partition in range(3)
    ]
    assert all(each.share is not None and each.share.state_epoch == 2 for each in group.partitions)


@pytest.mark.parametrize("name", WITH_GROUPS)
def test_nothing_of_any_recorded_log_of_groups_is_left_unread(corpus: Corpus, name: str) -> None:
    groups = groups_of(corpus(name) / "data")
    assert groups.are_here
    assert (groups.state_problems().caveats, groups.state_problems().loses_something) == ((), False)


def test_each_group_lies_in_the_partition_that_it_hashes_to(groups: Groups) -> None:
    for name in groups.names():
        assert group_in(groups, name).coordinator == java_hash(name) % 4


@pytest.mark.parametrize(("text", "expected"), [("", 0), ("a", 97), ("polygenelubricants", 0), ("\U0001f642", 1772965)])
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@pytest.mark.parametrize(("name", "dump"), [("d_groups", "dump"), ("f_0.10.2.2", "dump-4.3.1")])
def test_commits_are_those_that_kafkas_own_dump_ends_with(corpus: Corpus, name: str, dump: str) -> None:
    """Of plain commits the newest counts, and a tombstone ends them: read from the lines of ``kafka-dump-log``."""
    newest: dict[tuple[str, str, int], int] = {}
    for file in (corpus(name) / dump).glob(f"{OFFSETS_TOPIC}-*/*"):
        for line in file.read_text().splitlines():
            match = _RECORD.match(line)
            if match is None or not match[2].startswith("{"):
                continue
            key = json.loads(match[2])
            if key["type"] != "1":
                continue
            where = key["data"]["group"], key["data"]["topic"], key["data"]["partition"]
            if match[3].startswith("{"):
                newest[where] = json.loads(match[3])["data"]["offset"]
            else:
                newest.pop(where, None)
    groups = groups_of(corpus(name) / "data")
    found = {
        (group, each.topic, each.partition): each.offset
        for group in groups.names()
        for each in group_in(groups, group).partitions
        if each.committed is not None
    }
    in_transactions = {"txn-grp"}
    assert newest
    assert {key: offset for key, offset in found.items() if key[0] not in in_transactions} == {
        key: offset for key, offset in newest.items() if key[0] not in in_transactions
    }
