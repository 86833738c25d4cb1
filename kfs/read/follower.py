"""Follows the partitions of a data directory: the new records of each in offset order, and new partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from kfs.errors import CorruptData, Shortage, SourceLost
from kfs.format.checkpoint import TopicPartition
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.problem import DamagePolicy
from kfs.read.followed_log import Event, FollowedLog, Following
from kfs.read.split_reader import SelectedRecords
from kfs.storage.changes import Changes
from kfs.storage.open_files import FileChanged

#: How often to look, in seconds, where the system tells of every change, and where it doesn't (NFS).
_SELDOM_SECONDS: Final = 5.0
_OFTEN_SECONDS: Final = 0.5
#: When to look once more, in seconds, after a log directory has changed: what is known of it may be that old.
_AGAIN_SECONDS: Final = 0.6
#: The least time from one look to the next: what is appended meanwhile is read together.
_LEAST_SECONDS: Final = 0.02
#: How many partitions that are gone are remembered, so that one that comes back isn't read again.
_MOST_GONE: Final = 4096

#: Begins a partition that exists when following begins; yields what there is to say, or to read already.
Begin: TypeAlias = "Callable[[FollowedLog, Log], Iterator[SelectedRecords | Event]]"


def at_end(followed: FollowedLog, log: Log) -> Iterator[SelectedRecords | Event]:
    """Begin at the end: only what is appended from now on."""
    followed.begin_at_end(log)
    return iter(())


def at_start(followed: FollowedLog, log: Log) -> Iterator[SelectedRecords | Event]:
    """Begin where the selection begins."""
    followed.begin_at_start(log)
    return iter(())


@dataclass(frozen=True, slots=True)
class FollowedRecords:
    """Some wanted records of a log, or damage in it."""

    log: Log
    selected: SelectedRecords


class Follower:
    """Follows the partitions that ``partitions`` returns at each look.

    Partitions that exist at the first look begin as ``begin`` says, those that appear later at their start. Records of
    one partition come in offset order; partitions are read in turn. Not thread-safe, except for :meth:`wake`. Call
    :meth:`close` at the end.
    """

    def __init__(
        self,
        data_dir: DataDir,
        partitions: Callable[[], Iterable[TopicPartition]],
        following: Following,
        begin: Begin = at_end,
    ) -> None:
        self._data_dir = data_dir
        self._partitions = partitions
        self._following = following
        self._begin = begin
        self._changes = Changes(often=_OFTEN_SECONDS, seldom=_SELDOM_SECONDS)
        self._followed: dict[TopicPartition, FollowedLog] = {}
        self._gone: dict[TopicPartition, FollowedLog] = {}
        #: Partitions of the first look that haven't begun yet.
        self._first: set[TopicPartition] | None = None
        #: The partitions by the directories of their copies, as they were last watched.
        self._places: dict[str, TopicPartition] = {}
        #: What couldn't be read last time, and why.
        self._trouble: dict[TopicPartition | None, str] = {}
        #: The directories that have changed since the last look; None: any may have.
        self._changed: Collection[str] | None = None
        self._looked = -1.0
        #: When everything has to be looked at again.
        self._due = -1.0

    @property
    def is_done(self) -> bool:
        """Whether nothing more is wanted of any partition, whatever is appended."""
        return bool(self._followed) and not self._first and all(each.is_done for each in self._followed.values())

    def close(self) -> None:
        """Release what is open; the data directory stays open."""
        self._changes.close()

    # -- reading

    def read_on(self) -> Iterator[FollowedRecords | Event]:
        """Yield what there is to read now, and what happened.

        Raises:
            CorruptData: there is damage, and that isn't to be skipped. The records before it were yielded.
        """
        self._looked = time.monotonic()
        some = None if self._changed is None else {self._places.get(path) for path in self._changed}
        if some is None or None in some:
            yield from self._look_at_all(is_event=some is not None)
        else:
            for each in sorted(filter(None, some)):
                yield from self._read_partition(each)

    def _look_at_all(self, *, is_event: bool) -> Iterator[FollowedRecords | Event]:
        try:
            there = sorted(self._partitions())
        except (SourceLost, Shortage) as error:
            self._due = self._looked + _OFTEN_SECONDS
            yield from self._say_trouble(None, error)
            return
        yield from self._say_end_of_trouble(None)
        is_first = self._first is None
        if self._first is None:
            self._first = set(there)
        yield from self._drop_gone(there)
        self._watch(there)  # first, so that a change from now on ends the next wait
        for each in there:
            yield from self._read_partition(each)
        self._due = self._looked + (_AGAIN_SECONDS if is_event or is_first else self._changes.poll_seconds)

    def _watch(self, there: Iterable[TopicPartition]) -> None:
        """Watch the log directories, and the directories of all copies of the partitions."""
        self._places.clear()
        for each in there:
            log = self._data_dir.log(each.topic, each.partition)
            if log is not None:
                for directory in (log.directory, *self._data_dir.other_copies(log.directory)):
                    self._places[directory.path] = each
        self._changes.watch([*(log_dir.path for log_dir in self._data_dir.log_dirs), *self._places])

    def _drop_gone(self, there: Collection[TopicPartition]) -> Iterator[Event]:
        for each in sorted(self._followed.keys() - set(there), key=str):
            self._gone[each] = self._followed.pop(each)
            while len(self._gone) > _MOST_GONE:
                del self._gone[next(iter(self._gone))]
            yield Event(f"{each} is gone")
        assert self._first is not None
        self._first &= set(there)

    def _read_partition(self, partition: TopicPartition) -> Iterator[FollowedRecords | Event]:
        try:
            log = self._data_dir.log(partition.topic, partition.partition)
            if log is None:
                return
            log.look_again()
            if not log.segments:  # made just now, or about to be deleted
                return
            for item in self._items_of(partition, log):
                if isinstance(item, Event):
                    yield item
                    continue
                yield FollowedRecords(log, item)
                if item.problems and self._following.on_damage is DamagePolicy.FAIL:
                    raise item.problems[0].error()
        except (FileChanged, SourceLost, Shortage) as error:
            yield from self._say_trouble(partition, error)
        except CorruptData as error:
            if self._following.on_damage is DamagePolicy.FAIL:
                raise
            yield from self._say_trouble(partition, error)
        else:
            yield from self._say_end_of_trouble(partition)

    def _items_of(self, partition: TopicPartition, log: Log) -> Iterator[SelectedRecords | Event]:
        followed = self._followed.get(partition) or self._gone.pop(partition, None)
        if followed is None:
            assert self._first is not None
            followed = FollowedLog(self._following)
            begin = self._begin if partition in self._first else at_start
            yield from begin(followed, log)
            self._first.discard(partition)
        self._followed[partition] = followed
        if not followed.is_done:
            yield from followed.read_on(log)

    def _say_trouble(self, partition: TopicPartition | None, error: Exception) -> Iterator[Event]:
        text = str(error)
        if self._trouble.get(partition) != text:
            self._trouble[partition] = text
            yield Event(f"{text}: waiting for it" if partition is None else f"{partition}: {text}: waiting for it")

    def _say_end_of_trouble(self, partition: TopicPartition | None) -> Iterator[Event]:
        if self._trouble.pop(partition, None) is not None:
            yield Event("the log directories are back" if partition is None else f"{partition} can be read again")

    # -- waiting

    def wait(self, reader: int | None = None) -> None:
        """Wait until there may be more to read; ``reader`` is a pipe that is written to.

        Raises:
            BrokenPipeError: nobody reads the pipe any more.
        """
        time.sleep(max(0.0, self._looked + _LEAST_SECONDS - time.monotonic()))
        due = min(self._due, self._looked + _OFTEN_SECONDS) if self._trouble or self._first else self._due
        changed = self._changes.wait(due - time.monotonic(), reader)
        self._changed = None if time.monotonic() >= due or not changed else changed

    def wake(self) -> None:
        """End a wait."""
        self._changes.wake()
