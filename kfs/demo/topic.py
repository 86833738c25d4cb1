"""What a topic of the demo consists of: what producers, coordinators, leaders and the cleaner did to each partition."""

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
    """Records that a producer sent at once, their offsets and sequence numbers already assigned.

    From ``base_offset`` to ``last_offset`` there may be fewer records than offsets, or none: what compaction leaves.
    ``emptied_timestamp`` is then the latest that there was, ``delete_horizon`` when the tombstones may go, both in
    milliseconds.
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
    """The marker at ``offset`` by which a transaction coordinator ends the producer's transaction."""

    offset: int
    timestamp: int
    producer: Producer
    is_commit: bool


@dataclass(frozen=True, slots=True)
class Roll:
    """The active segment is closed, and the next begins; only compaction leaves a gap between the two."""

    base_offset: int


@dataclass(frozen=True, slots=True)
class NewLeader:
    """A leader of that epoch appends from here on."""

    epoch: int


Event = ProducedBatch | EndOfTransaction | Roll | NewLeader


@dataclass(frozen=True, slots=True)
class DemoPartition:
    """What happened to a partition since ``first_offset``; retention has deleted what was before.

    ``log_start_offset`` is what DeleteRecords moved it to, ``first_dirty_offset`` how far the cleaner came.
    """

    events: Sequence[Event]
    first_offset: int = 0
    log_start_offset: int | None = None
    first_dirty_offset: int | None = None


@dataclass(frozen=True, slots=True)
class DemoTopic:
    """A topic, its partitions numbered from 0, and in a few words what is in it."""

    name: str
    description: str
    partitions: Sequence[DemoPartition]
