"""Offsets that a log has and its disk doesn't: tiered storage has moved them away (KIP-405)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem

#: Where a broker with tiered storage keeps indexes of remote segments, in its first log directory
#: (``RemoteIndexCache.DIR_NAME``).
REMOTE_LOG_INDEX_CACHE: Final = "remote-log-index-cache"
#: The topic's config that has its segments moved.
REMOTE_STORAGE_ENABLE: Final = "remote.storage.enable"
#: Kafka moves nothing of these (``UnifiedLog.isRemoteLogEnabled``).
NEVER_TIERED: Final = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__cluster_metadata",
        "__remote_log_metadata",
    }
)


class Tier(StrEnum):
    """What is known of a topic's tiered storage."""

    TOPIC = "topic"  # the cluster's metadata says that the topic has it
    BROKER = "broker"  # the broker uses it; of the topic it isn't known
    UNKNOWN = "unknown"
    NONE = "none"  # the cluster's metadata says that the topic has none


@dataclass(frozen=True, slots=True)
class RemoteOffsets(OffsetRange):
    """The offsets from ``start``, where the log begins, up to below ``end``, where the first segment here does.

    Of a tiered topic these are in remote storage. Where it isn't known whether it is one, they may as well have been
    deleted since the log start offset checkpoint was written, which an unclean stop leaves as it was.
    """

    directory: str
    tier: Tier

    @property
    def is_likely(self) -> bool:
        """Whether there is more to it than a checkpoint that deletion has overtaken: a tier that they may be in."""
        return self.tier in (Tier.TOPIC, Tier.BROKER)

    @property
    def sentence(self) -> str:
        """Which they are, and where."""
        if self.tier is Tier.TOPIC:
            where = f"but in remote storage ({REMOTE_STORAGE_ENABLE} is set)"
        elif self.tier is Tier.BROKER:
            where = "but in remote storage, which this broker uses, or they were deleted"
        else:
            where = "but in remote storage, or they were deleted"
        return f"offsets {self.start} to {self.end - 1} are not on this disk, {where}"

    def problem(self) -> Problem:
        """Return what is said of them among the problems of the log."""
        return Problem(self.directory, 0, 0, self.sentence)
