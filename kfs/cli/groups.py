"""``kfs groups``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import click

from kfs.cli.messages import messages, say_what_is_logged, shown
from kfs.cli.options import max_batch_bytes_option
from kfs.errors import NotFound, UnusableSource
from kfs.internal.committed_offset import Standing
from kfs.internal.group_json import group_json
from kfs.internal.group_table import MEMBERS, OFFSETS, STATE, Table, cell_text
from kfs.internal.groups import OFFSETS_TOPIC, Group, Groups
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import topic_filter
from kfs.log.storage import Storage

_VIEWS: Final = {"offsets": OFFSETS, "members": MEMBERS, "state": STATE}
_EXIT_INCOMPLETE: Final = 1
_MOST_SAID: Final = 10
_WIDEST: Final = 100_000  # columns


@click.command()
@click.argument("paths", metavar="LOG_DIR...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="PATTERN",
    help="Only groups that match, such as 'billing*'. Repeatable.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="PATTERN",
    help="Only offsets of topics that match, and groups that have some. Repeatable.",
)
@click.option("--offsets", "view", flag_value="offsets", default=True, help="Committed offsets and lag (the default).")
@click.option("--members", "view", flag_value="members", help="The members of the groups, and what they are assigned.")
@click.option("--state", "view", flag_value="state", help="One line a group.")
@click.option("--json", "is_json", is_flag=True, help="One group a line as JSON, with everything in it.")
@click.option(
    "--until",
    type=click.Choice(["end", "hw"]),
    default="end",
    show_default=True,
    help="What lag is reckoned to: the end of the log, or the high watermark checkpoint.",
)
@max_batch_bytes_option
def groups(
    paths: tuple[str, ...],
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    view: str,
    is_json: bool,
    until: str,
    max_batch_bytes: int,
) -> None:
    """Consumer groups, as the log directories LOG_DIR... tell of them: offsets, lag, members, state.

    What kafka-consumer-groups --describe asks a broker for is read from __consumer_offsets, and lag is reckoned to
    the ends of the logs in the same directories. Classic groups, those of the consumer protocol, share groups
    and streams groups. On a terminal it is a table; elsewhere fields are separated by tabs, the first line names them.

    docs/GROUPS.md says what each field means.

    \b
    Exit codes: 0 all was read, 1 something is damaged, can't be read, or isn't here.
    """
    say_what_is_logged()
    data_dir = DataDir(paths, Storage(max_batch_bytes=max_batch_bytes), until_high_watermark=until == "hw")
    state = Groups(data_dir)
    if not state.are_here:
        raise UnusableSource(f"{', '.join(paths)}: no partition of {OFFSETS_TOPIC}, which is where groups are kept")
    now = time.time()
    chosen = _chosen(state, groups, topics)
    if is_json:
        for group, standings in chosen:
            click.echo(json.dumps(group_json(group, standings, now), separators=(",", ":")))
    else:
        _print_table(_VIEWS[view], chosen, now)
    data_dir.close()
    if _say_what_is_wrong(state):
        raise click.exceptions.Exit(_EXIT_INCOMPLETE)


def _chosen(state: Groups, groups: Sequence[str], topics: Sequence[str]) -> Iterator[tuple[Group, list[Standing]]]:
    matches_group, matches_topic = topic_filter(groups), topic_filter(topics)
    names = [name for name in state.names() if matches_group is None or matches_group(name)]
    if groups and not names:
        raise NotFound(f"no group matches {', '.join(map(repr, groups))}")
    for name in names:
        group = state.group(name)
        if group is not None and matches_topic is not None:
            group = group.only(matches_topic)
        if group is not None and (group.partitions or matches_topic is None):
            yield group, [state.standing(partition) for partition in group.partitions]


def _print_table(table: Table, groups: Iterator[tuple[Group, list[Standing]]], now: float) -> None:
    rows = (map(cell_text, row) for group, standings in groups for row in table.rows(group, standings, now))
    if not sys.stdout.isatty():
        click.echo("\t".join(table.columns))
        for row in rows:
            click.echo("\t".join(map(shown, row)))
        return
    # Only here: it is large, and a pipe has no use for it.
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table as RichTable
    from rich.text import Text

    all_rows = [[shown(cell) for cell in row] for row in rows]
    used = [at for at in range(len(table.columns)) if any(row[at] != cell_text(None) for row in all_rows)]
    drawn = RichTable(*(table.columns[at] for at in used), box=None, pad_edge=False)
    for cells in all_rows:
        drawn.add_row(*(Text(cells[at]) for at in used))
    # As wide as it is, and wrapped by the terminal: cells cut or folded could not be read, nor copied.
    console = Console(width=_WIDEST)
    console.width = Measurement.get(console, console.options, drawn).maximum
    console.print(drawn)


def _say_what_is_wrong(state: Groups) -> bool:
    """Say what was not understood; return whether something isn't shown for that."""
    for caveat in state.caveats():
        messages.say(f"{caveat.file}: {caveat.reason}")
    count = state.unread_dropped
    for log, record in state.unread():
        count += 1
        if count <= _MOST_SAID:
            messages.say(f"{log.topic}-{log.partition}: offset {record.offset}: {record.reason}")
    if count > _MOST_SAID:
        messages.say(
            f"and {count - _MOST_SAID} more records that can't be read: see .kfs/groups/problems.jsonl of a mount"
        )
    return bool(count) or state.is_damaged
