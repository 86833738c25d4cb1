"""``kfs offsets``."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import Any, Final, TypeVar

import click

from kfs.cli.messages import messages, say_what_is_logged
from kfs.cli.options import dry_run_option, json_option, topic_option
from kfs.cli.tables import Row, print_table
from kfs.errors import NotFound, OffsetStoreError, StoreUnreachable
from kfs.format.checkpoint import TopicPartition
from kfs.internal.broker_state import BrokerState
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import topic_filter
from kfs.log.identity import UNKNOWN, Identity
from kfs.log.storage import Storage
from kfs.spark.offsets.progress import Progress, check_position
from kfs.spark.offsets.reset_plan import is_reset_plan, reset_plan
from kfs.spark.offsets.resetting import NewPosition, Target, new_positions, parse_target
from kfs.spark.offsets.standings import PartitionStanding, group_fields, standings, writer_text
from kfs.spark.offsets.store import OffsetStore, Unreadable, WritableStore
from kfs.spark.offsets.store_url import open_store, open_writable_store
from kfs.storage.atomic_file import replacing

_PATIENCE: Final = 5.0  # seconds
_EXIT_INCOMPLETE: Final = 1
_SHOWN: Final = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-START-OFFSET", "LOG-END-OFFSET", "LAG"),
    *("TOPIC-ID", "LEADER-EPOCH", "EPOCH", "WRITER", "NOTE"),
)
_SET: Final = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", "TOPIC-ID", "LEADER-EPOCH", "NOTE")
Command = TypeVar("Command", bound=Callable[..., Any])


class _Position(click.ParamType[tuple[TopicPartition, int]]):
    """TOPIC/PARTITION=OFFSET."""

    name = "topic/partition=offset"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[TopicPartition, int]:
        match = re.fullmatch(r"([^/=]+)/([0-9]{1,10})=([0-9]{1,19})", value)
        if match is None:
            self.fail(f"{value!r} is not TOPIC/PARTITION=OFFSET, such as orders/0=1000", param, ctx)
        partition, offset = TopicPartition(match[1], int(match[2])), int(match[3])
        try:
            check_position(partition, offset)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return partition, offset


class _Target(click.ParamType[Target]):
    """An offset, a time, earliest or latest."""

    name = "offset|time|earliest|latest"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        try:
            return parse_target(value)
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is neither an offset, a time such as 2020-11-27T03:12, earliest nor latest", param, ctx
            )


_group_option = click.option("--group", required=True, metavar="NAME", help="The group, or application.")
_log_dirs_argument = click.argument("log_dirs", metavar="[LOG_DIR]...", nargs=-1, type=click.Path(readable=False))


def _changing(command: Command) -> Command:
    """Add the options of commands that set positions."""
    force = click.option(
        "--force",
        is_flag=True,
        help="Fence a writer that may still be running, and replace stored positions that can't be read.",
    )
    return force(dry_run_option(command))


@click.group()
def offsets() -> None:
    """Show and move the positions that jobs keep in SQLite, Redis or ZooKeeper; show those in __consumer_offsets.

    \b
    STORE is one of
      sqlite:///var/lib/job/progress.db
      redis://[user:password@]host[:port][/database]
      zookeeper://[user:password@]host[:port][,host[:port]...][/chroot]
      kafka:LOG_DIR[,LOG_DIR...]     the consumer groups of log directories; read-only
      group:NAME                     one of them, in the LOG_DIR... that follow; read-only

    A password may be in KFS_STORE_PASSWORD instead.
    """
    say_what_is_logged()


@offsets.command()
@click.argument("store_url", metavar="STORE")
@_log_dirs_argument
@click.option(
    "--group", "groups", multiple=True, metavar="NAME", help="Only that group. Repeatable.  [default: all of the store]"
)
@json_option("One JSON object a group, with all fields.")
def show(store_url: str, log_dirs: tuple[str, ...], groups: tuple[str, ...], as_json: bool) -> None:
    """Show the positions in STORE and, with LOG_DIR..., how far they are behind the ends of the logs.

    On a terminal it prints a table; elsewhere tabs separate the fields, and the first line names them.
    If entries can't be read, standard error names them, the others are shown, and the exit code is 1.

    \b
      kfs offsets show sqlite:///var/lib/job/progress.db /var/lib/kafka/data
      kfs offsets show redis://cache:6379/0 --group my-app --json | jq '.partitions[].position'
    """
    with _opened(open_store(store_url, log_dirs, patience=_PATIENCE), log_dirs) as (store, data_dir):
        rows: list[Row] = []
        is_incomplete = False
        for group in groups or store.groups():
            # A group that was named must exist; if all are shown, some may have no positions (yet).
            inspected = _inspected(store, group, has_to_be_there=bool(groups))
            is_incomplete |= inspected is None or bool(inspected[1])
            if inspected is None:
                continue
            progress, unreadable = inspected
            found = list(standings(progress, data_dir, {each.partition for each in unreadable if each.partition}))
            if as_json:
                click.echo(json.dumps(group_fields(store.name, group, progress, found), separators=(",", ":")))
            else:
                rows += _rows(group, progress, found)
    if not as_json and (rows or not is_incomplete):
        print_table(_SHOWN, rows)
    if is_incomplete:
        raise click.exceptions.Exit(_EXIT_INCOMPLETE)


@offsets.command("set")
@click.argument("store_url", metavar="STORE")
@click.argument("positions", metavar="TOPIC/PARTITION=OFFSET...", nargs=-1, required=True, type=_Position())
@_group_option
@_changing
def set_(
    store_url: str, positions: tuple[tuple[TopicPartition, int], ...], group: str, dry_run: bool, force: bool
) -> None:
    """Set positions of a group in STORE; those of other partitions stay.

    A position is the next offset to read. The group's current writer is fenced: it stops at its next
    batch. If it may be running, this needs --force.

    \b
      kfs offsets set sqlite:///var/lib/job/progress.db --group export orders/0=1000 orders/1=1200
    """
    if len(dict(positions)) < len(positions):
        raise click.UsageError("a partition is named twice")
    with _opened(open_writable_store(store_url, patience=_PATIENCE)) as (store, _):
        wanted = [NewPosition(partition, offset) for partition, offset in positions]
        _set(store, {group: wanted}, dry_run=dry_run, force=force)


@offsets.command()
@click.argument("from_url", metavar="FROM")
@click.argument("to_url", metavar="TO")
@_log_dirs_argument
@click.option(
    "--group", "groups", multiple=True, metavar="NAME", help="Only that group. Repeatable.  [default: all of FROM]"
)
@click.option("--to-group", metavar="NAME", help="The group in TO.  [default: the same name]")
@topic_option
@_changing
def copy(
    from_url: str,
    to_url: str,
    log_dirs: tuple[str, ...],
    groups: tuple[str, ...],
    to_group: str | None,
    topics: tuple[str, ...],
    dry_run: bool,
    force: bool,
) -> None:
    """Copy the positions of groups from one store to another, such as from a broker's to a job's, or to a new cluster.

    Positions of partitions that FROM doesn't have stay as they are in TO. If TO is a file, FILE.csv, it is
    what kafka-consumer-groups takes, which sets the positions of the groups in another cluster.

    \b
      kfs offsets copy group:billing zookeeper://zk1,zk2 /var/lib/kafka/data
      kfs offsets copy redis://cache sqlite:///var/lib/job/progress.db --group my-app --to-group export
      kfs offsets copy group:billing billing.csv /var/lib/kafka/data
    """
    with _opened(open_store(from_url, log_dirs, patience=_PATIENCE)) as (source, _):
        found = _to_be_copied(source, groups, topic_filter(topics))
    if to_group is not None:
        if len(found) > 1:
            raise click.UsageError(f"--to-group names one group: choose one of {len(found)} with --group")
        [wanted] = found.values()
        found = {to_group: wanted}
    if is_reset_plan(to_url):
        if force:
            raise click.UsageError("--force is for stores: a file has no writer")
        _write_plan(to_url, found, dry_run=dry_run)
        return
    with _opened(open_writable_store(to_url, patience=_PATIENCE)) as (store, _):
        _set(store, found, dry_run=dry_run, force=force)


def _to_be_copied(
    source: OffsetStore, groups: Sequence[str], matches: Callable[[str], bool] | None
) -> dict[str, list[NewPosition]]:
    """Return the positions of each group that has some that match; of those named, each must."""
    found: dict[str, list[NewPosition]] = {}
    for group in groups or source.groups():
        progress = _stored(source, group) if groups else source.load(group)
        if progress.batch is not None:
            raise OffsetStoreError(
                f"{source.name}: group {group}: the files of its last batch may not all be in place: "
                "start its job once to complete it"
            )
        wanted = [
            NewPosition(partition, offset, identity=progress.identities.get(partition, UNKNOWN))
            for partition, offset in sorted(progress.positions.items())
            if matches is None or matches(partition.topic)
        ]
        if wanted:
            found[group] = wanted
        elif groups:
            raise NotFound(f"{source.name}: group {group}: no positions that match")
    if not found:
        raise NotFound(f"{source.name}: no positions that match")
    return found


def _write_plan(path: str, found: Mapping[str, list[NewPosition]], *, dry_run: bool) -> None:
    """Write the positions to be set in another cluster, and say what sets them."""
    plan = reset_plan({group: {each.partition: each.offset for each in wanted} for group, wanted in found.items()})
    if not dry_run:
        try:
            with replacing(path) as file:
                file.write(plan.encode(errors="surrogateescape"))
        except OSError as error:
            raise OffsetStoreError(f"can't write {path}: {error.strerror}") from None
    print_table(_SET, (row for group, wanted in found.items() for row in _set_rows(group, wanted, Progress())))
    if dry_run:
        messages.say("nothing was written: --dry-run")
        return
    named = shlex.join(word for group in found for word in ("--group", group))
    command = f"kafka-consumer-groups --bootstrap-server HOST:PORT --reset-offsets {named} --from-file"
    messages.say(f"to set these: {command} {shlex.quote(path)} --execute")


@offsets.command()
@click.argument("store_url", metavar="STORE")
@_log_dirs_argument
@_group_option
@click.option(
    "--to",
    "target",
    type=_Target(),
    required=True,
    help="An offset, earliest, latest, or a time: ISO 8601, UTC unless it has a zone.",
)
@topic_option
@_changing
def reset(
    store_url: str,
    log_dirs: tuple[str, ...],
    group: str,
    target: Target,
    topics: tuple[str, ...],
    dry_run: bool,
    force: bool,
) -> None:
    """Set the positions of a group in STORE to an offset, a time, or the earliest or latest that LOG_DIR... have.

    This covers all partitions of the group, and with LOG_DIR... all others of its topics, or of those that
    --topic names. A time selects the first record at or after it. If one partition can't be looked up,
    nothing is set.

    \b
      kfs offsets reset sqlite:///var/lib/job/progress.db /var/lib/kafka/data --group export --to 2020-11-27T03:00
      kfs offsets reset zookeeper://zk1 /var/lib/kafka/data --group billing --to earliest --topic 'orders*' --dry-run
    """
    with _opened(open_writable_store(store_url, patience=_PATIENCE), log_dirs) as (store, data_dir):
        progress, unreadable = _to_be_set(store, group, force=force)
        stored = {*progress.positions, *(each.partition for each in unreadable if each.partition)}
        wanted = new_positions(stored, data_dir, topic_filter(topics), target)
        _set(store, {group: wanted}, dry_run=dry_run, force=force)


_Store = TypeVar("_Store", bound=OffsetStore)


@contextmanager
def _opened(store: _Store, log_dirs: Sequence[str] = ()) -> Iterator[tuple[_Store, DataDir | None]]:
    with store, closing(DataDir(log_dirs, Storage())) if log_dirs else nullcontext() as data_dir:
        if data_dir is not None:
            BrokerState(data_dir)
        yield store, data_dir


def _stored(store: OffsetStore, group: str) -> Progress:
    progress = store.load(group)
    if progress.is_empty:
        raise _not_stored(store, group)
    return progress


def _inspected(
    store: OffsetStore, group: str, *, has_to_be_there: bool
) -> tuple[Progress, tuple[Unreadable, ...]] | None:
    """Return a group's stored progress and its unreadable entries, which are reported; None if nothing is readable."""
    try:
        progress, unreadable = store.inspect(group)
        if has_to_be_there and progress.is_empty and not unreadable:
            raise _not_stored(store, group)
    except StoreUnreachable:
        raise
    except (NotFound, OffsetStoreError) as error:
        messages.say(str(error))
        return None
    for each in unreadable:
        messages.say(str(each.error))
    return None if unreadable and progress.is_empty else (progress, unreadable)


def _not_stored(store: OffsetStore, group: str) -> NotFound:
    return NotFound(f"{store.name}: no positions of group {group!r}")


def _to_be_set(store: WritableStore, group: str, *, force: bool) -> tuple[Progress, tuple[Unreadable, ...]]:
    """Return a group's stored progress and its unreadable entries, which need ``force``, as they will be replaced."""
    progress, unreadable = store.inspect(group)
    if unreadable and not force:
        raise OffsetStoreError(f"{unreadable[0].error}; --force replaces it")
    return progress, unreadable


def _set(store: WritableStore, positions: Mapping[str, list[NewPosition]], *, dry_run: bool, force: bool) -> None:
    """Set the positions of groups, and print the old and the new ones."""
    before = {group: _checked(store, group, wanted, force=force) for group, wanted in positions.items()}
    rows: list[Row] = []
    try:
        for group, wanted in positions.items():
            if not dry_run:
                offsets = {each.partition: each.offset for each in wanted}
                known = {each.partition: each.identity for each in wanted if each.identity is not None}
                store.set_positions(group, offsets, force=force, identities=known)
            rows += _set_rows(group, wanted, before[group][0])
    finally:
        if rows:
            print_table(_SET, rows)
    for progress, unreadable in before.values():
        for replaced in unreadable:
            messages.say(f"{replaced.error}: {'would be' if dry_run else 'is'} replaced")
        if progress.batch is not None:
            count = len(progress.batch.files)
            messages.say(f"{count} files of the last batch are put in place when its job starts again")
    if dry_run:
        messages.say("nothing was set: --dry-run")


def _checked(
    store: WritableStore, group: str, wanted: Sequence[NewPosition], *, force: bool
) -> tuple[Progress, tuple[Unreadable, ...]]:
    """Return what is stored of a group if the positions may be set in it."""
    before, unreadable = _to_be_set(store, group, force=force)
    if not force:
        store.refuse_if_written(group, before)
    store.refuse_if_unreadable(unreadable, {each.partition for each in wanted})
    return before, unreadable


def _set_rows(group: str, wanted: Sequence[NewPosition], before: Progress) -> Iterator[Row]:
    for each in wanted:
        name = each.partition
        # As in the store: without a new identity, the position keeps the known topic id.
        identity = each.identity or Identity(before.identities.get(name, UNKNOWN).topic_id)
        offsets_then_now = [before.positions.get(name), each.offset]
        yield [group, name.topic, name.partition, *offsets_then_now, *_identity_cells(identity), each.note]


def _rows(group: str, progress: Progress, found: list[PartitionStanding]) -> Iterator[Row]:
    held = [progress.epoch or None, writer_text(progress)]
    if not found:
        yield [group, *[None] * 8, *held, progress.note or "no positions yet"]
    for each in found:
        name, standing = each.partition, each.standing
        notes = "; ".join(filter(None, (each.note, progress.note)))
        ends = [standing.log_start_offset, standing.log_end_offset, standing.lag]
        of_log = _identity_cells(each.identity)
        yield [group, name.topic, name.partition, each.position, *ends, *of_log, *held, notes or None]


def _identity_cells(identity: Identity) -> tuple[str | None, int | None]:
    return None if identity.topic_id is None else str(identity.topic_id), identity.leader_epoch
