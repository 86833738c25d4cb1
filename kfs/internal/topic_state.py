"""The state of an internal topic: the result of replaying each partition's records, kept up to date."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

from kfs.errors import CorruptData, UnusableSource
from kfs.internal.coverage import Coverage, coverage_of
from kfs.internal.schema import Malformed
from kfs.internal.state_problems import MOST_UNREAD, StateProblems, UnreadRecord
from kfs.log.bulk import DecodedBatches
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.log_segments import LOOK_AGAIN_SECONDS
from kfs.log.problem import Problem
from kfs.read.log_follower import LogFollower
from kfs.storage.open_files import FileChanged

#: How often to restart reading of a log that is compacted or truncated meanwhile.
_MOST_ATTEMPTS: Final = 5


class TopicState(ABC):
    """The state of a partition after replaying the records read so far; :meth:`refresh` reads more.

    Not thread-safe.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        #: Increases with every change.
        self.version = 0
        #: By key, or by offset if the key is null.
        self.unread: dict[bytes | int, UnreadRecord] = {}
        self.unread_dropped = 0
        #: The number of damaged extents of the log.
        self.damaged = 0
        self._reader = LogFollower(log)
        self._forget()

    def refresh(self) -> None:
        """Read the new records, or all records if the earlier ones are no longer in the log.

        Raises:
            FileChanged: the log changes faster than it can be read.
        """
        for attempt in range(_MOST_ATTEMPTS):
            try:
                if self._reader.is_void:
                    self._forget()
                    self.unread.clear()
                    self.unread_dropped = self.damaged = 0
                    self._reader.begin()
                    self.version += 1
                for item in self._reader.read_on():
                    self.version += 1
                    if isinstance(item, DecodedBatches):
                        self._replay(item)
                        self.damaged += len(item.columns.faults)
                    else:
                        self.damaged += item.lost is not None
            except FileChanged:
                if attempt == _MOST_ATTEMPTS - 1:
                    raise
            else:
                return

    @abstractmethod
    def coordinated(self) -> Iterable[str]:
        """Return the names of the entries in this partition; their hashes selected the partition."""

    @abstractmethod
    def _forget(self) -> None:
        """Reset to the state before the first record."""

    @abstractmethod
    def _replay(self, records: DecodedBatches) -> None:
        """Apply records; skip those of a batch that lie below the reader's start."""

    def _keep_unread(
        self, records: DecodedBatches, offset: int, key: bytes | None, value: bytes | None, error: CorruptData
    ) -> None:
        name = offset if key is None else key
        if key is not None and value is None:  # the entry is deleted, whatever it was
            self.unread.pop(name, None)
            return
        if len(self.unread) >= MOST_UNREAD and name not in self.unread:
            self.unread_dropped += 1
            return
        row = bisect_left(records.table.last_offsets, offset, records.first, records.stop)
        position = records.table.positions[min(row, records.stop - 1)]
        self.unread[name] = UnreadRecord(records.file, position, offset, key, value, error.reason)


class RecordByRecord(TopicState):
    """A state without transactions, which applies one record at a time."""

    def _replay(self, records: DecodedBatches) -> None:
        if records.is_control:
            return
        columns = records.columns
        for index in range(bisect_left(columns.offsets, self._reader.start), len(columns)):
            if index in columns.faults:
                continue
            offset, key, value = columns.offsets[index], columns.key(index), columns.value(index)
            try:
                if key is None:
                    raise Malformed("a record without a key")
                self._apply(key, value, offset)
            except Malformed as error:
                self._keep_unread(records, offset, key, value, error)
            else:
                self.unread.pop(key, None)

    @abstractmethod
    def _apply(self, key: bytes, value: bytes | None, offset: int) -> None:
        """Apply a record.

        Raises:
            Malformed: it can't be decoded.
        """


State = TypeVar("State", bound=TopicState)


class TopicStates(Generic[State]):
    """The states of a topic's partitions, updated as their logs appear, grow and disappear.

    Not thread-safe.
    """

    def __init__(self, data_dir: DataDir, topic: str, make: type[State]) -> None:
        self._data_dir = data_dir
        self._topic = topic
        self._make = make
        self._by_partition: dict[int, State] = {}
        self._generation = 0
        #: The coverage, with the version of the states and the count in the metadata that it is valid for.
        self._coverage: tuple[tuple[int, int | None], Coverage] | None = None
        self._looked = -1.0

    @property
    def are_here(self) -> bool:
        """Whether there is a partition; this reads no logs."""
        return bool(self._data_dir.partitions(self._topic))

    def not_here(self, what: str) -> UnusableSource:
        """Return the error that no partition is here; ``what`` is the content of the topic."""
        paths = ", ".join(self._data_dir.paths)
        return UnusableSource(f"{paths}: no partition of {self._topic}, which is where {what} kept")

    def now(self) -> list[State]:
        """Return the states of all partitions, refreshed unless that happened a moment ago."""
        if self._looked < 0 or time.monotonic() - self._looked >= LOOK_AGAIN_SECONDS:
            self._refresh()
            self._looked = time.monotonic()
        return list(self._by_partition.values())

    @property
    def version(self) -> int:
        """A number that increases with every change."""
        return self._generation + sum(state.version for state in self._by_partition.values())

    def _refresh(self) -> None:
        """Refresh all states; if a log currently can't be read, its state stays unchanged."""
        partitions = self._data_dir.partitions(self._topic)
        logs = {partition: self._data_dir.log(self._topic, partition) for partition in partitions}
        for partition, state in list(self._by_partition.items()):
            served = logs.get(partition)
            if served is not state.log and (served is None or state.log not in self._data_dir.copies_of(served)):
                self._generation += state.version + 1
                del self._by_partition[partition]
        for partition, log in logs.items():
            if log is not None and partition not in self._by_partition:
                self._by_partition[partition] = self._make(log)
                self._generation += 1
        for partition, state in self._by_partition.items():
            try:
                state.refresh()
            except FileChanged as error:
                state.log.problems.add_error(error)
            if state.damaged:
                self._by_partition[partition] = self._undamaged(state)

    def _undamaged(self, state: State) -> State:
        """Return the state from another copy that isn't damaged and extends as far, or else the same state.

        Parts of a compacted log are never combined from several copies: a key that one has removed would come back.
        """
        standing = state.log.standing()[:2]
        for copy in self._data_dir.copies_of(state.log):
            if copy.can_be_listed and copy.standing()[:2] >= standing:
                other = self._make(copy)
                with suppress(FileChanged):
                    other.refresh()
                    if not other.damaged:
                        self._generation += state.version + 1
                        reason = f"damaged; read from the copy in {copy.directory.path}"
                        copy.problems.add(Problem(state.log.directory.path, 0, 0, reason))
                        return other
        return state

    def coverage(self) -> Coverage:
        """Return the coverage of the topic."""
        states = self.now()
        in_metadata = self._count_in_metadata(states)
        known = self.version, in_metadata
        if self._coverage is None or self._coverage[0] != known:
            keys = ((state.log.partition, state.coordinated()) for state in states)
            self._coverage = known, coverage_of(self._topic, keys, in_metadata)
        return self._coverage[1]

    def _count_in_metadata(self, states: Sequence[State]) -> int | None:
        if self._data_dir.topic_ids is None:
            return None
        log_dir = states[0].log.directory.log_dir if states else None
        return self._data_dir.topic_ids().partition_count(self._topic, log_dir)

    def state_problems(self) -> StateProblems:
        """Return the problems of the logs, and which part of them is here."""
        states = self.now()
        coverage = self.coverage()
        return StateProblems(
            tuple(problem for state in states for problem in state.log.problems.with_rest()),
            tuple(filter(None, map(_lacks_beginning, states))),
            tuple((state.log, record) for state in states for record in state.unread.values()),
            sum(state.unread_dropped for state in states),
            any(state.damaged for state in states),
            tuple(Problem(", ".join(self._data_dir.paths), 0, 0, said) for said in filter(None, [coverage.sentence()])),
            coverage.lacks_some,
        )


def _lacks_beginning(state: TopicState) -> Problem | None:
    start = state.log.log_start_offset
    if not start:
        return None
    reason = f"begins at offset {start}: state that was last written before it is unknown"
    return Problem(state.log.directory.path, 0, 0, reason)
