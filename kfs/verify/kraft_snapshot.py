"""KRaft snapshots (``<offset>-<epoch>.checkpoint``, ``bootstrap.checkpoint``): batches between header and footer."""

from __future__ import annotations

import re
from typing import Final

from kfs.format.control_record import ControlRecordType
from kfs.format.layout import MAX_INT64
from kfs.log.segment_files import SegmentFiles
from kfs.storage.listing import FoundFile
from kfs.verify.batches import BatchAudit
from kfs.verify.finding import FindingKind, Findings
from kfs.verify.segment_task import SegmentTask

#: The name of a snapshot: its end offset and epoch (``Snapshots.java``).
KRAFT_SNAPSHOT: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint\Z")


def kraft_task(found: FoundFile) -> SegmentTask:
    """Return the task that checks a KRaft snapshot: a complete file of batches with offsets from 0 on."""
    return SegmentTask(SegmentFiles(0, found), MAX_INT64, is_stopped=True, is_kraft_snapshot=True)


def check_kraft_snapshot(batches: BatchAudit, next_offset: int, file: str, findings: Findings) -> None:
    """Check that a header record comes first and a footer record last (``RecordsSnapshotWriter``)."""
    first, last = batches.controls
    if first != (ControlRecordType.SNAPSHOT_HEADER, 0):
        findings.add(FindingKind.KRAFT_SNAPSHOT, file, "its first record is not a SNAPSHOT_HEADER", bytes=(0, 0))
    if last != (ControlRecordType.SNAPSHOT_FOOTER, next_offset - 1):
        findings.add(
            FindingKind.KRAFT_SNAPSHOT, file, "its last record is not a SNAPSHOT_FOOTER: the snapshot is incomplete"
        )
