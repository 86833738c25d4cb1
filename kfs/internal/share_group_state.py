"""How far share groups have got: ``__share_group_state`` as ``ShareCoordinatorShard.java`` replays it.

A snapshot says all of a share partition, an update what has changed since.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

from kfs.internal.coordinator import CoordinatorRecord
from kfs.internal.schema import Malformed
from kfs.internal.topic_reader import TopicState
from kfs.internal.topics import SHARE_STATE_KINDS
from kfs.log.bulk import Records

_NOT_SAID = -1


@dataclass(frozen=True, slots=True)
class SharePartition:
    """Where a group is in a partition: records below ``start_offset`` are done; -1 where it didn't begin yet.

    ``delivery_complete_count`` are records behind that which are done too, -1 where the broker doesn't count them.
    Times are in milliseconds.
    """

    group: str
    topic_id: str
    partition: int
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp: int | None
    write_timestamp: int | None
    record_offset: int


class ShareStateLog(TopicState):
    """What one partition of ``__share_group_state`` says, by group, topic id and partition."""

    def _forget(self) -> None:
        self.partitions: dict[tuple[str, str, int], SharePartition] = {}

    def _replay(self, records: Records) -> None:
        columns = records.columns
        if records.is_control:
            return
        for index in range(bisect_left(columns.offsets, self._reader.start), len(columns)):
            if index in columns.faults:
                continue
            offset, key, value = columns.offsets[index], columns.key(index), columns.value(index)
            try:
                if key is None:
                    raise Malformed("a record without a key")
                self._apply(SHARE_STATE_KINDS.decode(key, value), offset)
            except Malformed as error:
                self._keep_unread(records, offset, key, value, error)

    def _apply(self, record: CoordinatorRecord, offset: int) -> None:
        partition = record.key["partition"]
        assert isinstance(partition, int)
        key = str(record.key["groupId"]), str(record.key["topicId"]), partition
        if record.value is None:
            if record.kind.name == "ShareSnapshot":
                self.partitions.pop(key, None)
            return
        known = self.partitions.get(key)
        said = {name: value for name, value in record.value.fields.items() if isinstance(value, int)}
        if record.kind.name == "ShareUpdate" and known is not None:
            self.partitions[key] = replace(
                known,
                start_offset=_said(said["startOffset"], known.start_offset),
                leader_epoch=_said(said["leaderEpoch"], known.leader_epoch),
                delivery_complete_count=said["deliveryCompleteCount"],
                record_offset=offset,
            )
            return
        self.partitions[key] = SharePartition(
            *key,
            said["snapshotEpoch"],
            said.get("stateEpoch", _NOT_SAID),
            said["leaderEpoch"],
            said["startOffset"],
            said["deliveryCompleteCount"],
            said.get("createTimestamp"),
            said.get("writeTimestamp"),
            offset,
        )


def _said(value: int, otherwise: int) -> int:
    return otherwise if value == _NOT_SAID else value
