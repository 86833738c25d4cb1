"""Many cases on several processors, each in a process that may hang or die of it: that is a finding, too."""

from __future__ import annotations

import ctypes
import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from tests.fuzz.cases import CaseMaker
from tests.fuzz.compare import Comparison
from tests.fuzz.seeds import Seed

#: Longer than any case takes, however slow the machine.
CASE_SECONDS: Final = 20.0
#: So many failures tell enough.
MOST_FAILURES: Final = 50
_POLL_SECONDS: Final = 0.1
_FORK: Final = multiprocessing.get_context("fork")  # the seeds need not be loaded anew


@dataclass(frozen=True, slots=True)
class Plan:
    """Which cases to try: the numbers below ``cases``; ``directory`` is where failing ones are written to."""

    seeds: Sequence[Seed]
    seed: int
    cases: int
    jobs: int
    directory: Path

    def keep(self, number: int, reason: str) -> Path:
        """Write a failing case, and what is wrong with it beside it; return the path."""
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{self.seed}-{number}.bin"
        path.write_bytes(CaseMaker(self.seeds, self.seed).case(number))
        path.with_suffix(".txt").write_text(reason)
        return path


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

    def end(self) -> None:
        """End it, whatever it is at."""
        self.process.kill()
        self.process.join()


def run(plan: Plan) -> Findings:
    """Try all cases, or as many as it takes to find enough failures; return what was found."""
    findings = Findings()
    workers = [_Worker(plan, first) for first in range(min(plan.jobs, plan.cases))]
    while workers:
        time.sleep(_POLL_SECONDS)
        workers = [after for worker in workers if (after := _look_after(worker, plan, findings)) is not None]
        if len(findings.failures) >= MOST_FAILURES:
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
    maker = CaseMaker(plan.seeds, plan.seed)
    twins = Comparison()
    cases = 0
    for number in range(first, plan.cases, plan.jobs):
        at.value = number
        cases += 1
        reason = failure(twins, maker.case(number))
        if reason is not None:
            results.send(plan.keep(number, reason))
    results.send((cases, twins.seen))


def failure(twins: Comparison, data: bytes) -> str | None:
    """Return what is wrong with a case, None where all is well."""
    try:
        twins.check(data)
    except Exception:
        return traceback.format_exc()
    return None
