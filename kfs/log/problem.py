"""Problems found in files: recorded rather than silently skipped, and bounded in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Self

from kfs.errors import CorruptData, SourceLost
from kfs.format.columns import RecordColumns
from kfs.metrics import Counts

_LOG = logging.getLogger("kfs")
_LOG.addHandler(logging.NullHandler())  # users of the library configure logging
_MOST_KEPT = 10_000


class DamagePolicy(StrEnum):
    """What a reader does at bytes that can't be read as records."""

    FAIL = "fail"  # fail there, after all records before were returned
    SKIP = "skip"  # continue after them; they are among the problems


class ProblemKind(StrEnum):
    """What is wrong, for counting. Kinds that ``kfs verify`` has, too, have the same name there."""

    BATCH_HEADER = "batch-header"
    BATCH_CRC = "batch-crc"
    BATCH_TOO_LARGE = "batch-too-large"
    BATCH_TRUNCATED = "batch-truncated"
    BATCH_RECORDS = "batch-records"
    OFFSETS_REPEATED = "offsets-repeated"
    OFFSETS_MISPLACED = "offsets-misplaced"
    OFFSET_GAP = "offset-gap"
    REMOTE_OFFSETS = "remote-offsets"
    READ_ERROR = "read-error"
    INDEX = "index"  # missing, wrong or useless; verify tells these apart
    SOURCE_LOST = "source-lost"  # a directory that can't be listed
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a file: ``position`` and ``size`` in bytes (size 0: unknown), and the reason in words.

    ``kind`` is a :class:`ProblemKind`, or a finding's kind.
    """

    file: str
    position: int
    size: int
    reason: str
    kind: str = field(default=ProblemKind.OTHER, compare=False)

    @classmethod
    def of(cls, error: CorruptData) -> Self:
        """Return an error that names its file as a problem."""
        return cls(error.file or "", error.position, 0, error.reason)

    @classmethod
    def of_unread(cls, directory: str, error: CorruptData | SourceLost) -> Self:
        """Return the error of a log in ``directory`` that can't be read any further as a problem."""
        if isinstance(error, CorruptData):
            return cls.of(error)
        return cls(directory, 0, 0, str(error).removeprefix(f"{directory}: "))

    def error(self) -> CorruptData:
        """Return the problem as the error that readers of those bytes get."""
        error = CorruptData(self.reason, self.position, self.file)
        error.reported = True
        return error


def faulty_records(columns: RecordColumns, file: str, position: int, size: int) -> Problem:
    """Return the problem of one or several blocks in which some records are broken."""
    reasons = (f"offset {columns.offsets[index]}: {fault.reason}" for index, fault in columns.faults.items())
    return Problem(file, position, size, "; ".join(reasons), ProblemKind.BATCH_RECORDS)


class Problems:
    """The problems of one log (or data directory), each once, in the order of their discovery.

    They are logged as warnings, or at another logging ``level``, with ``fields`` that say of which log. ``counts``
    counts those that affect results, by kind.
    """

    __slots__ = ("_counts", "_fields", "_problems", "dropped", "level")

    def __init__(
        self,
        level: int = logging.WARNING,
        counts: Counts[str] | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        self.level = level
        self._counts = counts
        self._fields = fields or {}
        self._problems: dict[tuple[str, int], Problem] = {}
        self.dropped = 0

    def add(self, problem: Problem, *, is_settled: bool = False) -> None:
        """Record and log a problem, unless one is already recorded for that file and position.

        A problem that ``is_settled`` doesn't affect results, so it is logged as information.
        """
        key = (problem.file, problem.position)
        if key in self._problems:
            return
        if self._counts is not None and not is_settled:
            self._counts.add(problem.kind)
        if len(self._problems) >= _MOST_KEPT:
            if not self.dropped:
                _LOG.warning(
                    "more than %d problems: further ones are only counted",
                    _MOST_KEPT,
                    extra={"fields": self._fields},
                )
            self.dropped += 1
            return
        self._problems[key] = problem
        level = min(self.level, logging.INFO) if is_settled else self.level
        fields = {**self._fields, **asdict(problem)}
        _LOG.log(level, "%s: position %d: %s", problem.file, problem.position, problem.reason, extra={"fields": fields})

    def add_error(self, error: CorruptData, size: int = 0) -> None:
        """Record an error that already names its file."""
        self.add(Problem(error.file or "", error.position, size, error.reason))

    def forget_file(self, file: str) -> None:
        """Drop the problems of a file that was replaced or removed."""
        for key in [key for key in list(self._problems) if key[0] == file]:
            self._problems.pop(key, None)

    def __iter__(self) -> Iterator[Problem]:
        return iter(sorted(self._problems.values(), key=lambda problem: (problem.file, problem.position)))

    def with_rest(self) -> Iterator[Problem]:
        """Yield all problems, and finally one that counts the dropped ones."""
        yield from self
        if self.dropped:
            yield Problem("", 0, 0, f"and {self.dropped} more problems")

    def __len__(self) -> int:
        return len(self._problems)
