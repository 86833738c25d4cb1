"""Offsets that belong to a log but aren't on this disk: tiered storage has moved them away (KIP-405)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem, ProblemKind

#: The directory for indexes of remote segments, in a broker's first log directory
#: (``RemoteIndexCache.DIR_NAME``).
REMOTE_LOG_INDEX_CACHE: Final = "remote-log-index-cache"
#: The topic config that enables tiered storage.
REMOTE_STORAGE_ENABLE: Final = "remote.storage.enable"


class Tier(StrEnum):
    """What is known about tiered storage of a topic."""

    TOPIC = "topic"  # enabled, according to the cluster metadata
    BROKER = "broker"  # the broker uses it, but it is unknown whether the topic does
    UNKNOWN = "unknown"
    NONE = "none"  # disabled, according to the cluster metadata


@dataclass(frozen=True, slots=True)
class RemoteOffsets(OffsetRange):
    """The offsets from ``start``, the log start offset, up to, not including, ``end``, the first base offset here.

    For a tiered topic they are in remote storage. If it is unknown whether the topic is tiered, they may also have been
    deleted after the log start offset checkpoint was written: an unclean shutdown leaves the checkpoint stale.
    """

    directory: str
    tier: Tier

    @property
    def is_likely(self) -> bool:
        """Whether a tier is known that may have the offsets; otherwise the checkpoint may just be stale."""
        return self.tier in (Tier.TOPIC, Tier.BROKER)

    @property
    def sentence(self) -> str:
        """Which offsets they are, and where they may be."""
        if self.tier is Tier.TOPIC:
            where = f"but in remote storage ({REMOTE_STORAGE_ENABLE} is set)"
        elif self.tier is Tier.BROKER:
            where = "but in remote storage, which this broker uses, or they were deleted"
        else:
            where = "but in remote storage, or they were deleted"
        return f"offsets {self.start} to {self.end - 1} are not on this disk, {where}"

    def problem(self) -> Problem:
        """Return the problem to record for the log."""
        return Problem(self.directory, 0, 0, self.sentence, ProblemKind.REMOTE_OFFSETS)
