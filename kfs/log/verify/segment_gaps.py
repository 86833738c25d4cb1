"""Offsets that are missing between segments: lost with a segment, or what compaction leaves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from kfs.format.layout import MAGIC_V2
from kfs.log.verify.finding import Findings, Kind, Severity
from kfs.log.verify.segment import SegmentReport
from kfs.storage.listing import FoundFile
from kfs.storage.status import status_at

_UNKNOWN: Final = 0


def check_gaps(
    reports: Sequence[SegmentReport], snapshots: Mapping[int, FoundFile], findings: Findings, *, is_compacted: bool
) -> None:
    """Say which offsets are missing, unless only compaction tells of it; ``is_compacted`` is what the checkpoint says.

    A producer snapshot is written where each segment begins, and goes with it when the cleaner merges it into another
    (``UnifiedLog.replaceSegments``). So one that lies in a gap tells of a segment that was lost.
    """
    is_compacted = is_compacted or any(report.has_holes and not report.is_damaged for report in reports)
    has_all = _has_all_snapshots(reports, snapshots)
    for before, after in pairwise(reports):
        start, end = before.next_offset, after.task.files.base_offset
        told = [offset for offset in snapshots if max(start, before.task.files.base_offset + 1) <= offset < end]
        if start >= end or (not told and (is_compacted or before.is_damaged)):
            continue
        reason = f"offsets {start} to {end - 1} are missing before this segment"
        severity = None
        if told:
            name = os.path.basename(snapshots[min(told)].path)
            if not is_compacted or (has_all and _may_begin_a_segment(snapshots[min(told)], before, after)):
                reason += f", and {name} tells of one that began there"
            else:
                severity = Severity.INFO
                reason += f", by compaction, or with a segment that {name} tells of"
        findings.add(Kind.OFFSET_GAP, after.task.files.log.path, reason, offsets=(start, end - 1), severity=severity)


def _has_all_snapshots(reports: Sequence[SegmentReport], snapshots: Mapping[int, FoundFile]) -> bool:
    """Whether each segment has one, as with brokers since 2.8; earlier ones also leave some of segments merged away."""
    from_magic = next((at for at, report in enumerate(reports) if MAGIC_V2 in report.magics), len(reports))
    return all(report.task.files.base_offset in snapshots for report in reports[from_magic + 1 :])


def _may_begin_a_segment(snapshot: FoundFile, before: SegmentReport, after: SegmentReport) -> bool:
    """Whether it can't be that of a clean stop, after which the segment before it was appended to.

    The leader epoch may be another one then, and the segment's time, which compaction keeps, is a later one.
    """
    if before.epochs and after.epochs and before.epochs[-1].epoch != after.epochs[0].epoch:
        return False
    return _modified(before.task.files.log) <= _modified(snapshot)


def _modified(found: FoundFile) -> int:
    try:
        return status_at(found.path).mtime_ns
    except OSError:  # gone meanwhile
        return _UNKNOWN
