"""The check of a single file, on its own or with the segment that it belongs to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Final

from kfs.errors import CorruptData, UnusableSource
from kfs.format.checkpoint import parse_offset_checkpoint
from kfs.format.clean_shutdown import parse_clean_shutdown
from kfs.format.partition_metadata import parse_partition_metadata
from kfs.format.properties import parse_meta_properties
from kfs.log.directory_name import DirectoryName, parse_directory_name
from kfs.log.log import Log
from kfs.log.log_dir import BOOTSTRAP_CHECKPOINT, CHECKPOINTS, CLEAN_SHUTDOWN, META_PROPERTIES
from kfs.log.partition_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, PartitionDirectory
from kfs.log.segment_files import SegmentFiles
from kfs.log.storage import Storage
from kfs.storage.listing import FoundFile
from kfs.storage.status import status_at
from kfs.verify.finding import Finding, FindingKind, Findings
from kfs.verify.kraft_snapshot import KRAFT_SNAPSHOT, kraft_task
from kfs.verify.leader_epochs import check_epochs
from kfs.verify.partition import snapshot_ends
from kfs.verify.producers import ProducerCheck
from kfs.verify.segment import SegmentReport
from kfs.verify.segment_task import SegmentTask
from kfs.verify.side_files import parse_file

_SNAPSHOT: Final = re.compile(r"([0-9]{20})\.snapshot")
_PARSERS: Final[dict[str, tuple[Callable[[bytes], object], FindingKind]]] = {
    PARTITION_METADATA: (parse_partition_metadata, FindingKind.PARTITION_METADATA_FORMAT),
    META_PROPERTIES: (parse_meta_properties, FindingKind.META_PROPERTIES_FORMAT),
    CLEAN_SHUTDOWN: (parse_clean_shutdown, FindingKind.CLEAN_SHUTDOWN_FORMAT),
    **dict.fromkeys(CHECKPOINTS, (parse_offset_checkpoint, FindingKind.CHECKPOINT_FORMAT)),
}


class FileCheck:
    """The checks of one file. Findings about other files of the segment are dropped."""

    def __init__(self, path: str, storage: Storage) -> None:
        """Determine the file's kind.

        Raises:
            UnusableSource: the file can't be read, or isn't one of Kafka's.
        """
        self.path = os.path.abspath(path)
        self._name = os.path.basename(path)
        self._storage = storage
        try:
            self._found = FoundFile(self.path, status_at(self.path).inode)
        except OSError as error:
            raise UnusableSource(f"{path}: {error.strerror}") from None
        self._log, self._task = self._find_task()
        if self._task is None and not self._is_parsed and not self._is_index:
            raise UnusableSource(f"{path}: not one of Kafka's files, by its name")

    @property
    def _is_parsed(self) -> bool:
        return self._name in _PARSERS or self._name == LEADER_EPOCH_CHECKPOINT or bool(_SNAPSHOT.match(self._name))

    @property
    def _is_index(self) -> bool:
        return any(kind in self._name for kind in (".index", ".timeindex", ".txnindex"))

    def _find_task(self) -> tuple[Log | None, SegmentTask | None]:
        if KRAFT_SNAPSHOT.match(self._name) or self._name == BOOTSTRAP_CHECKPOINT:
            return None, kraft_task(self._found)
        if not self._is_index and ".log" not in self._name:
            return None, None
        parent = os.path.dirname(self.path)
        name = parse_directory_name(os.path.basename(parent)) or DirectoryName("log", 0)
        log = Log(PartitionDirectory(parent, name, None), self._storage)
        for segment in log.segments:
            files = segment.files
            if self.path in (one.path for one in (files.log, files.index, files.timeindex, files.txnindex) if one):
                ends = snapshot_ends(log.files, segment.base_offset) if segment.is_last else ()
                return log, SegmentTask(files, segment.next_base_offset, is_stopped=False, ends=ends)
        if self._is_index:
            return None, None
        try:
            directory = PartitionDirectory(parent, name, None, (self.path,))
            (loose,) = directory.list(lambda files: files.base_offset).segments
        except CorruptData as error:
            raise UnusableSource(str(error)) from None
        return None, SegmentTask(SegmentFiles(loose.base_offset, loose.log), None, is_stopped=False)

    def tasks(self) -> list[SegmentTask]:
        """Return the task of the segment that the file belongs to, if any."""
        return [] if self._task is None else [self._task]

    def finish(self, reports: Sequence[SegmentReport]) -> list[Finding]:
        """Combine the segment's reports; return the findings about this file."""
        findings = Findings()
        for report in reports:
            for finding in report.findings:
                findings.take(finding)
        if self._task is None:
            self._parse(findings)
        elif self._log is not None:
            base_offset = self._task.files.base_offset
            before = self._log.files.snapshots.get(base_offset)
            ProducerCheck({} if before is None else {base_offset: before}, findings).check(reports)
        return [finding for finding in findings.all() if finding.file == self.path]

    def _parse(self, findings: Findings) -> None:
        snapshot = _SNAPSHOT.match(self._name)
        if self._name in _PARSERS:
            parse, kind = _PARSERS[self._name]
            parse_file(self.path, parse, kind, findings)
        elif snapshot is not None:
            ProducerCheck({int(snapshot[1]): self._found}, findings)
        elif self._name == LEADER_EPOCH_CHECKPOINT:
            check_epochs(os.path.dirname(self.path), [], 0, findings)
        else:
            findings.add(FindingKind.INDEX_ORPHAN, self.path, "its .log is missing; a broker removes it")
