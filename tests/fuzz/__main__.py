"""``python -m tests.fuzz``: the long run, or failing cases once more. See README.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.corpus import CorpusStore
from tests.fuzz.cases import CaseMaker
from tests.fuzz.compare import Comparison
from tests.fuzz.plan import FuzzPlan, failure
from tests.fuzz.seeds import load_seeds
from tests.watch import Findings, run


def main() -> int:
    options = _parser().parse_args()
    if options.replay:
        return _replay(options.replay)
    with tempfile.TemporaryDirectory() as directory:
        seeds = load_seeds(CorpusStore(Path(directory)).path)
    if options.case is not None:
        print(failure(Comparison(), CaseMaker(seeds, options.seed).case(options.case)) or "fine")
        return 0
    start = time.monotonic()
    findings = run(FuzzPlan(seeds, options.seed, options.cases, options.jobs, options.failures))
    _report(findings, time.monotonic() - start)
    return 1 if findings.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Mutated real batches, read by both implementations."
    )
    parser.add_argument("--cases", type=int, default=100_000, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which ones (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="on how many processors (default: %(default)s)"
    )
    parser.add_argument("--case", type=int, metavar="N", help="only this one, in this process")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="failing cases that were written out")
    parser.add_argument(
        "--failures",
        type=Path,
        default=Path("fuzz-failures"),
        metavar="DIRECTORY",
        help="where failing cases are written to (default: %(default)s)",
    )
    return parser


def _replay(files: list[Path]) -> int:
    reasons = [failure(Comparison(), file.read_bytes()) for file in files]
    for file, reason in zip(files, reasons, strict=True):
        print(f"{file}: {reason or 'fine'}")
    return 1 if any(reasons) else 0


def _report(findings: Findings, seconds: float) -> None:
    for what, count in sorted(findings.seen.items()):
        print(f"{count:10} {what}")
    print(f"{findings.cases} cases in {seconds:.0f} s, {findings.cases / seconds:.0f} a second")
    for path in findings.failures:
        print(f"FAILED {path}")


if __name__ == "__main__":
    sys.exit(main())
