"""Copies a partition with every intact batch, in log order, and accounts for the rest.

Kept batches go byte for byte into segments with the same base offsets. Lost batches leave holes, which are legal:
compaction leaves them too. A broker's own recovery (:class:`~kfs.broker_log.log_loader.LogLoader`) then rebuilds all
other files, and finds nothing to truncate.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kfs.broker_log.log_loader import LoadParameters
from kfs.broker_log.log_segment import segment_path
from kfs.broker_log.unified_log import UnifiedLog
from kfs.errors import CorruptData
from kfs.format.checkpoint import parse_leader_epoch_checkpoint
from kfs.format.layout import MAX_INT32
from kfs.format.partition_metadata import parse_partition_metadata
from kfs.log.offset_range import OffsetRange
from kfs.log.partition_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from kfs.recover.completion import Completed
from kfs.recover.copying import copy_file, copy_range
from kfs.recover.log_dir_recovery import Mode
from kfs.recover.losses import Gone, consequences
from kfs.recover.reachable_end import make_end_reachable
from kfs.recover.report import Change, Loss, PartitionReport, SegmentAccount
from kfs.recover.salvage_plan import SalvagePlan, SegmentPlan
from kfs.recover.segment_plan import Fate, Stretch
from kfs.storage.listing import FoundFile
from kfs.storage.open_files import OpenFile
from kfs.storage.side_file import read_side_file
from kfs.storage.status import kind_at

#: The directory inside the partition's for batches whose offsets don't fit the log. Brokers ignore it.
EXTRA: Final = "extra"
#: Positions in a segment are int32 (``FileRecords``).
_MOST_BYTES: Final = MAX_INT32
#: Suffixes that an interrupted write or deletion leaves on files that belong to no segment.
_LEFT_OUT: Final = (".tmp", ".part", ".deleted", ".swap", ".cleaned")


#: Files that keep a broker from starting if they can't be parsed.
_CHECKED: Final[dict[str, Callable[[bytes], object]]] = {
    PARTITION_METADATA: parse_partition_metadata,
    LEADER_EPOCH_CHECKPOINT: parse_leader_epoch_checkpoint,
}


def salvage_partition(
    plan: SalvagePlan, others: Iterable[FoundFile], directory: str, mode: Mode, report: PartitionReport
) -> UnifiedLog:
    """Write a copy of a log to the new directory ``directory``, fill in ``report``, and return the copy, closed.

    ``others`` are files to copy that belong to no segment.

    Raises:
        CorruptData: a source file changed meanwhile.
        RecoveryRefused: a broker refuses to start on what is left.
        OSError: a file can't be written.
    """
    log = plan.arrangement.log
    os.mkdir(directory)
    shutil.copystat(log.directory.path, directory)
    for segment in plan.segments:
        _write_segment(segment, directory)
    gone = [each for completed, account in plan.accounts() for each in _tell(completed, account, report)]
    report.losses += plan.refused()
    report.taken += plan.taken()
    report.changes += plan.arrangement.changes
    for source in plan.sources:
        if source.failure is not None:
            what = f"no more records are taken from it: {source.failure}"
            report.changes.append(Change(source.log.directory.path, what))
    _copy_other_files(others, directory, report)
    end_made_reachable = make_end_reachable(plan, directory)
    parameters = LoadParameters(log_start_offset=log.log_start_offset)
    copy = UnifiedLog.open(directory, mode.config, parameters, clock=mode.clock)
    copy.close()
    report.consequences += consequences(log, gone, plan.producers.entries(), plan.restored, plan.missing())
    report.consequences += [] if end_made_reachable is None else [end_made_reachable]
    report.log_start_offset, report.log_end_offset = copy.log_start_offset, copy.log_end_offset
    return copy


def _write_segment(plan: SegmentPlan, directory: str) -> None:
    segment, kept = plan.segment, plan.of_fate(Fate.KEPT)
    path = segment_path(directory, segment.base_offset, ".log")
    if len(kept) == len(plan.stretches) == 1 and not plan.is_patched:
        copy_file(segment.files.log.path, path)
    elif kept or segment.is_last:  # even an empty last segment sets the log end offset
        for base_offset, stretches in _parts(plan) if plan.is_patched and kept else [(segment.base_offset, kept)]:
            _write(segment_path(directory, base_offset, ".log"), [(segment.file(), stretches)])
    extra = [(segment.file(), plan.of_fate(Fate.EXTRA))]
    extra.append((plan.raw.file(), [each for each in plan.beside if each.fate is Fate.EXTRA]))
    if any(stretches for _, stretches in extra):
        beside = os.path.join(directory, EXTRA)
        os.makedirs(beside, exist_ok=True)
        _write(segment_path(beside, segment.base_offset, ".log"), extra)


def _parts(plan: SegmentPlan) -> Iterator[tuple[int, Sequence[Stretch]]]:
    """Split the kept part of a patched segment into segments that a broker can open, each with its base offset."""
    base_offset, size, part = plan.segment.base_offset, 0, list[Stretch]()
    position = 0
    for run, stretch in plan.patches():
        if stretch.fate is not Fate.KEPT:
            continue
        length = run.end - run.start
        position = max(position, stretch.position)
        if part and size + length > _MOST_BYTES:
            yield base_offset, part
            base_offset, size, part = run.first, 0, []
        part.append(Stretch(position, position + length, Fate.KEPT, run.first, run.last))
        position, size = position + length, size + length
    yield base_offset, part


def _write(path: str, content: Iterable[tuple[OpenFile, Sequence[Stretch]]]) -> None:
    """Write stretches of files one after the other."""
    with open(path, "xb") as file:
        for source, stretches in content:
            begin = file.tell()
            for stretch in stretches:
                copy_range(source, stretch.position, stretch.end, file.fileno())
            if file.tell() - begin != sum(stretch.end - stretch.position for stretch in stretches):
                raise CorruptData("the file became shorter while it was copied", 0, source.path)
            for stretch in stretches:
                failure = source.read_error(stretch.position, stretch.end - stretch.position)
                if failure is not None:
                    raise CorruptData(failure, stretch.position, source.path)


def _tell(completed: Completed, account: SegmentAccount, report: PartitionReport) -> Iterator[Gone]:
    """Report the fate of a segment's file, and yield the stretches that are gone."""
    report.segments.append(account)
    for stretch in account.stretches:
        if stretch.fate is Fate.PADDING:
            what = f"{stretch.end - stretch.position} bytes of zeros left out at byte {stretch.position}"
            report.changes.append(Change(account.file, what))
        elif stretch.fate in (Fate.LOST, Fate.EXTRA):
            ranges = completed.lost_in(stretch)
            report.losses += (_loss(account.file, stretch, offsets) for offsets in ranges or (None,))
            yield completed.segment, stretch


def _loss(path: str, stretch: Stretch, offsets: OffsetRange | None) -> Loss:
    first, last = (None, None) if offsets is None else (offsets.start, offsets.end - 1)
    is_aside = stretch.fate is Fate.EXTRA
    return Loss(path, stretch.position, stretch.end, first, last, stretch.reason, set_aside=is_aside)


def _copy_other_files(others: Iterable[FoundFile], directory: str, report: PartitionReport) -> None:
    """Copy the files that can't be rebuilt from the log, such as KRaft snapshots; skip leftovers and corrupt files."""
    for found in others:
        name = os.path.basename(found.path)
        if name.endswith(_LEFT_OUT) or not kind_at(found.path).may_be_file:
            report.changes.append(Change(found.path, "left out"))
            continue
        try:
            if name in _CHECKED:
                read_side_file(found.path, _CHECKED[name])
            copy_file(found.path, os.path.join(directory, name))
        except CorruptData as error:
            report.changes.append(Change(found.path, f"left out: at byte {error.position}: {error.reason}"))
