"""Consumer groups in Python."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from kfs.api.by_name import ByName
from kfs.errors import NotFound
from kfs.internal.committed_offset import CommittedOffset, OffsetInLog
from kfs.internal.group_description import GroupMember
from kfs.internal.group_json import group_json
from kfs.internal.group_records import GroupType
from kfs.internal.groups import Group as DescribedGroup
from kfs.internal.groups import GroupPartition, total_lag
from kfs.internal.groups import Groups as GroupState
from kfs.internal.message_json import Json
from kfs.render.timestamps import time_of


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A group's progress in one partition.

    ``offset`` is the next offset to read, None if none was committed. ``lag`` is the log end offset minus ``offset``,
    as Kafka's own tool computes it; None if the partition isn't here. ``next_offset`` is the record that the group
    actually reads next, and ``next_time`` is its time: the group is behind since then. For a share group, ``committed``
    is None. ``pending`` are commits in transactions that have not ended. ``note`` describes anything unusual.
    """

    topic: str
    partition: int
    offset: int | None
    lag: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    next_offset: int | None
    next_time: datetime | None
    note: str | None
    committed: CommittedOffset | None
    pending: tuple[CommittedOffset, ...]
    members: tuple[GroupMember, ...]


class Group:
    """A consumer group as of one moment; :meth:`json` has all fields of its records."""

    def __init__(self, state: GroupState, described: DescribedGroup) -> None:
        self._described = described
        self._standings = tuple(map(state.standing, described.partitions))
        self.offsets = tuple(map(_offset, described.partitions, self._standings))

    def __repr__(self) -> str:
        return f"<kfs.Group {self.name}: {self.type}, {self.state}>"

    @property
    def name(self) -> str:
        """The group's name (``group.id``)."""
        return self._described.name

    @property
    def type(self) -> GroupType:
        """The group's type: ``"Classic"``, ``"Consumer"``, ``"Share"`` or ``"Streams"``."""
        return self._described.description.type

    @property
    def state(self) -> str | None:
        """The group's state in Kafka's terms, such as ``"Stable"``; None if unknown."""
        return self._described.description.state

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """The group's members, with their assignments."""
        return self._described.description.members

    @property
    def lag(self) -> int | None:
        """The total lag of all partitions; None if a partition's lag is unknown, which :attr:`notes` explains.

        A negative lag, from an offset above the log end offset, counts as 0 and is noted.
        """
        return total_lag(self._described.partitions, self._standings).lag

    @property
    def notes(self) -> tuple[str, ...]:
        """The partitions whose lag is unknown or counts as 0, and why."""
        return total_lag(self._described.partitions, self._standings).notes

    @property
    def problems(self) -> tuple[str, ...]:
        """The records of the group that can't be read."""
        return self._described.description.problems

    def json(self) -> dict[str, Json]:
        """Return everything known of the group, as ``kfs groups --json`` prints it."""
        return group_json(self._described, self._standings, time.time())


def _offset(partition: GroupPartition, standing: OffsetInLog) -> GroupOffset:
    timestamp = standing.next_timestamp
    return GroupOffset(
        partition.topic,
        partition.partition,
        partition.offset,
        standing.lag,
        standing.log_start_offset,
        standing.log_end_offset,
        standing.high_watermark,
        standing.next_offset,
        None if timestamp is None else time_of(timestamp),
        standing.note,
        partition.committed,
        partition.pending,
        partition.members,
    )


class Groups(ByName[Group, GroupState]):
    """The groups by name; each access reads the current state.

    >>> broker = kfs.open("broker")
    >>> groups = broker.groups()
    >>> group = groups["classic-grp"]
    >>> group.type.value, group.state, group.lag
    ('Classic', 'Empty', 44)
    >>> [(each.topic, each.partition, each.offset) for each in group.offsets]
    [('payments', 2, 74)]
    """

    def __getitem__(self, name: str) -> Group:
        """Return a group; raise :class:`~kfs.errors.NotFound` (a ``KeyError``) if it is unknown."""
        described = self._state.group(name)
        if described is None:
            why = self._state.why_not_found(name)
            raise NotFound(f"no group {name!r}" + (f": {why}" if why is not None else ""))
        return Group(self._state, described)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._state
