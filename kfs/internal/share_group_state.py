"""The progress of share groups: ``__share_group_state``, replayed as in ``ShareCoordinatorShard.java``.

A snapshot has the whole state of a share partition, and an update has the changes since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from kfs.internal.schema import Fields
from kfs.internal.topic_state import RecordByRecord
from kfs.internal.topics import SHARE_STATE_KINDS

_NOT_SAID: Final = -1
#: ``RecordState.java``: ACKNOWLEDGED and ARCHIVED, the states in which a record is never delivered again.
_DONE: Final = frozenset((2, 4))


@dataclass(frozen=True, slots=True)
class SharePartition:
    """A group's progress in a partition: records below ``start_offset`` are processed; -1 before the start.

    ``delivery_complete_count`` is the number of processed records above that, or -1 if the broker doesn't count them.
    ``done`` has their offset ranges (start inclusive, end exclusive, in order). Times are in milliseconds.
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
    done: tuple[tuple[int, int], ...]


class ShareStateLog(RecordByRecord):
    """The state of one partition of ``__share_group_state``, by group, topic id and partition."""

    def _forget(self) -> None:
        self.partitions: dict[tuple[str, str, int], SharePartition] = {}

    def coordinated(self) -> Iterable[str]:
        """Return the keys ``SharePartitionKey.asCoordinatorKey``; see :meth:`TopicState.coordinated`."""
        return (f"{group}:{topic_id}:{partition}" for group, topic_id, partition in self.partitions)

    def _apply(self, key: bytes, value: bytes | None, offset: int) -> None:
        record = SHARE_STATE_KINDS.decode(key, value)
        partition = record.key["partition"]
        assert isinstance(partition, int)
        where = str(record.key["groupId"]), str(record.key["topicId"]), partition
        if record.value is None:
            if record.kind.name == "ShareSnapshot":
                self.partitions.pop(where, None)
            return
        known = self.partitions.get(where)
        said = {name: value for name, value in record.value.fields.items() if isinstance(value, int)}
        if record.kind.name == "ShareUpdate" and known is not None:
            self.partitions[where] = replace(
                known,
                start_offset=_said(said["startOffset"], known.start_offset),
                leader_epoch=_said(said["leaderEpoch"], known.leader_epoch),
                delivery_complete_count=said["deliveryCompleteCount"],
                record_offset=offset,
                done=_done(known.done, record.value.fields, _said(said["startOffset"], known.start_offset)),
            )
            return
        self.partitions[where] = SharePartition(
            *where,
            said["snapshotEpoch"],
            said.get("stateEpoch", _NOT_SAID),
            said["leaderEpoch"],
            said["startOffset"],
            said["deliveryCompleteCount"],
            said.get("createTimestamp"),
            said.get("writeTimestamp"),
            offset,
            _done((), record.value.fields, said["startOffset"]),
        )


def _said(value: int, otherwise: int) -> int:
    return otherwise if value == _NOT_SAID else value


def _done(known: tuple[tuple[int, int], ...], fields: Fields, start_offset: int) -> tuple[tuple[int, int], ...]:
    """Return the processed ranges at or above ``start_offset``: the known ones plus the batches of a record."""
    batches: Any = fields["stateBatches"]
    ranges = [*known]
    ranges += [(each["firstOffset"], each["lastOffset"] + 1) for each in batches if each["deliveryState"] in _DONE]
    merged: list[tuple[int, int]] = []
    for first, stop in sorted(ranges):
        if stop <= max(first, start_offset):
            continue
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((first, stop))
    return tuple(merged)
