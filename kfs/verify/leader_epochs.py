"""Check of ``leader-epoch-checkpoint`` against the leader epochs of the batches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

from kfs.format.checkpoint import EpochEntry, parse_leader_epoch_checkpoint
from kfs.format.layout import MAX_INT64
from kfs.log.leader_epochs import LeaderEpochs
from kfs.log.partition_directory import LEADER_EPOCH_CHECKPOINT
from kfs.storage.status import is_there
from kfs.verify.epoch_runs import EpochRun
from kfs.verify.finding import FindingKind, Findings
from kfs.verify.segment import SegmentReport
from kfs.verify.side_files import parse_file


def check_epochs(directory: str, reports: Sequence[SegmentReport], log_start: int, findings: Findings) -> None:
    """Check a partition's leader epoch checkpoint and its segments' epochs; batches below ``log_start`` don't count."""
    runs = _joined_runs(reports, findings)
    path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
    entries = parse_file(path, parse_leader_epoch_checkpoint, FindingKind.EPOCHS_FORMAT, findings)
    if entries is None:
        if runs and not is_there(path):
            findings.add(
                FindingKind.EPOCHS_MISSING, path, f"the file is missing, and batches have epochs up to {runs[-1].epoch}"
            )
        return
    for before, entry in pairwise(entries):
        if entry.leader_epoch <= before.leader_epoch or entry.start_offset <= before.start_offset:
            reason = f"epoch {entry.leader_epoch} from offset {entry.start_offset} after epoch {before.leader_epoch}"
            findings.add(FindingKind.EPOCHS_ORDER, path, f"{reason} from {before.start_offset}")
    epochs = LeaderEpochs(entries).entries
    if reports and epochs and epochs[-1].start_offset > reports[-1].next_offset:
        offset = epochs[-1].start_offset
        reason = f"epoch {epochs[-1].leader_epoch} begins at offset {offset}, the log ends at {reports[-1].next_offset}"
        findings.add(FindingKind.EPOCHS_PAST_END, path, reason, offsets=(offset, offset))
    _compare(path, epochs, [run for run in runs if run.last_offset >= log_start], findings)


def _joined_runs(reports: Sequence[SegmentReport], findings: Findings) -> list[EpochRun]:
    """Return the epoch runs of all segments; report epochs lower than in an earlier segment."""
    runs: list[EpochRun] = []
    for report in reports:
        for run in report.epochs:
            if not runs or run.epoch > runs[-1].epoch:
                runs.append(run)
            elif run.epoch == runs[-1].epoch:
                first = runs[-1]
                runs[-1] = EpochRun(run.epoch, first.first_offset, run.last_offset, first.position)
            else:
                findings.add(
                    FindingKind.BATCH_EPOCH,
                    report.task.files.log.path,
                    f"leader epoch {run.epoch} after {runs[-1].epoch} in an earlier segment",
                    bytes=(run.position, run.position),
                    offsets=(run.first_offset, run.last_offset),
                )
    return runs


def _compare(path: str, epochs: Sequence[EpochEntry], runs: Sequence[EpochRun], findings: Findings) -> None:
    """Report batches outside the offset range of their epoch; an epoch without batches is legal.

    The first entry's start offset isn't compared: retention, DeleteRecords and snapshots move it up.
    """
    if not epochs:
        return
    runs = [run for run in runs if run.last_offset >= epochs[0].start_offset]
    starts = {entry.leader_epoch: entry.start_offset for entry in epochs}
    ends = {entry.leader_epoch: following.start_offset for entry, following in pairwise(epochs)}
    for run in runs:
        start, end = starts.get(run.epoch), ends.get(run.epoch, MAX_INT64)
        if start is None:
            reason = f"batches have epoch {run.epoch}, which the file lacks"
        elif run.first_offset < start != epochs[0].start_offset:
            reason = f"epoch {run.epoch} begins at {start}, but a batch at offset {run.first_offset} has it"
        elif run.last_offset >= end:
            reason = f"epoch {run.epoch} ends before {end}, but a batch at offset {run.last_offset} has it"
        else:
            continue
        findings.add(FindingKind.EPOCHS_CONTRADICTION, path, reason, offsets=(run.first_offset, run.last_offset))
