"""``kfs groups``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Final

import click

from kfs.cli.messages import messages, say_what_is_logged
from kfs.cli.options import json_option, max_batch_bytes_option, topic_option_of, until_option
from kfs.cli.state_problems import say_state_problems
from kfs.cli.tables import print_table
from kfs.errors import NotFound
from kfs.internal.broker_state import BrokerState
from kfs.internal.committed_offset import OffsetInLog
from kfs.internal.group_json import group_json
from kfs.internal.group_table import MEMBERS, OFFSETS, STATE
from kfs.internal.groups import Group, Groups
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import topic_filter
from kfs.log.storage import Storage
from kfs.storage.memory import collect_garbage_less, keep_freed_memory

_VIEWS: Final = {"offsets": OFFSETS, "members": MEMBERS, "state": STATE}
_EXIT_INCOMPLETE: Final = 1


@click.command()
@click.argument("paths", metavar="LOG_DIR...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="PATTERN",
    help="Only groups that match, such as 'billing*'. Repeatable.",
)
@topic_option_of("Only offsets of topics that match, and groups that have some.")
@click.option("--offsets", "view", flag_value="offsets", default=True, help="Committed offsets and lag (the default).")
@click.option("--members", "view", flag_value="members", help="Members and their assignments.")
@click.option("--state", "view", flag_value="state", help="One line a group.")
@json_option("One JSON object a group, with all fields.")
@until_option("Where lag is counted to: the end of the log, or the high watermark checkpoint.")
@max_batch_bytes_option
def groups(
    paths: tuple[str, ...],
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    view: str,
    as_json: bool,
    until: str,
    max_batch_bytes: int,
) -> None:
    """Show consumer groups from LOG_DIR...: offsets, lag, members, state.

    It shows what kafka-consumer-groups --describe does, from __consumer_offsets; lag is counted to the ends of the logs
    in the same directories. Groups may be classic, consumer, share or streams groups. On a terminal it prints a table;
    elsewhere tabs separate the fields, and the first line names them.

    docs/GROUPS.md says what each field means.

    \b
    Exit codes: 0 all was read, 1 something is damaged, can't be read, or isn't here.
    """
    say_what_is_logged()
    keep_freed_memory()
    collect_garbage_less()
    data_dir = DataDir(paths, Storage(max_batch_bytes=max_batch_bytes), until_high_watermark=until == "hw")
    state = BrokerState(data_dir).groups
    state.check_here()
    now = time.time()
    wanted = _Wanted(state, groups, topics)
    chosen = wanted.groups()
    if as_json:
        for group, standings in chosen:
            click.echo(json.dumps(group_json(group, standings, now), separators=(",", ":")))
    else:
        table = _VIEWS[view]
        print_table(table.columns, (row for group, found in chosen for row in table.rows(group, found, now)))
    is_incomplete = (
        say_state_problems(state.state_problems(), ".kfs/groups/problems.jsonl") or wanted.say_what_is_missing()
    )
    data_dir.close()
    if is_incomplete:
        raise click.exceptions.Exit(_EXIT_INCOMPLETE)


class _Wanted:
    """The groups that match the given patterns; a pattern without a wildcard must match a group."""

    def __init__(self, state: Groups, groups: Sequence[str], topics: Sequence[str]) -> None:
        """Find the groups.

        Raises:
            NotFound: names or patterns were given, and no group matches.
        """
        self._state = state
        self._patterns = groups
        self._matches_topic = topic_filter(topics)
        matches_group = topic_filter(groups)
        self._names = [name for name in state.names() if matches_group is None or matches_group(name)]
        self._missing = [self._not_found(name) for name in groups if _is_name(name) and name not in state]
        if groups and not self._names:
            others = [pattern for pattern in groups if not _is_name(pattern)]
            share = (each.reason for each in state.state_problems().shares if others)
            reasons = [*self._missing, *(f"no group matches {pattern!r}" for pattern in others), *share]
            raise NotFound("\n".join(reasons))

    def groups(self) -> Iterator[tuple[Group, list[OffsetInLog]]]:
        """Yield the groups, each with the positions and lags of its partitions."""
        for name in self._names:
            group = self._state.group(name)
            if group is not None and self._matches_topic is not None:
                group = group.only(self._matches_topic)
            if group is not None and (group.partitions or self._matches_topic is None):
                self._note_incomplete(group)
                yield group, [self._state.standing(partition) for partition in group.partitions]

    def say_what_is_missing(self) -> bool:
        """Print what the answer lacks because the data isn't here; return whether it lacks anything."""
        for reason in self._missing:
            messages.say(reason)
        is_all_by_name = bool(self._patterns) and all(map(_is_name, self._patterns))
        return bool(self._missing) or (self._state.state_problems().is_partial and not is_all_by_name)

    def _not_found(self, name: str) -> str:
        why = self._state.why_not_found(name)
        return f"no group matches {name!r}" + (f": {why}" if why is not None else "")

    def _note_incomplete(self, group: Group) -> None:
        why = self._state.why_incomplete(group)
        if why is not None:
            self._missing.append(f"group {group.name!r} is incomplete: {why}")


def _is_name(pattern: str) -> bool:
    return not any(wildcard in pattern for wildcard in "*?[")
