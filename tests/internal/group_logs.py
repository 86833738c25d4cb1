"""Partitions of ``__consumer_offsets`` and ``__share_group_state``, written record by record as brokers write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kfs.format.codecs import Codec
from kfs.format.control_record import AbortMarker, CommitMarker, encode_control_record
from kfs.format.record import Record
from kfs.format.uuid import Uuid
from kfs.format.writer import encode_batch
from kfs.internal.coordinator import RecordKind, RecordKinds
from kfs.internal.groups import OFFSETS_TOPIC, SHARE_STATE_TOPIC, Groups
from kfs.internal.schema import Message, Value
from kfs.internal.topics import GROUP_KINDS, SHARE_STATE_KINDS
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from tests.internal.encoding import encode
from tests.logs import START, log_name

TOPIC_ID = Uuid(bytes(range(16)))

KeyValue = tuple[bytes | None, bytes | None]


class InternalPartition:
    """A partition's directory; batches go to the end of its last segment."""

    def __init__(self, root: Path, topic: str = OFFSETS_TOPIC, partition: int = 0, first_offset: int = 0) -> None:
        self.directory = root / f"{topic}-{partition}"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.next_offset = first_offset
        self.roll()

    def roll(self) -> None:
        """Begin a new segment."""
        self.active = self.directory / log_name(self.next_offset)
        self.active.touch()

    def append(
        self, *content: KeyValue, producer: int = -1, transactional: bool | None = None, codec: Codec = Codec.NONE
    ) -> int:
        """Append a batch; return the offset of its first record."""
        first = self.next_offset
        records = [Record(first + at, START + first + at, *pair) for at, pair in enumerate(content)]
        is_transactional = producer >= 0 if transactional is None else transactional
        self.write(
            encode_batch(records, producer_id=producer, transactional=is_transactional, codec=codec), len(content)
        )
        return first

    def end(self, producer: int, *, is_commit: bool) -> None:
        """Append the marker that ends a producer's transaction."""
        key, value = encode_control_record(CommitMarker(0) if is_commit else AbortMarker(0))
        record = Record(self.next_offset, START + self.next_offset, key, value)
        self.write(encode_batch([record], producer_id=producer, transactional=True, control=True), 1)

    def write(self, data: bytes, offsets: int) -> None:
        """Append bytes that take so many offsets."""
        with self.active.open("ab") as log:
            log.write(data)
        self.next_offset += offsets


def share_state(root: Path, partition: int = 0) -> InternalPartition:
    return InternalPartition(root, SHARE_STATE_TOPIC, partition)


def groups_of(*roots: Path, **options: Any) -> Groups:
    return Groups(DataDir([str(root) for root in roots], Storage(), **options))


# --- records --------------------------------------------------------------------------------------------------------


def pair(
    kind: RecordKind | str,
    key: Mapping[str, Value],
    value: Mapping[str, Value] | None,
    version: int | None = None,
    kinds: RecordKinds = GROUP_KINDS,
) -> KeyValue:
    """Return a record of a kind, in the newest version unless another is asked for; fields left out are default."""
    found = kind if isinstance(kind, RecordKind) else next(each for each in kinds.values() if each.name == kind)
    encoded_key = found.id.to_bytes(2, "big") + encode(found.key, 0, key)
    if value is None:
        return encoded_key, None
    return encoded_key, versioned(found.value, value, version)


def versioned(schema: Message, fields: Mapping[str, Value], version: int | None = None) -> bytes:
    """Return a message with its version before it."""
    number = schema.versions.last if version is None else version
    return number.to_bytes(2, "big") + encode(schema, number, {**schema.defaults, **fields})


def share_pair(kind: str, key: Mapping[str, Value], value: Mapping[str, Value] | None) -> KeyValue:
    return pair(kind, key, value, kinds=SHARE_STATE_KINDS)


def commit(
    group: str, topic: str, partition: int, offset: int | None, *, version: int | None = None, **fields: Value
) -> KeyValue:
    """Return a commit, or what deletes one."""
    key: dict[str, Value] = {"group": group, "topic": topic, "partition": partition}
    if offset is None:
        return pair("OffsetCommit", key, None)
    return pair("OffsetCommit", key, {"offset": offset, "commitTimestamp": START, **fields}, version)


def legacy_commit(group: str, topic: str, partition: int, offset: int) -> KeyValue:
    """Return a commit as brokers before 0.9 wrote it."""
    key: dict[str, Value] = {"group": group, "topic": topic, "partition": partition}
    return pair("LegacyOffsetCommit", key, {"offset": offset, "commitTimestamp": START})


def member(member_id: str, subscription: bytes = b"", assignment: bytes = b"", **fields: Value) -> dict[str, Value]:
    """Return a member as the record of a classic group has it."""
    return {
        "memberId": member_id,
        "groupInstanceId": None,
        "clientId": f"{member_id}-client",
        "clientHost": "/10.0.0.1",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": subscription,
        "assignment": assignment,
        **fields,
    }


def classic_group(
    group: str, members: Sequence[Mapping[str, Value]] = (), protocol_type: str = "consumer", version: int | None = None
) -> KeyValue:
    fields: dict[str, Value] = {
        "protocolType": protocol_type,
        "generation": 7,
        "protocol": "range" if members else None,
        "leader": str(members[0]["memberId"]) if members else None,
        "currentStateTimestamp": START,
        "members": tuple(members),
    }
    return pair("GroupMetadata", {"group": group}, fields, version)


def no_group(group: str) -> KeyValue:
    return pair("GroupMetadata", {"group": group}, None)
