"""The definition of a demo topic: what producers, coordinators, leaders and the cleaner did to each partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kfs.format.codecs import Codec
from kfs.format.layout import MAGIC_V2, NO_SEQUENCE
from kfs.format.record import Record, TimestampType


@dataclass(frozen=True, slots=True)
class Producer:
    """An idempotent or transactional producer."""

    producer_id: int
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducedBatch:
    """A batch of a producer, with offsets and sequence numbers assigned.

    From ``base_offset`` to ``last_offset`` there may be fewer records than offsets, or none, as compaction leaves it.
    In an empty batch, ``emptied_timestamp`` is the largest timestamp of the removed records. ``delete_horizon`` is the
    time from which the tombstones may be removed. Both are in milliseconds.
    """

    records: Sequence[Record]
    magic: int = MAGIC_V2
    codec: Codec = Codec.NONE
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    producer: Producer | None = None
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    base_offset: int
    last_offset: int
    delete_horizon: int | None = None
    emptied_timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class EndOfTransaction:
    """The transaction marker at ``offset``, with which a coordinator ends the producer's transaction."""

    offset: int
    timestamp: int
    producer: Producer
    is_commit: bool


@dataclass(frozen=True, slots=True)
class Roll:
    """The active segment is closed, and the next one begins; only compaction leaves a gap between the two."""

    base_offset: int


@dataclass(frozen=True, slots=True)
class NewLeader:
    """From here on, a leader with the given epoch appends."""

    epoch: int


Event = ProducedBatch | EndOfTransaction | Roll | NewLeader


@dataclass(frozen=True, slots=True)
class DemoPartition:
    """The events of a partition from ``first_offset`` on; retention has deleted everything before it.

    ``log_start_offset`` is set by DeleteRecords. ``first_dirty_offset`` is where the cleaner stopped.
    """

    events: Sequence[Event]
    first_offset: int = 0
    log_start_offset: int | None = None
    first_dirty_offset: int | None = None


@dataclass(frozen=True, slots=True)
class DemoTopic:
    """A topic with a short description of its content, and its partitions, numbered from 0."""

    name: str
    description: str
    partitions: Sequence[DemoPartition]
