"""The interface to cluster metadata about topics; this module reads none of it."""

from __future__ import annotations

from typing import Protocol

from kfs.format.uuid import Uuid
from kfs.log.log_dir import LogDir


class TopicIds(Protocol):
    """Maps topic names and ids to each other; it is called only if directories alone don't suffice.

    It must not ask the :class:`~kfs.log.data_dir.DataDir` for partitions, which waits for the result.
    """

    def topic_id(self, topic: str, log_dir: LogDir | None) -> Uuid | None:
        """Return the id of a topic in the cluster that ``log_dir`` belongs to, or None if unknown."""
        ...

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Return the name of the topic that has or had an id, or None if unknown."""
        ...

    def is_tiered(self, topic: str, log_dir: LogDir | None) -> bool | None:
        """Return whether a topic's segments move to remote storage, or None if unknown."""
        ...

    def partition_count(self, topic: str, log_dir: LogDir | None) -> int | None:
        """Return the number of partitions of a topic in the cluster that ``log_dir`` belongs to, or None if unknown."""
        ...
