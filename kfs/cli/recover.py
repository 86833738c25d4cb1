"""``kfs recover``."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from kfs.broker_log.index_builder import INDEX_INTERVAL_BYTES, MAX_INDEX_BYTES
from kfs.broker_log.log_config import LogConfig
from kfs.cli.json_line import json_line
from kfs.cli.messages import messages, shown
from kfs.cli.options import also_option, bytes_option, choice_option, json_option, max_batch_bytes_option, output_option
from kfs.cli.progress import progress_bar
from kfs.errors import RecoveryRefused
from kfs.log.producer_state import PRODUCER_ID_EXPIRATION_MS
from kfs.log.storage import Storage
from kfs.recover.kafka_mode import KafkaMode, recover_in_place
from kfs.recover.log_dir_recovery import Recoverable, recover_copy
from kfs.recover.report import RecoveryReport
from kfs.recover.salvage_mode import SalvageMode

EXIT_LOST = 1
#: The report file in the output, with the same lines as ``--json``; brokers ignore it.
REPORT = "kfs-recovery-report.jsonl"


@click.command()
@click.argument("log_dir", metavar="LOG_DIR", type=click.Path(readable=False))
@output_option("DIR", "Where the copy goes: an empty directory, or a new one.", type=click.Path(readable=False))
@click.option("--in-place", is_flag=True, help="Change LOG_DIR itself; this can't be undone.")
@click.option("--yes", is_flag=True, help="Don't ask before LOG_DIR is changed.")
@choice_option(
    "--mode",
    values=["salvage", "kafka"],
    default=None,
    help_text="salvage: keep every intact batch. kafka: what a broker's own recovery leaves; all after the first bad"
    " batch is lost.  [default: salvage; with --in-place kafka]",
)
@click.option("--unclean", is_flag=True, help="kafka: recover unflushed segments even after a clean shutdown.")
@also_option
@click.option("--undelete", is_flag=True, help="salvage: restore deleted records that are still on the disk.")
@click.option(
    "--index-interval-bytes",
    type=click.IntRange(0),
    default=INDEX_INTERVAL_BYTES,
    show_default=True,
    help="The broker's log.index.interval.bytes, or its topics' index.interval.bytes.",
)
@bytes_option(
    "--segment-index-bytes",
    default=MAX_INDEX_BYTES,
    shown="10M",
    help_text="The broker's log.index.size.max.bytes.",
)
@click.option(
    "--producer-expiration-ms",
    type=click.IntRange(1),
    default=PRODUCER_ID_EXPIRATION_MS,
    show_default=True,
    help="The broker's producer.id.expiration.ms.",
)
@max_batch_bytes_option
@json_option("Report as one JSON object a line.")
def recover(
    log_dir: str,
    output: str | None,
    in_place: bool,
    yes: bool,
    mode: str | None,
    unclean: bool,
    also: tuple[str, ...],
    undelete: bool,
    index_interval_bytes: int,
    segment_index_bytes: int,
    producer_expiration_ms: int,
    max_batch_bytes: int,
    as_json: bool,
) -> None:
    """Make a copy of LOG_DIR that a broker can start on, and report exactly what was lost.

    LOG_DIR is one of a broker's log.dirs, or one partition's directory in it, and is only read. Every
    intact batch is kept, at its offset and in the segment where it belongs, after damage too: files
    whose names were exchanged get their own again. Intact batches with impossible offsets go to
    extra/ in their partition's directory. Indexes, producer snapshots, leader epochs and checkpoints
    are rebuilt. The report, also in kfs-recovery-report.jsonl in the output, has each loss by byte
    and offset range, and its consequences.

    Records that LOG_DIR has lost are taken from copies that --also names, if they are proven to share
    the log's history, from deleted segments, and from those that a damaged compaction was to replace.
    The report names each source.

    With --mode kafka the copy is what Kafka 4.3 leaves when it recovers LOG_DIR and is then stopped:
    truncated at the first bad batch of a partition, later segments deleted. If a broker would not
    start, there is no copy, and the reasons are reported.

    \b
      kfs recover /var/lib/kafka/data --output /var/lib/kafka/recovered
      kfs recover /disks/broker1 --also /disks/broker2 --also /disks/broker3 --output /disks/recovered

    A partition that can't be read is left out and reported; the others are recovered. A directory that
    a running broker has open is refused.

    Exit code 1 if anything was lost or left out.
    """
    if (output is None) != in_place:
        raise click.UsageError("name an --output directory, or use --in-place")
    mode = mode or ("kafka" if in_place else "salvage")
    if in_place and mode != "kafka":
        raise click.UsageError("--in-place works only with --mode kafka")
    if (unclean and mode != "kafka") or ((undelete or also) and mode != "salvage"):
        raise click.UsageError("--unclean is for --mode kafka, --undelete and --also are for --mode salvage")
    config = LogConfig(
        index_interval_bytes=index_interval_bytes,
        segment_index_bytes=segment_index_bytes,
        producer_id_expiration_ms=producer_expiration_ms,
    )
    as_kafka = KafkaMode(config=config, ignore_clean_shutdown=unclean)
    if in_place and not yes:
        click.confirm(f"This changes {log_dir}; what Kafka's recovery cuts off is lost for good. Continue?", abort=True)
    try:
        with progress_bar(Recoverable.at(log_dir).log_bytes(), "recovering") as advance:
            if output is None:
                report = recover_in_place(log_dir, as_kafka, advance)
            elif mode == "kafka":
                report = recover_copy(log_dir, output, as_kafka, advance)
            else:
                storage = Storage(max_batch_bytes=max_batch_bytes)
                salvage = SalvageMode(config=config, storage=storage, undelete=undelete, also=also)
                report = recover_copy(log_dir, output, salvage, advance)
    except RecoveryRefused as refusal:
        messages.say(f"a broker would not start on this, so nothing is recovered:\n{refusal}")
        raise click.exceptions.Exit(1) from None
    if output is not None:
        with open(os.path.join(output, REPORT), "x") as file:
            file.writelines(f"{line}\n" for line in _json_lines(report))
    for line in _json_lines(report) if as_json else _lines(report):
        click.echo(line)
    if report.losses or report.left_out:
        raise click.exceptions.Exit(EXIT_LOST)


def _lines(report: RecoveryReport) -> Iterator[str]:
    changes = [*report.changes, *(change for partition in report.partitions for change in partition.changes)]
    for change in changes:
        yield shown(str(change))
    for partition in report.partitions:
        yield from (shown(str(taken)) for taken in partition.taken)
    for loss in report.losses:
        yield shown(str(loss))
    for partition in report.partitions:
        for consequence in partition.consequences:
            yield shown(f"{partition.directory}: {consequence}")
    for partition in report.left_out:
        yield shown(f"NOT RECOVERED {partition.directory}: {partition.left_out}")
    summary = f"{len(report.partitions)} partitions, {len(report.losses)} losses"
    yield f"{summary}, {len(report.left_out)} not recovered" if report.left_out else summary


def _json_lines(report: RecoveryReport) -> Iterator[str]:
    yield from map(json_line, report.changes)
    yield from map(json_line, report.partitions)
