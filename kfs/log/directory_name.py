"""Names of partition directories (``LocalLog.parseTopicPartitionName``, ``logDeleteDirName`` and related methods)."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

#: The characters that Kafka accepts in a topic name (``Topic.LEGAL_CHARS``), regardless of length.
LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+\Z")
#: The topic of KRaft's metadata log.
CLUSTER_METADATA = "__cluster_metadata"
#: Topics that Kafka never tiers (``UnifiedLog.isRemoteLogEnabled``).
NEVER_TIERED: Final = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__cluster_metadata",
        "__remote_log_metadata",
    }
)
_SPECIAL = re.compile(r"(?P<name>.+)\.(?P<uuid>[0-9a-f]{32})-(?P<kind>delete|future|stray)\Z", re.DOTALL)
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})\Z", re.DOTALL)
_MAX_PARTITION = 2**31 - 1
_MAX_TOPIC = 249  # Topic.MAX_NAME_LENGTH
_MAX_NAME = 255


class DirectoryKind(StrEnum):
    """The kind of a partition directory, from its suffix."""

    CURRENT = "current"
    FUTURE = "future"  # a copy on its way here from another log directory (KIP-113)
    STRAY = "stray"  # not assigned to this broker, as far as the broker knows (KIP-858)
    DELETE = "delete"  # the topic was deleted; the files go after file.delete.delay.ms


@dataclass(frozen=True, slots=True)
class DirectoryName:
    """A name ``topic-partition``, split at the last ``-``, or with a kind ``topic-partition.<32 hex>-kind``."""

    topic: str
    partition: int
    kind: DirectoryKind = DirectoryKind.CURRENT
    unique_id: str = ""

    @property
    def may_be_truncated(self) -> bool:
        """Whether the directory name has the maximum length, so that the topic name in it may be truncated."""
        suffix = f"-{self.partition}.{self.unique_id}-{self.kind}"
        return self.kind is not DirectoryKind.CURRENT and len(self.topic) + len(suffix) == _MAX_NAME


def parse_directory_name(name: str) -> DirectoryName | None:
    """Return the parsed name of a partition directory, or None if the name isn't one."""
    kind, unique_id = DirectoryKind.CURRENT, ""
    special = _SPECIAL.match(name)
    if special:
        name, unique_id, kind = special["name"], special["uuid"], DirectoryKind(special["kind"])
    match = _PARTITION.match(name)
    if match is None:
        return None
    partition = int(match["partition"])
    if partition > _MAX_PARTITION or str(partition) != match["partition"]:
        return None
    return DirectoryName(match["topic"], partition, kind, unique_id)


def is_legal_topic(name: str) -> bool:
    """Whether Kafka accepts a topic name (``Topic.validate``)."""
    return len(name) <= _MAX_TOPIC and name not in (".", "..") and LEGAL_TOPIC.match(name) is not None


def delete_directory_name(topic: str, partition: int, unique_id: str) -> str:
    """Return the directory name of a partition that is marked for deletion (``UnifiedLog.logDeleteDirName``)."""
    suffix = f"-{partition}.{unique_id}-{DirectoryKind.DELETE}"
    return topic[: _MAX_NAME - len(suffix)] + suffix


def topic_filter(patterns: Sequence[str]) -> Callable[[str], bool] | None:
    """Return a function that tells whether a topic matches one of the shell patterns; None if there are no patterns."""
    if not patterns:
        return None
    matches = [re.compile(fnmatch.translate(pattern)).match for pattern in patterns]
    return lambda topic: any(match(topic) for match in matches)
