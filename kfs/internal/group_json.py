"""Groups as JSON, for the files of the tree and for ``kfs groups --json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kfs.internal.committed_offset import CommittedOffset, OffsetInLog
from kfs.internal.group_description import GroupMember
from kfs.internal.groups import OFFSETS_TOPIC, Group, GroupPartition, total_lag
from kfs.internal.message_json import Json
from kfs.internal.share_group_state import SharePartition
from kfs.render.timestamps import iso_time


def group_json(group: Group, standings: Sequence[OffsetInLog], now: float) -> dict[str, Json]:
    """Return a group; ``standings`` belong to its partitions, and ``now`` is in seconds since 1970."""
    description = group.description
    total = total_lag(group.partitions, standings)
    return {
        "group": group.name,
        "type": description.type.value,
        "state": description.state,
        "protocolType": description.protocol_type,
        "assignor": description.assignor,
        "isSimple": description.is_simple,
        "coordinator": None if group.coordinator is None else f"{OFFSETS_TOPIC}-{group.coordinator}",
        **_with_times(description.fields),
        "members": [member_json(member) for member in description.members],
        "offsets": [
            offset_json(partition, standing, now)
            for partition, standing in zip(group.partitions, standings, strict=True)
        ],
        "totalLag": total.lag,
        "notes": list(total.notes),
        "problems": list(description.problems),
    }


def member_json(member: GroupMember) -> dict[str, Json]:
    """Return a member, including all other fields of its records."""
    return {
        "memberId": member.member_id,
        "instanceId": member.instance_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "partitions": [{"topic": each.topic, "partitions": each.partitions} for each in member.assignment],
        **member.fields,
    }


def partition_json(group: Group, partition: GroupPartition, standing: OffsetInLog, now: float) -> dict[str, Json]:
    """Return a partition that a group reads, as a stand-alone object."""
    description = group.description
    about = {"group": group.name, "type": description.type.value, "state": description.state}
    return {**about, **offset_json(partition, standing, now)}


def offset_json(partition: GroupPartition, standing: OffsetInLog, now: float) -> dict[str, Json]:
    """Return a partition that a group reads, as part of the group's object."""
    said: dict[str, Json] = {}
    if partition.share is not None:
        said = _share_json(partition.share)
    elif partition.committed is not None:
        said = _commit_json(partition.committed)
    else:
        said = {"offset": None}
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "topicId": partition.topic_id,
        **said,
        "logStartOffset": standing.log_start_offset,
        "logEndOffset": standing.log_end_offset,
        "highWatermark": standing.high_watermark,
        "lag": standing.lag,
        "oldestUnread": _oldest_unread(standing, now),
        "note": standing.note,
        "members": [
            {
                "memberId": member.member_id,
                "instanceId": member.instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
            }
            for member in partition.members
        ],
        "pending": [{"producerId": commit.producer_id, **_commit_json(commit)} for commit in partition.pending],
    }


def _oldest_unread(standing: OffsetInLog, now: float) -> Json:
    if standing.next_offset is None:
        return None
    timestamp = standing.next_timestamp
    age = None if timestamp is None else int(now * 1000) - timestamp
    return {
        "offset": standing.next_offset,
        "timestamp": -1 if timestamp is None else timestamp,
        "time": _time(timestamp),
        "ageMs": age,
    }


def _commit_json(commit: CommittedOffset) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "offset": commit.offset,
        "leaderEpoch": commit.leader_epoch,
        "metadata": commit.metadata,
        "commitTimestamp": commit.commit_timestamp,
        "commitTime": _time(commit.commit_timestamp),
        "expireTimestamp": commit.expire_timestamp,
        "expireTime": _time(commit.expire_timestamp),
        "recordOffset": commit.record_offset,
        "version": commit.version,
    }
    if commit.problem is not None:
        fields |= {"problem": commit.problem, "value": commit.raw, "valueEncoding": "base64"}
    return fields


def _share_json(share: SharePartition) -> dict[str, Json]:
    return {
        "offset": share.start_offset if share.start_offset >= 0 else None,
        "deliveryCompleteCount": share.delivery_complete_count if share.delivery_complete_count >= 0 else None,
        "snapshotEpoch": share.snapshot_epoch,
        "stateEpoch": share.state_epoch,
        "leaderEpoch": share.leader_epoch,
        "writeTimestamp": share.write_timestamp,
        "writeTime": _time(share.write_timestamp),
        "recordOffset": share.record_offset,
    }


def _with_times(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields, with an ISO time added after each timestamp."""
    timed: dict[str, Json] = {}
    for name, value in fields.items():
        timed[name] = value
        if name.endswith("Timestamp") and isinstance(value, int):
            timed[name.removesuffix("stamp")] = iso_time(value)
    return timed


def _time(timestamp: int | None) -> str | None:
    return None if timestamp is None else iso_time(timestamp)
