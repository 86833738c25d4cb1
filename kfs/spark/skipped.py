"""The ranges of damaged logs that tasks skipped (``onDamage=skip``): lines in the log, and a reliable file."""

from __future__ import annotations

import json
import logging
import os

from kfs.errors import UnusableSession
from kfs.log.problem import Problem
from kfs.spark.planning import Task
from kfs.storage.atomic_file import replacing

_LOG = logging.getLogger("kfs.spark")


class SkippedRanges:
    """The ranges of bytes that one task skipped.

    The file has one line of JSON for each, and its name depends only on what the task reads: a task that is repeated,
    or runs twice at the same time, leaves the same file. There is no file if nothing was skipped.
    """

    def __init__(self, task: Task, directory: str | None) -> None:
        self._task = task
        self._directory = directory
        self._problems: dict[tuple[str, int], Problem] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The ranges, in the order they were met."""
        return tuple(self._problems.values())

    def add(self, problem: Problem) -> None:
        """Remember a range, and log it."""
        if (problem.file, problem.position) not in self._problems:
            self._problems[problem.file, problem.position] = problem
            _LOG.warning(
                "%s: position %d: skipped %d bytes: %s", problem.file, problem.position, problem.size, problem.reason
            )

    def save(self) -> None:
        """Write the file.

        Raises:
            UnusableSession: it can't be written.
        """
        if self._directory is None or not self._problems:
            return
        path = os.path.join(self._directory, self._name())
        try:
            os.makedirs(self._directory, exist_ok=True)
            with replacing(path, is_durable=False) as file:
                file.writelines(map(self._line, self._problems.values()))
        except OSError as error:
            raise UnusableSession(f"what was skipped can't be written to {path}: {error.strerror}") from None

    def _name(self) -> str:
        first, last = self._task.splits[0], self._task.splits[-1]
        begin = f"{first.batches.topic}-{first.batches.partition}-{first.offsets.start}"
        return f"{begin}_{last.batches.topic}-{last.batches.partition}-{last.offsets.end}.jsonl"

    @staticmethod
    def _line(problem: Problem) -> bytes:
        line = {"file": problem.file, "position": problem.position, "size": problem.size, "reason": problem.reason}
        return json.dumps(line, ensure_ascii=False).encode(errors="surrogateescape") + b"\n"
