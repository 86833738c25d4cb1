"""The names of partition directories (``LocalLog.parseTopicPartitionName`` and ``logDeleteDirName`` and its kin)."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

#: What Kafka accepts as a topic name (``Topic.LEGAL_CHARS``), its length aside.
LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+\Z")
#: The topic of KRaft's metadata log.
CLUSTER_METADATA = "__cluster_metadata"
_SPECIAL = re.compile(r"(?P<name>.+)\.(?P<uuid>[0-9a-f]{32})-(?P<kind>delete|future|stray)\Z", re.DOTALL)
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})\Z", re.DOTALL)
_MAX_PARTITION = 2**31 - 1
_MAX_TOPIC = 249  # Topic.MAX_NAME_LENGTH
_MAX_NAME = 255


class DirectoryKind(StrEnum):
    """What a partition directory's suffix says of it."""

    CURRENT = "current"
    FUTURE = "future"  # a copy being moved here from another log directory (KIP-113)
    STRAY = "stray"  # not assigned to this broker as far as it knows (KIP-858)
    DELETE = "delete"  # the topic was deleted; the files follow after file.delete.delay.ms


@dataclass(frozen=True, slots=True)
class DirectoryName:
    """``topic-partition``, split at the last ``-``, and with a kind ``topic-partition.<32 hex>-kind``."""

    topic: str
    partition: int
    kind: DirectoryKind = DirectoryKind.CURRENT
    unique_id: str = ""

    @property
    def may_be_truncated(self) -> bool:
        """Whether the name of the directory is as long as can be: then the topic's may have been cut off to fit it."""
        suffix = f"-{self.partition}.{self.unique_id}-{self.kind}"
        return self.kind is not DirectoryKind.CURRENT and len(self.topic) + len(suffix) == _MAX_NAME


def parse_directory_name(name: str) -> DirectoryName | None:
    """Return what a directory's name says, or None if it isn't that of a partition."""
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
    """Whether Kafka accepts a name as that of a topic (``Topic.validate``)."""
    return len(name) <= _MAX_TOPIC and name not in (".", "..") and LEGAL_TOPIC.match(name) is not None


def delete_directory_name(topic: str, partition: int, unique_id: str) -> str:
    """Return the name of the directory of a partition that is to be deleted (``UnifiedLog.logDeleteDirName``)."""
    suffix = f"-{partition}.{unique_id}-{DirectoryKind.DELETE}"
    return topic[: _MAX_NAME - len(suffix)] + suffix


def topic_filter(patterns: Sequence[str]) -> Callable[[str], bool] | None:
    """Return what tells whether a topic matches one of the shell patterns, None where there are none."""
    if not patterns:
        return None
    matches = [re.compile(fnmatch.translate(pattern)).match for pattern in patterns]
    return lambda topic: any(match(topic) for match in matches)
