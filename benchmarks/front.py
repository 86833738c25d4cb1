"""How fast our own front is: against C on libfuse, mfusepy as shipped, and tmpfs.

    python -m benchmarks.front [--records N] [--reads N] [--listed N] [--repeat N] [--pinned | --unpinned] [--json]

The same files four ways: kfs on a log (its default front); a low-level server in C (``low_level.c``, compiled here;
it has the finished lines in memory and nothing to decode); kfs with mfusepy's ordinary class
(``--front mfusepy``); and files on tmpfs. They take turns; what counts is the best of the repetitions, and every
repetition has a mount of its own. *Pinned*, the daemon and the tool share one CPU: what is left is the work. Unpinned,
on an idle machine, waking each other up on another CPU costs most. README.md says more, and has the last results.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.logs import FIRST_TIMESTAMP, INTERVAL_MILLISECONDS, NEEDLE, TopicLog, write_large_topic
from benchmarks.machine import machine
from benchmarks.served import ServedMount, scratch_directory, served, served_by
from benchmarks.tables import aligned
from benchmarks.tasks import TASKS, Chosen, Task, choose
from kfs.broker_log.log_segment import LogSegment
from kfs.format.codecs import Codec
from kfs.format.record import Record
from kfs.format.writer import encode_batch

_SOURCE: Final = Path(__file__).with_name("low_level.c")
_KFS: Final = "kfs"
_C: Final = "C"
_MFUSEPY: Final = "mfusepy"
_TMPFS: Final = "tmpfs"
_VARIANTS: Final = (_KFS, _C, _MFUSEPY, _TMPFS)
_TASKS: Final = ("random cat, one process", "the same again, warm", "grep -r", "find -newermt", "ls -l")
#: Chosen so that the lines have 300 bytes or so.
_VALUE_BYTES: Final = 150
_RECORDS_IN_BATCH: Final = 100
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Measurement:
    """One task, once; ``writes`` of the daemon are replies, and what it stores in the page cache unasked."""

    task: str
    variant: str
    pinned: bool
    seconds: float
    result: int
    writes: int = 0
    cpu_seconds: float = 0.0
    peak_rss: int = 0


@dataclass(frozen=True, slots=True)
class Files:
    """The same records in the three forms that are served, and where to mount."""

    log: Path
    lines: Path
    copies: Path
    server: Path
    mountpoint: Path

    def serve(self, variant: str) -> AbstractContextManager[ServedMount]:
        """Mount a variant that is a mount."""
        if variant == _C:
            times = (str(FIRST_TIMESTAMP // 1000), str(INTERVAL_MILLISECONDS))
            return served_by(self.mountpoint, [str(self.server), str(self.lines), *times, str(self.mountpoint)], {})
        return served(self.log, self.mountpoint, "auto" if variant == _KFS else "mfusepy")

    def directory(self, variant: str) -> Path:
        """Where the records of a variant are."""
        return {_C: self.mountpoint, _TMPFS: self.copies}.get(variant, self.mountpoint / "short/0/offset")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print the results."""
    options = parse(arguments)
    with scratch_directory(options.tmpfs) as scratch:
        files = make_files(scratch, options.records)
        measurements = list(measure(files, options))
        first_entries = list(measure_first_entry(scratch, options))
    if options.json:
        print(json.dumps([*map(asdict, measurements), *map(asdict, first_entries)], indent=1))
        return
    print(f"{machine()}\n")
    for pinned in options.pinnings:
        where = "pinned to one CPU" if pinned else "unpinned"
        print(f"{options.records} records of 300 bytes, {options.reads} at random, {where}, best of {options.repeat}")
        print("\n".join(_table([each for each in measurements if each.pinned is pinned])), "\n")
    for each in first_entries:
        print(
            f"first of {each.result} entries, {'pinned' if each.pinned else 'unpinned'}: {each.seconds * 1000:.1f} ms"
        )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; ``arguments`` are those of the process unless given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.front", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=100_000, help="how many records there are")
    parser.add_argument("--reads", type=int, default=20_000, help="how many of them are read at random")
    parser.add_argument("--listed", type=int, default=10_000_000, help="how many the large directory has; 0 for none")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, of which the best counts")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--pinned", dest="pinnings", action="store_const", const=(True,), help="pinned to one CPU only")
    only.add_argument("--unpinned", dest="pinnings", action="store_const", const=(False,), help="unpinned only")
    parser.add_argument("--tmpfs", default="/dev/shm", help="where to make the files")
    parser.add_argument("--json", action="store_true", help="print every measurement, as JSON")
    parser.set_defaults(pinnings=(False, True))
    return parser.parse_args(arguments)


# --- the files --------------------------------------------------------------------------------------------------------


def make_files(scratch: Path, records: int) -> Files:
    """Write the log, have kfs copy its records out, and compile the server."""
    files = Files(scratch / "logs/short-0", scratch / "lines", scratch / "copies", scratch / "server", scratch / "mnt")
    _write_topic(files.log, records)
    with files.serve(_KFS) as mount:
        command = ["cp", "-r", "--preserve=timestamps", f"{mount.mountpoint}/short/0/offset", str(files.copies)]
        subprocess.run(command, check=True)
        with files.lines.open("wb") as lines:
            subprocess.run(["cat", f"{mount.mountpoint}/short/0/records.jsonl"], stdout=lines, check=True)
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()
    subprocess.run(["cc", "-O2", str(_SOURCE), "-o", str(files.server), *flags], check=True)
    return files


def _write_topic(directory: Path, records: int) -> None:
    """Write a topic of short values, all of them in a closed segment; one of a hundred has the needle in it."""
    directory.mkdir(parents=True)
    source = random.Random(20261121)
    segment = LogSegment.create(os.fspath(directory), 0)
    for first in range(0, records, _RECORDS_IN_BATCH):
        offsets = range(first, min(first + _RECORDS_IN_BATCH, records))
        batch = [
            Record(offset, FIRST_TIMESTAMP + offset * INTERVAL_MILLISECONDS, b"key-%d" % (offset % 977), _value(source))
            for offset in offsets
        ]
        segment.append(encode_batch(batch, codec=Codec.LZ4))
    segment.close()
    LogSegment.create(os.fspath(directory), records).close()  # the active segment


def _value(source: random.Random) -> bytes:
    word = NEEDLE if source.random() < 0.01 else "view"
    return f"{word} {source.randbytes(_VALUE_BYTES // 2).hex()}"[:_VALUE_BYTES].encode()


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(files: Files, options: argparse.Namespace) -> Iterator[Measurement]:
    """Have all variants do all tasks; raise RuntimeError where they don't find the same."""
    chosen = choose(options.records, options.reads)
    results: dict[str, int] = {}
    for pinned in options.pinnings:
        with _pinned(pinned):
            for tasks in _runs():
                for _ in range(options.repeat):
                    for variant in _VARIANTS:
                        for measurement in _measure(files, tasks, variant, chosen, pinned):
                            if results.setdefault(measurement.task, measurement.result) != measurement.result:
                                raise RuntimeError(f"{measurement} differs from {results[measurement.task]}")
                            yield measurement


def _runs() -> list[list[Task]]:
    """Return the tasks that go together on one mount."""
    runs: list[list[Task]] = []
    for task in (task for task in TASKS if task.name in _TASKS):
        if task.continues:
            runs[-1].append(task)
        else:
            runs.append([task])
    return runs


def _measure(files: Files, tasks: list[Task], variant: str, chosen: Chosen, pinned: bool) -> Iterator[Measurement]:
    if variant == _TMPFS:
        for task in tasks:
            seconds, result = _timed(task, files.directory(variant), chosen)
            yield Measurement(task.name, variant, pinned, seconds, result)
        return
    with files.serve(variant) as mount:
        for task in tasks:
            before = mount.usage()
            seconds, result = _timed(task, files.directory(variant), chosen)
            used = mount.usage().since(before)
            yield Measurement(
                task.name, variant, pinned, seconds, result, used.replies, used.cpu_seconds, mount.peak_rss()
            )


def _timed(task: Task, directory: Path, chosen: Chosen) -> tuple[float, int]:
    started = time.perf_counter()
    result = task.run(directory, chosen)
    return time.perf_counter() - started, result


@contextmanager
def _pinned(pinned: bool) -> Iterator[None]:
    """Have this process and all that it starts run on one CPU."""
    before = os.sched_getaffinity(0)
    if pinned:
        os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure_first_entry(scratch: Path, options: argparse.Namespace) -> Iterator[Measurement]:
    """Open a large directory, just mounted, and take one entry of it; the best of the repetitions."""
    if not options.listed:
        return
    topic: TopicLog = write_large_topic(scratch / "large", options.listed)
    for pinned in options.pinnings:
        seconds = []
        for _ in range(options.repeat):
            with _pinned(pinned), served(scratch / "large/large-0", scratch / "mnt", "auto") as mount:
                partition = (mount.mountpoint / topic.directory).parent
                os.listdir(partition)  # what is measured is the directory, not the first look at the log
                started = time.perf_counter()
                with os.scandir(partition / "offset") as listing:
                    next(listing)
                seconds.append(time.perf_counter() - started)
        yield Measurement("first entry", _KFS, pinned, min(seconds), options.listed)


# --- the results ------------------------------------------------------------------------------------------------------


_HEAD: Final = (
    *("task", "kfs s", "C s", "mfusepy s", "tmpfs s", "C/kfs", "mfusepy/kfs", "kfs/tmpfs"),
    *("kfs writes", "C's", "mfusepy's", "kfs CPU s", "C's", "mfusepy's", "kfs RSS MiB"),
)


def _table(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Yield the lines of a table: of every task the best repetition of each variant."""
    best: dict[tuple[str, str], Measurement] = {}
    for each in measurements:
        known = best.setdefault((each.task, each.variant), each)
        if each.seconds < known.seconds:
            best[each.task, each.variant] = each
    return aligned(_HEAD, [_row([best[task, variant] for variant in _VARIANTS]) for task in _TASKS])


def _row(variants: list[Measurement]) -> list[str]:
    kfs, c, mfusepy, tmpfs = variants
    mounts = (kfs, c, mfusepy)
    return [
        kfs.task,
        *(f"{each.seconds:.3f}" for each in variants),
        f"{c.seconds / kfs.seconds:.2f}",
        f"{mfusepy.seconds / kfs.seconds:.1f}",
        f"{kfs.seconds / tmpfs.seconds:.1f}",
        *(str(each.writes) for each in mounts),
        *(f"{each.cpu_seconds:.2f}" for each in mounts),
        f"{kfs.peak_rss / _MIB:.0f}",
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
