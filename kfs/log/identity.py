"""Which log a position belongs to: the id of its topic, and the leader epoch of the record before it (KIP-320).

An offset alone says nothing of the log that it was read from. A topic that was deleted and made anew has another id
(KIP-516, ``partition.metadata``, which brokers before 2.8 don't write). A log that was restored from a backup, or a
copy that went its own way, has the same id, and other leader epochs: these never go back from one offset to the
next, and are in the header of each batch since 0.11.
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
    """What is known of the log of a position; None is what isn't.

    ``leader_epoch`` is that of the batch that holds the offset before the position.
    """

    topic_id: Uuid | None = None
    leader_epoch: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether it says anything."""
        return self.topic_id is not None or self.leader_epoch is not None

    def or_else(self, other: Identity) -> Identity:
        """Return it, completed with what only ``other`` knows."""
        return Identity(
            other.topic_id if self.topic_id is None else self.topic_id,
            other.leader_epoch if self.leader_epoch is None else self.leader_epoch,
        )


UNKNOWN: Final = Identity()


@dataclass(frozen=True, slots=True)
class OtherLog:
    """That a log isn't the one of a position: ``reason`` says why, in a sentence.

    ``common`` is the offset up to which the log may have what the other one had, None: it has nothing of it.
    """

    reason: str
    common: int | None


def topic_id_of(log: Log) -> Uuid | None:
    """Return the topic id that lies beside a log, None where there is none, or (a problem then) it can't be read."""
    metadata = log.partition_metadata()
    return None if metadata is None else metadata.topic_id


def identity_at(log: Log, offset: int) -> Identity:
    """Return what is to be kept with a position in a log."""
    if offset > log.log_end_offset:  # the record before it is still to come, in whatever epoch
        return Identity(topic_id_of(log))
    return Identity(topic_id_of(log), _epochs_at(log, offset).before)


def other_log(log: Log, offset: int, kept: Identity | None) -> OtherLog | None:
    """Return in what way a log contradicts what was kept with a position, None where it doesn't."""
    if kept is None:
        return None
    name = log.topic_partition
    topic_id = topic_id_of(log) if kept.topic_id is not None else None
    if topic_id is not None and topic_id != kept.topic_id:
        return OtherLog(
            f"topic {log.topic} was deleted and made anew: position {offset} of {name} belongs to the topic of id "
            f"{kept.topic_id}, and {log.directory.path} to that of id {topic_id}",
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
        "is a copy that went its own way",
        _common(log, offset, kept.leader_epoch),
    )


def _common(log: Log, offset: int, leader_epoch: int) -> int:
    """Return the end of the highest epoch that both may have, as a follower is told where to truncate (KIP-279)."""
    _, end = LeaderEpochs(log.leader_epochs()).end_offset_for(leader_epoch, log.log_end_offset)
    return offset if end == UNDEFINED_EPOCH_OFFSET else min(offset, end)


@dataclass(slots=True)
class _Epochs:
    """Leader epochs: of the batch that holds the offset before a position, of the one below it, of the one above."""

    below: int | None = None
    before: int | None = None
    above: int | None = None

    def contradiction(self, leader_epoch: int) -> str | None:
        """Return what can't be where the record before the position had an epoch; None where nothing is wrong."""
        if self.before is not None:
            return None if self.before == leader_epoch else f"epoch {self.before} there"
        if self.below is not None and self.below > leader_epoch:
            return f"epoch {self.below} already below"
        if self.above is not None and self.above < leader_epoch:
            return f"epoch {self.above} still above"
        return None


def _epochs_at(log: Log, offset: int) -> _Epochs:
    """Read the headers around a position; what is damaged or changes meanwhile tells nothing."""
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
