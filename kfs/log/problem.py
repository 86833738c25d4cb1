"""What was found wrong, kept for those who ask: never skipped silently, bounded in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from kfs.errors import CorruptData
from kfs.format.columns import RecordColumns

_LOG = logging.getLogger("kfs")
_LOG.addHandler(logging.NullHandler())  # who uses the library decides what is shown
_MOST_KEPT = 10_000


class DamagePolicy(StrEnum):
    """What becomes of a read that meets bytes which can't be read as records."""

    FAIL = "fail"  # it fails there, when all that is before was given out
    SKIP = "skip"  # it goes on behind them; they stand among the problems


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a file: ``position`` and ``size`` in bytes (size 0: unknown), the reason in words."""

    file: str
    position: int
    size: int
    reason: str

    @classmethod
    def of(cls, error: CorruptData) -> Self:
        """Return an error that names its file as a problem."""
        return cls(error.file or "", error.position, 0, error.reason)

    def error(self) -> CorruptData:
        """Return the problem as the error that a reader of those bytes gets."""
        error = CorruptData(self.reason, self.position, self.file)
        error.reported = True
        return error


def faulty_records(columns: RecordColumns, file: str, position: int, size: int) -> Problem:
    """Return the problem of a block, or of several, of which some records are broken."""
    reasons = (f"offset {columns.offsets[index]}: {fault.reason}" for index, fault in columns.faults.items())
    return Problem(file, position, size, "; ".join(reasons))


class Problems:
    """The problems of one log (or data directory), each once, in the order they were met.

    They are logged as warnings, unless another logging ``level`` is given.
    """

    def __init__(self, level: int = logging.WARNING) -> None:
        self.level = level
        self._problems: dict[tuple[str, int], Problem] = {}
        self.dropped = 0

    def add(self, problem: Problem, *, is_settled: bool = False) -> None:
        """Remember and log a problem unless one is known at that file and position.

        One that ``is_settled`` changes no answer: the log has it as information.
        """
        key = (problem.file, problem.position)
        if key in self._problems:
            return
        if len(self._problems) >= _MOST_KEPT:
            if not self.dropped:
                _LOG.error("more than %d problems: those that follow are only counted", _MOST_KEPT)
            self.dropped += 1
            return
        self._problems[key] = problem
        level = min(self.level, logging.INFO) if is_settled else self.level
        _LOG.log(level, "%s: position %d: %s", problem.file, problem.position, problem.reason)

    def add_error(self, error: CorruptData, size: int = 0) -> None:
        """Remember an error that already names its file."""
        self.add(Problem(error.file or "", error.position, size, error.reason))

    def forget_file(self, file: str) -> None:
        """Drop what was said of a file that has been replaced or removed."""
        for key in [key for key in list(self._problems) if key[0] == file]:
            self._problems.pop(key, None)

    def __iter__(self) -> Iterator[Problem]:
        return iter(sorted(self._problems.values(), key=lambda problem: (problem.file, problem.position)))

    def with_rest(self) -> Iterator[Problem]:
        """Yield all of them, and at the end one that says how many more there were."""
        yield from self
        if self.dropped:
            yield Problem("", 0, 0, f"and {self.dropped} more problems")

    def __len__(self) -> int:
        return len(self._problems)
