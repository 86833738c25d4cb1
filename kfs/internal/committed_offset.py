"""Committed offsets, and how they relate to their partition's log: the lag, and the oldest unread record."""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

from kfs.format.layout import NO_TIMESTAMP
from kfs.format.uuid import ZERO_UUID
from kfs.internal.offset_commits import RawCommit
from kfs.internal.schema import Malformed, Value
from kfs.internal.topics import GROUP_KINDS
from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.log.remote_offsets import Tier
from kfs.read.log_reader import LogReader

_NOT_SET: Final = -1
#: The note for an offset that isn't on this disk, by whether the topic is known to be tiered.
_UNREAD_ELSEWHERE: Final = (
    "the next record to read is in remote storage, or deleted",
    "the next record to read is in remote storage",
)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A commit: ``offset`` is the offset of the next record to read. Times are in milliseconds; None means not set.

    ``record_offset`` is the commit's own offset in ``__consumer_offsets``. If the value can't be decoded, ``problem``
    has the reason, and ``raw`` has the value in base64.
    """

    group: str
    topic: str
    partition: int
    record_offset: int
    offset: int | None = None
    leader_epoch: int | None = None
    metadata: str | None = None
    commit_timestamp: int | None = None
    expire_timestamp: int | None = None
    topic_id: str | None = None
    version: int | None = None
    problem: str | None = None
    raw: str | None = None
    #: The producer whose transaction it is pending in; None if it is committed.
    producer_id: int | None = None


def decode_commit(key: bytes, commit: RawCommit, producer_id: int | None = None) -> CommittedOffset:
    """Decode a commit with its canonical key."""
    record_offset, value = commit
    names = GROUP_KINDS.decode_key(key).fields
    group, topic, partition = str(names["group"]), str(names["topic"]), names["partition"]
    assert isinstance(partition, int)
    try:
        decoded = GROUP_KINDS.decode_value(GROUP_KINDS.kind_of(key), value)
    except Malformed as error:
        raw = b64encode(value).decode()
        return CommittedOffset(
            group, topic, partition, record_offset, problem=error.reason, raw=raw, producer_id=producer_id
        )
    fields = decoded.fields
    topic_id = fields["topicId"]
    return CommittedOffset(
        group,
        topic,
        partition,
        record_offset,
        _said(fields["offset"]),
        _said(fields["leaderEpoch"]),
        str(fields["metadata"]),
        _said(fields["commitTimestamp"]),
        _said(fields["expireTimestamp"]),
        None if topic_id == ZERO_UUID else str(topic_id),
        decoded.version,
        producer_id=producer_id,
    )


def _said(value: Value) -> int | None:
    assert isinstance(value, int)
    return None if value == _NOT_SET else value


@dataclass(frozen=True, slots=True)
class OffsetInLog:
    """The place of a committed offset in the log of its partition, if that is here.

    ``lag`` is the log end offset (where the listed offsets end) minus the offset, as in Kafka's own tool. ``note``
    reports anything unusual. ``next_offset`` is the record to read next, or None if there is none, because it is
    damaged, compacted away, or not written yet. ``next_timestamp`` is its time in milliseconds.
    """

    log_start_offset: int | None = None
    log_end_offset: int | None = None
    high_watermark: int | None = None
    lag: int | None = None
    next_offset: int | None = None
    next_timestamp: int | None = None
    note: str | None = None


def standing_of(
    offset: int | None,
    topic_id: str | None,
    log: Log | None,
    done: int | None = 0,
    done_ranges: Sequence[tuple[int, int]] = (),
) -> OffsetInLog:
    """Return the place of an offset that was committed for a topic with that id; both may be unknown.

    ``done`` is the number of records after the offset that are already processed, or None if unknown. ``done_ranges``
    are their offsets (start inclusive, end exclusive, in order).
    """
    if log is None:
        return OffsetInLog(note="this partition is not here")
    visible = LogReader(log).offsets
    reader = LogReader(log, choose=lambda: visible)  # the log's end isn't looked for again
    metadata = log.partition_metadata()
    ends = OffsetInLog(visible.start, visible.end, log.high_watermark)
    if topic_id is not None and metadata is not None and str(metadata.topic_id) != topic_id:
        other = f"committed for topic id {topic_id}, but the topic here has id {metadata.topic_id}"
        return replace(ends, note=other)
    if offset is None:
        return ends
    note: str | None = None
    if log.remote is not None and offset in log.remote:
        note = (
            f"below the first offset on this disk, {visible.start}: {_UNREAD_ELSEWHERE[log.remote.tier is Tier.TOPIC]}"
        )
        return replace(ends, lag=_lag(visible.end, offset, done), note=note)
    if offset < visible.start:
        note = f"below the log start offset {visible.start}: the next record to read was deleted"
    elif offset > visible.end:
        note = f"above the log's end {visible.end}: records that were read are no longer here"
    found, damage = _first_unread(reader, offset, done_ranges)
    next_offset, next_timestamp = found or (None, None)
    lag = _lag(visible.end, offset, done)
    return replace(ends, lag=lag, next_offset=next_offset, next_timestamp=next_timestamp, note=note or damage)


def _lag(end: int, offset: int, done: int | None) -> int | None:
    return None if done is None else end - offset - done


_Found = tuple[tuple[int, int | None] | None, str | None]


def _first_unread(reader: LogReader, start: int, done: Sequence[tuple[int, int]]) -> _Found:
    """Return the offset and timestamp of the first unprocessed record from ``start`` on, and the damage before it."""
    lost: list[Problem] = []
    while True:
        found = reader.first_from(start, lost.append)
        offset = -1 if found is None else found.loaded.columns.offsets[found.record_index]
        at = bisect_right(done, offset, key=itemgetter(0)) - 1
        if found is not None and at >= 0 and offset < done[at][1]:
            start = done[at][1]
            continue
        damage = f"damaged at {lost[0].file} position {lost[0].position}: {lost[0].reason}" if lost else None
        if found is None:
            return None, damage
        timestamp = found.loaded.columns.timestamps[found.record_index]
        return (offset, None if timestamp == NO_TIMESTAMP else timestamp), damage
