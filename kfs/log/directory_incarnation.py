"""Whether the directory of a partition is still the one that it was, or a topic made again under the same name.

A file system gives the number of a deleted file or directory to the next one. So the numbers of the files in a
directory say nothing as soon as that is another directory, or of another topic.
"""

from __future__ import annotations

from typing import Final

from kfs.errors import CorruptData, Shortage
from kfs.format.partition_metadata import parse_partition_metadata
from kfs.format.uuid import Uuid
from kfs.storage.side_file import Watched, read_side_file
from kfs.storage.status import Status

_NO_NUMBER: Final = (-1, -1)


class DirectoryIncarnation:
    """The device and the number of a directory, and its topic's id where that is known (KIP-516)."""

    def __init__(self) -> None:
        self._number = _NO_NUMBER
        self._topic_id: Uuid | None = None
        self._watched = Watched()

    def has_number_of(self, status: Status) -> bool:
        """Whether the directory had that device and number at the last look."""
        return self._number == status.number

    def is_another(self, status: Status, metadata_path: str) -> bool:
        """Look at the directory; return whether it is another than at the last look.

        ``metadata_path`` is its ``partition.metadata``, which older brokers don't have, and newer ones write later.

        Raises:
            Shortage: there is no descriptor to read it.
        """
        topic_id = self._topic_id_in(metadata_path)
        is_other_topic = topic_id is not None and self._topic_id not in (None, topic_id)
        is_another = self._number != _NO_NUMBER and (not self.has_number_of(status) or is_other_topic)
        self._number = status.number
        if topic_id is not None or is_another:
            self._topic_id = topic_id
        return is_another

    def _topic_id_in(self, path: str) -> Uuid | None:
        if not self._watched.changed(path):
            return self._topic_id
        try:
            metadata = read_side_file(path, parse_partition_metadata)
        except CorruptData:  # which who asks what it says gets as an error
            return None
        except Shortage:
            self._watched.look_again()
            raise
        return None if metadata is None else metadata.topic_id
