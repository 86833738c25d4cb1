"""``kfs recover``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import click

from kfs.cli.messages import messages, shown
from kfs.cli.source import ByteSize
from kfs.errors import RecoveryRefused
from kfs.log.index_builder import INDEX_INTERVAL_BYTES, MAX_INDEX_BYTES
from kfs.log.log_config import LogConfig
from kfs.log.producer_state import PRODUCER_ID_EXPIRATION_MS
from kfs.log.recover.kafka_mode import KafkaMode, recover_copy, recover_in_place
from kfs.log.recover.report import RecoveryReport

EXIT_LOST = 1


@click.command()
@click.argument("log_dir", metavar="LOG_DIR", type=click.Path(readable=False))
@click.option(
    "--output", "-o", metavar="DIR", type=click.Path(readable=False), help="Where the copy goes: empty, or not there."
)
@click.option("--in-place", is_flag=True, help="Change LOG_DIR itself; there is no way back.")
@click.option("--yes", is_flag=True, help="Don't ask before LOG_DIR is changed.")
@click.option(
    "--mode",
    type=click.Choice(["kafka"]),
    default="kafka",
    show_default=True,
    help="kafka: what a broker's own recovery leaves. All behind the first bad batch is lost.",
)
@click.option("--unclean", is_flag=True, help="Recover all that isn't known to be flushed, even after a clean stop.")
@click.option(
    "--index-interval-bytes",
    type=click.IntRange(0),
    default=INDEX_INTERVAL_BYTES,
    show_default=True,
    help="The broker's log.index.interval.bytes, or its topics' index.interval.bytes.",
)
@click.option(
    "--segment-index-bytes",
    type=ByteSize(),
    default=MAX_INDEX_BYTES,
    show_default="10M",
    help="The broker's log.index.size.max.bytes.",
)
@click.option(
    "--producer-expiration-ms",
    type=click.IntRange(1),
    default=PRODUCER_ID_EXPIRATION_MS,
    show_default=True,
    help="The broker's producer.id.expiration.ms.",
)
@click.option("--json", "as_json", is_flag=True, help="Say what was done as one JSON object a line.")
def recover(
    log_dir: str,
    output: str | None,
    in_place: bool,
    yes: bool,
    mode: str,
    unclean: bool,
    index_interval_bytes: int,
    segment_index_bytes: int,
    producer_expiration_ms: int,
    as_json: bool,
) -> None:
    """Make a copy of LOG_DIR that a broker starts on, and say exactly what was lost.

    LOG_DIR is one of a broker's log.dirs, and is only read. The copy is what Kafka 4.3 leaves of it
    when it recovers it and is then stopped: cut off at the first bad batch of a partition, later
    segments deleted, indexes, producer snapshots and leader epochs made again. Where a broker would
    not start, there is no copy, and the reasons are named.

    \b
      kfs recover /var/lib/kafka/data --output /var/lib/kafka/recovered

    Exit code 1 where anything was lost.
    """
    if (output is None) != in_place:
        raise click.UsageError("name an --output directory, or ask for --in-place")
    config = LogConfig(
        index_interval_bytes=index_interval_bytes,
        segment_index_bytes=segment_index_bytes,
        producer_id_expiration_ms=producer_expiration_ms,
    )
    options = KafkaMode(config=config, ignore_clean_shutdown=unclean)
    if in_place and not yes:
        click.confirm(f"{log_dir} is changed, and what Kafka's recovery loses is gone for good. Go on?", abort=True)
    try:
        report = recover_in_place(log_dir, options) if output is None else recover_copy(log_dir, output, options)
    except RecoveryRefused as refusal:
        messages.say(f"a broker would not start on this, so nothing is recovered:\n{refusal}")
        raise click.exceptions.Exit(1) from None
    for line in _json_lines(report) if as_json else _lines(report):
        click.echo(line)
    if report.losses:
        raise click.exceptions.Exit(EXIT_LOST)


def _lines(report: RecoveryReport) -> Iterator[str]:
    changes = [*report.changes, *(change for partition in report.partitions for change in partition.changes)]
    for change in changes:
        yield shown(str(change))
    for loss in report.losses:
        yield shown(f"LOST {loss}")
    yield f"{len(report.partitions)} partitions, {len(report.losses)} losses"


def _json_lines(report: RecoveryReport) -> Iterator[str]:
    for change in report.changes:
        yield json.dumps(dataclasses.asdict(change))
    for partition in report.partitions:
        yield json.dumps(dataclasses.asdict(partition))
