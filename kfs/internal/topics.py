"""The record kinds of each internal topic."""

from __future__ import annotations

from typing import Final

from kfs.internal.cluster_metadata_records import CLUSTER_METADATA_RECORDS
from kfs.internal.consumer_group_records import CONSUMER_GROUP_RECORDS
from kfs.internal.coordinator import RecordKinds
from kfs.internal.metadata import MetadataKinds
from kfs.internal.offset_records import OFFSET_RECORDS
from kfs.internal.remote_log_records import REMOTE_LOG_RECORDS
from kfs.internal.share_group_records import SHARE_GROUP_RECORDS
from kfs.internal.share_state_records import SHARE_STATE_RECORDS
from kfs.internal.streams_group_records import STREAMS_GROUP_RECORDS
from kfs.internal.transaction_records import TRANSACTION_RECORDS

#: ``__consumer_offsets``.
GROUP_KINDS: Final = RecordKinds(
    (*OFFSET_RECORDS, *CONSUMER_GROUP_RECORDS, *SHARE_GROUP_RECORDS, *STREAMS_GROUP_RECORDS)
)
#: ``__transaction_state``.
TRANSACTION_KINDS: Final = RecordKinds(TRANSACTION_RECORDS)
#: ``__share_group_state``.
SHARE_STATE_KINDS: Final = RecordKinds(SHARE_STATE_RECORDS)
#: ``__cluster_metadata`` and its snapshots.
CLUSTER_METADATA_KINDS: Final = MetadataKinds(CLUSTER_METADATA_RECORDS)
#: ``__remote_log_metadata``.
REMOTE_LOG_KINDS: Final = MetadataKinds(REMOTE_LOG_RECORDS)
