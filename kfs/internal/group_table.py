"""Groups as tables, with the columns of ``kafka-consumer-groups --describe`` and some of ours behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kfs.internal.committed_offset import Standing
from kfs.internal.groups import Group
from kfs.render.timestamps import iso_time

#: What stands for what isn't there, as in Kafka's own tool.
_NONE: Final = "-"
_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))

#: A row's cells; numbers are numbers, None is what isn't there.
Row = Sequence[str | int | None]


@dataclass(frozen=True, slots=True)
class Table:
    """A view of groups: the names of its columns, and the rows of a group, by its standings and the time now."""

    columns: tuple[str, ...]
    rows: Callable[[Group, Sequence[Standing], float], Iterator[Row]]


def cell_text(cell: str | int | None) -> str:
    """Return a cell as it is printed."""
    return _NONE if cell is None else str(cell)


def _offset_rows(group: Group, standings: Sequence[Standing], now: float) -> Iterator[Row]:
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
            None if timestamp is None else age_text(now - timestamp / 1000),
            notes or None,
        )


def _member_rows(group: Group, standings: Sequence[Standing], now: float) -> Iterator[Row]:
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


def _state_rows(group: Group, standings: Sequence[Standing], now: float) -> Iterator[Row]:
    description = group.description
    lags = [standing.lag for standing in standings if standing.lag is not None]
    yield (
        group.name,
        group.coordinator,
        description.type.value,
        description.assignor,
        description.state,
        len(description.members),
        len(group.partitions),
        sum(lags) if lags else None,
    )


_KAFKA_COLUMNS: Final = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
OFFSETS: Final = Table(
    (*_KAFKA_COLUMNS.split(), "COMMITTED", "OLDEST-UNREAD", "AGE", "NOTE"),
    _offset_rows,
)
MEMBERS: Final = Table(
    ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"), _member_rows
)
STATE: Final = Table(
    ("GROUP", "COORDINATOR", "TYPE", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS", "#PARTITIONS", "TOTAL-LAG"),
    _state_rows,
)


def _time(timestamp: int | None) -> str | None:
    return None if timestamp is None else iso_time(timestamp)


def age_text(seconds: float) -> str:
    """Return a length of time in its two largest units: ``3d4h``, ``12m7s``, ``0s``; below 0 it lies ahead."""
    left = abs(int(seconds))
    for at, (unit, size) in enumerate(_UNITS):
        if left >= size or size == 1:
            text = f"{left // size}{unit}"
            if size > 1:
                smaller, smaller_size = _UNITS[at + 1]
                text += f"{left % size // smaller_size}{smaller}"
            return f"-{text}" if seconds < 0 else text
    raise AssertionError("a second is the least unit")
