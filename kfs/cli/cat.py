"""``kfs cat``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from kfs.cli.messages import messages
from kfs.cli.source import SourceOptions, source_options
from kfs.cores import cores
from kfs.errors import CorruptData, IsADirectory
from kfs.export.output import Field, OutputFormat
from kfs.export.records import Export
from kfs.export.selection import Selection
from kfs.format.layout import MAX_INT64
from kfs.log.isolation import IsolationLevel
from kfs.log.problem import Problem
from kfs.memory import keep_freed_memory
from kfs.render.timestamps import parse_time
from kfs.tree.names import ABOUT, topic_name
from kfs.tree.node import Directory, File, Node

_CHUNK: Final = 1024 * 1024
_PAGE: Final = 4096
_FAILED: Final = 1


class _Time(click.ParamType[int]):
    """An ISO 8601 date or time, or milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else parse_time(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no time, such as 2020-11-27T03:12 or 1606446771205", param, ctx)


class _Offsets(click.ParamType[tuple[int, int | None]]):
    """FROM:TO, either of which may be left out; TO is not included. A single number is that offset alone."""

    name = "from:to"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int | None]:
        match = re.fullmatch(r"([0-9]{0,19})(:?)([0-9]{0,19})", value)
        if match is None or not (match[1] or match[3]):
            self.fail(f"{value!r} is no range of offsets, such as 100:200, 100: or 100", param, ctx)
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
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--offsets", type=_Offsets(), help="Only offsets FROM up to, not including, TO: 100:200, 100:, :200, 100."
)
@click.option("--since", type=_Time(), help="Only records of that time or later.")
@click.option("--before", type=_Time(), help="Only records earlier than that time.")
@click.option("--first", type=click.IntRange(0), metavar="N", help="Only the first N of each partition.")
@click.option("--last", type=click.IntRange(0), metavar="N", help="Only the last N of each partition.")
@click.option("--key", metavar="TEXT", help="Only records with that key.")
@click.option("--grep", metavar="REGEX", help="Only records whose value matches somewhere.")
@click.option("--header", "headers", type=_Header(), multiple=True, help="Only records with that header. Repeatable.")
@click.option(
    "--output",
    "-o",
    type=click.Choice([field.value for field in Field]),
    default=Field.RECORD.value,
    show_default=True,
    help="A line of JSON for each record, or the raw bytes of its value or key.",
)
@click.option(
    "--delimiter", default="\\n", show_default=True, help="What follows raw bytes; \\n, \\t and \\0 are known."
)
@click.option(
    "--length-prefix", is_flag=True, help="Raw bytes follow their length instead: int32, big-endian, -1: null."
)
@click.option("--jobs", "-j", type=click.IntRange(1), default=None, help="Processes to use.  [default: all cores]")
@source_options
def cat(
    log_dir: str,
    paths: tuple[str, ...],
    offsets: tuple[int, int | None] | None,
    since: int | None,
    before: int | None,
    first: int | None,
    last: int | None,
    key: str | None,
    grep: str | None,
    headers: tuple[tuple[bytes, bytes | None], ...],
    output: str,
    delimiter: str,
    length_prefix: bool,
    jobs: int | None,
    source: SourceOptions,
) -> None:
    """Print the records of a topic or a partition, or a file of the tree, without mounting it.

    PATH is a topic (orders), a partition (orders/0) or anything else in the tree. Records come
    partition by partition in offset order. What can't be read is named on standard error, all the
    rest is printed, and the exit code is 1.

    \b
      kfs cat /var/lib/kafka/data orders | jq .value
      kfs cat /var/lib/kafka/data orders/0 --since 2020-11-27T03:00 --before 2020-11-27T04:00
      kfs cat /var/lib/kafka/data orders/0 --last 10 --grep '"status":"failed"'
      kfs cat /var/lib/kafka/data launch_info/0/offset/368776.json
    """
    if first is not None and last is not None:
        raise click.UsageError("--first and --last exclude each other")
    selection = _selection(offsets, since, before, key, grep, headers)
    output_format = OutputFormat(Field(output), None if length_prefix else _unescaped(delimiter))
    failed = False
    with source.opened(log_dir) as tree:
        keep_freed_memory()
        isolation = IsolationLevel(source.isolation)
        export = Export(tree.data_dir, selection, output_format, first, last, jobs or cores(), isolation)
        try:
            for path in paths:
                records = _records_at(path)
                if records is None:
                    _print(tree.follow(path), path)
                else:
                    failed |= _print_records(export.write(sys.stdout.fileno(), *records))
        except BrokenPipeError:
            _leave_quietly()
        except OSError as error:
            sys.stdout = None  # what it still holds can't be written either
            messages.say(f"can't write: {error.strerror}")
            failed = True
    if failed:
        raise click.exceptions.Exit(_FAILED)


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
    """Return the bytes that were typed."""
    return argument.encode(errors="surrogateescape")


def _unescaped(text: str) -> bytes:
    for escape, character in (("\\n", "\n"), ("\\t", "\t"), ("\\0", "\0")):
        text = text.replace(escape, character)
    return _bytes(text)


def _records_at(path: str) -> tuple[str, int | None] | None:
    """Return the topic, and the partition if there is one, that a path names; None for any other path."""
    names = [name for name in path.split("/") if name]
    topic = topic_name(names[0]) if names and names[0] != ABOUT else None
    if topic is None or len(names) > 2:
        return None
    if len(names) == 1:
        return topic, None
    return (topic, int(names[1])) if re.fullmatch(r"0|[1-9][0-9]{0,9}", names[1]) else None


def _print_records(problems: Iterator[Problem]) -> bool:
    """Say what could not be read while the rest is written; return whether there was anything."""
    damaged = False
    for problem in problems:
        damaged = True
        messages.say(str(problem.error()))
    return damaged


def _print(node: Node, path: str) -> None:
    if isinstance(node, Directory):
        raise IsADirectory(f"{path} is a directory")
    assert isinstance(node, File)
    try:
        for data in _chunks(node):
            sys.stdout.buffer.write(data)
    finally:
        sys.stdout.buffer.flush()


def _chunks(file: File) -> Iterator[bytes]:
    """Yield the bytes of a file; of a damaged one all that come before the page that can't be read, as on a mount."""
    position, size, most = 0, file.attributes().size, _CHUNK
    while position < size:
        try:
            data = file.read(position, min(most, size - position))
        except CorruptData:
            if most == _PAGE:
                raise
            most = _PAGE
            continue
        if not data:
            return
        yield data
        position += len(data)


def _leave_quietly() -> None:
    """Whoever read us has had enough: nothing more to say, not even when Python flushes at exit."""
    sys.stdout = None
