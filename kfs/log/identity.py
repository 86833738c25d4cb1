"""Identification of the log that a position belongs to, by topic id and leader epoch (KIP-320).

An offset alone doesn't identify a log. A topic that is deleted and recreated gets another id (KIP-516,
``partition.metadata``, which brokers before 2.8 don't write). A log restored from a backup, or a copy that diverged,
keeps the topic id, but has other leader epochs. The leader epoch never decreases from one offset to the next, and the
header of each v2 batch (since 0.11) contains it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData
from kfs.format.uuid import Uuid
from kfs.log.block import Block
from kfs.log.leader_epochs import UNDEFINED_EPOCH_OFFSET, LeaderEpochs
from kfs.log.log import Log


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies the log of a position; None means unknown.

    ``leader_epoch`` is the epoch of the batch that holds the offset before the position.
    """

    topic_id: Uuid | None = None
    leader_epoch: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the id or the epoch is known."""
        return self.topic_id is not None or self.leader_epoch is not None

    def or_else(self, other: Identity) -> Identity:
        """Return this identity, with unknown parts filled in from ``other``."""
        return Identity(
            other.topic_id if self.topic_id is None else self.topic_id,
            other.leader_epoch if self.leader_epoch is None else self.leader_epoch,
        )


UNKNOWN: Final = Identity()


@dataclass(frozen=True, slots=True)
class OtherLog:
    """The finding that a log isn't the one of a position: ``reason`` says why, in a sentence.

    Up to the offset ``common`` the logs may have the same records; None means that they share nothing.
    """

    reason: str
    common: int | None


def topic_id_of(log: Log) -> Uuid | None:
    """Return the topic id in a log's directory, or None if it is missing or unreadable; the latter is a problem."""
    metadata = log.partition_metadata()
    return None if metadata is None else metadata.topic_id


def identity_at(log: Log, offset: int) -> Identity:
    """Return the identity to store with a position in a log."""
    if offset > log.log_end_offset:  # the record before it doesn't exist yet, and its epoch is unknown
        return Identity(topic_id_of(log))
    return Identity(topic_id_of(log), _epochs_at(log, offset).before)


def other_log(log: Log, offset: int, kept: Identity | None) -> OtherLog | None:
    """Return how a log contradicts the identity stored with a position, or None if it doesn't."""
    if kept is None:
        return None
    name = log.topic_partition
    topic_id = topic_id_of(log) if kept.topic_id is not None else None
    if topic_id is not None and topic_id != kept.topic_id:
        return OtherLog(
            f"topic {log.topic} was deleted and re-created: position {offset} of {name} belongs to topic id "
            f"{kept.topic_id}, and {log.directory.path} to topic id {topic_id}",
            None,
        )
    if kept.leader_epoch is None:
        return None
    found = _epochs_at(log, offset).contradiction(kept.leader_epoch)
    if found is None:
        return None
    return OtherLog(
        f"the log of {name} is not the one that was read up to offset {offset}: the record before it was written in "
        f"leader epoch {kept.leader_epoch}, and {log.directory.path} has {found}: it was restored from a backup, or "
        "is a copy that diverged",
        _common(log, offset, kept.leader_epoch),
    )


def _common(log: Log, offset: int, leader_epoch: int) -> int:
    """Return the end offset of the highest epoch that both logs may have, where a follower truncates to (KIP-279)."""
    _, end = LeaderEpochs(log.leader_epochs()).end_offset_for(leader_epoch, log.log_end_offset)
    return offset if end == UNDEFINED_EPOCH_OFFSET else min(offset, end)


@dataclass(slots=True)
class _Epochs:
    """Leader epochs of the batch with the offset before a position, of the batch below it, and of the batch above."""

    below: int | None = None
    before: int | None = None
    above: int | None = None

    def contradiction(self, leader_epoch: int) -> str | None:
        """Return what contradicts an epoch of the record before the position; None if nothing does."""
        if self.before is not None:
            return None if self.before == leader_epoch else f"epoch {self.before} there"
        if self.below is not None and self.below > leader_epoch:
            return f"epoch {self.below} already below"
        if self.above is not None and self.above < leader_epoch:
            return f"epoch {self.above} still above"
        return None


def _epochs_at(log: Log, offset: int) -> _Epochs:
    """Read the headers around a position; skip what is damaged or changes meanwhile."""
    found = _Epochs()
    segment = log.segment_for(max(offset - 1, 0))
    index = 0 if segment is None else log.index_of(segment)
    for each in log.segments[index:] if index is not None else ():
        with suppress(CorruptData):
            for item in each.walk_from(offset - 1):
                if not isinstance(item, Block):
                    continue
                header = item.header
                epoch = header.leader_epoch if header.leader_epoch >= 0 else None
                if header.base_offset >= offset:
                    found.above = epoch
                    return found
                if header.last_offset >= offset - 1:
                    found.before = epoch
                else:
                    found.below = epoch
        if found.before is not None:
            return found
    return found
