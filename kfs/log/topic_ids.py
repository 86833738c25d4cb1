"""What a cluster's metadata can tell of topics; here nothing of it is read."""

from __future__ import annotations

from typing import Protocol

from kfs.format.uuid import Uuid
from kfs.log.log_dir import LogDir


class TopicIds(Protocol):
    """Tells names by ids, and ids by names; it is asked only where directories alone don't tell.

    It must not ask the :class:`~kfs.log.data_dir.DataDir` for partitions, which waits for the answer.
    """

    def topic_id(self, topic: str, log_dir: LogDir | None) -> Uuid | None:
        """Return the id that a topic has in the cluster that ``log_dir`` belongs to, None where that isn't known."""
        ...

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Return the name of the topic that has or had an id, None where that isn't known."""
        ...

    def is_tiered(self, topic: str, log_dir: LogDir | None) -> bool | None:
        """Return whether a topic's segments are moved to remote storage, None where that isn't known."""
        ...

    def partition_count(self, topic: str, log_dir: LogDir | None) -> int | None:
        """Return how many partitions a topic has in the cluster that ``log_dir`` belongs to, None: not known."""
        ...
