"""Work that many processes do: what they use of the CPUs, children of children and threads included."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.rounds import Sample

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
#: Fields of /proc/PID/stat behind the name of the program.
_PARENT: Final = 1
_TIMES: Final = slice(11, 15)  # utime, stime, and those of children that have ended


def timed_with_descendants(work: Callable[[], int]) -> Sample:
    """Run ``work``, which returns how many records it saw; every process that this one has started counts."""
    cpu, started = _cpu_seconds(), time.perf_counter()
    records = work()
    return Sample(records, time.perf_counter() - started, _cpu_seconds() - cpu)


def _cpu_seconds() -> float:
    """Return what this process and its descendants, living and dead, have used so far."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        children[int(fields[_PARENT])].append(int(entry))
        ticks[int(entry)] = sum(map(int, fields[_TIMES]))
    found, todo = 0, [os.getpid()]
    while todo:
        process = todo.pop()
        found += ticks.get(process, 0)
        todo += children[process]
    return found / _TICKS_PER_SECOND
