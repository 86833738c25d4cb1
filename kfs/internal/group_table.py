"""Groups as tables, with the columns of ``kafka-consumer-groups --describe`` followed by additional ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kfs.internal.committed_offset import OffsetInLog
from kfs.internal.groups import Group, total_lag
from kfs.render.timestamps import age_text, iso_time

_NOTES_SHOWN: Final = 3
#: The cells of a row; None is an empty cell.
Row = Sequence[str | int | None]


@dataclass(frozen=True, slots=True)
class GroupTable:
    """A table of groups: the column names, and a function of a group, its standings and the current time to rows."""

    columns: tuple[str, ...]
    rows: Callable[[Group, Sequence[OffsetInLog], float], Iterator[Row]]


def _offset_rows(group: Group, standings: Sequence[OffsetInLog], now: float) -> Iterator[Row]:
    for partition, standing in zip(group.partitions, standings, strict=True):
        member = partition.members[0] if partition.members else None
        committed = partition.committed
        timestamp = standing.next_timestamp
        pending = f"{len(partition.pending)} pending in transactions" if partition.pending else None
        unread = f"{committed.problem}: can't be read" if committed is not None and committed.problem else None
        notes = "; ".join(filter(None, (standing.note, pending, unread)))
        yield (
            group.name,
            partition.topic,
            partition.partition,
            partition.offset,
            standing.log_end_offset,
            standing.lag,
            member.member_id if member else None,
            member.client_host if member else None,
            member.client_id if member else None,
            _time(committed.commit_timestamp if committed is not None else None),
            _time(timestamp),
            None if timestamp is None else age_text(int(now * 1000) - timestamp),
            notes or None,
        )


def _member_rows(group: Group, standings: Sequence[OffsetInLog], now: float) -> Iterator[Row]:
    for member in group.description.members:
        assigned = ", ".join(f"{each.topic}({','.join(map(str, each.partitions))})" for each in member.assignment)
        count = sum(len(each.partitions) for each in member.assignment)
        yield (
            group.name,
            member.member_id,
            member.instance_id,
            member.client_host,
            member.client_id,
            count,
            assigned or None,
        )


def _state_rows(group: Group, standings: Sequence[OffsetInLog], now: float) -> Iterator[Row]:
    description = group.description
    total = total_lag(group.partitions, standings)
    yield (
        group.name,
        group.coordinator,
        description.type.value,
        description.assignor,
        description.state,
        len(description.members),
        len(group.partitions),
        total.lag,
        _some_of(total.notes),
    )


def _some_of(notes: Sequence[str]) -> str | None:
    """Join notes; after the first few, add the number of the remaining ones."""
    more = len(notes) - _NOTES_SHOWN
    return "; ".join([*notes[:_NOTES_SHOWN], *([f"and {more} more"] if more > 0 else [])]) or None


_KAFKA_COLUMNS: Final = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
OFFSETS: Final = GroupTable(
    (*_KAFKA_COLUMNS.split(), "COMMITTED", "OLDEST-UNREAD", "AGE", "NOTE"),
    _offset_rows,
)
MEMBERS: Final = GroupTable(
    ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"), _member_rows
)
STATE: Final = GroupTable(
    ("GROUP", "COORDINATOR", "TYPE", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS", "#PARTITIONS", "TOTAL-LAG", "NOTE"),
    _state_rows,
)


def _time(timestamp: int | None) -> str | None:
    return None if timestamp is None else iso_time(timestamp)
