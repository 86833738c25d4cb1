"""Segments in remote storage (KIP-405): the records of ``__remote_log_metadata``, as of Kafka 4.3."""

from __future__ import annotations

from typing import Final

from kfs.internal.metadata import MetadataKind
from kfs.internal.schema import (
    BOOLEAN,
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    Array,
    Field,
    Message,
    Struct,
)

_TOPIC_ID_PARTITION: Final = Struct(Field("name", STRING), Field("id", UUID), Field("partition", INT32))
_REMOTE_LOG_SEGMENT_ID: Final = Struct(Field("topicIdPartition", _TOPIC_ID_PARTITION), Field("id", UUID))
_SEGMENT_LEADER_EPOCH: Final = Struct(Field("leaderEpoch", INT32), Field("offset", INT64))
REMOTE_LOG_SEGMENT_METADATA_RECORD: Final = Message(
    "RemoteLogSegmentMetadataRecord",
    "0",
    "0+",
    Field("remoteLogSegmentId", _REMOTE_LOG_SEGMENT_ID),
    Field("startOffset", INT64),
    Field("endOffset", INT64),
    Field("brokerId", INT32),
    Field("maxTimestampMs", INT64),
    Field("eventTimestampMs", INT64),
    Field("segmentLeaderEpochs", Array(_SEGMENT_LEADER_EPOCH)),
    Field("segmentSizeInBytes", INT32),
    Field("customMetadata", BYTES, nullable="0+", default=None),
    Field("remoteLogSegmentState", INT8),
    Field("txnIndexEmpty", BOOLEAN, tag=0),
)
REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT_RECORD: Final = Message(
    "RemoteLogSegmentMetadataSnapshotRecord",
    "0",
    "0+",
    Field("segmentId", UUID),
    Field("startOffset", INT64),
    Field("endOffset", INT64),
    Field("brokerId", INT32),
    Field("maxTimestampMs", INT64),
    Field("eventTimestampMs", INT64),
    Field("segmentLeaderEpochs", Array(_SEGMENT_LEADER_EPOCH)),
    Field("segmentSizeInBytes", INT32),
    Field("customMetadata", BYTES, nullable="0+", default=None),
    Field("remoteLogSegmentState", INT8),
    Field("txnIndexEmpty", BOOLEAN, tag=0),
)
REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD: Final = Message(
    "RemoteLogSegmentMetadataUpdateRecord",
    "0",
    "0+",
    Field("remoteLogSegmentId", _REMOTE_LOG_SEGMENT_ID),
    Field("brokerId", INT32),
    Field("eventTimestampMs", INT64),
    Field("customMetadata", BYTES, nullable="0+", default=None),
    Field("remoteLogSegmentState", INT8),
)
REMOTE_PARTITION_DELETE_METADATA_RECORD: Final = Message(
    "RemotePartitionDeleteMetadataRecord",
    "0",
    "0+",
    Field("topicIdPartition", _TOPIC_ID_PARTITION),
    Field("brokerId", INT32),
    Field("eventTimestampMs", INT64),
    Field("remotePartitionDeleteState", INT8),
)

REMOTE_LOG_RECORDS: Final = (
    MetadataKind(0, "REMOTE_LOG_SEGMENT_METADATA_RECORD", REMOTE_LOG_SEGMENT_METADATA_RECORD),
    MetadataKind(1, "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD", REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD),
    MetadataKind(2, "REMOTE_PARTITION_DELETE_METADATA_RECORD", REMOTE_PARTITION_DELETE_METADATA_RECORD),
    MetadataKind(3, "REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT_RECORD", REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT_RECORD),
)
