"""Segments that retention, compaction or a broker's recovery has deleted, but whose files still exist."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from kfs.broker_log.log_segment import segment_path
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.segment import Segment
from kfs.log.storage import Storage
from kfs.recover.copying import copy_file
from kfs.recover.report import Change, PartitionReport
from kfs.recover.salvage import EXTRA


@dataclass(frozen=True, slots=True)
class Undeleted:
    """A log merged with the deleted segments that fit between its own; other deleted segments overlap it."""

    log: Log
    merged: tuple[Segment, ...] = ()
    overlapping: tuple[Segment, ...] = ()

    def has(self, path: str) -> bool:
        """Whether a ``.log.deleted`` file or its index belongs to a segment that is merged or set aside."""
        return any(path.startswith(segment.files.log.path[: -len(".log.deleted")]) for segment in self._segments())

    def _segments(self) -> Iterable[Segment]:
        return (*self.merged, *self.overlapping)

    def set_aside(self, directory: str, report: PartitionReport) -> None:
        """Copy overlapping segments to the directory :data:`EXTRA` inside ``directory``; report both kinds."""
        for segment in self.merged:
            report.changes.append(Change(segment.files.log.path, "undeleted"))
        for segment in self.overlapping:
            beside = os.path.join(directory, EXTRA)
            os.makedirs(beside, exist_ok=True)
            copy_file(segment.files.log.path, segment_path(beside, segment.base_offset, ".deleted.log"))
            what = f"set aside in {EXTRA}/: its offsets overlap with those of the log"
            report.changes.append(Change(segment.files.log.path, what))


def undelete_segments(log: Log, storage: Storage) -> Undeleted:
    """Return ``log`` from its first segment on, ignoring its log start offset, merged with deleted segments."""
    paths = {segment.base_offset: segment.files.log.path for segment in log.segments}
    taken = [_range_of(segment) for segment in log.segments if segment.size()]
    deleted = [files.log.path for files in log.files.deleted]
    merged, overlapping = [], []
    for segment in _log_of(log, deleted, storage).segments if deleted else ():
        offsets = _range_of(segment)
        if any(offsets.start < other.end and other.start < offsets.end for other in taken):
            overlapping.append(segment)
        else:
            merged.append(segment)
            taken.append(offsets)
            paths[segment.base_offset] = segment.files.log.path  # replaces an empty segment, if there is one
    return Undeleted(_log_of(log, paths.values(), storage), tuple(merged), tuple(overlapping))


def _log_of(log: Log, paths: Iterable[str], storage: Storage) -> Log:
    """Return a log of just the given files, without checkpoints."""
    return Log(PartitionDirectory(log.directory.path, log.directory.name, None, tuple(sorted(paths))), storage)


def _range_of(segment: Segment) -> OffsetRange:
    return OffsetRange(segment.base_offset, segment.tail()[1])
