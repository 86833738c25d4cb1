"""How soon a mount shows what a broker does: beside a C program that asks the source's files again and again.

    python -m benchmarks.freshness [--batches N] [--deleted N] [--interval SECONDS] [--busy N] [--front FRONT]

A partition grows by a batch at each interval, and loses its oldest segment at every few. ``see_changes.c``, which is
compiled here, runs four times: it waits for each new record's file in the mount, and for its bytes in the source; for
the first record of each deleted segment to go from the mount, and for the segment's ``.log`` to go from the source.
What is printed is the time from the change until it was seen. ``--busy`` has so many processes keep the processors
busy.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.growing_log import BATCH, GrowingLog
from benchmarks.machine import machine
from benchmarks.served import ServedMount, scratch_directory, served
from benchmarks.tables import aligned

_MEMORY: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None
_SOURCE: Final = Path(__file__).with_name("see_changes.c")
_BATCHES_PER_SEGMENT: Final = 20
#: How long, in seconds, the last change may take to be seen by everyone.
_PATIENCE_SECONDS: Final = 60.0
_NS: Final = 1_000_000_000
HEAD: Final = ("change", "seen in", "times", "median ms", "99% ms", "longest ms")
APPENDED: Final = "record appended"
DELETED: Final = "segment deleted"


@dataclass(frozen=True, slots=True)
class Seen:
    """How long it took, in seconds, until each change of a kind was seen in the mount or in the source."""

    change: str
    place: str
    seconds: tuple[float, ...]

    def row(self) -> list[str]:
        """Return a row of the table."""
        found = sorted(self.seconds)
        highest = found[min(len(found) - 1, len(found) * 99 // 100)]
        numbers = (statistics.median(found), highest, found[-1])
        return [self.change, self.place, str(len(found)), *(f"{number * 1000:.1f}" for number in numbers)]


@dataclass(frozen=True, slots=True)
class Result:
    """What was seen, and the CPU seconds that the daemon used: while the log grew, and while nothing happened."""

    seen: tuple[Seen, ...]
    seconds: float
    cpu_seconds: float
    idle_seconds: float
    idle_cpu_seconds: float


class _Watcher:
    """A running ``see_changes``, which waits for a list of files to have a size, or (-1) to go."""

    def __init__(self, program: Path, wanted: Iterable[tuple[Path, int]]) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.writelines(f"{size} {path}\n" for path, size in wanted)
        self._process.stdin.close()
        self._process.stdin = None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{program}: what is to be deleted isn't there")

    def times(self) -> list[int]:
        """Return when each was seen (monotonic clock, nanoseconds)."""
        return [int(line) for line in self._process.communicate(timeout=_PATIENCE_SECONDS)[0].split()]

    def kill(self) -> None:
        """End it, wherever it is."""
        self._process.kill()
        self._process.wait()


def measure(scratch: Path, options: argparse.Namespace) -> Result:
    """Have a log grow in ``scratch``, and return how soon that was seen."""
    program = _compiled(scratch)
    log = GrowingLog(scratch / "logs/t-0", _BATCHES_PER_SEGMENT)
    before = (options.deleted + 1) * _BATCHES_PER_SEGMENT
    for _ in range(before):
        log.append()
    offsets = scratch / "mnt/t/0/offset"
    appended, deleted = range(before, before + options.batches), range(options.deleted)
    firsts = [number * _BATCHES_PER_SEGMENT for number in deleted]
    wanted: Mapping[tuple[str, str], list[tuple[Path, int]]] = {
        (APPENDED, "mount"): [(offsets / f"{number * BATCH}.json", 1) for number in appended],
        (APPENDED, "source"): [log.file_of(number) for number in appended],
        (DELETED, "mount"): [(offsets / f"{number * BATCH}.json", -1) for number in firsts],
        (DELETED, "source"): [(log.file_of(number)[0], -1) for number in firsts],
    }
    with ExitStack() as ends:
        mount = ends.enter_context(served(scratch / "logs", scratch / "mnt", options.front))
        ends.enter_context(_busy(options.busy))
        watchers = {}
        for what, files in wanted.items():
            watchers[what] = _Watcher(program, files)
            ends.callback(watchers[what].kill)
        started, cpu = time.perf_counter(), mount.usage().cpu_seconds
        happened = _grow(log, options)
        times = {what: watcher.times() for what, watcher in watchers.items()}
        seconds, cpu = time.perf_counter() - started, mount.usage().cpu_seconds - cpu
        idle_cpu = _idle(mount, options.idle)
        log.close()
    seen = (Seen(*what, _seconds(happened[what[0]], times[what])) for what in wanted)
    return Result(tuple(seen), seconds, cpu, options.idle, idle_cpu)


def _compiled(scratch: Path) -> Path:
    program = scratch / "see_changes"
    subprocess.run(["cc", "-O2", str(_SOURCE), "-o", str(program)], check=True)
    return program


def _grow(log: GrowingLog, options: argparse.Namespace) -> dict[str, list[int]]:
    """Append and delete; return when (monotonic clock, nanoseconds) each change began."""
    happened: dict[str, list[int]] = {APPENDED: [], DELETED: []}
    every = max(1, options.batches // options.deleted)
    for number in range(options.batches):
        time.sleep(options.interval)
        happened[APPENDED].append(time.monotonic_ns())
        log.append()
        if number % every == every - 1 and len(happened[DELETED]) < options.deleted:
            time.sleep(options.interval / 2)
            happened[DELETED].append(time.monotonic_ns())
            log.delete_oldest()
    return happened


def _seconds(happened: Sequence[int], seen: Sequence[int]) -> tuple[float, ...]:
    return tuple((then - since) / _NS for since, then in zip(happened, seen, strict=True))


def _idle(mount: ServedMount, seconds: float) -> float:
    """Do nothing for a while, once all is told; return the CPU seconds that the daemon used meanwhile."""
    time.sleep(min(2.0, seconds))
    before = mount.usage().cpu_seconds
    time.sleep(seconds)
    return mount.usage().cpu_seconds - before


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Keep processors busy for the length of a block."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.freshness", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--batches", type=int, default=2000, help="how many batches are appended")
    parser.add_argument("--deleted", type=int, default=100, help="how many segments are deleted meanwhile")
    parser.add_argument("--interval", type=float, default=0.02, help="seconds from one batch to the next")
    parser.add_argument("--busy", type=int, default=0, help="how many processes keep the processors busy")
    parser.add_argument("--idle", type=float, default=20.0, help="for how many seconds nothing happens afterwards")
    parser.add_argument("--front", default="kernel")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    options = parse(arguments)
    print(machine())
    load = os.getloadavg()[0]
    with scratch_directory(_MEMORY) as scratch:
        result = measure(scratch, options)
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after; {options.busy} processes keep processors busy")
    print("\n".join(aligned(HEAD, [each.row() for each in result.seen])))
    print(f"daemon: {result.cpu_seconds:.2f} CPU seconds in {result.seconds:.0f} s while the log grew")
    print(f"daemon: {result.idle_cpu_seconds:.2f} CPU seconds in {result.idle_seconds:.0f} s while nothing happened")


if __name__ == "__main__":
    main()
