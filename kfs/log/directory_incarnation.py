"""Detection of a partition directory that was replaced, or whose topic was recreated under the same name.

A file system reuses the inode number of a deleted file or directory. So inode numbers of the files in a directory prove
nothing once the directory, or its topic, is a different one.
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
    """The device and inode number of a directory, and its topic id if known (KIP-516)."""

    def __init__(self) -> None:
        self._number = _NO_NUMBER
        self._topic_id: Uuid | None = None
        self._watched = Watched()

    def has_number_of(self, status: Status) -> bool:
        """Whether the directory had this device and inode number at the last check."""
        return self._number == status.number

    def is_another(self, status: Status, metadata_path: str) -> bool:
        """Check the directory; return whether it is a different one than at the last check.

        ``metadata_path`` is its ``partition.metadata``. Older brokers don't write that file, and newer ones may write
        it after they create the directory.

        Raises:
            Shortage: no file descriptor is available to read the file.
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
        except CorruptData:  # callers that need its content get the error
            return None
        except Shortage:
            self._watched.look_again()
            raise
        return None if metadata is None else metadata.topic_id
