"""Many cases on several processors, each in a process that may hang or die of it: that is a finding, too."""

from __future__ import annotations

import ctypes
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, Protocol

#: Longer than any case takes, however slow the machine.
CASE_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1
_FORK: Final = multiprocessing.get_context("fork")  # what the cases are made of need not be loaded anew


class Trial(Protocol):
    """Tries cases, in a process of its own; ``seen`` counts what they were."""

    seen: Counter[str]

    def failure(self, number: int) -> str | None:
        """Return what is wrong with the case of a number, None where all is well."""
        ...


class Plan(Protocol):
    """Which cases to try: the numbers below ``cases``, by ``jobs`` processes, up to so many failures."""

    @property
    def cases(self) -> int: ...

    @property
    def jobs(self) -> int: ...

    @property
    def most_failures(self) -> int: ...

    def trial(self) -> Trial:
        """Return what tries the cases of one process."""
        ...

    def keep(self, number: int, reason: str) -> Path:
        """Write down a failing case, and what is wrong with it, into the ``.txt`` beside it; return the path."""
        ...


@dataclass(slots=True)
class Findings:
    """What came of a run: ``seen`` counts what the cases were, ``failures`` are the files of those that failed."""

    cases: int = 0
    failures: list[Path] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)


class _Worker:
    """A process that tries every ``jobs``-th case from ``first`` on."""

    def __init__(self, plan: Plan, first: int) -> None:
        self.first = first
        self.at = _FORK.RawValue(ctypes.c_longlong, first)
        self.results, theirs = _FORK.Pipe(duplex=False)
        self.process = _FORK.Process(target=_work, args=(plan, first, self.at, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self._was_at = first
        self._since = time.monotonic()

    def is_stuck(self) -> bool:
        """Whether it has been at the same case for too long."""
        if self.at.value != self._was_at:
            self._was_at, self._since = self.at.value, time.monotonic()
        return time.monotonic() - self._since > CASE_SECONDS

    def tried(self, jobs: int) -> int:
        """Return how many cases it has behind it."""
        return (self.at.value - self.first) // jobs

    def end(self) -> None:
        """End it, whatever it is at."""
        self.process.kill()
        self.process.join()


def run(plan: Plan, progress: Callable[[int, Sequence[Path]], None] | None = None) -> Findings:
    """Try all cases, or as many as it takes to find enough failures; return what was found.

    ``progress`` is told now and then how many were tried, and what failed.
    """
    findings = Findings()
    workers = [_Worker(plan, first) for first in range(min(plan.jobs, plan.cases))]
    while workers:
        time.sleep(_POLL_SECONDS)
        workers = [after for worker in workers if (after := _look_after(worker, plan, findings)) is not None]
        if progress is not None:
            progress(findings.cases + sum(worker.tried(plan.jobs) for worker in workers), findings.failures)
        if len(findings.failures) >= plan.most_failures:
            for worker in workers:
                worker.end()
            break
    return findings


def _look_after(worker: _Worker, plan: Plan, findings: Findings) -> _Worker | None:
    """Take what a worker found. Return it, or another in its place where it died of a case; None where it is done."""
    is_stuck, is_alive = worker.is_stuck(), worker.process.is_alive()
    try:
        while worker.results.poll():
            result = worker.results.recv()
            if not isinstance(result, Path):
                cases, seen = result
                findings.cases += cases
                findings.seen += seen
                worker.process.join()
                return None
            findings.failures.append(result)
    except EOFError:
        is_alive = False
    if is_alive and not is_stuck:
        return worker
    worker.end()
    number = worker.at.value
    reason = f"no end after {CASE_SECONDS} seconds" if is_stuck else f"exit code {worker.process.exitcode}"
    findings.failures.append(plan.keep(number, reason))
    findings.cases += (number - worker.first) // plan.jobs + 1  # what they were has died with it
    return _Worker(plan, number + plan.jobs) if number + plan.jobs < plan.cases else None


def _work(plan: Plan, first: int, at: ctypes.c_longlong, results: Connection) -> None:
    trial = plan.trial()
    cases = 0
    for number in range(first, plan.cases, plan.jobs):
        at.value = number
        cases += 1
        reason = trial.failure(number)
        if reason is not None:
            results.send(plan.keep(number, reason))
    results.send((cases, trial.seen))
