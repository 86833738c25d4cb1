"""The groups in ``__consumer_offsets``, replayed as in ``GroupMetadataManager.java``.

A classic group is one record. Other groups have a record for each of their parts: epoch, members, assignments. This
module keeps each group's records, undecoded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from cachetools import LRUCache

from kfs.internal.coordinator import RecordKind
from kfs.internal.topics import GROUP_KINDS

#: An undecoded record: its offset and its value.
RawRecord: TypeAlias = tuple[int, bytes]

_KEYS_KEPT: Final = 10_000


class GroupType(StrEnum):
    """The type of a group (``Group.GroupType``)."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"


_TYPE_BY_PREFIX: Final = {
    "GroupMetadata": GroupType.CLASSIC,
    "ConsumerGroup": GroupType.CONSUMER,
    "ShareGroup": GroupType.SHARE,
    "StreamsGroup": GroupType.STREAMS,
}
#: The group type by record kind number.
_GROUP_TYPES: Final = {
    kind.id: group_type
    for kind in GROUP_KINDS.values()
    for prefix, group_type in _TYPE_BY_PREFIX.items()
    if kind.name.startswith(prefix)
}
#: The kinds that a group can't exist without: deleting such a record deletes the group.
_EXISTENCE: Final = frozenset(
    kind.id
    for kind in GROUP_KINDS.values()
    if kind.name in ("GroupMetadata", "ConsumerGroupMetadata", "ShareGroupMetadata", "StreamsGroupMetadata")
)


@dataclass(slots=True)
class RawGroup:
    """A group: its type, and its records by key."""

    type: GroupType
    records: dict[bytes, RawRecord] = field(default_factory=dict)


class GroupRecords:
    """The groups of one partition of ``__consumer_offsets``, without their commits."""

    def __init__(self) -> None:
        self.groups: dict[str, RawGroup] = {}
        self._group_ids: LRUCache[bytes, tuple[RecordKind, str]] = LRUCache(_KEYS_KEPT)

    def replay(self, key: bytes, record_offset: int, value: bytes | None) -> str | None:
        """Apply a record; return an objection if a broker would have one.

        Raises:
            UnknownRecordType: it is of an unknown kind.
            Malformed: the key is invalid.
        """
        kind, group_id = self._group_of(key)
        group_type = _GROUP_TYPES[kind.id]
        group = self.groups.get(group_id)
        if value is None:
            self._delete(kind, group_id, group, key)
            return None
        if group_type is GroupType.CLASSIC:
            self.groups[group_id] = RawGroup(group_type, {key: (record_offset, value)})
            return None
        objection = None
        if group is None or group.type is not group_type:
            if group is not None:
                objection = f"{kind.name} of {group_id!r}, which had type {group.type} until then"
            group = self.groups[group_id] = RawGroup(group_type)
        group.records[key] = (record_offset, value)
        return objection

    def _group_of(self, key: bytes) -> tuple[RecordKind, str]:
        known = self._group_ids.get(key)
        if known is None:
            kind = GROUP_KINDS.kind_of(key)
            fields = GROUP_KINDS.decode_key(key).fields
            known = self._group_ids[key] = kind, str(fields[kind.key.fields[0].name])
        return known

    def _delete(self, kind: RecordKind, group_id: str, group: RawGroup | None, key: bytes) -> None:
        if group is None:
            return
        if kind.id in _EXISTENCE and (group.type is _GROUP_TYPES[kind.id] or kind.name == "GroupMetadata"):
            del self.groups[group_id]
        elif group.type is _GROUP_TYPES[kind.id]:
            group.records.pop(key, None)
