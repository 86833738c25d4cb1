"""``python -m tests.soak``: as long a run as you like. See README.md."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kfs.mount import FRONTS
from tests.requirements import need_kafka
from tests.soak.mounts import DESCRIPTORS
from tests.soak.plan import Plan
from tests.soak.run import Soak, write


def main() -> int:
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the broker ends, and what is mounted goes
    started = time.monotonic()

    def say(text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - started:6.0f} s  {text}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="kfs-soak-") as directory:
        soak = Soak(
            Path(directory),
            options.minutes * 60,
            tuple(options.front or ["kernel"]),
            options.seed,
            need_kafka(),
            options.committed,
            options.descriptors,
            Plan(),
            options.ease,
            options.small_caches,
            options.kill_every,
            say,
        )
        report = soak.run()
    write(report, options.report)
    sys.stdout.writelines(f"{line}\n" for line in (*summary(report), f"details: {options.report}"))
    return 1 if report["found"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description="Readers of everything over a real broker that changes everything."
    )
    fronts = [front for front in FRONTS if front != "auto"]
    parser.add_argument("--minutes", type=float, default=1.0, metavar="N", help="how long (default: %(default)s)")
    parser.add_argument("--front", action="append", choices=fronts, help="which fronts (default: kernel); repeatable")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all that is chosen at random")
    parser.add_argument(
        "--no-committed", dest="committed", action="store_false", help="without a mount at read_committed"
    )
    parser.add_argument(
        "--descriptors", type=int, default=DESCRIPTORS, metavar="N", help="each process may have (default: %(default)s)"
    )
    parser.add_argument(
        "--ease", type=float, default=1.0, metavar="N", help="longer pauses between reads, so many times"
    )
    parser.add_argument(
        "--small-caches", action="store_true", help="mounts keep so little that memory must not grow at all"
    )
    parser.add_argument(
        "--kill-every",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="kill the daemons so often, under a supervisor; needs root",
    )
    parser.add_argument(
        "--report", type=Path, default=Path("soak-report.json"), metavar="FILE", help="default: %(default)s"
    )
    return parser


def summary(report: dict[str, Any]) -> Iterator[str]:
    """Return the report in lines that can be read."""
    for name in ("events", "reads", "notes"):
        yield f"{name}:"
        yield from (f"{count:10} {what}" for what, count in report[name].items())
    for name, process in report["processes"].items():
        for what, numbers in process.items():
            scale, unit = (2**20, " MiB") if what == "memory" else (1, "")
            thirds = " ".join(f"{each / scale:.0f}" for each in numbers["thirds"])
            yield f"{name}: {what}: {thirds}, at most {numbers['most'] / scale:.0f}{unit}"
    for name, kills in report["kills"].items():
        yield f"{name}: {kills['kills']} kills, read again after {kills['median']:.2f} s, at most {kills['most']:.2f} s"
    yield f"a deleted file was kept for {report['longest that a deleted file was kept']} s at most"
    yield from (f"broker: {line[:200]}" for line in report["errors of the broker"])
    yield from (f"FOUND {count:6} {what}" for what, count in report["found"].items())
    yield f"{'FAILED' if report['found'] else 'nothing found'}: {report['seconds']:.0f} s, seed {report['seed']}"


if __name__ == "__main__":
    sys.exit(main())
