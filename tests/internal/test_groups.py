"""Groups as a coordinator would describe them: their types, states, members and assignments; and what is odd."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kfs.format.record import Record
from kfs.format.uuid import Uuid
from kfs.format.writer import encode_batch
from kfs.internal.consumer_protocol import CONSUMER_PROTOCOL_ASSIGNMENT, CONSUMER_PROTOCOL_SUBSCRIPTION
from kfs.internal.group_description import GroupMember
from kfs.internal.group_records import GroupType
from kfs.internal.groups import Group, Groups
from kfs.internal.schema import Value
from kfs.log.data_dir import DataDir
from kfs.log.log_dir import LogDir
from kfs.log.storage import Storage
from tests.internal.group_logs import (
    TOPIC_ID,
    InternalPartition,
    KeyValue,
    classic_group,
    commit,
    groups_of,
    member,
    no_group,
    pair,
    share_pair,
    share_state,
    versioned,
)
from tests.logs import dense, set_log_start, write_partition

GROUP: Mapping[str, Value] = {"groupId": "g"}
SUBSCRIPTION = versioned(CONSUMER_PROTOCOL_SUBSCRIPTION, {"topics": ("orders",)})
ASSIGNMENT = versioned(
    CONSUMER_PROTOCOL_ASSIGNMENT, {"assignedPartitions": ({"topic": "orders", "partitions": (0, 2)},)}
)


def described(root: Path, name: str = "g") -> Group:
    group = groups_of(root).group(name)
    assert group is not None
    return group


def assigned(found: GroupMember) -> dict[str, tuple[int, ...]]:
    return {each.topic: each.partitions for each in found.assignment}


def of_member(member_id: str = "m") -> Mapping[str, Value]:
    return {**GROUP, "memberId": member_id}


def topic_with_id(root: Path, topic: str = "orders", partitions: int = 1) -> None:
    """Write a topic whose id is :data:`TOPIC_ID`, of ten records."""
    for partition in range(partitions):
        directory = write_partition(root / f"{topic}-{partition}", {0: dense(0, 9)})
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")


# --- classic groups -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_a_classic_group_with_members_is_stable(tmp_path: Path, version: int) -> None:
    InternalPartition(tmp_path).append(classic_group("g", [member("m", SUBSCRIPTION, ASSIGNMENT)], version=version))
    group = described(tmp_path)
    description = group.description
    assert (description.type, description.state, description.assignor) == (GroupType.CLASSIC, "Stable", "range")
    assert (description.protocol_type, description.is_simple) == ("consumer", False)
    (found,) = description.members
    assert (found.member_id, found.client_id, found.client_host) == ("m", "m-client", "/10.0.0.1")
    assert assigned(found) == {"orders": (0, 2)}
    assert found.fields["subscription"] == {"topics": ["orders"], "userData": None, "ownedPartitions": []} | {
        "generationId": -1,
        "rackId": None,
    }
    assert [(each.topic, each.partition, each.offset) for each in group.partitions] == [
        ("orders", 0, None),
        ("orders", 2, None),
    ]


def test_a_classic_group_without_members_is_empty_and_no_simple_one(tmp_path: Path) -> None:
    InternalPartition(tmp_path).append(classic_group("g"), commit("g", "a", 0, 1))
    description = described(tmp_path).description
    assert (description.state, description.is_simple, description.assignor) == ("Empty", False, None)


def test_the_newest_generation_counts(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(classic_group("g", [member("old"), member("older")]))
    log.append(classic_group("g", [member("new")]))
    assert [each.member_id for each in described(tmp_path).description.members] == ["new"]


def test_a_deleted_group_is_gone(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(classic_group("g", [member("m")]), classic_group("h"))
    log.append(no_group("g"), no_group("never"))
    assert groups_of(tmp_path).names() == ("h",)


@pytest.mark.parametrize(
    ("protocol_type", "data"), [("connect", ASSIGNMENT), ("consumer", b"\x00\x00\x00\x00\x00\x09")]
)
def test_what_members_say_in_another_language_is_base64(tmp_path: Path, protocol_type: str, data: bytes) -> None:
    InternalPartition(tmp_path).append(classic_group("g", [member("m", data, data)], protocol_type))
    (found,) = described(tmp_path).description.members
    raw = base64.b64encode(data).decode()
    assert (found.fields["subscription"], found.fields["assignment"], found.assignment) == (raw, raw, ())


@pytest.mark.parametrize("cut", [1, 2, 5, 30])
def test_a_group_that_cannot_be_read_is_named_with_its_bytes(tmp_path: Path, cut: int) -> None:
    key, value = classic_group("g", [member("m", SUBSCRIPTION, ASSIGNMENT)])
    assert value is not None
    InternalPartition(tmp_path).append((key, value[:-cut]), commit("g", "a", 0, 4))
    group = described(tmp_path)
    assert (group.description.state, group.description.members) == (None, ())
    assert base64.b64encode(value[:-cut]).decode() in group.description.problems[0]
    assert [each.offset for each in group.partitions] == [4]


# --- groups of the consumer protocol --------------------------------------------------------------------------------


def consumer_group(epoch: int = 5, assigned_epoch: int = 5, member_epoch: int = 5, state: int = 0) -> list[KeyValue]:
    """Return the records of a group with one member, as a coordinator writes them."""
    partitions: Value = ({"topicId": TOPIC_ID, "partitions": (0, 1)},)
    metadata: dict[str, Value] = {
        "clientId": "c",
        "clientHost": "/h",
        "subscribedTopicNames": ("orders",),
        "serverAssignor": "uniform",
        "instanceId": None,
        "rackId": None,
        "subscribedTopicRegex": None,
        "classicMemberMetadata": None,
    }
    current: dict[str, Value] = {
        "memberEpoch": member_epoch,
        "previousMemberEpoch": member_epoch - 1,
        "state": state,
        "assignedPartitions": ({"topicId": TOPIC_ID, "partitions": (0,), "assignmentEpochs": None},),
        "partitionsPendingRevocation": (),
    }
    return [
        pair("ConsumerGroupMemberMetadata", of_member(), metadata),
        pair("ConsumerGroupMetadata", GROUP, {"epoch": epoch}),
        pair("ConsumerGroupTargetAssignmentMember", of_member(), {"topicPartitions": partitions}),
        pair("ConsumerGroupTargetAssignmentMetadata", GROUP, {"assignmentEpoch": assigned_epoch}),
        pair("ConsumerGroupCurrentMemberAssignment", of_member(), current),
    ]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ((5, 5, 5, 0), "Stable"),
        ((6, 5, 5, 0), "Assigning"),
        ((5, 5, 4, 0), "Reconciling"),
        ((5, 5, 5, 1), "Reconciling"),
        ((5, 5, 5, 99), "Reconciling"),
    ],
)
def test_the_state_of_a_consumer_group_follows_from_its_epochs(
    tmp_path: Path, epochs: tuple[int, int, int, int], expected: str
) -> None:
    InternalPartition(tmp_path).append(*consumer_group(*epochs))
    description = described(tmp_path).description
    assert (description.type, description.state) == (GroupType.CONSUMER, expected)


def test_a_member_of_a_consumer_group_has_what_it_has_and_what_it_is_to_have(tmp_path: Path) -> None:
    topic_with_id(tmp_path, partitions=2)
    InternalPartition(tmp_path).append(*consumer_group(), commit("g", "orders", 0, 4))
    group = described(tmp_path)
    (found,) = group.description.members
    assert (found.member_id, found.client_id, found.client_host, found.instance_id) == ("m", "c", "/h", None)
    assert assigned(found) == {"orders": (0,)}
    assert found.fields["targetAssignment"] == [{"topic": "orders", "topicId": str(TOPIC_ID), "partitions": [0, 1]}]
    assert (found.fields["state"], found.fields["memberEpoch"]) == ("Stable", 5)
    assert group.description.assignor == "uniform"
    assert [(each.partition, each.offset, len(each.members)) for each in group.partitions] == [(0, 4, 1)]


def test_a_topic_that_is_not_here_goes_by_its_id(tmp_path: Path) -> None:
    InternalPartition(tmp_path).append(*consumer_group())
    (found,) = described(tmp_path).description.members
    assert assigned(found) == {str(TOPIC_ID): (0,)}


def test_a_member_that_left_is_gone_and_so_is_the_group_that_was_deleted(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(*consumer_group())
    log.append(
        pair("ConsumerGroupCurrentMemberAssignment", of_member(), None),
        pair("ConsumerGroupTargetAssignmentMember", of_member(), None),
        pair("ConsumerGroupMemberMetadata", of_member(), None),
    )
    group = described(tmp_path)
    assert (group.description.state, group.description.members) == ("Empty", ())
    log.append(
        pair("ConsumerGroupTargetAssignmentMetadata", GROUP, None),
        pair("ConsumerGroupMetadata", GROUP, None),
    )
    assert groups_of(tmp_path).names() == ()


def test_a_classic_group_may_be_upgraded_and_downgraded(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(classic_group("g", [member("m")]))
    log.append(no_group("g"), *consumer_group())
    assert described(tmp_path).description.type is GroupType.CONSUMER
    log.append(*[(key, None) for key, _ in reversed(consumer_group())], classic_group("g", [member("m")]))
    groups = groups_of(tmp_path)
    assert described(tmp_path).description.type is GroupType.CLASSIC
    assert groups.state_problems().unread == ()


def test_a_group_that_changes_its_type_without_a_word_is_said_so(tmp_path: Path) -> None:
    InternalPartition(tmp_path).append(classic_group("g", [member("m")]), *consumer_group())
    groups = groups_of(tmp_path)
    assert described(tmp_path).description.type is GroupType.CONSUMER
    assert ["had type Classic" in record.reason for _, record in groups.state_problems().unread] == [True]


# --- share groups ---------------------------------------------------------------------------------------------------

SHARE: Mapping[str, Value] = {"groupId": "g", "topicId": TOPIC_ID, "partition": 0}


def batches(*states: tuple[int, int, int]) -> Value:
    """Return what is said of records: first and last offset, and their state."""
    names = ("firstOffset", "lastOffset", "deliveryState")
    return tuple({**dict(zip(names, each, strict=True)), "deliveryCount": 1} for each in states)


def snapshot(start: int, done: int = -1, *states: tuple[int, int, int]) -> KeyValue:
    fields: dict[str, Value] = {"startOffset": start, "deliveryCompleteCount": done, "stateEpoch": 1, "leaderEpoch": 2}
    return share_pair("ShareSnapshot", SHARE, fields | {"stateBatches": batches(*states)})


def update(start: int, done: int = -1, leader_epoch: int = -1, states: Sequence[tuple[int, int, int]] = ()) -> KeyValue:
    fields: dict[str, Value] = {"startOffset": start, "deliveryCompleteCount": done, "leaderEpoch": leader_epoch}
    return share_pair("ShareUpdate", SHARE, fields | {"stateBatches": batches(*states)})


def share_group(root: Path) -> None:
    topic_with_id(root)
    InternalPartition(root).append(
        pair("ShareGroupMetadata", GROUP, {"epoch": 3}),
        pair("ShareGroupMemberMetadata", of_member(), {"clientId": "c", "clientHost": "/h", "rackId": None}),
        pair("ShareGroupCurrentMemberAssignment", of_member(), {"assignedPartitions": ()}),
    )


def test_a_share_group_stands_where_its_snapshots_and_updates_say(tmp_path: Path) -> None:
    share_group(tmp_path)
    state = share_state(tmp_path)
    state.append(snapshot(3), update(-1, leader_epoch=4), update(6, done=2))
    groups = groups_of(tmp_path)
    group = groups.group("g")
    assert group is not None
    (partition,) = group.partitions
    assert (group.description.type, group.description.state) == (GroupType.SHARE, "Stable")
    assert partition.share is not None
    assert (partition.topic, partition.offset, partition.share.state_epoch) == ("orders", 6, 1)
    assert (partition.share.leader_epoch, partition.share.delivery_complete_count) == (4, 2)
    standing = groups.standing(partition)
    assert (standing.lag, standing.next_offset) == (10 - 6 - 2, 6)


AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([snapshot(0, 4, (0, 3, ACKNOWLEDGED))], 4),
        ([snapshot(0, 3, (0, 2, ARCHIVED), (3, 4, AVAILABLE), (5, 5, ACQUIRED))], 3),
        ([snapshot(0, 4, (2, 5, ACKNOWLEDGED))], 0),
        ([snapshot(0, 10, (0, 4, ACKNOWLEDGED), (5, 9, ARCHIVED))], None),
        ([snapshot(0, 0), update(-1, 3, states=[(0, 2, ACKNOWLEDGED)]), update(-1, 5, states=[(3, 4, ARCHIVED)])], 5),
        ([snapshot(0, 0), update(-1, 3, states=[(4, 6, ACKNOWLEDGED)]), update(4, 3)], 7),
        ([snapshot(0, 4, (0, 3, ACKNOWLEDGED)), snapshot(0, 0)], 0),  # somebody has set the offsets back
        ([snapshot(0, 4, (0, 3, ACKNOWLEDGED), (7, 2, ACKNOWLEDGED), (-5, -9, ARCHIVED))], 4),
        ([snapshot(2, 4, (2, 2**63 - 2, ACKNOWLEDGED))], None),
        ([snapshot(0, 4, (-(2**63), 5, ACKNOWLEDGED))], 6),
    ],
)
def test_a_share_group_reads_next_what_is_not_done(
    tmp_path: Path, records: list[KeyValue], expected: int | None
) -> None:
    share_group(tmp_path)
    share_state(tmp_path).append(*records)
    groups = groups_of(tmp_path)
    group = groups.group("g")
    assert group is not None
    assert [groups.standing(each).next_offset for each in group.partitions] == [expected]


def test_the_lag_of_a_share_is_not_known_where_the_broker_did_not_count(tmp_path: Path) -> None:
    share_group(tmp_path)
    share_state(tmp_path).append(snapshot(3))
    groups = groups_of(tmp_path)
    group = groups.group("g")
    assert group is not None
    assert [(groups.standing(each).lag, each.offset) for each in group.partitions] == [(None, 3)]


def test_a_share_that_was_deleted_is_gone(tmp_path: Path) -> None:
    share_group(tmp_path)
    share_state(tmp_path).append(snapshot(3), share_pair("ShareSnapshot", SHARE, None))
    assert described(tmp_path).partitions == ()


def test_shares_without_their_group_are_shown_and_its_state_is_not_known(tmp_path: Path) -> None:
    share_state(tmp_path).append(snapshot(3))
    group = described(tmp_path)
    assert (group.description.type, group.description.state, group.coordinator) == (GroupType.SHARE, None, None)
    assert [(each.topic, each.offset) for each in group.partitions] == [(str(TOPIC_ID), 3)]


# --- streams groups -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("validated", "epoch", "member_state", "expected"),
    [(2, 4, 1, "Stable"), (1, 4, 1, "NotReady"), (2, 5, 1, "Assigning"), (2, 4, 2, "Reconciling")],
)
def test_a_streams_group(tmp_path: Path, validated: int, epoch: int, member_state: int, expected: str) -> None:
    subtopology: dict[str, Value] = {
        "subtopologyId": "0",
        "sourceTopics": ("orders",),
        "sourceTopicRegex": (),
        "stateChangelogTopics": (),
        "repartitionSinkTopics": (),
        "repartitionSourceTopics": ({"name": "again", "partitions": 2, "replicationFactor": 1, "topicConfigs": ()},),
        "copartitionGroups": (),
    }
    InternalPartition(tmp_path).append(
        pair("StreamsGroupMetadata", GROUP, {"epoch": epoch, "validatedTopologyEpoch": validated}),
        pair("StreamsGroupTopology", GROUP, {"epoch": 2, "subtopologies": (subtopology,)}),
        pair("StreamsGroupTargetAssignmentMetadata", GROUP, {"assignmentEpoch": 4}),
        pair("StreamsGroupMemberMetadata", of_member(), {"clientId": "c", "instanceId": None, "rackId": None}),
        pair(
            "StreamsGroupCurrentMemberAssignment",
            of_member(),
            {
                "memberEpoch": 4,
                "state": member_state,
                "activeTasks": ({"subtopologyId": "0", "partitions": (1,), "assignmentEpochs": None},),
            },
        ),
    )
    description = described(tmp_path).description
    assert (description.type, description.state) == (GroupType.STREAMS, expected)
    assert [assigned(each) for each in description.members] == [{"orders": (1,), "again": (1,)}]


# --- what is odd ----------------------------------------------------------------------------------------------------


def reasons(groups: Groups) -> list[tuple[int, str]]:
    return [(record.offset, record.reason) for _, record in groups.state_problems().unread]


def test_unknown_types_are_kept_as_they_are_and_the_rest_is_read(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append((b"\x00\x63later", b"value"), (b"\x00\x63gone", b"value"), commit("g", "a", 0, 1))
    log.append((b"\x00\x63gone", None), (b"\x00\x63later", b"newer"))
    groups = groups_of(tmp_path)
    assert groups.names() == ("g",)
    ((found_log, record),) = groups.state_problems().unread
    assert (found_log.topic, record.offset) == ("__consumer_offsets", 4)
    assert (record.key, record.value) == (b"\x00\x63later", b"newer")
    assert "unknown record type 99" in record.reason
    assert record.file == str(log.active)
    assert record.position == log.active.read_bytes().rindex((3).to_bytes(8, "big"), 0)


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x02", b"\x00\x05\x00\x01g", b"\xff\xff\x00\x01g"])
def test_keys_that_are_none_do_no_harm(tmp_path: Path, key: bytes | None) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 1), (key, b"x"), commit("g", "a", 1, 2))
    log.append((key, None))
    groups = groups_of(tmp_path)
    assert [each.offset for each in described(tmp_path).partitions] == [1, 2]
    assert [offset for offset, _ in reasons(groups)] == ([1, 3] if key is None else [])


def test_however_many_cannot_be_read_memory_is_bounded(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(*[(b"\x00\x63%d" % number, b"") for number in range(1200)], commit("g", "a", 0, 1))
    groups = groups_of(tmp_path)
    assert groups.names() == ("g",)
    assert (len(groups.state_problems().unread), groups.state_problems().unread_dropped) == (1000, 200)


def test_however_many_values_cannot_be_read_so_many_are_told_and_the_rest_is_counted(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(*[(commit("g", "a", number, 1)[0], b"\x00\x63") for number in range(1200)])
    trouble = groups_of(tmp_path).state_problems()
    assert (len(trouble.unread), trouble.unread_dropped, trouble.is_damaged) == (1000, 200, False)
    assert trouble.loses_something
    share, *rows, last = trouble.rows()
    assert "it is unknown how many partitions __consumer_offsets has" in str(share["reason"])
    assert len(rows) == 1000
    assert last == {"reason": "and 200 more records that can't be read"}


def test_names_of_topics_that_are_not_here_are_in_the_metadata(tmp_path: Path) -> None:
    share_state(tmp_path).append(snapshot(3))
    data_dir = DataDir([str(tmp_path)], Storage())
    asked: list[Uuid] = []

    class Metadata:
        def topic_id(self, topic: str, log_dir: LogDir | None) -> Uuid | None:
            raise NotImplementedError

        def topic_name(self, topic_id: Uuid) -> str | None:
            asked.append(topic_id)
            return "elsewhere"

        def is_tiered(self, topic: str, log_dir: LogDir | None) -> bool | None:
            return None

        def partition_count(self, topic: str, log_dir: LogDir | None) -> int | None:
            return None

    data_dir.topic_ids = Metadata
    group = Groups(data_dir).group("g")
    assert group is not None
    assert [each.topic for each in group.partitions] == ["elsewhere"]
    assert asked == [TOPIC_ID]


def test_a_control_record_that_is_none_ends_nothing(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 1), producer=1)
    for key in (b"\x00", b"\x00\x00\x00\x07"):
        record = Record(log.next_offset, 0, key, b"")
        log.write(encode_batch([record], producer_id=1, transactional=True, control=True), 1)
    groups = groups_of(tmp_path)
    assert [len(each.pending) for each in described(tmp_path).partitions] == [1]
    assert [offset for offset, _ in reasons(groups)] == [1]


def test_a_log_without_its_beginning_is_said_to_be_one(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path, first_offset=100)
    log.append(*consumer_group()[2:], commit("g", "a", 0, 1))
    groups = groups_of(tmp_path)
    assert [each.reason.startswith("begins at offset 100") for each in groups.state_problems().caveats] == [True]
    (found,) = described(tmp_path).description.members
    assert (found.member_id, found.client_id) == ("m", None)


def test_what_lies_below_the_log_start_offset_is_not_read(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 1), commit("g", "b", 0, 2), commit("g", "c", 0, 3))
    set_log_start(tmp_path, "__consumer_offsets", 0, 2)
    assert [each.topic for each in described(tmp_path).partitions] == ["c"]


def test_a_corrupt_batch_costs_itself_and_no_more(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 1))
    damaged = log.active.stat().st_size
    log.append(commit("g", "a", 0, 2), commit("lost", "a", 0, 2))
    end = log.active.stat().st_size
    log.append(commit("g", "b", 0, 3))
    data = bytearray(log.active.read_bytes())
    data[end - 3] ^= 0xFF
    log.active.write_bytes(data)
    groups = groups_of(tmp_path)
    assert groups.names() == ("g",)
    assert [(each.topic, each.offset) for each in described(tmp_path).partitions] == [("a", 1), ("b", 3)]
    assert groups.state_problems().is_damaged
    assert [(problem.file, problem.position) for problem in groups.state_problems().problems] == [
        (str(log.active), damaged)
    ]


@pytest.mark.parametrize("count", [1, 3, 50])
def test_there_may_be_any_number_of_partitions(tmp_path: Path, count: int) -> None:
    for partition in range(count):
        InternalPartition(tmp_path, partition=partition).append(commit(f"g{partition}", "a", 0, partition))
    groups = groups_of(tmp_path)
    assert len(groups.names()) == count
    assert [described(tmp_path, name).coordinator for name in groups.names()] == [
        int(name[1:]) for name in groups.names()
    ]


def test_a_group_in_several_partitions_is_the_one_that_it_hashes_to(tmp_path: Path) -> None:
    for partition in range(4):
        InternalPartition(tmp_path, partition=partition).append(commit("a", "t", 0, partition))
    groups = groups_of(tmp_path)
    assert [(each.offset, described(tmp_path, "a").coordinator) for each in described(tmp_path, "a").partitions] == [
        (97 % 4, 1)
    ]
    assert len(groups.state_problems().caveats) == 1


def test_there_are_no_groups_without_their_topic(tmp_path: Path) -> None:
    topic_with_id(tmp_path)
    groups = groups_of(tmp_path)
    assert (groups.are_here, groups.names(), groups.group("g"), groups.state_problems().problems) == (
        False,
        (),
        None,
        (),
    )
