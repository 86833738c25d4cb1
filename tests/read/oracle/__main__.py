"""``python -m tests.read.oracle``: the long run, or a failing case once more. See README.md."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from tests.read.oracle.cases import KINDS, PER_LOG, Cases
from tests.read.oracle.kind import temporary_directory
from tests.read.oracle.plan import OraclePlan
from tests.watch import Findings, run

_PROGRESS_SECONDS = 60.0


def main() -> int:
    options = _parser().parse_args()
    seed = SystemRandom().getrandbits(32) if options.seed is None else options.seed
    if options.case is not None:
        kind, number = options.case
        return _one(kind, number, seed, options.keep)
    print(f"seed {seed}", flush=True)
    with temporary_directory() as scratch:
        plan = OraclePlan.of(seed, options.cases, options.jobs, options.failures, scratch)
        progress = _Progress(plan.cases)
        findings = run(plan, progress.tell)
    progress.report(findings)
    return 1 if findings.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.read.oracle",
        description="Damaged logs, and what every view shows of them.",
    )
    parser.add_argument("--cases", type=int, default=1_000_000, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, metavar="N", help="which ones (default: others each time)")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="on how many processors (default: %(default)s)"
    )
    parser.add_argument("--case", type=_case, metavar="KIND/N", help="only this one, in this process")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="where that case is left, to be looked at")
    parser.add_argument(
        "--failures",
        type=Path,
        default=Path("oracle-failures"),
        metavar="DIRECTORY",
        help="where it is written what failed (default: %(default)s)",
    )
    return parser


def _case(text: str) -> tuple[str, int]:
    kind, _, number = text.partition("/")
    if kind not in KINDS or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}, expected one of {', '.join(KINDS)}, a slash and a number")
    return kind, int(number)


def _one(kind: str, number: int, seed: int, directory: Path | None) -> int:
    cases = Cases(kind, seed)
    if directory is not None:
        directory.mkdir(parents=True)
        print("written:", *cases.keep(number, directory))
    cases.judge(number)
    print("fine")
    return 0


class _Progress:
    """Tells how far a run is."""

    def __init__(self, logs: int) -> None:
        self._logs = logs
        self._start = self._told = time.monotonic()
        self._failures = 0

    def tell(self, logs: int, failures: Sequence[Path]) -> None:
        for path in failures[self._failures :]:
            print(f"FAILED {path}", flush=True)
        self._failures = len(failures)
        if time.monotonic() - self._told >= _PROGRESS_SECONDS:
            self._told = time.monotonic()
            print(f"{logs * PER_LOG} of {self._logs * PER_LOG} cases in {self._told - self._start:.0f} s", flush=True)

    def report(self, findings: Findings) -> None:
        self.tell(findings.cases, findings.failures)
        for what, count in sorted(findings.seen.items()):
            print(f"{count:10} {what}")
        print(f"{findings.cases * PER_LOG} cases in {time.monotonic() - self._start:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
