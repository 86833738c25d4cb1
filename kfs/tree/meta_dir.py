"""``meta/``: Kafka's data about a log besides its records, and the problems that kfs found."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kfs.errors import CorruptData
from kfs.log.log import Log
from kfs.log.problem import Problem, Problems
from kfs.log.segment import Segment
from kfs.log.span import Span, consecutive_spans
from kfs.render.state_json import aborted_txn_fields, leader_epoch_fields, producer_fields
from kfs.tree.context import status_of
from kfs.tree.files import CostlyGeneratedFile, FixedDirectory, GeneratedFile, Maker
from kfs.tree.line_files import LogFile
from kfs.tree.lines.batch_lines import batch_lines
from kfs.tree.lines.source import BlockLines
from kfs.tree.lines.text import LogText, SegmentText
from kfs.tree.partition_view import PartitionView

if TYPE_CHECKING:
    from kfs.verify.finding import Finding

#: After a rename of a log's file this recent, the next may be about to happen.
_RECENTLY_NS: Final = 1_000_000_000
#: How long, in seconds, and how often to wait for it: a broker renames at once, unless the machine is busy.
_NEXT_RENAME_SECONDS: Final = 0.25
_MOST_WAITS: Final = 4
#: Files that may need a pass over records: for open transactions, and for all problems.
_COSTLY: Final = ("log.json", "problems.jsonl")


def meta_directory(partition: PartitionView, path: str, more: Mapping[str, Maker]) -> FixedDirectory:
    """Return the directory at ``path``; ``more`` are the files not made here."""

    def generated(name: str, produce: Callable[[PartitionView], bytes]) -> GeneratedFile:
        owner, _ = status_of(partition.log.directory.path)
        kind = CostlyGeneratedFile if name in _COSTLY else GeneratedFile
        return kind(context, f"{path}/{name}", owner, partition.mtime_ns, partial(produce, partition))

    context = partition.context
    names: dict[str, Callable[[PartitionView], bytes]] = {
        "log.json": _log,
        "segments.jsonl": _segments,
        "leader-epochs.jsonl": _leader_epochs,
        "producers.jsonl": _producers,
        "aborted-transactions.jsonl": _aborted_transactions,
    }
    listed = {name: partial(generated, name, produce) for name, produce in names.items()}
    return FixedDirectory(
        context,
        path,
        partition.log.directory.path,
        {
            **listed,
            **more,
            "batches.jsonl": partial(_batches, partition, f"{path}/batches.jsonl"),
            "problems.jsonl": partial(generated, "problems.jsonl", _problems),
        },
    )


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return one JSON object a line."""
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def problem_lines(problems: Problems) -> bytes:
    """Return a line for each problem: file, position and size in bytes (0: unknown), reason, kind."""
    return json_lines(map(asdict, problems.with_rest()))


def _log(partition: PartitionView) -> bytes:
    """Return start and end of the log by each authority; ``missing`` are offsets that the log should have."""
    log = partition.log
    metadata = log.partition_metadata()
    segments = log.segments
    checkpoint = log.checkpointed_log_start_offset
    first = segments[0].base_offset if segments else None
    missing = None
    if checkpoint is not None and first is not None and checkpoint < first:
        missing = {"from": checkpoint, "to": first, "reason": "below the first local segment: deleted"}
    if log.remote is not None:
        missing = {"from": log.remote.start, "to": log.remote.end, "reason": log.remote.sentence}
    fields = {
        "topic": log.topic,
        "partition": log.partition,
        "topicId": str(metadata.topic_id) if metadata else None,
        "directory": log.directory.path,
        "kind": log.directory.name.kind.value,
        "segments": len(segments),
        "size": log.size(),
        "firstBaseOffset": first,
        "logStartOffset": log.log_start_offset,
        "logStartOffsetCheckpoint": checkpoint,
        "highWatermarkCheckpoint": log.high_watermark,
        "lastStableOffset": partition.transactions.last_stable_offset(),
        "logEndOffset": log.log_end_offset,
        "lastLeaderEpoch": log.last_leader_epoch(),
        "missing": missing,
    }
    return json_lines([fields])


def _segments(partition: PartitionView) -> bytes:
    def row(segment: Segment) -> dict[str, Any]:
        files = segment.files
        sides = {"index": files.index, "timeindex": files.timeindex, "txnindex": files.txnindex}
        return {
            "baseOffset": segment.base_offset,
            "file": files.log.path,
            "size": segment.file().size() if segment.is_frozen else segment.size(),
            "active": segment.is_last,
            **{name: found is not None for name, found in sides.items()},
        }

    return json_lines(map(row, partition.log.segments))


def _leader_epochs(partition: PartitionView) -> bytes:
    return json_lines(map(leader_epoch_fields, partition.log.leader_epochs()))


def _producers(partition: PartitionView) -> bytes:
    """Return the producers of the newest readable snapshot, in Kafka's terms."""
    last = max(partition.log.producer_snapshots(), key=lambda pair: pair[0], default=None)
    if last is None:
        return b""
    offset, entries = last
    return json_lines({"snapshotOffset": offset, **producer_fields(entry)} for entry in entries)


def _aborted_transactions(partition: PartitionView) -> bytes:
    return json_lines(
        {"segment": segment.base_offset, **aborted_txn_fields(entry)}
        for segment, entry in partition.log.aborted_transactions()
    )


def _batches(partition: PartitionView, path: str) -> LogFile:
    def text_of(span: Span, _start: int | None) -> SegmentText:
        return partition.lines.text_of(span.segment, "batches", BlockLines(batch_lines))

    return LogFile.of(partition, path, LogText(lambda: consecutive_spans(partition.log.segments), text_of))


def _is_renaming(log: Log, renamed_ns: int) -> bool:
    """Wait briefly for another rename of the log's files after the one at ``renamed_ns``; return whether it came."""
    for _ in range(_MOST_WAITS):
        if log.renamed_ns != renamed_ns or time.time_ns() - renamed_ns >= _RECENTLY_NS:
            break
        time.sleep(_NEXT_RENAME_SECONDS)
    return log.renamed_ns != renamed_ns


def _problems(partition: PartitionView) -> bytes:
    """Return the problems found while the log was read, and all other findings of ``kfs verify`` in the partition.

    To be complete it checks every segment, each time. A torn tail is left out: a reader ends there, and it may
    be in the middle of a write.
    """
    # Imported here to load it on demand only.
    from kfs.verify.finding import FindingKind
    from kfs.verify.partition import PartitionCheck
    from kfs.verify.segment import check_segment

    log = partition.log
    _ = log.log_start_offset
    renamed_ns = log.renamed_ns
    log.look_again()  # what is listed is at least as new
    check = PartitionCheck(log, is_stopped=False, needs_metadata=False)
    reports = [check_segment(task, log.storage) for task in check.tasks]
    _, found = check.finish(reports)
    findings = [each for each in found if each.is_complaint and each.kind is not FindingKind.TORN_TAIL]
    # While a broker renames one file after another, files beside the segments mean nothing.
    listed = {path for path in (segment.files.log.path for segment in log.segments) if not path.endswith(".swap")}
    if not all(finding.file in listed for finding in findings) and _is_renaming(log, renamed_ns):
        findings = [finding for finding in findings if finding.file in listed]
    log.complete({finding.file for finding in findings})
    for finding in findings:
        log.problems.add(_problem_of(finding, log))
    own = problem_lines(log.problems)
    log_dir = log.directory.log_dir
    return own + problem_lines(log_dir.problems) if log_dir is not None else own


def _problem_of(finding: Finding, log: Log) -> Problem:
    """Return a finding as a problem, at the place where readers report it, so that it is listed once."""
    from kfs.verify.finding import FindingKind

    start, end = finding.bytes or (0, 0)
    if finding.kind is FindingKind.OFFSET_GAP and finding.offsets is not None:  # reported for the segment before
        before = log.segment_for(finding.offsets[0])
        if before is not None:
            with suppress(CorruptData):
                return Problem(before.files.log.path, before.tail()[0], 0, finding.sentence, finding.kind)
    return Problem(finding.file, start, end - start, finding.sentence, finding.kind)
