"""Problems of an internal topic's state, and their JSON; shared by groups and transactions."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from kfs.internal.message_json import Json
from kfs.log.log import Log
from kfs.log.problem import Problem

#: The maximum number of unreadable records to keep; more are counted.
MOST_UNREAD: Final = 1_000


@dataclass(frozen=True, slots=True)
class UnreadRecord:
    """A record that can't be decoded, undecoded, and the reason; ``file`` and ``position`` (bytes) are its batch's."""

    file: str
    position: int
    offset: int
    key: bytes | None
    value: bytes | None
    reason: str


@dataclass(frozen=True, slots=True)
class StateProblems:
    """The problems of the logs, doubts about their content (``caveats``), and the unreadable records.

    ``unread_dropped`` is the number of further unreadable records. With ``is_damaged``, the content of damaged bytes is
    lost. ``shares`` say which part of the partitions is here, unless it is known to be all. With ``is_partial``, some
    are known to be missing.
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
        """Whether the logs here have content that isn't shown."""
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
        """Return everything as problems, each with its file and position."""
        unread = (Problem(one.file, one.position, 0, f"offset {one.offset}: {one.reason}") for _, one in self.unread)
        return (*self.problems, *self.shares, *self.caveats, *unread)

    def rows(self) -> Iterator[dict[str, Json]]:
        """Yield everything as JSON; keys and values of records are base64."""
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
