"""Salvaging a log directory, and what every report of that has to be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from kfs.log.storage import Storage
from kfs.recover.log_dir_recovery import recover_copy
from kfs.recover.report import PartitionReport, RecoveryReport
from kfs.recover.salvage_mode import SalvageMode
from kfs.recover.segment_plan import Fate
from tests.corpus import compare, take_manifest
from tests.recover.recordings import CONFIG


def salvage(source: Path, output: Path, *, also: Sequence[Path] = (), undelete: bool = False) -> RecoveryReport:
    """Salvage a log directory, and hold every source to be as it was."""
    before = [take_manifest(each) for each in (source, *also)]
    names = tuple(map(str, also))
    mode = SalvageMode(config=CONFIG, clock=lambda: 0, storage=Storage(), undelete=undelete, also=names)
    report = recover_copy(str(source), str(output), mode)
    for each, manifest in zip((source, *also), before, strict=True):
        assert compare(manifest, take_manifest(each)) == []
    return report


def partition(report: RecoveryReport, name: str = "t-0") -> PartitionReport:
    (found,) = [each for each in report.partitions if Path(each.directory).name == name]
    return found


def check_cover(report: PartitionReport) -> None:
    """Hold a report to account for every byte of every segment, and its losses to be what isn't kept."""
    losses = {(loss.file, loss.start, loss.end) for loss in report.losses}
    gone = set()
    for segment in report.segments:
        ends = [0, *(each.end for each in segment.stretches)]
        assert [each.position for each in segment.stretches] == ends[:-1]
        assert ends[-1] == Path(segment.file).stat().st_size
        assert not any(one.fate is other.fate is Fate.KEPT for one, other in pairwise(segment.stretches))
        gone |= {
            (segment.file, each.position, each.end)
            for each in segment.stretches
            if each.fate in (Fate.LOST, Fate.EXTRA)
        }
    assert losses == gone
