"""``kfs cat --follow``: prints records as they are appended."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import click

from kfs.cat.following import FollowingRequest
from kfs.cat.output import OutputFormat
from kfs.cli.messages import messages
from kfs.cli.places import Records, partitions_of, places_of
from kfs.format.checkpoint import TopicPartition
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.read.followed_log import Event, FollowedLog, Following
from kfs.read.follower import Begin, Follower, at_end, at_start
from kfs.read.split_reader import SelectedRecords
from kfs.tree.names import tree_name


@dataclass(frozen=True, slots=True)
class FollowedPlaces:
    """The partitions to follow, all if there are no ``records``, and where to begin in those that exist already.

    ``group`` is a consumer group to begin at the positions of, ``last`` a number of records; without both it is at the
    end, or with ``is_selected`` where the selection begins.
    """

    records: Sequence[Records]
    group: str | None = None
    last: int | None = None
    is_selected: bool = False

    def follow(self, data_dir: DataDir, following: Following, output: OutputFormat) -> int:
        """Print what is appended, until nothing more is wanted; return the exit code.

        Raises:
            NotFound: a topic, a partition or the group doesn't exist.
            CorruptData: there is damage, and that isn't to be skipped.
            BrokenPipeError: nobody reads standard output any more.
        """
        places_of(data_dir, self.records, deleted=False)
        records, begin = self._beginning(data_dir)
        follower = Follower(data_dir, partial(partitions_of, data_dir, records), following, begin)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends it as it ends tail: nothing has to be cleared up
        code = 0
        try:
            for item in FollowingRequest(follower, output, _path_of).write(sys.stdout.fileno()):
                if isinstance(item, Event):
                    messages.tell(item.text)
                else:
                    messages.say(str(item.error()))
                    code = 1
        finally:
            follower.close()
        return code

    def _beginning(self, data_dir: DataDir) -> tuple[Sequence[Records], Begin]:
        if self.group is not None:
            positions = _positions_of(data_dir, self.group)
            topics = sorted({each.topic for each in positions})
            return self.records or [Records(topic) for topic in topics], partial(_at_position, self.group, positions)
        if self.last is not None:
            return self.records, partial(_with_last, self.last)
        return self.records, at_start if self.is_selected else at_end


def check_follow(before: int | None, refused: Mapping[str, bool], against_group: Mapping[str, bool]) -> None:
    """Raise a usage error for what can't be combined with ``--follow``.

    ``refused`` has the names of options that exclude it, ``against_group`` of those that exclude ``--group``, and both
    whether they are given. ``before`` is a time in milliseconds.
    """
    for name in (name for name, is_given in refused.items() if is_given):
        raise click.UsageError(f"{name} can't be used with --follow, which prints records as they are appended")
    for name in (name for name, is_given in against_group.items() if is_given):
        raise click.UsageError(f"--group and {name} exclude each other: both say where --follow begins")
    if before is not None and before <= time.time() * 1000:
        raise click.UsageError("--before is in the past: without --follow, all that there is of it is printed")


def _path_of(partition: TopicPartition) -> str:
    return f"{tree_name(partition.topic)}/{partition.partition}"


def _positions_of(data_dir: DataDir, group: str) -> Mapping[TopicPartition, int]:
    from kfs.spark.offsets.group_store import GroupStore  # only here: few commands need it

    with GroupStore(data_dir.paths, group) as store:
        return store.load().positions


def _with_last(count: int, followed: FollowedLog, log: Log) -> Iterator[SelectedRecords]:
    return followed.begin_with_last(log, count)


def _at_position(
    group: str, positions: Mapping[TopicPartition, int], followed: FollowedLog, log: Log
) -> Iterator[Event]:
    offset = positions.get(log.topic_partition)
    if offset is not None:
        yield from followed.begin_at(log, offset)
        return
    followed.begin_at_end(log)
    yield Event(f"{log.topic_partition}: group {group!r} has no offset there: beginning at the end")
