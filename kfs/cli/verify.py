"""``kfs verify``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from kfs.cli.messages import shown
from kfs.cli.options import jobs_option, json_option, max_batch_bytes_option, topic_option
from kfs.cli.progress import progress_bar
from kfs.internal.broker_state import BrokerState
from kfs.log.directory_name import topic_filter
from kfs.log.storage import Storage
from kfs.read.workers.cores import cores
from kfs.read.workers.forking import forks_allowed
from kfs.storage.memory import collect_garbage_less, keep_freed_memory
from kfs.verify.finding import Finding, Severity
from kfs.verify.job import reports_of
from kfs.verify.segment import SegmentReport
from kfs.verify.verification import Verification, VerifyTotals

EXIT_FINDINGS: Final = 1


@click.command()
@click.argument("paths", metavar="LOG_DIR|FILE...", nargs=-1, required=True, type=click.Path(readable=False))
@jobs_option
@json_option("One JSON object a finding, the summary last.")
@topic_option
@max_batch_bytes_option
def verify(
    paths: tuple[str, ...], jobs: int | None, as_json: bool, topics: tuple[str, ...], max_batch_bytes: int
) -> None:
    """Check all of Kafka's files in LOG_DIR..., and report what is wrong; nothing is written.

    It reads every batch of every segment and checks the records, and compares indexes, transaction indexes, producer
    snapshots, leader epochs and checkpoints with the batches. What healthy brokers from 0.8 to 4.x leave is not a
    finding. FILE is a single file: a .log, an index, a .snapshot, a checkpoint.

    docs/VERIFY.md says what each kind of finding means and what to do.

    \b
    Exit codes: 0 clean (there may be findings of severity info), 1 findings, 2 it could not run.
    """
    totals = _verify(paths, jobs or cores(), _json_line if as_json else _line, topics, max_batch_bytes)
    click.echo(_json_summary(totals) if as_json else _summary(totals))
    if not totals.is_clean:
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _verify(
    paths: tuple[str, ...],
    jobs: int,
    line_of: Callable[[Finding], str],
    topics: tuple[str, ...],
    max_batch_bytes: int,
) -> VerifyTotals:
    collect_garbage_less()
    keep_freed_memory()
    storage = Storage(max_batch_bytes=max_batch_bytes)
    verification = Verification(paths, storage, topic_filter=topic_filter(topics))
    BrokerState(verification.data_dir)  # so that data_dir knows which topics are tiered
    with forks_allowed(), progress_bar(verification.size, "checking") as advance:
        reports = _counted(reports_of(verification.tasks(), jobs, max_batch_bytes), advance)
        for finding in verification.run(reports):
            sys.stdout.write(line_of(finding) + "\n")
    storage.close()
    return verification.totals


def _counted(reports: Iterator[SegmentReport], advance: Callable[[int], None]) -> Iterator[SegmentReport]:
    for report in reports:
        advance(report.size)
        yield report


def _line(finding: Finding) -> str:
    where = shown(os.path.relpath(finding.file)) if _is_below_here(finding.file) else shown(finding.file)
    if finding.bytes is not None:
        where += f", bytes {finding.bytes[0]} to {finding.bytes[1]}"
    if finding.offsets is not None:
        where += f", offsets {finding.offsets[0]} to {finding.offsets[1]}"
    return f"{finding.severity:<7} {finding.kind} {where}: {shown(finding.sentence)}"


def _is_below_here(path: str) -> bool:
    return path.startswith(os.path.join(os.getcwd(), ""))


def _summary(totals: VerifyTotals) -> str:
    found = ", ".join(
        f"{count} {'error' if severity is Severity.ERROR else severity}{'s' if count != 1 else ''}"
        for severity, count in totals.findings.items()
        if severity is not Severity.INFO
    )
    return (
        f"{totals.segments:,} segments, {totals.bytes:,} bytes, {totals.batches:,} batches, {totals.records:,} records:"
        f" {found}, {totals.findings[Severity.INFO]} info"
    )


def _json_line(finding: Finding) -> str:
    first, last = finding.offsets or (None, None)
    start, end = finding.bytes or (None, None)
    fields: dict[str, Any] = {
        "kind": finding.kind,
        "severity": finding.severity,
        "file": finding.file,
        "startByte": start,
        "endByte": end,
        "firstOffset": first,
        "lastOffset": last,
        "sentence": finding.sentence,
    }
    return json.dumps(fields)


def _json_summary(totals: VerifyTotals) -> str:
    return json.dumps(
        {
            "summary": {
                "segments": totals.segments,
                "bytes": totals.bytes,
                "batches": totals.batches,
                "records": totals.records,
                "findings": totals.findings,
                "clean": totals.is_clean,
            }
        }
    )
