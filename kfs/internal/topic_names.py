"""Lookup of topic names by id."""

from __future__ import annotations

import time
from typing import Final

from kfs.errors import CorruptData
from kfs.format.uuid import parse_uuid
from kfs.log.data_dir import DataDir

_LOOK_AGAIN_SECONDS: Final = 5.0


class TopicNames:
    """Topic names by id, from the directories here, else from :attr:`DataDir.topic_ids`.

    That is the cluster metadata. It comes last because it must be read for this.
    """

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._here: dict[str, str] = {}
        self._looked = -1.0

    def name(self, topic_id: str) -> str | None:
        """Return the name of the topic with an id, or None if it is unknown."""
        if topic_id not in self._here and (self._looked < 0 or time.monotonic() - self._looked >= _LOOK_AGAIN_SECONDS):
            self._look()
            self._looked = time.monotonic()
        return self._here.get(topic_id) or self._elsewhere(topic_id)

    def _look(self) -> None:
        for topic in self._data_dir.topics():
            log = self._data_dir.log(topic, self._data_dir.partitions(topic)[0])
            metadata = log.partition_metadata() if log is not None else None
            if metadata is not None:
                self._here[str(metadata.topic_id)] = topic

    def _elsewhere(self, topic_id: str) -> str | None:
        if self._data_dir.topic_ids is None:
            return None
        try:
            return self._data_dir.topic_ids().topic_name(parse_uuid(topic_id.encode()))
        except CorruptData:  # not an id
            return None
