"""``kfs import``."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from typing import Any, Final, cast

import click

from kfs.broker_log.log_config import SEGMENT_BYTES
from kfs.broker_log.output_directory import check_apart, locked, log_directory
from kfs.cat.table_file import need_pyarrow
from kfs.cli.messages import messages, shown
from kfs.cli.options import bytes_option, choice_option, isolation_option_of, output_option
from kfs.cli.progress import progress_bar
from kfs.errors import BadLine, CorruptData, KfsError
from kfs.format.codecs import Codec
from kfs.format.layout import MAX_INT32
from kfs.format.uuid import ZERO_UUID, Uuid, parse_uuid
from kfs.imports.layout import DEFAULT_BATCH_BYTES, DEFAULT_BATCH_RECORDS, BatchLayout
from kfs.imports.lines import ImportedRecord, lines_of
from kfs.imports.log_directory import LogDirectoryLines
from kfs.imports.records import Import, Imported
from kfs.imports.table_rows import TableInput, rows_of
from kfs.log.problem import Problem
from kfs.read.isolation_level import IsolationLevel

_EXIT_SKIPPED: Final = 1
_STANDARD_INPUT: Final = "-"
_AUTO: Final = "auto"
_MOST_NAMED: Final = 20
#: The number of bytes at the beginning of an input that tell a table from lines.
_HEAD_BYTES: Final = 8
#: The minimum of ``--segment-bytes``.
_LEAST_SEGMENT_BYTES: Final = 1024


class _TopicId(click.ParamType[Uuid]):
    """A topic id of 22 characters, as ``kafka-topics --describe`` prints it."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Uuid:
        try:
            topic_id = parse_uuid(value.encode(errors="replace"))
        except CorruptData as error:
            self.fail(error.reason, param, ctx)
        if topic_id == ZERO_UUID:
            self.fail(f"{topic_id} can't be the id of a topic", param, ctx)
        return topic_id


@click.command("import")
@click.argument("files", metavar="[FILE|LOG_DIR...]", nargs=-1, type=click.Path(readable=False))
@output_option(
    "LOG_DIR",
    "A log directory, existing or new. Of several, the one with the fewest partitions gets the next.",
    "log_dirs",
    multiple=True,
    required=True,
    type=click.Path(readable=False),
)
@choice_option(
    "--format",
    "magic",
    values=[_AUTO, "v0", "v1", "v2"],
    default=_AUTO,
    help_text="The message format: v2 (since Kafka 0.11), v1 (0.10), v0; auto: v2, or v0 for what only v0 can hold.",
)
@choice_option(
    "--codec",
    values=[codec.label for codec in Codec],
    default=Codec.NONE.label,
    help_text="How batches are compressed.",
)
@click.option(
    "--batch-records",
    type=click.IntRange(1),
    default=DEFAULT_BATCH_RECORDS,
    show_default=True,
    help="The maximum number of records in a batch.",
)
@bytes_option(
    "--batch-bytes",
    default=DEFAULT_BATCH_BYTES,
    shown="64K",
    help_text="The approximate size of a batch before compression; a larger record gets its own batch.",
)
@bytes_option(
    "--segment-bytes",
    default=SEGMENT_BYTES,
    shown="1G",
    help_text="The maximum size of a segment.",
)
@click.option("--topic-id", type=_TopicId(), help="The id of the topic, of 22 characters.  [default: a new one]")
@click.option(
    "--new-offsets",
    is_flag=True,
    help="Number the records of each partition from 0.  [default: keep their offsets, which must ascend]",
)
@isolation_option_of(
    IsolationLevel.READ_COMMITTED,
    "Which records to take from a log directory: those that transactions committed, or all.",
)
@choice_option(
    "--on-bad-line",
    values=["stop", "skip"],
    default="stop",
    help_text="stop: make nothing. skip: leave the line out and continue. The exit code is 1 either way.",
)
def import_(
    files: tuple[str, ...],
    log_dirs: tuple[str, ...],
    magic: str,
    codec: str,
    batch_records: int,
    batch_bytes: int,
    segment_bytes: int,
    topic_id: Uuid | None,
    new_offsets: bool,
    isolation: str,
    on_bad_line: str,
) -> None:
    """Make partitions that a broker can open from JSON lines, Arrow or Parquet, as kfs cat writes them.

    Lines or rows come from FILE... or standard input (-), for any topics and partitions. Offsets, timestamps, keys,
    values and headers stay the same; a record that the message format can't hold is a bad line. Existing partitions
    are never changed, and no partition appears before all lines are read.

    Everything imported counts as committed: export with --isolation read_committed, or aborted records become
    committed ones. With a LOG_DIR instead of a FILE, all its topics are exported, by default only committed records,
    and imported in one step: into another format or codec, or other segments.

    \b
      kfs cat /var/lib/kafka/data orders --isolation read_committed >orders.jsonl
      kfs import orders.jsonl --output /var/lib/kafka/restored --codec zstd
      kfs import orders.parquet payments.arrow --output /var/lib/kafka/restored
      kfs import /var/lib/kafka/old --output /var/lib/kafka/v2 --format v2
      kfs cat /old orders/3 --isolation read_committed | jq -c 'select(.key == "7")' | kfs import -o /new --new-offsets

    A broker deletes records that are older than its retention.ms allows, imported ones too.
    """
    if not _LEAST_SEGMENT_BYTES <= segment_bytes <= MAX_INT32:
        raise click.BadParameter(f"from {_LEAST_SEGMENT_BYTES} to {MAX_INT32}", param_hint="--segment-bytes")
    if codec == Codec.ZSTD.label and magic in ("v0", "v1"):
        raise click.BadParameter(f"message format {magic} has no zstd", param_hint="--codec")
    layout = BatchLayout(None if magic == _AUTO else int(magic[1:]), Codec[codec.upper()], batch_records, batch_bytes)
    skipped = _Skipped()
    unread: list[Problem] = []
    directories = list(dict.fromkeys(map(os.path.realpath, log_dirs)))
    try:
        with _prepared(directories):
            importing = Import(
                directories,
                layout,
                on_bad_line=_stop if on_bad_line == "stop" else skipped.add,
                topic_id=topic_id,
                segment_bytes=segment_bytes,
                new_offsets=new_offsets,
            )
            names = files or (_STANDARD_INPUT,)
            with importing, progress_bar(_total_size(names), "importing") as advance:
                for name in names:
                    if os.path.isdir(name):
                        _add_directory(importing, name, IsolationLevel(isolation), directories, unread)
                    else:
                        _add_file(importing, name, advance)
                if importing.is_empty:
                    raise KfsError("no records to import")
                made = importing.finish()
    except OSError as error:
        raise KfsError(f"{error.filename or 'import'}: {error.strerror}") from error
    for line in _report(made):
        click.echo(line)
    if any(map(os.path.isdir, files)):
        what = "no aborted or open transactions" if isolation == IsolationLevel.READ_COMMITTED else "aborted ones too"
        click.echo(f"exported with --isolation {isolation}: {what}")
    if skipped.count:
        messages.say(f"{skipped.count} bad lines were left out")
    if skipped.count or unread:
        raise click.exceptions.Exit(_EXIT_SKIPPED)


def _stop(line: BadLine) -> None:
    raise line


class _Skipped:
    """Counts the bad lines that are skipped, and reports the first of them."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, line: BadLine) -> None:
        self.count += 1
        if self.count <= _MOST_NAMED:
            messages.say(str(line))
        elif self.count == _MOST_NAMED + 1:
            messages.say("further bad lines are only counted")


@contextmanager
def _prepared(directories: Sequence[str]) -> Iterator[None]:
    """Create missing log directories, and lock all of them against brokers; leave no trace after a failure."""
    with ExitStack() as held:
        for directory in directories:
            held.enter_context(log_directory(directory))
            held.enter_context(locked(directory))
        yield


def _total_size(names: Sequence[str]) -> int | None:
    sizes = [_size_of(name) for name in names]
    return None if None in sizes else sum(filter(None, sizes))


def _add_file(importing: Import, name: str, advance: Callable[[int], None]) -> None:
    if name == _STANDARD_INPUT:
        importing.add(_records_in(cast(BufferedReader, sys.stdin.buffer), "standard input", advance))
    else:
        with open(name, "rb") as file:
            importing.add(_records_in(file, name, advance))


def _records_in(
    file: BufferedReader, source: str, advance: Callable[[int], None]
) -> Iterator[ImportedRecord | BadLine]:
    table = TableInput.of(file.peek(_HEAD_BYTES)[:_HEAD_BYTES])
    if table is None:
        return lines_of(file, source, advance)
    need_pyarrow()
    return rows_of(file, table, source, advance)


def _add_directory(
    importing: Import, path: str, isolation: IsolationLevel, directories: Sequence[str], unread: list[Problem]
) -> None:
    for directory in directories:
        check_apart(path, directory)

    def report(problem: Problem) -> None:
        unread.append(problem)
        messages.say(str(problem.error()))

    exported = LogDirectoryLines(path, isolation, report)
    with exported as lines:
        importing.add(lines_of(lines, path))
        exported.check()


def _size_of(name: str) -> int | None:
    """Return the size of an input in bytes, or None if it is unknown."""
    if name == _STANDARD_INPUT:
        return None
    status = os.stat(name)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _report(made: Sequence[Imported]) -> Iterator[str]:
    for each in made:
        offsets = f"offsets {each.start_offset} to {each.end_offset - 1}" if each.records else "no offsets"
        yield shown(f"{each.directory}: {each.records} records, {offsets}, topic id {each.topic_id}")
    yield f"{len(made)} partitions, {sum(each.records for each in made)} records"
