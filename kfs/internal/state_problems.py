"""What is wrong with the topic that some state is kept in, and its JSON: the same for groups and for transactions."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from kfs.internal.message_json import Json
from kfs.log.log import Log
from kfs.log.problem import Problem

#: Records that can't be read are kept up to this many; more are counted.
MOST_UNREAD: Final = 1_000


@dataclass(frozen=True, slots=True)
class UnreadRecord:
    """A record that can't be read, as it is, and why; ``file`` and ``position`` (in bytes) are its batch's."""

    file: str
    position: int
    offset: int
    key: bytes | None
    value: bytes | None
    reason: str


@dataclass(frozen=True, slots=True)
class StateProblems:
    """What is wrong: with the logs, with what to believe of them (``caveats``), and which records can't be read.

    ``unread_dropped`` is how many more there are of those; with ``is_damaged``, what damaged bytes said is lost.
    ``shares`` say what share of the partitions is here, where that isn't known to be all; with ``is_partial`` it is
    known not to be.
    """

    problems: tuple[Problem, ...]
    caveats: tuple[Problem, ...]
    unread: tuple[tuple[Log, UnreadRecord], ...]
    unread_dropped: int
    is_damaged: bool
    shares: tuple[Problem, ...] = ()
    is_partial: bool = False

    @property
    def loses_something(self) -> bool:
        """Whether there is something of the logs that are here that isn't shown."""
        return bool(self.unread or self.unread_dropped or self.is_damaged)

    def __add__(self, other: StateProblems) -> StateProblems:
        return StateProblems(
            self.problems + other.problems,
            self.caveats + other.caveats,
            self.unread + other.unread,
            self.unread_dropped + other.unread_dropped,
            self.is_damaged or other.is_damaged,
            self.shares + other.shares,
            self.is_partial or other.is_partial,
        )

    def as_problems(self) -> tuple[Problem, ...]:
        """Return all of it as problems, each with its file and position."""
        unread = (Problem(one.file, one.position, 0, f"offset {one.offset}: {one.reason}") for _, one in self.unread)
        return (*self.problems, *self.shares, *self.caveats, *unread)

    def rows(self) -> Iterator[dict[str, Json]]:
        """Yield all of it as JSON; keys and values of records are base64."""
        for problem in (*self.problems, *self.shares, *self.caveats):
            yield asdict(problem)
        for log, record in self.unread:
            yield {
                "file": record.file,
                "position": record.position,
                "reason": record.reason,
                "topic": log.topic,
                "partition": log.partition,
                "offset": record.offset,
                "key": _base64(record.key),
                "value": _base64(record.value),
            }
        if self.unread_dropped:
            yield {"reason": f"and {self.unread_dropped} more records that can't be read"}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()
