"""A group's description as a coordinator gives it after loading the log: type, state, members, assignments.

A log has only what outlives a coordinator. So a classic group that was rebalancing has its previous state
(``ClassicGroup`` is loaded as Empty or Stable). The states of the other group types follow from epochs in the log, as
in ``ConsumerGroup.maybeUpdateGroupState`` and its counterparts.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kfs.internal.consumer_protocol import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
    PROTOCOL_TYPE,
    decode_protocol,
)
from kfs.internal.group_records import GroupType, RawGroup
from kfs.internal.message_json import Json, message_json
from kfs.internal.schema import Decoded, Malformed
from kfs.internal.topics import GROUP_KINDS

#: Returns the name of a topic by its id, or None if it is unknown.
TopicNames: TypeAlias = Callable[[str], str | None]

_CLASSIC_FIELDS: Final = ("generation", "protocol", "leader", "currentStateTimestamp")
_MEMBER_STATES: Final = {0: "Stable", 1: "UnrevokedPartitions", 2: "UnreleasedPartitions"}
_STREAMS_MEMBER_STATES: Final = {1: "Stable", 2: "UnrevokedTasks", 3: "UnreleasedTasks"}


@dataclass(frozen=True, slots=True)
class Assigned:
    """The partitions of a topic that a member is assigned; an unknown topic name is replaced by the topic's id."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group; ``fields`` are the other fields of its records."""

    member_id: str
    instance_id: str | None
    client_id: str | None
    client_host: str | None
    assignment: tuple[Assigned, ...]
    fields: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: its state in Kafka's terms (None if unknown), its members, and the remaining ``fields``.

    ``problems`` are the records that can't be decoded; the description ignores them.
    """

    type: GroupType
    state: str | None
    protocol_type: str
    assignor: str | None
    members: tuple[GroupMember, ...] = ()
    fields: Mapping[str, Json] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    #: Topic names by id, from the group's records.
    topic_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_simple(self) -> bool:
        """Whether no member ever joined, and it only has committed offsets (``ClassicGroup.isSimpleGroup``)."""
        return self.type is GroupType.CLASSIC and not self.protocol_type and not self.members


#: A group that only has commits.
SIMPLE_GROUP: Final = GroupDescription(GroupType.CLASSIC, "Empty", "", None)


def describe(group: RawGroup, topic_names: TopicNames) -> GroupDescription:
    """Return the description of a group from its records."""
    records, problems = _decoded(group)
    if group.type is GroupType.CLASSIC:
        return _classic(records, problems)
    reader = _ModernGroup(group.type, records, topic_names)
    return reader.description(problems)


@dataclass(frozen=True, slots=True)
class _Record:
    kind: str
    key: Decoded
    value: Decoded

    @property
    def member_id(self) -> str:
        return str(self.key["memberId"])

    def json(self) -> dict[str, Json]:
        return message_json(self.value)


def _decoded(group: RawGroup) -> tuple[list[_Record], tuple[str, ...]]:
    records, problems = [], []
    for key, (offset, value) in group.records.items():
        kind = GROUP_KINDS.kind_of(key)
        try:
            records.append(_Record(kind.name, GROUP_KINDS.decode_key(key), GROUP_KINDS.decode_value(kind, value)))
        except Malformed as error:
            problems.append(f"{kind.name} at offset {offset}: {error.reason}: {b64encode(value).decode()}")
    return records, tuple(problems)


# -- classic groups


def _classic(records: list[_Record], problems: tuple[str, ...]) -> GroupDescription:
    if not records:
        return GroupDescription(GroupType.CLASSIC, None, "", None, problems=problems)
    group = records[0].json()
    protocol_type = str(group["protocolType"])
    raw_members = records[0].value["members"]
    assert isinstance(raw_members, tuple)
    members = tuple(_classic_member(member, protocol_type) for member in raw_members if isinstance(member, Mapping))
    state = "Stable" if members else "Empty"
    protocol = group["protocol"]
    fields: dict[str, Json] = {name: group[name] for name in _CLASSIC_FIELDS if name in group}
    assignor = str(protocol) if members and protocol is not None else None
    return GroupDescription(GroupType.CLASSIC, state, protocol_type, assignor, members, fields, problems)


def _classic_member(member: Mapping[str, object], protocol_type: str) -> GroupMember:
    fields: dict[str, Json] = {}
    for name in ("rebalanceTimeout", "sessionTimeout"):
        value = member[name]
        assert isinstance(value, int)
        fields[name] = value
    decoded = {}
    for name, schema in (
        ("subscription", CONSUMER_PROTOCOL_SUBSCRIPTION),
        ("assignment", CONSUMER_PROTOCOL_ASSIGNMENT),
    ):
        data = member[name]
        assert isinstance(data, bytes)
        message = decode_protocol(schema, data) if protocol_type == PROTOCOL_TYPE else None
        if message is not None:
            decoded[name] = message_json(message)
        fields[name] = decoded.get(name) or b64encode(data).decode()
    assigned = decoded.get("assignment", {}).get("assignedPartitions", ())
    return GroupMember(
        str(member["memberId"]),
        _text(member["groupInstanceId"]),
        str(member["clientId"]),
        str(member["clientHost"]),
        tuple(_assigned(str(each["topic"]), each["partitions"]) for each in _objects(assigned)),
        fields,
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _objects(value: Json) -> Iterator[Mapping[str, Json]]:
    if isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, Mapping))


def _integers(value: Json) -> tuple[int, ...]:
    return tuple(each for each in value if isinstance(each, int)) if isinstance(value, list | tuple) else ()


def _assigned(topic: str, partitions: Json) -> Assigned:
    return Assigned(topic, _integers(partitions))


# -- groups with assignments by the coordinator


class _ModernGroup:
    """A consumer, share or streams group, with records of the group and records of each of its members."""

    def __init__(self, group_type: GroupType, records: list[_Record], topic_names: TopicNames) -> None:
        self.type = group_type
        self._topic_names = topic_names
        self.of_group: dict[str, dict[str, Json]] = {}
        self.of_member: dict[str, dict[str, dict[str, Json]]] = {}
        self.regular_expressions: dict[str, Json] = {}
        prefix = f"{group_type}Group"
        for record in records:
            name = record.kind.removeprefix(prefix)
            if name == "RegularExpression":
                self.regular_expressions[str(record.key["regularExpression"])] = record.json()
            elif "memberId" in record.key.fields:
                self.of_member.setdefault(record.member_id, {})[name] = record.json()
            else:
                self.of_group[name] = record.json()
        self.own_topic_names = dict(self._topics_of_records())

    def _topics_of_records(self) -> Iterator[tuple[str, str]]:
        for name in ("PartitionMetadata", "StatePartitionMetadata"):
            for topics in self.of_group.get(name, {}).values():
                for topic in _objects(topics):
                    yield str(topic["topicId"]), str(topic["topicName"])

    def topic_names(self, topic_id: str) -> str | None:
        """Return the name of a topic from the group's records, or else from other sources."""
        return self.own_topic_names.get(topic_id) or self._topic_names(topic_id)

    def description(self, problems: tuple[str, ...]) -> GroupDescription:
        members = tuple(self._member(member_id) for member_id in sorted(self._member_ids()))
        fields = dict(self.of_group.get("Metadata", {})) | self.of_group.get("TargetAssignmentMetadata", {})
        topology = self.of_group.get("Topology")
        if topology is not None:
            fields["topology"] = topology
        for name in ("PartitionMetadata", "StatePartitionMetadata"):
            if name in self.of_group:
                fields[name[0].lower() + name[1:]] = self._named(self.of_group[name])
        if self.regular_expressions:
            fields["regularExpressions"] = self.regular_expressions
        protocol_type = {"Share": "share", "Streams": "streams"}.get(self.type, PROTOCOL_TYPE)
        state, assignor, names = self._state(), self._assignor(), self.own_topic_names
        return GroupDescription(self.type, state, protocol_type, assignor, members, fields, problems, names)

    def _member_ids(self) -> Iterator[str]:
        """Yield the members with metadata or a current assignment; a target assignment alone makes no member."""
        for member_id, records in self.of_member.items():
            if "MemberMetadata" in records or "CurrentMemberAssignment" in records:
                yield member_id

    def _epoch(self, record: str, name: str) -> int:
        """Return a number in a record of the group; a coordinator starts with 0."""
        value = self.of_group.get(record, {}).get(name, 0)
        return value if isinstance(value, int) else 0

    def _state(self) -> str | None:
        members = set(self._member_ids())
        if not members:
            return "Empty"
        if self.type is GroupType.SHARE:
            return "Stable"
        if self.type is GroupType.STREAMS and not self._is_topology_valid():
            return "NotReady"
        assignment_epoch = self._epoch("TargetAssignmentMetadata", "assignmentEpoch")
        if self._epoch("Metadata", "epoch") > assignment_epoch:
            return "Assigning"
        is_reconciled = all(self._is_reconciled(member_id, assignment_epoch) for member_id in members)
        return "Stable" if is_reconciled else "Reconciling"

    def _is_topology_valid(self) -> bool:
        topology = self.of_group.get("Topology")
        validated = self.of_group.get("Metadata", {}).get("validatedTopologyEpoch", -1)
        return topology is not None and topology["epoch"] == validated

    def _is_reconciled(self, member_id: str, assignment_epoch: int) -> bool:
        current = self.of_member[member_id].get("CurrentMemberAssignment")
        if current is None:  # a member starts in epoch 0 and stable
            return assignment_epoch == 0
        return current["memberEpoch"] == assignment_epoch and self._state_of_member(current) == "Stable"

    def _state_of_member(self, current: Mapping[str, Json]) -> str:
        number = current["state"]
        assert isinstance(number, int)
        states = _STREAMS_MEMBER_STATES if self.type is GroupType.STREAMS else _MEMBER_STATES
        return states.get(number, f"unknown ({number})")

    def _assignor(self) -> str | None:
        """The assignor that most members request; the default assignor isn't in the log."""
        votes: dict[str, int] = {}
        for records in self.of_member.values():
            wanted = records.get("MemberMetadata", {}).get("serverAssignor")
            if isinstance(wanted, str):
                votes[wanted] = votes.get(wanted, 0) + 1
        return max(sorted(votes), key=lambda name: votes[name], default=None)

    def _member(self, member_id: str) -> GroupMember:
        records = self.of_member[member_id]
        metadata = dict(records.get("MemberMetadata", {}))
        current = dict(records.get("CurrentMemberAssignment", {}))
        target = records.get("TargetAssignmentMember", {})
        instance_id, client_id = metadata.pop("instanceId", None), metadata.pop("clientId", None)
        client_host = metadata.pop("clientHost", None)
        if "state" in current:
            current["state"] = self._state_of_member(current)
        fields: dict[str, Json] = {**metadata, **{name: self._named(value) for name, value in current.items()}}
        if target:
            fields["targetAssignment"] = self._named(target.get("topicPartitions", target))
        assignment = tuple(self._assignment(current))
        return GroupMember(member_id, _text(instance_id), _text(client_id), _text(client_host), assignment, fields)

    def _assignment(self, current: Mapping[str, Json]) -> Iterator[Assigned]:
        if self.type is not GroupType.STREAMS:
            for each in _objects(current.get("assignedPartitions")):
                topic_id = str(each["topicId"])
                yield _assigned(self.topic_names(topic_id) or topic_id, each["partitions"])
            return
        sources = dict(self._source_topics())
        for task in _objects(current.get("activeTasks")):
            for topic in sources.get(str(task["subtopologyId"]), ()):
                yield _assigned(topic, task["partitions"])

    def _source_topics(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the source topics of each subtopology of a streams group; task n reads partition n of each of them."""
        for subtopology in _objects(self.of_group.get("Topology", {}).get("subtopologies")):
            topics = [str(topic) for topic in _elements(subtopology["sourceTopics"])]
            topics += [str(topic["name"]) for topic in _objects(subtopology["repartitionSourceTopics"])]
            yield str(subtopology["subtopologyId"]), topics

    def _named(self, value: Json) -> Json:
        """Return JSON with the topic name added to each topic id, if it is known."""
        if isinstance(value, Mapping):
            named = {name: self._named(each) for name, each in value.items()}
            topic_id = value.get("topicId")
            if isinstance(topic_id, str) and "topicName" not in value:
                named = {"topic": self.topic_names(topic_id), **named}
            return named
        if isinstance(value, list | tuple):
            return [self._named(each) for each in value]
        return value


def _elements(value: Json) -> Iterable[Json]:
    return value if isinstance(value, list | tuple) else ()
