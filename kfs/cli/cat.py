"""``kfs cat``."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import click

from kfs.cat.output import OutputFormat, RecordPart, TableFormat
from kfs.cli.messages import messages
from kfs.cli.options import also_option, choice_option, jobs_option, output_option
from kfs.cli.places import Records, places_of, records_at
from kfs.cli.source import SourceOptions, source_options
from kfs.format.layout import MAX_INT64
from kfs.log.problem import DamagePolicy
from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Selection
from kfs.storage.memory import collect_garbage_less, keep_freed_memory

if TYPE_CHECKING:
    from kfs.cli.printing import Printing
    from kfs.log.data_dir import DataDir
    from kfs.tree.kafka_tree import KafkaTree

_FAILED: Final = 1
_STANDARD_OUTPUT: Final = "-"


class _Time(click.ParamType[int]):
    """An ISO 8601 date or time, or milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from kfs.render.timestamps import parse_time  # only here: few commands select by time

        try:
            return value if isinstance(value, int) else parse_time(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time such as 2020-11-27T03:12 or 1606446771205", param, ctx)


class _Offsets(click.ParamType[tuple[int, int | None]]):
    """FROM:TO, either of which may be left out; TO is not included. A single number is that offset alone."""

    name = "from:to"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int | None]:
        match = re.fullmatch(r"([0-9]{0,19})(:?)([0-9]{0,19})", value)
        if match is None or not (match[1] or match[3]):
            self.fail(f"{value!r} is not a range of offsets such as 100:200, 100: or 100", param, ctx)
        start = int(match[1] or 0)
        if not match[2]:
            return start, start + 1
        return start, int(match[3]) if match[3] else None


class _Header(click.ParamType[tuple[bytes, bytes | None]]):
    """NAME=VALUE."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[bytes, bytes]:
        name, equals, wanted = value.partition("=")
        if not equals:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name.encode(errors="surrogateescape"), wanted.encode(errors="surrogateescape")


@click.command()
@click.argument("log_dir", type=click.Path(readable=False))
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--offsets", type=_Offsets(), help="Only offsets from FROM to below TO: 100:200, 100:, :200, or just 100."
)
@click.option("--since", type=_Time(), help="Only records at that time or later.")
@click.option("--before", type=_Time(), help="Only records before that time.")
@click.option("--first", type=click.IntRange(0), metavar="N", help="Only the first N of each partition.")
@click.option("--last", type=click.IntRange(0), metavar="N", help="Only the last N of each partition.")
@click.option("--key", metavar="TEXT", help="Only records with that key.")
@click.option("--grep", metavar="REGEX", help="Only records whose value contains a match.")
@click.option("--header", "headers", type=_Header(), multiple=True, help="Only records with that header. Repeatable.")
@click.option(
    "--follow",
    is_flag=True,
    help="Print what is appended, as tail -f does: from the end, or where --offsets, --since, --last or --group begin.",
)
@click.option("--group", metavar="NAME", help="With --follow, begin where that consumer group stopped.")
@click.option("--deleted", is_flag=True, help="Also records that were deleted but are still on the disk.")
@click.option("--with-path", is_flag=True, help="Write the path in the mount and a tab before each record, or count.")
@click.option("--count", is_flag=True, help="Print the number of records, not the records.")
@choice_option(
    "--format",
    "-f",
    "form",
    values=[each.value for each in (*RecordPart, *TableFormat)],
    default=RecordPart.RECORD.value,
    help_text="A line of JSON for each record; the raw bytes of its value or key; or all in one Arrow or Parquet file.",
)
@output_option(
    "FILE",
    "Write to this file, not to standard output; it appears once complete.",
    default=_STANDARD_OUTPUT,
    type=click.Path(readable=False, allow_dash=True),
)
@click.option(
    "--delimiter", default="\\n", show_default=True, help="What to write after raw bytes; \\n, \\t and \\0 are known."
)
@click.option(
    "--length-prefix", is_flag=True, help="Write the length before raw bytes instead: int32, big-endian, -1 for null."
)
@jobs_option
@also_option
@source_options
def cat(
    log_dir: str,
    paths: tuple[str, ...],
    also: tuple[str, ...],
    offsets: tuple[int, int | None] | None,
    since: int | None,
    before: int | None,
    first: int | None,
    last: int | None,
    key: str | None,
    grep: str | None,
    headers: tuple[tuple[bytes, bytes | None], ...],
    follow: bool,
    group: str | None,
    deleted: bool,
    with_path: bool,
    count: bool,
    form: str,
    output: str,
    delimiter: str,
    length_prefix: bool,
    jobs: int | None,
    source: SourceOptions,
) -> None:
    """Print the records of topics or partitions as lines or as a table, or print a file of the tree, without a mount.

    PATH is a topic (orders), a partition (orders/0) or anything else in the tree; the default is
    all topics. Records come partition by partition in offset order. If some can't be read, standard
    error names them, the others are printed, and the exit code is 1.

    With --key, --grep or --header, the last line on standard error says what was searched. The exit
    code is 3 if all of it could be searched, and no record was found.

    \b
      kfs cat /var/lib/kafka/data orders | jq .value
      kfs cat /var/lib/kafka/data orders/0 --since 2020-11-27T03:00 --before 2020-11-27T04:00
      kfs cat /var/lib/kafka/data orders/0 --last 10 --grep '"status":"failed"'
      kfs cat /var/lib/kafka/data launch_info/0/offset/368776.json
      kfs cat /var/lib/kafka/data orders --format parquet --output orders.parquet
      kfs cat /var/lib/kafka/data --grep 4711-0815 --deleted --with-path
      kfs cat /var/lib/kafka/data orders --follow --grep '"status":"failed"'
    """
    if first is not None and last is not None:
        raise click.UsageError("--first and --last exclude each other")
    selection = _selection(offsets, since, before, key, grep, headers)
    wanted = _Wanted(selection, first, last, IsolationLevel(source.isolation), jobs)
    has_extras = deleted or with_path or count
    table = TableFormat(form) if form in list(TableFormat) else None
    if table is not None:
        _check_table(table, output, paths)
        if has_extras:
            raise click.UsageError(f"--deleted, --with-path and --count can't be used with --format {table}")
    if with_path and length_prefix:
        raise click.UsageError("--with-path and --length-prefix exclude each other")
    _check_files(paths, selects=wanted.selects or follow, has_extras=has_extras)
    if follow:
        from kfs.cli.following import check_follow  # only here: what follows takes time to import

        begins = {"--offsets": offsets is not None, "--since": since is not None, "--last": last is not None}
        refused = {f"--format {form}": table is not None, "--output": output != _STANDARD_OUTPUT}
        refused |= {
            "--deleted": deleted,
            "--count": count,
            "--jobs": jobs is not None,
            "--until now": source.until == "now",
        }
        check_follow(before, refused, begins if group is not None else {})
    elif group is not None:
        raise click.UsageError("--group says where --follow begins")
    ending = None if length_prefix else _unescaped(delimiter)
    code = 0
    with source.opened_data(log_dir, *also) as data_dir:
        keep_freed_memory()
        collect_garbage_less()
        try:
            with _opened(output, (log_dir, *also)) as out:
                if follow:
                    is_selected = offsets is not None or since is not None
                    damage = DamagePolicy(source.on_damage)
                    lines = OutputFormat(RecordPart(form), ending, with_path)
                    code = _follow(data_dir, paths, wanted, lines, damage, group, is_selected=is_selected)
                elif table is not None:
                    code = _write_table(data_dir, paths, wanted, table, out)
                else:
                    output_format = None if count else OutputFormat(RecordPart(form), ending, with_path)
                    make_printing = partial(_printing, wanted, output_format, with_path)
                    code = _write_each(data_dir, source, paths, make_printing, out, deleted=deleted)
        except BrokenPipeError:
            _leave_quietly()
        except OSError as error:
            if output == _STANDARD_OUTPUT:
                raise
            messages.say(f"can't write {output}: {error.strerror}")
            code = _FAILED
    if code:
        raise click.exceptions.Exit(code)


class _Wanted(NamedTuple):
    """The records to read from each path, and the number of processes; None means as many as there are cores."""

    selection: Selection
    first: int | None
    last: int | None
    isolation: IsolationLevel
    jobs: int | None

    @property
    def selects(self) -> bool:
        """Whether some records are left out."""
        return (self.selection, self.first, self.last) != (Selection(), None, None)


def _selection(
    offsets: tuple[int, int | None] | None,
    since: int | None,
    before: int | None,
    key: str | None,
    grep: str | None,
    headers: tuple[tuple[bytes, bytes | None], ...],
) -> Selection:
    start, end = offsets or (0, None)
    try:
        pattern = None if grep is None else re.compile(_bytes(grep))
    except re.error as error:
        raise click.BadParameter(str(error), param_hint="--grep") from None
    return Selection(
        start,
        MAX_INT64 if end is None else end,
        since,
        before,
        None if key is None else frozenset((_bytes(key),)),
        pattern,
        headers,
    )


def _bytes(argument: str) -> bytes:
    """Return the bytes of a command line argument."""
    return argument.encode(errors="surrogateescape")


def _unescaped(text: str) -> bytes:
    for escape, character in (("\\n", "\n"), ("\\t", "\t"), ("\\0", "\0")):
        text = text.replace(escape, character)
    return _bytes(text)


def _check_files(paths: Sequence[str], *, selects: bool, has_extras: bool) -> None:
    """Refuse what only topics and partitions have if a path is a file of the tree."""
    file = next((path for path in paths if records_at(path) is None), None)
    if file is not None and selects:
        raise click.UsageError(f"{file} is a file: records are selected from topics and partitions")
    if file is not None and has_extras:
        raise click.UsageError(f"--deleted, --with-path and --count are for topics and partitions, not for {file}")


def _check_table(table: TableFormat, output: str, paths: Sequence[str]) -> None:
    from kfs.cat.table_file import need_pyarrow  # only here: see _write_table

    need_pyarrow()
    for path in paths:
        if records_at(path) is None:
            raise click.UsageError(f"--format {table} is for topics and partitions, not for {path}")
    if output == _STANDARD_OUTPUT and sys.stdout.isatty():
        raise click.UsageError(f"--format {table} can't be written to a terminal: use --output, or a pipe")


@contextmanager
def _opened(output: str, log_dirs: Sequence[str]) -> Iterator[BinaryIO]:
    """Open the output, which must not lie in a directory that is read."""
    if output == _STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from kfs.broker_log.output_directory import check_apart  # only here: see _write_table
    from kfs.storage.atomic_file import replacing

    for log_dir in log_dirs:
        check_apart(log_dir, output)
    with replacing(output) as file:
        yield file


def _write_table(data_dir: DataDir, paths: Sequence[str], wanted: _Wanted, table: TableFormat, out: BinaryIO) -> int:
    """Write all records as one table; return the exit code."""
    from kfs import __version__  # only here: these imports would double the time of a short command
    from kfs.cat.table_file import FILE_COLUMNS, TableWriter
    from kfs.cli.progress import LogsProgress, progress_bar
    from kfs.scan import Scan

    logs = [place.log for place in places_of(data_dir, _records(paths), deleted=False)]
    scan = Scan(
        logs,
        columns=FILE_COLUMNS,
        selection=wanted.selection,
        isolation=wanted.isolation,
        on_damage=DamagePolicy.SKIP,
        on_problem=lambda problem: messages.say(str(problem.error())),
        jobs=wanted.jobs,
        first=wanted.first,
        last=wanted.last,
    )
    metadata = {"kfs.version": __version__, "kfs.isolation": wanted.isolation.value}
    is_file = out is not sys.stdout.buffer and stat.S_ISREG(os.fstat(out.fileno()).st_mode)
    progress = LogsProgress(logs)
    with (
        TableWriter(scan.schema, table, out, is_file=is_file, metadata=metadata) as writer,
        progress_bar(progress.total, "writing") as advance,
    ):
        for batch in scan:
            writer.write(batch)
            advance(progress.advanced(*(batch.column(name)[-1].as_py() for name in ("topic", "partition", "offset"))))
    return _FAILED if scan.problems else 0


def _follow(
    data_dir: DataDir,
    paths: Sequence[str],
    wanted: _Wanted,
    output: OutputFormat,
    on_damage: DamagePolicy,
    group: str | None,
    *,
    is_selected: bool,
) -> int:
    """Write what is appended to standard output; return the exit code if that ends."""
    from kfs.cli.following import FollowedPlaces
    from kfs.read.followed_log import Following

    places = FollowedPlaces(_records(paths), group, wanted.last, is_selected)
    return places.follow(data_dir, Following(wanted.selection, wanted.isolation, wanted.first, on_damage), output)


def _records(paths: Iterable[str]) -> list[Records]:
    return [records for records in map(records_at, paths) if records is not None]


def _printing(wanted: _Wanted, output: OutputFormat | None, with_path: bool) -> Printing:
    """Return what prints records, or counts them if ``output`` is None."""
    from kfs.cat.records import CatRequest  # only here: a file of the tree needs neither
    from kfs.cli.printing import Printing

    request = CatRequest(wanted.selection, output, wanted.first, wanted.last, wanted.jobs, wanted.isolation)
    return Printing(request, output is None, with_path)


def _write_each(
    data_dir: DataDir,
    source: SourceOptions,
    paths: Sequence[str],
    make_printing: Callable[[], Printing],
    out: BinaryIO,
    *,
    deleted: bool,
) -> int:
    """Write the records or the file at each path, or all topics if there are no paths; return the exit code."""
    if all(map(records_at, paths)):
        return make_printing().write(places_of(data_dir, _records(paths), deleted=deleted), out)
    tree: KafkaTree | None = None
    code = 0
    for path in paths:
        place = records_at(path)
        if place is not None:
            code |= make_printing().write(places_of(data_dir, [place], deleted=deleted), out)
            continue
        from kfs.tree.whole_file import write_file  # only here: records need no tree

        tree = tree or source.tree(data_dir)
        write_file(tree, path, out)
        code |= _FAILED if _lacks_remote(data_dir, path) else 0
    return code


def _lacks_remote(data_dir: DataDir, path: str) -> bool:
    """Whether a file lacks records of its log because tiered storage has moved them away; that was already reported."""
    place, slash, name = path.strip("/").rpartition("/")
    partition = records_at(place) if slash and name == "records.jsonl" else None
    if partition is None or partition[1] is None:
        return False
    log = data_dir.log(partition[0], partition[1])
    return log is not None and log.remote is not None


def _leave_quietly() -> None:
    """End quietly after the reader has closed standard output: nothing more is written, not even by Python at exit."""
    sys.stdout = None
