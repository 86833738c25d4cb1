"""Checks of a partition: each segment on its own, then the segments together and the files beside them."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kfs.broker_log.index_builder import INDEX_INTERVAL_BYTES
from kfs.format.layout import OFFSET_INDEX_ENTRY
from kfs.format.partition_metadata import PartitionMetadata, parse_partition_metadata
from kfs.log.directory_name import DirectoryKind
from kfs.log.log import Log
from kfs.log.log_dir import RECOVERY_POINT_CHECKPOINT
from kfs.log.partition_directory import PARTITION_METADATA
from kfs.log.segment import Segment
from kfs.log.segment_files import PartitionFiles
from kfs.storage.status import is_there
from kfs.verify.finding import Finding, FindingKind, Findings, Severity
from kfs.verify.kraft_snapshot import KRAFT_SNAPSHOT, kraft_task
from kfs.verify.leader_epochs import check_epochs
from kfs.verify.leftovers import check_leftovers
from kfs.verify.log_ends import KnownEnd
from kfs.verify.producers import ProducerCheck, check_presence
from kfs.verify.segment import SegmentReport
from kfs.verify.segment_gaps import check_gaps
from kfs.verify.segment_task import SegmentTask
from kfs.verify.side_files import parse_file

#: An offset index is short if its last gap is this many times its usual spacing.
_FAR: Final = 3
#: The default of ``replica.fetch.response.max.bytes``: the most that a follower appends at once.
_LARGEST_APPEND: Final = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What the log directory's checks need to know about a partition."""

    log: Log
    first_offset: int
    end_offset: int
    metadata: PartitionMetadata | None


class PartitionCheck:
    """The checks of a partition directory; ``needs_metadata`` is set if its neighbours have ``partition.metadata``."""

    def __init__(self, log: Log, *, is_stopped: bool, needs_metadata: bool) -> None:
        self.log = log
        self._needs_metadata = needs_metadata
        self._is_stopped = is_stopped and log.directory.name.kind is DirectoryKind.CURRENT
        self._segments = log.segments
        self._files = log.files
        self._path = log.directory.path
        self._findings = Findings()
        #: The segments and KRaft snapshots to read; each is an independent task.
        self.tasks = self._made_tasks()

    def _made_tasks(self) -> list[SegmentTask]:
        snapshots = sorted(self._files.snapshots)
        segments = [
            SegmentTask(
                segment.files,
                segment.next_base_offset,
                self._is_stopped,
                _between(snapshots, segment.base_offset, segment.next_base_offset),
                ends=self._ends(segment) if segment.is_last else (),
            )
            for segment in self._segments
        ]
        others = sorted(self._files.others.items())
        return segments + [kraft_task(found) for name, found in others if KRAFT_SNAPSHOT.match(name)]

    def _ends(self, last: Segment) -> tuple[KnownEnd, ...]:
        """Return known former log end offsets, from producer snapshots and a clean stop's recovery point checkpoint."""
        ends = snapshot_ends(self._files, last.base_offset)
        recovery_point = self.log.recovery_point if self._is_stopped else None
        if recovery_point is None or recovery_point <= last.base_offset or recovery_point in self._files.snapshots:
            return ends
        return (*ends, KnownEnd(recovery_point, RECOVERY_POINT_CHECKPOINT))

    def finish(self, reports: Sequence[SegmentReport]) -> tuple[PartitionResult, list[Finding]]:
        """Combine the tasks' reports; check the segments against each other and the files beside them.

        Returns what the log directory's checks need, and all findings.
        """
        reports = self._of_what_is_there(reports)
        segments = [report for report in reports if not report.task.is_kraft_snapshot]
        self._take(reports, has_time_index=any(report.task.files.timeindex for report in segments))
        log_start = self.log.checkpointed_log_start_offset or 0
        is_cleaned = self.log.first_dirty_offset is not None
        if not self.log.directory.is_of_deleted:  # there, a missing segment may have been removed already
            check_gaps(segments, self._files, self._findings, is_cleaned=is_cleaned)
        self._check_index_lengths(segments)
        remote = self.log.remote
        if remote is not None:
            offsets = remote.start, remote.end - 1
            self._findings.add(FindingKind.REMOTE_OFFSETS, self._path, remote.sentence, offsets=offsets)
        ProducerCheck(self._files.snapshots, self._findings, remote).check(segments)
        check_epochs(self._path, segments, log_start, self._findings)
        metadata = self._check_metadata()
        if segments:
            is_from_broker = metadata is not None
            snapshots = self._files.snapshots
            check_presence(self._path, segments, snapshots, self._findings, is_from_broker=is_from_broker)
        check_leftovers(self._path, self._files, self._findings)
        first = segments[0].task.files.base_offset if segments else 0
        end = segments[-1].next_offset if segments else 0
        self._list_below(first, min(log_start, end))
        return PartitionResult(self.log, first, end, metadata), self._findings.all()

    def _of_what_is_there(self, reports: Sequence[SegmentReport]) -> list[SegmentReport]:
        """Return the reports, but without complaints about segments that have changed since they were listed.

        A broker may compact a segment meanwhile. The new segment may cover the offsets of later segments too, and its
        file may reuse the inode number of the listed one.
        """
        if not any(map(_has_complaints, reports)):
            return list(reports)
        self.log.look_again()
        if not self.log.can_be_listed:
            return list(reports)
        there = {segment.files.key: segment.next_base_offset for segment in self.log.segments}
        return [
            report
            if report.task.is_kraft_snapshot
            or there.get(report.task.files.key, -1) == report.task.next_base_offset
            or not _has_complaints(report)
            else _changed(report)
            for report in reports
        ]

    def _take(self, reports: Iterable[SegmentReport], *, has_time_index: bool) -> None:
        for finding in (finding for report in reports for finding in report.findings):
            if finding.kind is FindingKind.TIMEINDEX_MISSING and not has_time_index:
                reason = "no segment has one: brokers before 0.10.1 wrote none"
                finding = replace(finding, severity=Severity.INFO, sentence=reason)
            self._findings.take(finding)

    def _check_index_lengths(self, reports: Sequence[SegmentReport]) -> None:
        """Report offset indexes whose last entries are missing.

        This is a heuristic. Before 4.x, one append gets one entry, however large it is; and a restarted broker counts
        the bytes since the last entry from 0 again. So the check compares with the other segments, and with the time
        index: that gets at most one entry per offset index entry, and one when the segment is closed.
        """
        usual = max((report.index_length.spacing for report in reports if report.index_length is not None), default=0)
        for report in reports:
            files, index = report.task.files, report.index_length
            if index is None or files.index is None or (index.is_preallocated and not report.task.is_closed):
                continue
            closed = 1 + len(report.epochs)  # a broker that restarts usually leads in a new epoch
            far = max(usual * _FAR, INDEX_INTERVAL_BYTES)  # where entries are dense, one more batch is far already
            is_sure = (usual > 0 and index.gap > far) or index.gap > max(usual, _LARGEST_APPEND)
            if not is_sure and index.gap <= max(usual, INDEX_INTERVAL_BYTES) * _FAR:
                continue
            is_sure |= report.time_entries > index.entries + closed * _FAR
            where = "the last entry" if index.entries else "the beginning, and there is no entry"
            reason = f"the last batch is {index.gap} bytes after {where}"
            self._findings.add(
                FindingKind.INDEX_SHORT,
                files.index.path,
                reason,
                bytes=(index.entries * OFFSET_INDEX_ENTRY.size,) * 2,
                offsets=(index.last_offset + 1, max(report.next_offset - 1, index.last_offset + 1)),
                severity=None if is_sure else Severity.INFO,
            )

    def _check_metadata(self) -> PartitionMetadata | None:
        path = os.path.join(self._path, PARTITION_METADATA)
        metadata = parse_file(path, parse_partition_metadata, FindingKind.PARTITION_METADATA_FORMAT, self._findings)
        if metadata is None and self._needs_metadata and not is_there(path):
            reason = "missing: a broker that uses topic ids takes the partition for a stray"
            self._findings.add(FindingKind.PARTITION_METADATA_MISSING, path, reason)
        return metadata

    def _list_below(self, first: int, log_start: int) -> None:
        if first < log_start:
            reason = f"records below the log start offset {log_start} are still here"
            self._findings.add(FindingKind.BELOW_LOG_START, self._path, reason, offsets=(first, log_start - 1))


def _has_complaints(report: SegmentReport) -> bool:
    return any(finding.is_complaint for finding in report.findings)


def _changed(report: SegmentReport) -> SegmentReport:
    """Return the report of a segment that was replaced by another one during the check."""
    path = report.task.files.log.path
    reason = "another segment replaced it during the check"
    finding = Finding(FindingKind.READ_ERROR, Severity.INFO, path, reason)
    return SegmentReport(report.task, (finding,), next_offset=report.task.files.base_offset, is_damaged=True)


def snapshot_ends(files: PartitionFiles, base_offset: int) -> tuple[KnownEnd, ...]:
    """Return the former log end offsets that producer snapshots above the last segment's base offset record."""
    ends = ((offset, found) for offset, found in files.snapshots.items() if offset > base_offset)
    return tuple(KnownEnd(offset, os.path.basename(found.path)) for offset, found in ends)


def _between(offsets: Sequence[int], after: int, before: int | None) -> tuple[int, ...]:
    end = len(offsets) if before is None else bisect_left(offsets, before)
    return tuple(offsets[bisect_right(offsets, after) : end])
