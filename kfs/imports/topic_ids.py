"""The topic ids of imported topics."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence

from kfs.errors import KfsError
from kfs.format.partition_metadata import parse_partition_metadata
from kfs.format.uuid import Uuid
from kfs.log.directory_name import DirectoryKind, parse_directory_name
from kfs.log.partition_directory import PARTITION_METADATA
from kfs.storage.listing import list_names
from kfs.storage.side_file import read_side_file


class ImportTopicIds:
    """Chooses topic ids: that of the topic's existing partitions, else the given one, else a new one."""

    def __init__(self, log_dirs: Sequence[str], given: Uuid | None = None) -> None:
        self._log_dirs = log_dirs
        self._given = given
        self._ids: dict[str, Uuid] = {}

    def of(self, topic: str) -> Uuid:
        """Return a topic's id.

        Raises:
            KfsError: an id was given, but is taken by another imported topic, or the topic already has another id.
            CorruptData: the ``partition.metadata`` of a partition can't be read.
        """
        known = self._ids.get(topic)
        if known is None:
            known = self._ids[topic] = self._choose(topic)
        return known

    def _choose(self, topic: str) -> Uuid:
        there = self._there(topic)
        if self._given is None:
            return there or random_topic_id()
        if self._ids:
            raise KfsError(f"{self._given} can't be the id of {next(iter(self._ids))} and of {topic}: import one topic")
        if there is not None and there != self._given:
            raise KfsError(f"partitions of {topic} already exist, with topic id {there}, not {self._given}")
        return self._given

    def _there(self, topic: str) -> Uuid | None:
        for log_dir in self._log_dirs:
            for name in sorted(list_names(log_dir)):
                parsed = parse_directory_name(name)
                if parsed is None or parsed.topic != topic or parsed.kind is not DirectoryKind.CURRENT:
                    continue
                path = os.path.join(log_dir, name, PARTITION_METADATA)
                metadata = read_side_file(path, parse_partition_metadata)
                if metadata is not None:
                    return metadata.topic_id
        return None


def random_topic_id() -> Uuid:
    """Return a new id that doesn't begin with ``-``, which a command line would take for an option (``Uuid.java``)."""
    while str(topic_id := Uuid(uuid.uuid4().bytes)).startswith("-"):
        pass
    return topic_id
