"""How fast a log of groups is loaded, and what that takes in memory.

    python -m benchmarks.groups [--commits N] [--groups N] [--repeat N]

Partitions of ``__consumer_offsets`` as in ``offsets_topic.py``, one after another on one CPU, each in a process of its
own that loads it and then says what CPU time it took: the best of the repetitions counts. *Load* is what somebody waits
for who looks into ``.kfs/groups`` first; *table* is what ``kfs groups`` of all of them takes besides. Memory is the
most that the process had, less what it has when nothing is loaded yet.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.machine import machine
from benchmarks.offsets_topic import OffsetsLog
from benchmarks.tables import aligned
from kfs.internal.group_table import OFFSETS
from kfs.internal.groups import Groups
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Measurement:
    """One log, loaded once: CPU ``seconds`` to have it, and more for the table; ``peak`` in bytes."""

    seconds: float
    table_seconds: float
    peak: int


def logs_of(commits: int, groups: int) -> dict[str, OffsetsLog]:
    """Return what is measured, by name."""
    return {
        "ten commits a batch": OffsetsLog(commits, groups, 0, 10),
        "a quarter as many commits": OffsetsLog(commits // 4, groups, 0, 10),
        "20% in transactions of ten": OffsetsLog(commits, groups, 0.2, 10),
        "one commit a batch": OffsetsLog(commits, groups, 0, 1),
        "20% in transactions of one": OffsetsLog(commits, groups, 0.2, 1),
    }


def measure(log_dir: Path) -> Measurement:
    """Load a log in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.groups", "--load", str(log_dir)], check=True, capture_output=True
    )
    return Measurement(**json.loads(done.stdout))


def _load(log_dir: str) -> Measurement:
    before = _peak()
    started = time.process_time()
    groups = Groups(DataDir([log_dir], Storage()))
    names = groups.names()
    loaded = time.process_time()
    for name in names:
        group = groups.group(name)
        if group is not None:
            standings = [groups.standing(partition) for partition in group.partitions]
            for _ in OFFSETS.rows(group, standings, 0):
                pass
    return Measurement(loaded - started, time.process_time() - loaded, _peak() - before)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=5_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--load", metavar="LOG_DIR", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    options = parse(arguments)
    if options.load is not None:
        found = _load(options.load)
        print(json.dumps({name: getattr(found, name) for name in Measurement.__slots__}))
        return
    where = machine()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    title = f"{options.commits:,} commits of {options.groups:,} groups, one CPU"
    head = (title, "commits", "load: s", "table: s", "memory: MiB")
    rows = []
    with tempfile.TemporaryDirectory(prefix="kfs-benchmark.") as scratch:
        for number, (name, log) in enumerate(logs_of(options.commits, options.groups).items()):
            log_dir = Path(scratch, str(number))
            log.write(log_dir)
            best = min((measure(log_dir) for _ in range(options.repeat)), key=lambda found: found.seconds)
            numbers = f"{best.seconds:.2f}", f"{best.table_seconds:.2f}", f"{best.peak / _MIB:.0f}"
            rows.append([name, f"{log.commits:,}", *numbers])
    print(where, "", *aligned(head, rows), sep="\n")


if __name__ == "__main__":
    main()
