"""Offset commits, and groups of the classic protocol: types 0 to 2 of ``__consumer_offsets``.

The definitions are those of Kafka 4.3 (``group-coordinator``). Brokers before 0.9 wrote type 0.
"""

from __future__ import annotations

from typing import Final

from kfs.internal.coordinator import RecordKind
from kfs.internal.schema import BYTES, INT32, INT64, STRING, UUID, Array, Field, Message, Struct

LEGACY_OFFSET_COMMIT_KEY: Final = Message(
    "LegacyOffsetCommitKey", "0", "none", Field("group", STRING), Field("topic", STRING), Field("partition", INT32)
)
LEGACY_OFFSET_COMMIT_VALUE: Final = Message(
    "LegacyOffsetCommitValue",
    "0",
    "none",
    Field("offset", INT64),
    Field("metadata", STRING),
    Field("commitTimestamp", INT64),
)
OFFSET_COMMIT_KEY: Final = Message(
    "OffsetCommitKey", "0", "none", Field("group", STRING), Field("topic", STRING), Field("partition", INT32)
)
OFFSET_COMMIT_VALUE: Final = Message(
    "OffsetCommitValue",
    "0-4",
    "4+",
    Field("offset", INT64),
    Field("leaderEpoch", INT32, "3+", default=-1),
    Field("metadata", STRING),
    Field("commitTimestamp", INT64),
    Field("expireTimestamp", INT64, "1", default=-1),
    Field("topicId", UUID, "4+", tag=0),
)
GROUP_METADATA_KEY: Final = Message("GroupMetadataKey", "0", "none", Field("group", STRING))
_MEMBER_METADATA: Final = Struct(
    Field("memberId", STRING),
    Field("groupInstanceId", STRING, "3+", nullable="3+", default=None),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("rebalanceTimeout", INT32, "1+", default=-1),
    Field("sessionTimeout", INT32),
    Field("subscription", BYTES),
    Field("assignment", BYTES),
)
GROUP_METADATA_VALUE: Final = Message(
    "GroupMetadataValue",
    "0-4",
    "4+",
    Field("protocolType", STRING),
    Field("generation", INT32),
    Field("protocol", STRING, nullable="0+"),
    Field("leader", STRING, nullable="0+"),
    Field("currentStateTimestamp", INT64, "2+", default=-1),
    Field("members", Array(_MEMBER_METADATA)),
)

OFFSET_RECORDS: Final = (
    RecordKind(0, "LegacyOffsetCommit", LEGACY_OFFSET_COMMIT_KEY, LEGACY_OFFSET_COMMIT_VALUE),
    RecordKind(1, "OffsetCommit", OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE),
    RecordKind(2, "GroupMetadata", GROUP_METADATA_KEY, GROUP_METADATA_VALUE),
)
