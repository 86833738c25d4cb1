"""The records of ``__cluster_metadata`` (KRaft), as of Kafka 4.3."""

from __future__ import annotations

from typing import Final

from kfs.internal.metadata import MetadataKind
from kfs.internal.schema import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Field,
    Message,
    Struct,
)

ABORT_TRANSACTION_RECORD: Final = Message(
    "AbortTransactionRecord", "0", "0+", Field("reason", STRING, tag=0, nullable="0+", default=None)
)
ACCESS_CONTROL_ENTRY_RECORD: Final = Message(
    "AccessControlEntryRecord",
    "0",
    "0+",
    Field("id", UUID),
    Field("resourceType", INT8),
    Field("resourceName", STRING),
    Field("patternType", INT8),
    Field("principal", STRING),
    Field("host", STRING),
    Field("operation", INT8),
    Field("permissionType", INT8),
)
BEGIN_TRANSACTION_RECORD: Final = Message(
    "BeginTransactionRecord", "0", "0+", Field("name", STRING, tag=0, nullable="0+", default=None)
)
BROKER_REGISTRATION_CHANGE_RECORD: Final = Message(
    "BrokerRegistrationChangeRecord",
    "0-3",
    "0+",
    Field("brokerId", INT32),
    Field("brokerEpoch", INT64),
    Field("fenced", INT8, tag=0),
    Field("inControlledShutdown", INT8, "1+", tag=1),
    Field("logDirs", Array(UUID), "2+", tag=2),
    Field("cordonedLogDirs", Array(UUID), "3+", tag=3, nullable="3+", default=None),
)
CLEAR_ELR_RECORD: Final = Message("ClearElrRecord", "0", "0+", Field("topicName", STRING))
_ENTITY_DATA: Final = Struct(Field("entityType", STRING), Field("entityName", STRING, nullable="0+"))
CLIENT_QUOTA_RECORD: Final = Message(
    "ClientQuotaRecord",
    "0",
    "0+",
    Field("entity", Array(_ENTITY_DATA)),
    Field("key", STRING),
    Field("value", FLOAT64),
    Field("remove", BOOLEAN),
)
CONFIG_RECORD: Final = Message(
    "ConfigRecord",
    "0",
    "0+",
    Field("resourceType", INT8),
    Field("resourceName", STRING),
    Field("name", STRING),
    Field("value", STRING, nullable="0+"),
)
DELEGATION_TOKEN_RECORD: Final = Message(
    "DelegationTokenRecord",
    "0",
    "0+",
    Field("owner", STRING),
    Field("requester", STRING),
    Field("renewers", Array(STRING)),
    Field("issueTimestamp", INT64),
    Field("maxTimestamp", INT64),
    Field("expirationTimestamp", INT64),
    Field("tokenId", STRING),
)
END_TRANSACTION_RECORD: Final = Message("EndTransactionRecord", "0", "0+")
FEATURE_LEVEL_RECORD: Final = Message(
    "FeatureLevelRecord", "0", "0+", Field("name", STRING), Field("featureLevel", INT16)
)
FENCE_BROKER_RECORD: Final = Message("FenceBrokerRecord", "0", "0+", Field("id", INT32), Field("epoch", INT64))
NO_OP_RECORD: Final = Message("NoOpRecord", "0", "0+")
PARTITION_CHANGE_RECORD: Final = Message(
    "PartitionChangeRecord",
    "0-2",
    "0+",
    Field("partitionId", INT32, default=-1),
    Field("topicId", UUID),
    Field("isr", Array(INT32), tag=0, nullable="0+", default=None),
    Field("leader", INT32, tag=1, default=-2),
    Field("replicas", Array(INT32), tag=2, nullable="0+", default=None),
    Field("removingReplicas", Array(INT32), tag=3, nullable="0+", default=None),
    Field("addingReplicas", Array(INT32), tag=4, nullable="0+", default=None),
    Field("leaderRecoveryState", INT8, tag=5, default=-1),
    Field("directories", Array(UUID), "1+", tag=8, nullable="1+", default=None),
    Field("eligibleLeaderReplicas", Array(INT32), "2+", tag=6, nullable="2+", default=None),
    Field("lastKnownElr", Array(INT32), "2+", tag=7, nullable="2+", default=None),
)
PARTITION_RECORD: Final = Message(
    "PartitionRecord",
    "0-2",
    "0+",
    Field("partitionId", INT32, default=-1),
    Field("topicId", UUID),
    Field("replicas", Array(INT32)),
    Field("isr", Array(INT32)),
    Field("removingReplicas", Array(INT32)),
    Field("addingReplicas", Array(INT32)),
    Field("leader", INT32, default=-1),
    Field("leaderRecoveryState", INT8, tag=0),
    Field("leaderEpoch", INT32, default=-1),
    Field("partitionEpoch", INT32, default=-1),
    Field("directories", Array(UUID), "1+"),
    Field("eligibleLeaderReplicas", Array(INT32), "2+", tag=1, nullable="2+", default=None),
    Field("lastKnownElr", Array(INT32), "2+", tag=2, nullable="2+", default=None),
)
PRODUCER_IDS_RECORD: Final = Message(
    "ProducerIdsRecord",
    "0",
    "0+",
    Field("brokerId", INT32),
    Field("brokerEpoch", INT64, default=-1),
    Field("nextProducerId", INT64),
)
_BROKER_ENDPOINT: Final = Struct(
    Field("name", STRING), Field("host", STRING), Field("port", UINT16), Field("securityProtocol", INT16)
)
_BROKER_FEATURE: Final = Struct(
    Field("name", STRING), Field("minSupportedVersion", INT16), Field("maxSupportedVersion", INT16)
)
REGISTER_BROKER_RECORD: Final = Message(
    "RegisterBrokerRecord",
    "0-4",
    "0+",
    Field("brokerId", INT32),
    Field("isMigratingZkBroker", BOOLEAN, "2+"),
    Field("incarnationId", UUID),
    Field("brokerEpoch", INT64),
    Field("endPoints", Array(_BROKER_ENDPOINT)),
    Field("features", Array(_BROKER_FEATURE)),
    Field("rack", STRING, nullable="0+"),
    Field("fenced", BOOLEAN, default=True),
    Field("inControlledShutdown", BOOLEAN, "1+"),
    Field("logDirs", Array(UUID), "3+", tag=0),
    Field("cordonedLogDirs", Array(UUID), "4+", tag=1, nullable="4+", default=None),
)
_CONTROLLER_ENDPOINT: Final = Struct(
    Field("name", STRING), Field("host", STRING), Field("port", UINT16), Field("securityProtocol", INT16)
)
_CONTROLLER_FEATURE: Final = Struct(
    Field("name", STRING), Field("minSupportedVersion", INT16), Field("maxSupportedVersion", INT16)
)
REGISTER_CONTROLLER_RECORD: Final = Message(
    "RegisterControllerRecord",
    "0",
    "0+",
    Field("controllerId", INT32),
    Field("incarnationId", UUID),
    Field("zkMigrationReady", BOOLEAN),
    Field("endPoints", Array(_CONTROLLER_ENDPOINT)),
    Field("features", Array(_CONTROLLER_FEATURE)),
)
REMOVE_ACCESS_CONTROL_ENTRY_RECORD: Final = Message("RemoveAccessControlEntryRecord", "0", "0+", Field("id", UUID))
REMOVE_DELEGATION_TOKEN_RECORD: Final = Message("RemoveDelegationTokenRecord", "0", "0+", Field("tokenId", STRING))
REMOVE_TOPIC_RECORD: Final = Message("RemoveTopicRecord", "0", "0+", Field("topicId", UUID))
REMOVE_USER_SCRAM_CREDENTIAL_RECORD: Final = Message(
    "RemoveUserScramCredentialRecord", "0", "0+", Field("name", STRING), Field("mechanism", INT8)
)
TOPIC_RECORD: Final = Message("TopicRecord", "0", "0+", Field("name", STRING), Field("topicId", UUID))
UNFENCE_BROKER_RECORD: Final = Message("UnfenceBrokerRecord", "0", "0+", Field("id", INT32), Field("epoch", INT64))
UNREGISTER_BROKER_RECORD: Final = Message(
    "UnregisterBrokerRecord", "0", "0+", Field("brokerId", INT32), Field("brokerEpoch", INT64)
)
USER_SCRAM_CREDENTIAL_RECORD: Final = Message(
    "UserScramCredentialRecord",
    "0",
    "0+",
    Field("name", STRING),
    Field("mechanism", INT8),
    Field("salt", BYTES),
    Field("storedKey", BYTES),
    Field("serverKey", BYTES),
    Field("iterations", INT32),
)
ZK_MIGRATION_STATE_RECORD: Final = Message("ZkMigrationStateRecord", "0", "0+", Field("zkMigrationState", INT8))

CLUSTER_METADATA_RECORDS: Final = (
    MetadataKind(0, "REGISTER_BROKER_RECORD", REGISTER_BROKER_RECORD),
    MetadataKind(1, "UNREGISTER_BROKER_RECORD", UNREGISTER_BROKER_RECORD),
    MetadataKind(2, "TOPIC_RECORD", TOPIC_RECORD),
    MetadataKind(3, "PARTITION_RECORD", PARTITION_RECORD),
    MetadataKind(4, "CONFIG_RECORD", CONFIG_RECORD),
    MetadataKind(5, "PARTITION_CHANGE_RECORD", PARTITION_CHANGE_RECORD),
    MetadataKind(7, "FENCE_BROKER_RECORD", FENCE_BROKER_RECORD),
    MetadataKind(8, "UNFENCE_BROKER_RECORD", UNFENCE_BROKER_RECORD),
    MetadataKind(9, "REMOVE_TOPIC_RECORD", REMOVE_TOPIC_RECORD),
    MetadataKind(10, "DELEGATION_TOKEN_RECORD", DELEGATION_TOKEN_RECORD),
    MetadataKind(11, "USER_SCRAM_CREDENTIAL_RECORD", USER_SCRAM_CREDENTIAL_RECORD),
    MetadataKind(12, "FEATURE_LEVEL_RECORD", FEATURE_LEVEL_RECORD),
    MetadataKind(14, "CLIENT_QUOTA_RECORD", CLIENT_QUOTA_RECORD),
    MetadataKind(15, "PRODUCER_IDS_RECORD", PRODUCER_IDS_RECORD),
    MetadataKind(17, "BROKER_REGISTRATION_CHANGE_RECORD", BROKER_REGISTRATION_CHANGE_RECORD),
    MetadataKind(18, "ACCESS_CONTROL_ENTRY_RECORD", ACCESS_CONTROL_ENTRY_RECORD),
    MetadataKind(19, "REMOVE_ACCESS_CONTROL_ENTRY_RECORD", REMOVE_ACCESS_CONTROL_ENTRY_RECORD),
    MetadataKind(20, "NO_OP_RECORD", NO_OP_RECORD),
    MetadataKind(21, "ZK_MIGRATION_STATE_RECORD", ZK_MIGRATION_STATE_RECORD),
    MetadataKind(22, "REMOVE_USER_SCRAM_CREDENTIAL_RECORD", REMOVE_USER_SCRAM_CREDENTIAL_RECORD),
    MetadataKind(23, "BEGIN_TRANSACTION_RECORD", BEGIN_TRANSACTION_RECORD),
    MetadataKind(24, "END_TRANSACTION_RECORD", END_TRANSACTION_RECORD),
    MetadataKind(25, "ABORT_TRANSACTION_RECORD", ABORT_TRANSACTION_RECORD),
    MetadataKind(26, "REMOVE_DELEGATION_TOKEN_RECORD", REMOVE_DELEGATION_TOKEN_RECORD),
    MetadataKind(27, "REGISTER_CONTROLLER_RECORD", REGISTER_CONTROLLER_RECORD),
    MetadataKind(28, "CLEAR_ELR_RECORD", CLEAR_ELR_RECORD),
)
