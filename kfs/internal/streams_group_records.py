"""Streams groups (KIP-1071): types 17 to 23 of ``__consumer_offsets``, as of Kafka 4.3."""

from __future__ import annotations

from typing import Final

from kfs.internal.coordinator import RecordKind
from kfs.internal.schema import INT8, INT16, INT32, INT64, STRING, UINT16, Array, Field, Message, Struct

STREAMS_GROUP_METADATA_KEY: Final = Message("StreamsGroupMetadataKey", "0", "none", Field("groupId", STRING))
_LAST_ASSIGNMENT_CONFIG: Final = Struct(Field("key", STRING), Field("value", STRING))
STREAMS_GROUP_METADATA_VALUE: Final = Message(
    "StreamsGroupMetadataValue",
    "0",
    "0+",
    Field("epoch", INT32),
    Field("metadataHash", INT64),
    Field("validatedTopologyEpoch", INT32, tag=0, default=-1),
    Field("lastAssignmentConfigs", Array(_LAST_ASSIGNMENT_CONFIG), tag=1, nullable="0+"),
)
STREAMS_GROUP_MEMBER_METADATA_KEY: Final = Message(
    "StreamsGroupMemberMetadataKey", "0", "none", Field("groupId", STRING), Field("memberId", STRING)
)
_ENDPOINT: Final = Struct(Field("host", STRING), Field("port", UINT16))
_KEY_VALUE: Final = Struct(Field("key", STRING), Field("value", STRING))
STREAMS_GROUP_MEMBER_METADATA_VALUE: Final = Message(
    "StreamsGroupMemberMetadataValue",
    "0",
    "0+",
    Field("instanceId", STRING, nullable="0+"),
    Field("rackId", STRING, nullable="0+"),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("rebalanceTimeoutMs", INT32, default=-1),
    Field("topologyEpoch", INT32),
    Field("processId", STRING),
    Field("userEndpoint", _ENDPOINT, nullable="0+", default=None),
    Field("clientTags", Array(_KEY_VALUE)),
)
STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Final = Message(
    "StreamsGroupTargetAssignmentMetadataKey", "0", "none", Field("groupId", STRING)
)
STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Final = Message(
    "StreamsGroupTargetAssignmentMetadataValue",
    "0",
    "0+",
    Field("assignmentEpoch", INT32),
    Field("assignmentTimestamp", INT64, tag=0),
)
STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Final = Message(
    "StreamsGroupTargetAssignmentMemberKey", "0", "none", Field("groupId", STRING), Field("memberId", STRING)
)
_TASK_IDS: Final = Struct(Field("subtopologyId", STRING), Field("partitions", Array(INT32)))
STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Final = Message(
    "StreamsGroupTargetAssignmentMemberValue",
    "0",
    "0+",
    Field("activeTasks", Array(_TASK_IDS)),
    Field("standbyTasks", Array(_TASK_IDS)),
    Field("warmupTasks", Array(_TASK_IDS)),
)
STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Final = Message(
    "StreamsGroupCurrentMemberAssignmentKey", "0", "none", Field("groupId", STRING), Field("memberId", STRING)
)
_TASK_IDS_AND_EPOCHS: Final = Struct(
    Field("subtopologyId", STRING),
    Field("partitions", Array(INT32)),
    Field("assignmentEpochs", Array(INT32), tag=0, nullable="0+"),
)
STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Final = Message(
    "StreamsGroupCurrentMemberAssignmentValue",
    "0",
    "0+",
    Field("memberEpoch", INT32),
    Field("previousMemberEpoch", INT32),
    Field("state", INT8),
    Field("activeTasks", Array(_TASK_IDS_AND_EPOCHS)),
    Field("standbyTasks", Array(_TASK_IDS_AND_EPOCHS)),
    Field("warmupTasks", Array(_TASK_IDS_AND_EPOCHS)),
    Field("activeTasksPendingRevocation", Array(_TASK_IDS_AND_EPOCHS)),
    Field("standbyTasksPendingRevocation", Array(_TASK_IDS_AND_EPOCHS)),
    Field("warmupTasksPendingRevocation", Array(_TASK_IDS_AND_EPOCHS)),
)
STREAMS_GROUP_TOPOLOGY_KEY: Final = Message("StreamsGroupTopologyKey", "0", "none", Field("groupId", STRING))
_TOPIC_CONFIG: Final = Struct(Field("key", STRING), Field("value", STRING))
_TOPIC: Final = Struct(
    Field("name", STRING),
    Field("partitions", INT32),
    Field("replicationFactor", INT16),
    Field("topicConfigs", Array(_TOPIC_CONFIG)),
)
_COPARTITION_GROUP: Final = Struct(
    Field("sourceTopics", Array(INT16)),
    Field("sourceTopicRegex", Array(INT16)),
    Field("repartitionSourceTopics", Array(INT16)),
)
_SUBTOPOLOGY: Final = Struct(
    Field("subtopologyId", STRING),
    Field("sourceTopics", Array(STRING)),
    Field("sourceTopicRegex", Array(STRING)),
    Field("stateChangelogTopics", Array(_TOPIC)),
    Field("repartitionSinkTopics", Array(STRING)),
    Field("repartitionSourceTopics", Array(_TOPIC)),
    Field("copartitionGroups", Array(_COPARTITION_GROUP)),
)
STREAMS_GROUP_TOPOLOGY_VALUE: Final = Message(
    "StreamsGroupTopologyValue", "0", "0+", Field("epoch", INT32), Field("subtopologies", Array(_SUBTOPOLOGY))
)

STREAMS_GROUP_RECORDS: Final = (
    RecordKind(17, "StreamsGroupMetadata", STREAMS_GROUP_METADATA_KEY, STREAMS_GROUP_METADATA_VALUE),
    RecordKind(
        19, "StreamsGroupMemberMetadata", STREAMS_GROUP_MEMBER_METADATA_KEY, STREAMS_GROUP_MEMBER_METADATA_VALUE
    ),
    RecordKind(
        20,
        "StreamsGroupTargetAssignmentMetadata",
        STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
        STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    RecordKind(
        21,
        "StreamsGroupTargetAssignmentMember",
        STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
        STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    RecordKind(
        22,
        "StreamsGroupCurrentMemberAssignment",
        STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
        STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    RecordKind(23, "StreamsGroupTopology", STREAMS_GROUP_TOPOLOGY_KEY, STREAMS_GROUP_TOPOLOGY_VALUE),
)
