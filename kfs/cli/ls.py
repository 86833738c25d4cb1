"""``kfs ls``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from kfs.cli.messages import messages, shown
from kfs.cli.options import also_option
from kfs.cli.places import Records, places_of, records_at
from kfs.cli.source import SourceOptions, source_options
from kfs.cli.stat import long_line
from kfs.errors import CorruptData, NotFound, SourceLost
from kfs.tree.node import Directory, Node, Symlink, settled

if TYPE_CHECKING:
    from kfs.cli.tables import Row
    from kfs.log.log import Log

#: Named as by Kafka's own tools.
_COLUMNS: Final = (
    *("TOPIC", "PARTITION", "LOG-START-OFFSET", "LAST-STABLE-OFFSET", "HIGH-WATERMARK", "LOG-END-OFFSET"),
    *("FIRST-TIME", "LAST-TIME", "SIZE"),
)
_FAILED: Final = 1


@click.command()
@click.argument("log_dir", type=click.Path(readable=False))
@click.argument("path", default="/")
@also_option
@source_options
@click.option(
    "-l",
    "--long",
    "is_long",
    is_flag=True,
    help="Of all topics, or of a topic: the offsets, times and sizes of its partitions. Of other directories: mode,"
    " owner, size and time; a size may take a pass over the segment.",
)
def ls(log_dir: str, path: str, also: tuple[str, ...], source: SourceOptions, is_long: bool) -> None:
    """List PATH of the tree over LOG_DIR, without mounting it.

    \b
      kfs ls /var/lib/kafka/data                   the topics
      kfs ls -l /var/lib/kafka/data                the offsets, times and size of every partition
      kfs ls /var/lib/kafka/data orders/0/segment

    The times are those of the first and the last record in batches that can be read. Standard error names
    what can't be read; the exit code is 1 if that is one of the two records, or a whole partition.
    """
    topics = _topics_at(path)
    if is_long and topics is not None:
        _list_partitions(source, (log_dir, *also), topics)
        return
    with source.opened(log_dir, *also) as tree:
        for line in _lines(path, tree.resolve(path), is_long):
            sys.stdout.write(line + "\n")


def _topics_at(path: str) -> list[Records] | None:
    """Return the topic that a path names, none for all of them; None if it is another path."""
    if not path.strip("/"):
        return []
    place = records_at(path)
    return None if place is None or place.partition is not None else [place]


def _list_partitions(source: SourceOptions, log_dirs: Sequence[str], topics: Sequence[Records]) -> None:
    from kfs.cli.tables import print_table  # only here: names and files need none of these
    from kfs.read.isolation_level import IsolationLevel
    from kfs.read.log_summary import LogSummary
    from kfs.render.timestamps import iso_time

    level, is_complete = IsolationLevel(source.isolation), True

    def row(log: Log) -> Row:
        nonlocal is_complete
        try:
            found = LogSummary.of(log, level)
        except SourceLost as error:
            messages.say(str(error))
            is_complete = False
            return [log.topic, log.partition, *[None] * (len(_COLUMNS) - 2)]
        for each in found.errors:
            messages.say(str(each))
        is_complete &= not found.errors
        offsets = [found.log_start_offset, found.last_stable_offset, found.high_watermark, found.log_end_offset]
        times = [None if time is None else iso_time(time) for time in (found.first_timestamp, found.last_timestamp)]
        return [log.topic, log.partition, *offsets, *times, found.size]

    with source.opened_data(*log_dirs) as data_dir:
        print_table(_COLUMNS, (row(place.log) for place in places_of(data_dir, topics, deleted=False)))
    if not is_complete:
        raise click.exceptions.Exit(_FAILED)


def _lines(path: str, node: Node, is_long: bool) -> Iterator[str]:
    if not isinstance(node, Directory):
        yield long_line(shown(path), node) if is_long else shown(path)
        return
    damage: CorruptData | None = None
    for entry in node.entries(with_attributes=is_long):
        name = shown(entry.name)
        if not is_long:
            yield name
            continue
        try:
            yield settled(partial(_long, node, entry.name))
        except NotFound:  # gone since it was listed
            continue
        except CorruptData as error:  # already reported; list the others anyway
            damage = error
            yield f"?????????? ? ? {'?':>12} {'?':<24} {name}"
    if damage is not None:
        raise damage


def _long(directory: Directory, name: str) -> str:
    child = directory.lookup(name)
    text = shown(name)
    return long_line(f"{text} -> {child.target()}" if isinstance(child, Symlink) else text, child)
