"""Consumer groups as a data directory has them: ``__consumer_offsets`` and ``__share_group_state``, read as state.

Nothing is read before somebody asks. What was read is kept and brought up to date when the logs have grown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from cachetools import LRUCache

from kfs.format.java_text import java_hash
from kfs.internal.committed_offset import CommittedOffset, Standing, decode_commit, standing_of
from kfs.internal.group_description import SIMPLE_GROUP, GroupDescription, Member, describe
from kfs.internal.group_log import GroupLog
from kfs.internal.group_records import GroupType
from kfs.internal.schema import Malformed
from kfs.internal.share_group_state import SharePartition, ShareStateLog
from kfs.internal.topic_reader import TopicState, UnreadRecord
from kfs.internal.topics import GROUP_KINDS
from kfs.log.data_dir import DataDir
from kfs.log.log import LOOK_AGAIN_SECONDS, Log
from kfs.log.open_files import FileChanged
from kfs.log.problem import Problem

OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_STATE_TOPIC: Final = "__share_group_state"
_TOPIC_IDS_SECONDS: Final = 5.0
_DESCRIBED_KEPT: Final = 64

State = TypeVar("State", bound=TopicState)
#: A group whose shares are known from ``__share_group_state`` alone: the rest is in a partition that isn't here.
_SHARE_STATE_ONLY: Final = GroupDescription(GroupType.SHARE, None, "share", None)


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that a group has an offset of, or that a member is assigned.

    ``committed`` and ``share`` are what is known of how far it was read: a share group has the latter. ``pending``
    are commits in transactions that have not ended.
    """

    topic: str
    partition: int
    committed: CommittedOffset | None = None
    share: SharePartition | None = None
    pending: tuple[CommittedOffset, ...] = ()
    members: tuple[Member, ...] = ()

    @property
    def offset(self) -> int | None:
        """The offset that is read next; None where none is known."""
        if self.share is not None:
            return self.share.start_offset if self.share.start_offset >= 0 else None
        return self.committed.offset if self.committed is not None else None

    @property
    def done(self) -> int | None:
        """How many records behind that offset are done, too; None where the broker didn't count them."""
        if self.share is None:
            return 0
        return self.share.delivery_complete_count if self.share.delivery_complete_count >= 0 else None

    @property
    def topic_id(self) -> str | None:
        """The id of the topic, where what is known of it has one."""
        if self.share is not None:
            return self.share.topic_id
        return self.committed.topic_id if self.committed is not None else None


@dataclass(frozen=True, slots=True)
class Group:
    """A group; ``coordinator`` is the partition of ``__consumer_offsets`` it is from, None where that isn't here."""

    name: str
    coordinator: int | None
    description: GroupDescription
    partitions: tuple[GroupPartition, ...]

    def only(self, matches: Callable[[str], bool]) -> Group:
        """Return the group with the partitions of matching topics only."""
        return replace(self, partitions=tuple(each for each in self.partitions if matches(each.topic)))


@dataclass(slots=True)
class _Sources:
    """What knows of a group: the logs it has something in, and its shares of partitions."""

    logs: list[GroupLog] = field(default_factory=list)
    shares: list[SharePartition] = field(default_factory=list)


class Groups:
    """The groups of a data directory, followed as its logs grow. Threads may share it."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._logs = _States(data_dir, OFFSETS_TOPIC, GroupLog)
        self._share_logs = _States(data_dir, SHARE_STATE_TOPIC, ShareStateLog)
        self._lock = threading.RLock()
        self._looked = -1.0
        self._sources: tuple[int, dict[str, _Sources]] = (-1, {})
        self._names: tuple[str, ...] = ()
        self._described: LRUCache[str, tuple[int, Group]] = LRUCache(_DESCRIBED_KEPT)
        self._topic_ids: dict[str, str] = {}
        self._topic_ids_read = -1.0

    @property
    def are_here(self) -> bool:
        """Whether there is anything that groups are kept in."""
        return bool(self._data_dir.partitions(OFFSETS_TOPIC) or self._data_dir.partitions(SHARE_STATE_TOPIC))

    def names(self) -> tuple[str, ...]:
        """Return the names of all groups, sorted."""
        with self._lock:
            self._by_name()
            return self._names

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._by_name()

    def group(self, name: str) -> Group | None:
        """Return a group, None where there is none of that name."""
        with self._lock:
            sources = self._by_name().get(name)
            if sources is None:
                return None
            known = self._described.get(name)
            if known is None or known[0] != self._sources[0]:
                known = self._described[name] = self._sources[0], self._described_anew(name, sources)
            return known[1]

    def _described_anew(self, name: str, sources: _Sources) -> Group:
        log = self._coordinator(name, sources)
        description = _SHARE_STATE_ONLY
        commits: list[CommittedOffset] = []
        if log is not None:
            raw = log.groups.groups.get(name)
            description = SIMPLE_GROUP if raw is None else describe(raw, self.topic_name)
            commits = list(_commits(log, name))
        partitions = _Partitions(description)
        partitions.add_commits(commits)
        for share in sources.shares:
            topic = description.topic_names.get(share.topic_id) or self.topic_name(share.topic_id)
            partitions.add_share(topic or share.topic_id, share)
        return Group(name, log.log.partition if log is not None else None, description, partitions.all())

    def standing(self, partition: GroupPartition) -> Standing:
        """Return where a group stands in a partition."""
        log = self._data_dir.log(partition.topic, partition.partition)
        return standing_of(partition.offset, partition.topic_id, log, partition.done)

    def topic_name(self, topic_id: str) -> str | None:
        """Return the name of the topic that has an id, by ``partition.metadata``; None where none here has it."""
        if topic_id not in self._topic_ids and time.monotonic() - self._topic_ids_read >= _TOPIC_IDS_SECONDS:
            for topic in self._data_dir.topics():
                log = self._data_dir.log(topic, self._data_dir.partitions(topic)[0])
                metadata = log.partition_metadata() if log is not None else None
                if metadata is not None:
                    self._topic_ids[str(metadata.topic_id)] = topic
            self._topic_ids_read = time.monotonic()
        return self._topic_ids.get(topic_id)

    # -- what is wrong

    @property
    def is_damaged(self) -> bool:
        """Whether something of what groups are kept in is damaged, and what it said is lost."""
        with self._lock:
            self._refresh()
            return any(state.damaged for state in self._all_states())

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the logs that groups are kept in."""
        with self._lock:
            self._refresh()
            for state in self._all_states():
                yield from state.log.problems

    def caveats(self) -> Iterator[Problem]:
        """Yield what to know before believing what is shown: logs without their beginning, groups in several logs."""
        with self._lock:
            for name, sources in self._by_name().items():
                chosen = self._coordinator(name, sources)
                if chosen is not None and len(sources.logs) > 1:
                    others = ", ".join(log.log.directory.path for log in sources.logs if log is not chosen)
                    reason = f"group {name!r} is shown as it is here, not as in {others}"
                    yield Problem(chosen.log.directory.path, 0, 0, reason)
            for state in self._all_states():
                start = state.log.log_start_offset
                if start:
                    reason = f"begins at offset {start}: what was said before, and not again since, isn't known"
                    yield Problem(state.log.directory.path, 0, 0, reason)

    def unread(self) -> Iterator[tuple[Log, UnreadRecord]]:
        """Yield the records that can't be read, and how they are written."""
        with self._lock:
            self._refresh()
            for state in self._all_states():
                for record in state.unread.values():
                    yield state.log, record
            for log in self._logs.states:
                for key, (offset, value) in log.written():
                    try:
                        GROUP_KINDS.decode_value(GROUP_KINDS.kind_of(key), value)
                    except Malformed as error:
                        directory = log.log.directory.path
                        yield log.log, UnreadRecord(directory, 0, offset, key, value, error.reason)

    @property
    def unread_dropped(self) -> int:
        """How many more there are of those than :meth:`unread` yields."""
        return sum(state.unread_dropped for state in self._all_states())

    # -- reading

    def _all_states(self) -> list[TopicState]:
        return [*self._logs.states, *self._share_logs.states]

    def _refresh(self) -> None:
        if self._looked >= 0 and time.monotonic() - self._looked < LOOK_AGAIN_SECONDS:
            return
        self._logs.refresh()
        self._share_logs.refresh()
        self._looked = time.monotonic()

    def _by_name(self) -> dict[str, _Sources]:
        self._refresh()
        version = self._logs.version + self._share_logs.version
        if self._sources[0] != version:
            sources: dict[str, _Sources] = {}
            for log in self._logs.states:
                for name in log.offsets.groups().union(log.groups.groups):
                    sources.setdefault(name, _Sources()).logs.append(log)
            for share_log in self._share_logs.states:
                for share in share_log.partitions.values():
                    sources.setdefault(share.group, _Sources()).shares.append(share)
            self._sources = version, sources
            self._names = tuple(sorted(sources))
        return self._sources[1]

    def _coordinator(self, name: str, sources: _Sources) -> GroupLog | None:
        """Return which of the logs that know of a group is its coordinator's: of several, the one it hashes to."""
        if len(sources.logs) < 2:
            return next(iter(sources.logs), None)
        count = max(log.log.partition for log in self._logs.states) + 1
        chosen = java_hash(name) % count
        return next((log for log in sources.logs if log.log.partition == chosen), sources.logs[-1])


class _States(Generic[State]):
    """What the partitions of a topic add up to, each by itself."""

    def __init__(self, data_dir: DataDir, topic: str, make: type[State]) -> None:
        self._data_dir = data_dir
        self._topic = topic
        self._make = make
        self._by_partition: dict[int, State] = {}
        self._generation = 0

    @property
    def states(self) -> list[State]:
        """Those of the partitions there are."""
        return list(self._by_partition.values())

    @property
    def version(self) -> int:
        """A number that grows with every change."""
        return self._generation + sum(state.version for state in self._by_partition.values())

    def refresh(self) -> None:
        """Bring all up to date; one whose log can't be read just now stays what it was."""
        logs = {partition: self._data_dir.log(self._topic, partition) for partition in self._partitions()}
        for partition, state in list(self._by_partition.items()):
            if logs.get(partition) is not state.log:
                self._generation += state.version + 1
                del self._by_partition[partition]
        for partition, log in logs.items():
            if log is not None and partition not in self._by_partition:
                self._by_partition[partition] = self._make(log)
                self._generation += 1
        for state in self._by_partition.values():
            try:
                state.refresh()
            except FileChanged as error:
                state.log.problems.add_error(error)

    def _partitions(self) -> list[int]:
        return self._data_dir.partitions(self._topic)


class _Partitions:
    """Puts together what is known of each partition of a group."""

    def __init__(self, description: GroupDescription) -> None:
        self._members: dict[tuple[str, int], list[Member]] = {}
        for member in description.members:
            for assigned in member.assignment:
                for partition in assigned.partitions:
                    self._members.setdefault((assigned.topic, partition), []).append(member)
        self._committed: dict[tuple[str, int], CommittedOffset] = {}
        self._pending: dict[tuple[str, int], list[CommittedOffset]] = {}
        self._shares: dict[tuple[str, int], SharePartition] = {}

    def add_commits(self, commits: list[CommittedOffset]) -> None:
        for commit in commits:
            where = commit.topic, commit.partition
            if commit.producer_id is None:
                self._committed[where] = commit
            else:
                self._pending.setdefault(where, []).append(commit)

    def add_share(self, topic: str, share: SharePartition) -> None:
        self._shares[topic, share.partition] = share

    def all(self) -> tuple[GroupPartition, ...]:
        return tuple(
            GroupPartition(
                *where,
                self._committed.get(where),
                self._shares.get(where),
                tuple(self._pending.get(where, ())),
                tuple(self._members.get(where, ())),
            )
            for where in sorted({*self._members, *self._committed, *self._pending, *self._shares})
        )


def _commits(log: GroupLog, name: str) -> Iterator[CommittedOffset]:
    for key, commit in log.offsets.of_group(name):
        yield decode_commit(key, commit)
    for producer_id, key, commit in log.offsets.pending_of_group(name):
        yield decode_commit(key, commit, producer_id)
