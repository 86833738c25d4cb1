"""The stored positions of a group, compared with the log directories: lag, and anomalies."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kfs.format.checkpoint import TopicPartition
from kfs.internal.committed_offset import OffsetInLog, standing_of
from kfs.log.data_dir import DataDir
from kfs.log.identity import UNKNOWN, Identity, other_log
from kfs.render.timestamps import iso_time
from kfs.spark.offsets.progress import Progress

#: Of no log directories.
_UNKNOWN = OffsetInLog()


@dataclass(frozen=True, slots=True)
class PartitionStanding:
    """A partition of a group: its position (None if there is none yet), its place in the log, and a note.

    ``identity`` is that of the position's log.
    """

    partition: TopicPartition
    position: int | None
    standing: OffsetInLog
    note: str | None
    identity: Identity = UNKNOWN


def standings(
    progress: Progress, data_dir: DataDir | None, unreadable: Collection[TopicPartition] = ()
) -> Iterator[PartitionStanding]:
    """Yield the partitions of a group, and those of the same topics without a position, sorted.

    ``unreadable`` positions get a note.
    """
    unnamed = {}
    for each in progress.batch.ranges if progress.batch is not None else ():
        unnamed[each.topic_partition] = f"files up to offset {each.until_offset} may not be in place yet"
    for partition in sorted(_partitions(progress, data_dir) | {*unreadable}):
        position = progress.positions.get(partition)
        identity = progress.identities.get(partition, UNKNOWN)
        standing, other = _UNKNOWN, None
        if data_dir is not None:
            log = data_dir.log(partition.topic, partition.partition)
            topic_id = None if identity.topic_id is None else str(identity.topic_id)
            standing = standing_of(position, topic_id, log)
            if log is not None and position is not None:
                other = other_log(log, position, replace(identity, topic_id=None))
        lacking = "its position can't be understood" if partition in unreadable else "no position yet"
        notes = (
            standing.note,
            None if other is None else other.reason,
            unnamed.get(partition),
            None if position is not None else lacking,
        )
        yield PartitionStanding(partition, position, standing, "; ".join(filter(None, notes)) or None, identity)


def _partitions(progress: Progress, data_dir: DataDir | None) -> set[TopicPartition]:
    found = set(progress.positions)
    if data_dir is not None:
        topics = {partition.topic for partition in found}
        found.update(TopicPartition(topic, number) for topic in topics for number in data_dir.partitions(topic))
    return found


def writer_text(progress: Progress) -> str | None:
    """Return the writer of a group, or None."""
    writer = progress.writer
    if writer is None:
        return None
    ended = ", which has ended" if writer.is_gone else ""
    return f"process {writer.pid} on {writer.host} since {iso_time(writer.since)}{ended}"


def group_fields(store: str, group: str, progress: Progress, found: list[PartitionStanding]) -> dict[str, Any]:
    """Return all data of a group as JSON fields."""
    writer, batch = progress.writer, progress.batch
    return {
        "store": store,
        "group": group,
        "epoch": progress.epoch,
        "writer": None
        if writer is None
        else {"host": writer.host, "pid": writer.pid, "since": iso_time(writer.since), "ended": writer.is_gone},
        "unfinishedFiles": [] if batch is None else [file.final for file in batch.files],
        "note": progress.note or None,
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "position": each.position,
                "topicId": None if each.identity.topic_id is None else str(each.identity.topic_id),
                "leaderEpoch": each.identity.leader_epoch,
                "logStartOffset": each.standing.log_start_offset,
                "logEndOffset": each.standing.log_end_offset,
                "lag": each.standing.lag,
                "note": each.note,
            }
            for each in found
        ],
    }
