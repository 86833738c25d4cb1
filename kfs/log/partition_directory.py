"""The directory of one copy of a partition."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData, SourceLost
from kfs.format.layout import LOG_OVERHEAD_STRUCT
from kfs.log.directory_name import DirectoryKind, DirectoryName
from kfs.log.log_dir import LogDir
from kfs.log.segment_files import PartitionFiles, SegmentFiles, list_partition
from kfs.storage.listing import FoundFile, found_at
from kfs.storage.open_files import FileChanged, OpenFile

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
#: Only the metadata log has this file (``FileQuorumStateStore.java``).
QUORUM_STATE: Final = "quorum-state"


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A directory of segments, or, with ``loose``, only these ``.log`` (or ``.log.deleted``) files in it.

    With ``is_of_deleted`` it has only the deleted segments that wait for their removal. ``log_dir`` is the log
    directory whose checkpoints cover the partition, or None. With ``is_source`` the directory was passed as a path
    itself, instead of being found in a log directory.
    """

    path: str
    name: DirectoryName
    log_dir: LogDir | None
    loose: tuple[str, ...] = ()
    is_source: bool = False
    is_of_deleted: bool = False

    def check_source(self) -> None:
        """Raise :class:`SourceLost` if not only the partition is gone, but also the source that it was found in."""
        if self.is_source:
            raise SourceLost(f"{self.path}: the directory is gone")
        if self.log_dir is not None:
            self.log_dir.check_is_there()

    @property
    def is_deleted(self) -> bool:
        """Whether the topic was deleted and the files only wait for their removal."""
        return self.name.kind is DirectoryKind.DELETE

    @property
    def is_whole(self) -> bool:
        """Whether it has all segments of a log."""
        return not self.loose and not self.is_of_deleted

    def list(self, next_offset: Callable[[SegmentFiles], int]) -> PartitionFiles:
        """List the files; see :func:`kfs.log.segment_files.list_partition`.

        Raises :class:`OSError` if the directory can't be listed, and :class:`~kfs.errors.Shortage` if no descriptor is
        available.
        """
        if self.is_of_deleted:
            return PartitionFiles(list_partition(self.path, lambda files: files.base_offset).deleted)
        if not self.loose:
            return list_partition(self.path, next_offset)
        files = PartitionFiles()
        segments: dict[int, SegmentFiles] = {}
        for path in self.loose:
            with suppress(FileChanged):  # deleted segments disappear after file.delete.delay.ms
                segment = _loose_segment(path)
                segments[segment.base_offset] = segment
        files.segments = [segments[base] for base in sorted(segments)]
        return files


def _loose_segment(path: str) -> SegmentFiles:
    """Return a ``.log`` that was passed as a path; its base offset is in its name, else in its first batch."""
    file = OpenFile(path)
    stem = os.path.basename(path).split(".")[0]
    if stem.isascii() and stem.isdigit() and int(stem) < 2**63:
        base = int(stem)
    else:
        head = file.read(0, LOG_OVERHEAD_STRUCT.size)
        base = LOG_OVERHEAD_STRUCT.unpack(head)[0] if len(head) == LOG_OVERHEAD_STRUCT.size else 0
        if base < 0:
            raise CorruptData(f"negative base offset {base}", 0, path)
    beside, _, state = path.rpartition(".log")
    return SegmentFiles(
        base,
        FoundFile(path, file.inode),
        found_at(f"{beside}.index{state}"),
        found_at(f"{beside}.timeindex{state}"),
        found_at(f"{beside}.txnindex{state}"),
    )
