"""The consumer groups of a data directory, from ``__consumer_offsets`` and ``__share_group_state``.

The logs are read on demand. The state is kept, and updated when the logs have grown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from cachetools import LRUCache

from kfs.internal.committed_offset import CommittedOffset, OffsetInLog, decode_commit, standing_of
from kfs.internal.group_description import SIMPLE_GROUP, GroupDescription, GroupMember, describe
from kfs.internal.group_log import GroupLog
from kfs.internal.group_records import GroupType
from kfs.internal.schema import Malformed
from kfs.internal.share_group_state import SharePartition, ShareStateLog
from kfs.internal.state_problems import MOST_UNREAD, StateProblems, UnreadRecord
from kfs.internal.topic_names import TopicNames
from kfs.internal.topic_state import TopicStates
from kfs.internal.topics import GROUP_KINDS
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.problem import Problem

OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_STATE_TOPIC: Final = "__share_group_state"
_DESCRIBED_KEPT: Final = 64

#: A group known only from ``__share_group_state``: the partition with its other records isn't here.
_SHARE_STATE_ONLY: Final = GroupDescription(GroupType.SHARE, None, "share", None)


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that a group has an offset for, or that a member is assigned.

    ``committed`` and ``share`` are the group's progress; a share group has the latter. ``pending`` are commits in open
    transactions.
    """

    topic: str
    partition: int
    committed: CommittedOffset | None = None
    share: SharePartition | None = None
    pending: tuple[CommittedOffset, ...] = ()
    members: tuple[GroupMember, ...] = ()

    @property
    def offset(self) -> int | None:
        """The offset to read next, or None if it is unknown."""
        if self.share is not None:
            return self.share.start_offset if self.share.start_offset >= 0 else None
        return self.committed.offset if self.committed is not None else None

    @property
    def done(self) -> int | None:
        """The number of processed records after that offset; None if the broker didn't count them."""
        if self.share is None:
            return 0
        return self.share.delivery_complete_count if self.share.delivery_complete_count >= 0 else None

    @property
    def done_ranges(self) -> tuple[tuple[int, int], ...]:
        """The offset ranges of the processed records after that offset (start inclusive, end exclusive)."""
        return self.share.done if self.share is not None else ()

    @property
    def topic_id(self) -> str | None:
        """The topic id in the commit or the share state, if there is one."""
        if self.share is not None:
            return self.share.topic_id
        return self.committed.topic_id if self.committed is not None else None


@dataclass(frozen=True, slots=True)
class Group:
    """A group; ``coordinator`` is its partition of ``__consumer_offsets``, or None if that isn't here."""

    name: str
    coordinator: int | None
    description: GroupDescription
    partitions: tuple[GroupPartition, ...]

    def only(self, matches: Callable[[str], bool]) -> Group:
        """Return the group with only the partitions of matching topics."""
        return replace(self, partitions=tuple(each for each in self.partitions if matches(each.topic)))


@dataclass(frozen=True, slots=True)
class TotalLag:
    """The total lag of a group, or None if one partition's lag is unknown; ``notes`` say which one and why.

    A negative lag, of an offset above the log end offset, counts as 0, so that it doesn't reduce the total. It gets a
    note.
    """

    lag: int | None
    notes: tuple[str, ...]


def total_lag(partitions: Sequence[GroupPartition], standings: Sequence[OffsetInLog]) -> TotalLag:
    """Return the sum of the lags of a group's partitions; ``standings`` are in the same order."""
    total, is_known, notes = 0, True, []
    for partition, standing in zip(partitions, standings, strict=True):
        where = f"{partition.topic}-{partition.partition}"
        if standing.lag is None:
            is_known = False
            reason = standing.note or (partition.committed.problem if partition.committed is not None else None)
            notes.append(f"{where}: lag isn't known: {reason or _why_unknown(partition)}")
        elif standing.lag < 0:
            reason = standing.note or "records that were read are no longer here"
            notes.append(f"{where}: lag {standing.lag} counts as 0: {reason}")
        else:
            total += standing.lag
    return TotalLag(total if is_known else None, tuple(notes))


def _why_unknown(partition: GroupPartition) -> str:
    return "no offset was committed" if partition.offset is None else "the number of records read isn't counted"


@dataclass(slots=True)
class _Sources:
    """The sources of a group: the logs that have records of it, and its share partitions."""

    logs: list[GroupLog] = field(default_factory=list)
    shares: list[SharePartition] = field(default_factory=list)


class Groups:
    """The groups of a data directory, updated as its logs grow; thread-safe."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._logs = TopicStates(data_dir, OFFSETS_TOPIC, GroupLog)
        self._share_logs = TopicStates(data_dir, SHARE_STATE_TOPIC, ShareStateLog)
        self._topic_names = TopicNames(data_dir)
        self._lock = threading.RLock()
        self._sources: tuple[int, dict[str, _Sources]] = (-1, {})
        self._names: tuple[str, ...] = ()
        self._described: LRUCache[str, tuple[int, Group]] = LRUCache(_DESCRIBED_KEPT)

    @property
    def are_here(self) -> bool:
        """Whether a topic with groups is here."""
        return self._logs.are_here or self._share_logs.are_here

    def check_here(self) -> None:
        """Raise :class:`UnusableSource` if no topic with groups is here."""
        if not self.are_here:
            raise self._logs.not_here("groups are")

    def names(self) -> tuple[str, ...]:
        """Return the names of all groups, sorted."""
        with self._lock:
            self._by_name()
            return self._names

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._by_name()

    def group(self, name: str) -> Group | None:
        """Return a group, or None if there is none with that name."""
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
            description = SIMPLE_GROUP if raw is None else describe(raw, self._topic_names.name)
            commits = list(_commits(log, name))
        partitions = _Partitions(description)
        partitions.add_commits(commits)
        for share in sources.shares:
            topic = description.topic_names.get(share.topic_id) or self._topic_names.name(share.topic_id)
            partitions.add_share(topic or share.topic_id, share)
        return Group(name, log.log.partition if log is not None else None, description, partitions.all())

    def why_not_found(self, name: str) -> str | None:
        """Return why a group that isn't found may exist elsewhere, or None if it would have been found."""
        with self._lock:
            return self._logs.coverage().why_not_found(name)

    def why_incomplete(self, group: Group) -> str | None:
        """Return why a group may have more state in partitions that aren't here, or None if it can't."""
        with self._lock:
            if group.coordinator is None:
                return self._logs.coverage().why_not_found(group.name)
            if group.description.type is not GroupType.SHARE:
                return None
            shares = self._share_logs.coverage()
            return shares.sentence() if shares.lacks_some else None

    def standing(self, partition: GroupPartition) -> OffsetInLog:
        """Return a group's position in the log of a partition."""
        log = self._data_dir.log(partition.topic, partition.partition)
        return standing_of(partition.offset, partition.topic_id, log, partition.done, partition.done_ranges)

    # -- problems

    def state_problems(self) -> StateProblems:
        """Return the problems of the logs with groups, and the groups that occur in several of them."""
        with self._lock:
            found = self._logs.state_problems() + self._share_logs.state_problems()
            values = self._unread_values()
            kept, more = tuple(islice(values, MOST_UNREAD)), sum(1 for _ in values)
            return found + StateProblems((), tuple(self._told_apart()), kept, more, is_damaged=False)

    def _told_apart(self) -> Iterator[Problem]:
        for name, sources in self._by_name().items():
            chosen = self._coordinator(name, sources)
            if chosen is not None and len(sources.logs) > 1:
                others = ", ".join(log.log.directory.path for log in sources.logs if log is not chosen)
                reason = f"group {name!r} is shown as in this directory, not as in {others}"
                yield Problem(chosen.log.directory.path, 0, 0, reason)

    def _unread_values(self) -> Iterator[tuple[Log, UnreadRecord]]:
        """Yield current records whose values can't be decoded; only decoding reveals that."""
        for log in self._logs.now():
            for key, (offset, value) in log.written():
                try:
                    GROUP_KINDS.decode_value(GROUP_KINDS.kind_of(key), value)
                except Malformed as error:
                    yield log.log, UnreadRecord(log.log.directory.path, 0, offset, key, value, error.reason)

    # -- reading

    def _by_name(self) -> dict[str, _Sources]:
        logs, share_logs = self._logs.now(), self._share_logs.now()
        version = self._logs.version + self._share_logs.version
        if self._sources[0] != version:
            sources: dict[str, _Sources] = {}
            for log in logs:
                for name in log.coordinated():
                    sources.setdefault(name, _Sources()).logs.append(log)
            for share_log in share_logs:
                for share in share_log.partitions.values():
                    sources.setdefault(share.group, _Sources()).shares.append(share)
            self._sources = version, sources
            self._names = tuple(sorted(sources))
        return self._sources[1]

    def _coordinator(self, name: str, sources: _Sources) -> GroupLog | None:
        """Return the coordinator's log among the logs with a group; of several, the one that the group hashes to."""
        if len(sources.logs) < 2:
            return next(iter(sources.logs), None)
        chosen = self._logs.coverage().likely_partition(name)
        return next((log for log in sources.logs if log.log.partition == chosen), sources.logs[-1])


class _Partitions:
    """Collects the state of each partition of a group."""

    def __init__(self, description: GroupDescription) -> None:
        self._members: dict[tuple[str, int], list[GroupMember]] = {}
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
