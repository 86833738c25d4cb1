"""Share groups (KIP-932): types 10 to 15 of ``__consumer_offsets``, as of Kafka 4.3."""

from __future__ import annotations

from typing import Final

from kfs.internal.coordinator import RecordKind
from kfs.internal.schema import INT8, INT32, INT64, STRING, UUID, Array, Field, Message, Struct

_TOPIC_PARTITION: Final = Struct(Field("topicId", UUID), Field("partitions", Array(INT32)))
SHARE_GROUP_MEMBER_METADATA_KEY: Final = Message(
    "ShareGroupMemberMetadataKey", "0", "none", Field("groupId", STRING), Field("memberId", STRING)
)
SHARE_GROUP_MEMBER_METADATA_VALUE: Final = Message(
    "ShareGroupMemberMetadataValue",
    "0",
    "0+",
    Field("rackId", STRING, nullable="0+"),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("subscribedTopicNames", Array(STRING)),
)
SHARE_GROUP_METADATA_KEY: Final = Message("ShareGroupMetadataKey", "0", "none", Field("groupId", STRING))
SHARE_GROUP_METADATA_VALUE: Final = Message(
    "ShareGroupMetadataValue", "0", "0+", Field("epoch", INT32), Field("metadataHash", INT64)
)
SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Final = Message(
    "ShareGroupTargetAssignmentMetadataKey", "0", "none", Field("groupId", STRING)
)
SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Final = Message(
    "ShareGroupTargetAssignmentMetadataValue",
    "0",
    "0+",
    Field("assignmentEpoch", INT32),
    Field("assignmentTimestamp", INT64, tag=0),
)
SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Final = Message(
    "ShareGroupTargetAssignmentMemberKey", "0", "none", Field("groupId", STRING), Field("memberId", STRING)
)
SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Final = Message(
    "ShareGroupTargetAssignmentMemberValue", "0", "0+", Field("topicPartitions", Array(_TOPIC_PARTITION))
)
SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Final = Message(
    "ShareGroupCurrentMemberAssignmentKey", "0", "none", Field("groupId", STRING), Field("memberId", STRING)
)
_TOPIC_PARTITIONS: Final = Struct(Field("topicId", UUID), Field("partitions", Array(INT32)))
SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Final = Message(
    "ShareGroupCurrentMemberAssignmentValue",
    "0",
    "0+",
    Field("memberEpoch", INT32),
    Field("previousMemberEpoch", INT32),
    Field("state", INT8),
    Field("assignedPartitions", Array(_TOPIC_PARTITIONS)),
)
SHARE_GROUP_STATE_PARTITION_METADATA_KEY: Final = Message(
    "ShareGroupStatePartitionMetadataKey", "0", "none", Field("groupId", STRING)
)
_NAMED_TOPIC_PARTITIONS: Final = Struct(
    Field("topicId", UUID), Field("topicName", STRING), Field("partitions", Array(INT32))
)
_TOPIC: Final = Struct(Field("topicId", UUID), Field("topicName", STRING))
SHARE_GROUP_STATE_PARTITION_METADATA_VALUE: Final = Message(
    "ShareGroupStatePartitionMetadataValue",
    "0",
    "0+",
    Field("initializingTopics", Array(_NAMED_TOPIC_PARTITIONS)),
    Field("initializedTopics", Array(_NAMED_TOPIC_PARTITIONS)),
    Field("deletingTopics", Array(_TOPIC)),
)

SHARE_GROUP_RECORDS: Final = (
    RecordKind(10, "ShareGroupMemberMetadata", SHARE_GROUP_MEMBER_METADATA_KEY, SHARE_GROUP_MEMBER_METADATA_VALUE),
    RecordKind(11, "ShareGroupMetadata", SHARE_GROUP_METADATA_KEY, SHARE_GROUP_METADATA_VALUE),
    RecordKind(
        12,
        "ShareGroupTargetAssignmentMetadata",
        SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
        SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    RecordKind(
        13,
        "ShareGroupTargetAssignmentMember",
        SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
        SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    RecordKind(
        14,
        "ShareGroupCurrentMemberAssignment",
        SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
        SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    RecordKind(
        15,
        "ShareGroupStatePartitionMetadata",
        SHARE_GROUP_STATE_PARTITION_METADATA_KEY,
        SHARE_GROUP_STATE_PARTITION_METADATA_VALUE,
    ),
)
