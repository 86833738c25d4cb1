"""Groups of the consumer protocol (KIP-848): types 3 to 8 and 16 of ``__consumer_offsets``, as of Kafka 4.3."""

from __future__ import annotations

from typing import Final

from kfs.internal.coordinator import RecordKind
from kfs.internal.schema import BYTES, INT8, INT32, INT64, STRING, UUID, Array, Field, Message, Struct

CONSUMER_GROUP_METADATA_KEY: Final = Message("ConsumerGroupMetadataKey", "0", "none", Field("groupId", STRING))
CONSUMER_GROUP_METADATA_VALUE: Final = Message(
    "ConsumerGroupMetadataValue", "0", "0+", Field("epoch", INT32), Field("metadataHash", INT64, tag=0)
)
CONSUMER_GROUP_PARTITION_METADATA_KEY: Final = Message(
    "ConsumerGroupPartitionMetadataKey", "0", "none", Field("groupId", STRING)
)
_PARTITION_METADATA: Final = Struct(Field("partition", INT32), Field("racks", Array(STRING)))
_TOPIC_METADATA: Final = Struct(
    Field("topicId", UUID),
    Field("topicName", STRING),
    Field("numPartitions", INT32),
    Field("partitionMetadata", Array(_PARTITION_METADATA)),
)
CONSUMER_GROUP_PARTITION_METADATA_VALUE: Final = Message(
    "ConsumerGroupPartitionMetadataValue", "0", "0+", Field("topics", Array(_TOPIC_METADATA))
)
CONSUMER_GROUP_MEMBER_METADATA_KEY: Final = Message(
    "ConsumerGroupMemberMetadataKey", "0", "none", Field("groupId", STRING), Field("memberId", STRING)
)
_CLASSIC_PROTOCOL: Final = Struct(Field("name", STRING), Field("metadata", BYTES))
_CLASSIC_MEMBER_METADATA: Final = Struct(
    Field("sessionTimeoutMs", INT32), Field("supportedProtocols", Array(_CLASSIC_PROTOCOL))
)
CONSUMER_GROUP_MEMBER_METADATA_VALUE: Final = Message(
    "ConsumerGroupMemberMetadataValue",
    "0",
    "0+",
    Field("instanceId", STRING, nullable="0+"),
    Field("rackId", STRING, nullable="0+"),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("subscribedTopicNames", Array(STRING)),
    Field("subscribedTopicRegex", STRING, nullable="0+"),
    Field("rebalanceTimeoutMs", INT32, default=-1),
    Field("serverAssignor", STRING, nullable="0+"),
    Field("classicMemberMetadata", _CLASSIC_MEMBER_METADATA, tag=0, nullable="0+"),
)
CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Final = Message(
    "ConsumerGroupTargetAssignmentMetadataKey", "0", "none", Field("groupId", STRING)
)
CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Final = Message(
    "ConsumerGroupTargetAssignmentMetadataValue",
    "0",
    "0+",
    Field("assignmentEpoch", INT32),
    Field("assignmentTimestamp", INT64, tag=0),
)
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Final = Message(
    "ConsumerGroupTargetAssignmentMemberKey", "0", "none", Field("groupId", STRING), Field("memberId", STRING)
)
_TOPIC_PARTITION: Final = Struct(Field("topicId", UUID), Field("partitions", Array(INT32)))
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Final = Message(
    "ConsumerGroupTargetAssignmentMemberValue", "0", "0+", Field("topicPartitions", Array(_TOPIC_PARTITION))
)
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Final = Message(
    "ConsumerGroupCurrentMemberAssignmentKey", "0", "none", Field("groupId", STRING), Field("memberId", STRING)
)
_TOPIC_PARTITIONS: Final = Struct(
    Field("topicId", UUID),
    Field("partitions", Array(INT32)),
    Field("assignmentEpochs", Array(INT32), tag=0, nullable="0+"),
)
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Final = Message(
    "ConsumerGroupCurrentMemberAssignmentValue",
    "0",
    "0+",
    Field("memberEpoch", INT32),
    Field("previousMemberEpoch", INT32),
    Field("state", INT8),
    Field("assignedPartitions", Array(_TOPIC_PARTITIONS)),
    Field("partitionsPendingRevocation", Array(_TOPIC_PARTITIONS)),
)
CONSUMER_GROUP_REGULAR_EXPRESSION_KEY: Final = Message(
    "ConsumerGroupRegularExpressionKey", "0", "none", Field("groupId", STRING), Field("regularExpression", STRING)
)
CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE: Final = Message(
    "ConsumerGroupRegularExpressionValue",
    "0",
    "0+",
    Field("topics", Array(STRING)),
    Field("version", INT64),
    Field("timestamp", INT64),
)

CONSUMER_GROUP_RECORDS: Final = (
    RecordKind(3, "ConsumerGroupMetadata", CONSUMER_GROUP_METADATA_KEY, CONSUMER_GROUP_METADATA_VALUE),
    RecordKind(
        4,
        "ConsumerGroupPartitionMetadata",
        CONSUMER_GROUP_PARTITION_METADATA_KEY,
        CONSUMER_GROUP_PARTITION_METADATA_VALUE,
    ),
    RecordKind(
        5, "ConsumerGroupMemberMetadata", CONSUMER_GROUP_MEMBER_METADATA_KEY, CONSUMER_GROUP_MEMBER_METADATA_VALUE
    ),
    RecordKind(
        6,
        "ConsumerGroupTargetAssignmentMetadata",
        CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
        CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    RecordKind(
        7,
        "ConsumerGroupTargetAssignmentMember",
        CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
        CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    RecordKind(
        8,
        "ConsumerGroupCurrentMemberAssignment",
        CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
        CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    RecordKind(
        16,
        "ConsumerGroupRegularExpression",
        CONSUMER_GROUP_REGULAR_EXPRESSION_KEY,
        CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
    ),
)
