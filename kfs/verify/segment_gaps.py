"""Offsets missing between segments: lost with a segment, or removed by compaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kfs.format.layout import MAGIC_V2
from kfs.log.missing import Evidence, Gap, evidence_of, missing_sentence, snapshot_in
from kfs.log.offset_range import OffsetRange
from kfs.log.segment_files import PartitionFiles, SegmentFiles
from kfs.verify.finding import FindingKind, Findings, Severity
from kfs.verify.segment import SegmentReport


def check_gaps(
    reports: Sequence[SegmentReport], files: PartitionFiles, findings: Findings, *, is_cleaned: bool
) -> None:
    """Report missing offsets between segments, unless compaction explains them.

    ``is_cleaned`` says whether the cleaner offset checkpoint has the log. Readers report proven gaps by the same rule.
    """
    witness = _ReportWitness(reports, files)
    for at, (before, after) in enumerate(pairwise(reports)):
        gap = Gap(at, OffsetRange(before.next_offset, after.task.files.base_offset))
        if gap.offsets.start >= gap.offsets.end:
            continue
        snapshot = snapshot_in(gap, witness)
        if snapshot is None and before.is_damaged:
            continue
        evidence = evidence_of(gap, witness, is_cleaned=is_cleaned, has_checkpoint=False)
        if evidence is Evidence.NONE:
            continue
        reason, severity = missing_sentence(gap.offsets), None
        if evidence is Evidence.DOUBTFUL:
            assert snapshot is not None
            severity = Severity.INFO
            reason += f", removed by compaction, or lost with a segment that {snapshot.name} belongs to"
        elif snapshot is not None:
            reason += f", and {snapshot.name} belongs to one that began there"
        offsets = gap.offsets.start, gap.offsets.end - 1
        findings.add(FindingKind.OFFSET_GAP, after.task.files.log.path, reason, offsets=offsets, severity=severity)


class _ReportWitness:
    """The segment facts from the check's reports: see :class:`~kfs.log.missing.SegmentFacts`."""

    def __init__(self, reports: Sequence[SegmentReport], files: PartitionFiles) -> None:
        self._reports = reports
        self.files = files
        self.snapshots = sorted(files.snapshots)

    def __len__(self) -> int:
        return len(self._reports)

    def segment(self, at: int) -> SegmentFiles:
        return self._reports[at].task.files

    def size(self, at: int) -> int:
        return self._reports[at].size

    def has_holes(self, at: int) -> bool:
        return self._reports[at].has_holes and not self._reports[at].is_damaged

    def has_record_batches(self, at: int) -> bool:
        return MAGIC_V2 in self._reports[at].magics

    def epochs(self, at: int) -> tuple[int, int] | None:
        epochs = self._reports[at].epochs
        return (epochs[0].epoch, epochs[-1].epoch) if epochs else None
