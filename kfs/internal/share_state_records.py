"""The progress of share groups (KIP-932): the records of ``__share_group_state``, as of Kafka 4.3."""

from __future__ import annotations

from typing import Final

from kfs.internal.coordinator import RecordKind
from kfs.internal.schema import INT8, INT16, INT32, INT64, STRING, UUID, Array, Field, Message, Struct

SHARE_SNAPSHOT_KEY: Final = Message(
    "ShareSnapshotKey", "0", "none", Field("groupId", STRING), Field("topicId", UUID), Field("partition", INT32)
)
_STATE_BATCH: Final = Struct(
    Field("firstOffset", INT64), Field("lastOffset", INT64), Field("deliveryState", INT8), Field("deliveryCount", INT16)
)
SHARE_SNAPSHOT_VALUE: Final = Message(
    "ShareSnapshotValue",
    "0",
    "0+",
    Field("snapshotEpoch", INT32),
    Field("stateEpoch", INT32),
    Field("leaderEpoch", INT32),
    Field("startOffset", INT64),
    Field("deliveryCompleteCount", INT32, tag=0, default=-1),
    Field("createTimestamp", INT64),
    Field("writeTimestamp", INT64),
    Field("stateBatches", Array(_STATE_BATCH)),
)
SHARE_UPDATE_KEY: Final = Message(
    "ShareUpdateKey", "0", "none", Field("groupId", STRING), Field("topicId", UUID), Field("partition", INT32)
)
SHARE_UPDATE_VALUE: Final = Message(
    "ShareUpdateValue",
    "0",
    "0+",
    Field("snapshotEpoch", INT32),
    Field("leaderEpoch", INT32),
    Field("startOffset", INT64),
    Field("deliveryCompleteCount", INT32, tag=0, default=-1),
    Field("stateBatches", Array(_STATE_BATCH)),
)

SHARE_STATE_RECORDS: Final = (
    RecordKind(0, "ShareSnapshot", SHARE_SNAPSHOT_KEY, SHARE_SNAPSHOT_VALUE),
    RecordKind(1, "ShareUpdate", SHARE_UPDATE_KEY, SHARE_UPDATE_VALUE),
)
