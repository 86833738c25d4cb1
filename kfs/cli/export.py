"""``kfs export``."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import click

from kfs.cat.table_file import need_pyarrow
from kfs.cli.messages import messages, say_what_is_logged
from kfs.cli.options import (
    ByteSize,
    isolation_option,
    json_option,
    max_batch_bytes_option,
    on_damage_option,
    topic_option,
)
from kfs.cli.progress import progress_bar
from kfs.cli.tables import print_table
from kfs.errors import KfsError, UnusableSession
from kfs.log.problem import DamagePolicy
from kfs.read.isolation_level import IsolationLevel
from kfs.spark.exporting.export import Export, ExportTotals, check_logs
from kfs.spark.exporting.options import DEFAULT_COMPRESSION, PARQUET, BatchLimits, ExportOptions, parse_starting
from kfs.spark.exporting.session import DEFAULT_MASTER, started_session
from kfs.spark.exporting.with_spark import spark_export
from kfs.spark.offset_limits import OffsetLimit
from kfs.spark.options import ReadOptions
from kfs.spark.ranges import DATA_LOSS_ADVICE
from kfs.spark.strategies import Matching

EXIT_INCOMPLETE: Final = 1
_COLUMNS: Final = ("TOPIC", "PARTITION", "FROM-OFFSET", "UNTIL-OFFSET", "RECORDS")
_MOST_SKIPPED: Final = 10


class _Start(click.ParamType[OffsetLimit]):
    """earliest, latest, a time, or group:NAME."""

    name = "earliest|latest|time|group:name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> OffsetLimit:
        try:
            return parse_starting(value)
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is neither earliest, latest, a time such as 2020-11-27T03:12, nor group:NAME",
                param,
                ctx,
            )


class _Setting(click.ParamType[tuple[str, str]]):
    """KEY=VALUE."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        key, equals, setting = value.partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not KEY=VALUE, such as spark.executor.memory=2g", param, ctx)
        return key, setting


@click.command()
@click.argument("log_dirs", metavar="LOG_DIR...", nargs=-1, required=True, type=click.Path(readable=False))
@click.argument("dataset", metavar="DATASET", type=click.Path(readable=False))
@topic_option
@click.option(
    "--from",
    "starting",
    type=_Start(),
    default="earliest",
    show_default=True,
    help="Where to start in a partition without a position.",
)
@isolation_option
@on_damage_option
@click.option("--accept-data-loss", is_flag=True, help="Continue where the next offsets are no longer in the log.")
@click.option("--follow", is_flag=True, help="Keep running, and export new records, until SIGINT or SIGTERM.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="Seconds between two checks of --follow.",
)
@click.option(
    "--format",
    "table_format",
    metavar="FORMAT",
    default=PARQUET,
    show_default=True,
    help="parquet, or another format of the session: orc, json, avro; delta, iceberg.",
)
@click.option("--table", metavar="NAME", default=None, help="Append to that table; DATASET keeps only the positions.")
@click.option(
    "--compression",
    metavar="CODEC",
    default=None,
    help=f"How files are compressed: zstd, snappy, none.  [default: {DEFAULT_COMPRESSION}; the format's own in others]",
)
@click.option("--max-records", type=click.IntRange(1), default=None, help="The maximum number of offsets in a batch.")
@click.option(
    "--batch-bytes",
    type=ByteSize(),
    default=None,
    help="The approximate maximum of log bytes in a batch.  [default: 512M for each core]",
)
@max_batch_bytes_option
@click.option("--store", metavar="URL", default=None, help="Where positions are kept.  [default: in the dataset]")
@click.option(
    "--group", metavar="NAME", default=None, help="The name to keep them under; needed with --store.  [default: export]"
)
@click.option("--master", metavar="URL", default=None, help=f"Spark's master.  [default: {DEFAULT_MASTER}]")
@click.option("--conf", "settings", multiple=True, type=_Setting(), help="A setting of Spark. Repeatable.")
@click.option(
    "--spark-log",
    type=click.Path(dir_okay=False),
    default=None,
    help="A file for Spark's output.  [default: kept only if the export fails]",
)
@json_option("Print the summary as one line of JSON.")
def export(
    log_dirs: tuple[str, ...],
    dataset: str,
    topics: tuple[str, ...],
    starting: OffsetLimit,
    isolation: str,
    on_damage: str,
    accept_data_loss: bool,
    follow: bool,
    interval: float,
    table_format: str,
    table: str | None,
    compression: str | None,
    max_records: int | None,
    batch_bytes: int | None,
    max_batch_bytes: int,
    store: str | None,
    group: str | None,
    master: str | None,
    settings: tuple[tuple[str, str], ...],
    spark_log: str | None,
    as_json: bool,
) -> None:
    """Export new records of LOG_DIR... to DATASET, Parquet files by topic and date, with Spark; each record once.

    After a kill at any point, the next run continues where it stopped. Driver and executors need
    DATASET and LOG_DIR under the same path.

    \b
      kfs export /var/lib/kafka/data /lake/events
      kfs export /backup/broker1 /backup/broker2 /lake/events --topic 'orders*' --isolation read_committed
      kfs export /mnt/kafka/data /mnt/lake/events --master spark://head:7077 --follow

    \b
    Exit codes: 0 done, 1 failed, stopped before the end, or something was skipped, 2 wrong usage.
    """
    say_what_is_logged()
    read = ReadOptions(
        not accept_data_loss, IsolationLevel(isolation), DamagePolicy(on_damage), max_batch_bytes=max_batch_bytes
    )
    options = ExportOptions(
        log_dirs,
        dataset,
        Matching(topics),
        starting,
        read,
        BatchLimits(max_records, batch_bytes),
        table_format,
        compression,
        table,
        store,
        group,
    )
    need_pyarrow()
    check_logs(options)
    with (
        _own_words(),
        _spark_log(spark_log) as log,
        started_session(master, dict(settings), log) as spark,
        _stopping() as stop,  # after PySpark has set its SIGINT handler
        spark_export(spark, options) as exporting,
    ):
        is_complete = _run(exporting, stop, interval if follow else None)
    _say(exporting.totals, is_complete, as_json)
    if exporting.totals.skipped or not (is_complete or follow):
        raise click.exceptions.Exit(EXIT_INCOMPLETE)


def _run(exporting: Export, stop: threading.Event, interval: float | None) -> bool:
    """Export all new records, repeatedly if there is an interval (seconds); return whether that was everything."""
    while True:
        end = exporting.look()
        left = exporting.left(end)
        with progress_bar(left, "exporting") if left else nullcontext(_nothing) as advance:
            is_complete = exporting.reach(end, advance, is_over=stop.is_set)
        if interval is None or stop.wait(interval):
            return is_complete


def _nothing(_done: int) -> None:
    """Show no progress, as there is no bar."""


@contextmanager
def _own_words() -> Iterator[None]:
    """Replace the advice in data loss errors by this command's option."""
    try:
        yield
    except KfsError as error:
        raise KfsError(
            str(error).replace(DATA_LOSS_ADVICE, "--accept-data-loss continues with what is left")
        ) from error


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the next signal ends the command at once."""
    stop = threading.Event()

    def ask(number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        messages.say("stopping after this batch")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _spark_log(path: str | None) -> Iterator[str]:
    """Yield the path of a file for Spark's output; without ``path``, a temporary one, kept if the session fails."""
    if path is not None:
        try:
            open(path, "a").close()
        except OSError as error:
            raise KfsError(f"{path}: {error.strerror}") from None
        yield path
        return
    number, path = tempfile.mkstemp(prefix="kfs-export-", suffix=".log")
    os.close(number)
    kept = False
    try:
        yield path
    except UnusableSession:
        if os.path.getsize(path):
            messages.say(f"what Spark printed is in {path}")
            kept = True
        raise
    finally:
        if not kept:
            os.unlink(path)


def _say(totals: ExportTotals, is_complete: bool, as_json: bool) -> None:
    for problem in totals.skipped[:_MOST_SKIPPED]:
        messages.say(f"{problem.file}: position {problem.position}: skipped {problem.size} bytes: {problem.reason}")
    if len(totals.skipped) > _MOST_SKIPPED:
        messages.say(
            f"and {len(totals.skipped) - _MOST_SKIPPED} more ranges of bytes were skipped; --json has them all"
        )
    if as_json:
        click.echo(json.dumps(_json_fields(totals, is_complete), separators=(",", ":")))
        return
    print_table(
        _COLUMNS,
        [
            [name.topic, name.partition, each.from_offset, each.until_offset, each.records]
            for name, each in sorted(totals.partitions.items())
        ],
    )
    batches = f"{totals.batches:,} batch{'' if totals.batches == 1 else 'es'}"
    done = f"{totals.records:,} records in {totals.files:,} files, {totals.size:,} bytes, {batches}"
    if not totals.batches:
        done = "nothing new"
    messages.say(done if is_complete else f"{done}; more is left to export")


def _json_fields(totals: ExportTotals, is_complete: bool) -> dict[str, Any]:
    return {
        "records": totals.records,
        "files": totals.files,
        "bytes": totals.size,
        "batches": totals.batches,
        "complete": is_complete,
        "skipped": [
            {"file": each.file, "position": each.position, "size": each.size, "reason": each.reason}
            for each in totals.skipped
        ],
        "partitions": [
            {
                "topic": name.topic,
                "partition": name.partition,
                "fromOffset": each.from_offset,
                "untilOffset": each.until_offset,
                "records": each.records,
            }
            for name, each in sorted(totals.partitions.items())
        ],
    }
