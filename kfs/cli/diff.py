"""``kfs diff``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kfs.cli.json_line import json_line
from kfs.cli.messages import messages, say_what_is_logged, shown
from kfs.cli.options import jobs_option, json_option, max_batch_bytes_option, topic_option
from kfs.cli.progress import progress_bar
from kfs.diff.copies import ComparedPartition, CopyReport, Offsets, State
from kfs.diff.partitions import CompareJob
from kfs.errors import CorruptData
from kfs.log.compare import Place
from kfs.read.workers.cores import cores
from kfs.read.workers.forking import forks_allowed
from kfs.read.workers.run import run

_EXIT_DIFFERENT = 1
_EXIT_FAILED = 2


@click.command()
@click.argument("log_dirs", metavar="LOG_DIR...", nargs=-1, required=True, type=click.Path(readable=False))
@json_option("Print one JSON object a partition.")
@jobs_option
@topic_option
@max_batch_bytes_option
def diff(
    log_dirs: tuple[str, ...], as_json: bool, jobs: int | None, topics: tuple[str, ...], max_batch_bytes: int
) -> None:
    """Compare the copies of each partition in LOG_DIR...: several brokers' disks, or a backup and the original.

    For each partition, print the copy to keep (with the highest leader epoch, then the highest log end offset, as in
    an election), then the others, and where each diverges from it. Only records are compared, not segment boundaries
    or what compaction removed. If all LOG_DIR... are partition directories of different names, they count as copies
    of one partition.

    \b
      kfs diff /mnt/broker1/kafka /mnt/broker2/kafka
      kfs diff --topic 'orders*' /var/lib/kafka/data /backup/kafka

    Exit codes: 0 all copies are the same, 1 some differ or a partition has only one copy, 2 could not compare all.
    """
    say_what_is_logged()
    exit_code = _compare(CompareJob(log_dirs, topics, max_batch_bytes), jobs or cores(), as_json)
    if exit_code:
        raise click.exceptions.Exit(exit_code)


def _compare(job: CompareJob, jobs: int, as_json: bool) -> int:
    here = job.open()
    # The largest first, so that all processes finish at about the same time.
    copies = sorted(here.all_copies(), key=lambda each: -each.size)
    reports: list[ComparedPartition] = []
    failed = False
    with forks_allowed(), progress_bar(sum(each.size for each in copies), "comparing") as advance:
        for each, outcome in zip(copies, run(job, copies, jobs, here=here), strict=True):
            advance(each.size)
            if isinstance(outcome, CorruptData):
                failed = True
                messages.say(str(outcome))
            else:
                reports.append(outcome)
    reports.sort(key=lambda report: (report.topic, report.partition))
    for report in reports:
        click.echo(json_line(report, differs=report.differs) if as_json else "\n".join(map(shown, _lines(report))))
    differing = sum(report.differs for report in reports)
    if not as_json:
        click.echo(_summary(reports, differing))
    if failed:
        return _EXIT_FAILED
    return _EXIT_DIFFERENT if differing else 0


def _summary(reports: list[ComparedPartition], differing: int) -> str:
    copies = sum(len(report.copies) for report in reports)
    return f"{len(reports)} partitions, {copies} copies: {len(reports) - differing} the same, {differing} differ"


def _lines(report: ComparedPartition) -> Iterator[str]:
    name = f"{report.topic}-{report.partition}"
    if len(report.copies) < 2:
        yield f"{name}: only one copy, {report.copies[0].path}"
        return
    yield f"{name}: {len(report.copies)} copies {'differ' if report.differs else 'are the same'}"
    for copy in report.copies:
        yield f"  {copy.state.value:<9}{copy.path}"
        yield f"    offsets {copy.log_start_offset} to {copy.log_end_offset}, {_epochs(copy)}, {copy.size:,} bytes"
        yield from (f"    {line}" for line in _details(copy))


def _epochs(copy: CopyReport) -> str:
    if not copy.leader_epochs:
        return f"leader epoch {copy.last_leader_epoch}"
    return "leader epochs " + ", ".join(
        f"{entry.leader_epoch} from {entry.start_offset}" for entry in copy.leader_epochs
    )


def _details(copy: CopyReport) -> Iterator[str]:
    if copy.divergence is not None:
        divergence = copy.divergence
        yield f"diverges at offset {divergence.offset}: {divergence.reason}"
        yield from (f"  {_place(place)}" for place in (divergence.first, divergence.second) if place is not None)
    yield from (f"lacks {_offsets(offsets)}" for offsets in copy.lacks)
    yield from (f"only here: {_offsets(offsets)}" for offsets in copy.only_here)
    if copy.problems and copy.state is not State.DIVERGED:
        yield f"problems: {len(copy.problems)}, see kfs verify"


def _place(place: Place) -> str:
    return f"{place.file} position {place.position}, leader epoch {place.leader_epoch}"


def _offsets(offsets: Offsets) -> str:
    which = f"offset {offsets.first}" if offsets.first == offsets.last else f"offsets {offsets.first} to {offsets.last}"
    count = "" if offsets.records < 0 else f", {offsets.records} records"
    return f"{which}{count}: {offsets.why}{_completed(offsets)}"


def _completed(offsets: Offsets) -> str:
    """Return how many of the records are read from other copies, if the copy to keep has lost them."""
    if not offsets.completed:
        return ""
    which = "all are" if offsets.completed == offsets.records else f"{offsets.completed} of them are"
    return f"; {which} read from other copies, given beside it"
