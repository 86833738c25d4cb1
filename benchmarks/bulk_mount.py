"""Whole segments through a mount: their lines, Kafka's own files, and a directory of very many of them."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.events import EventLog
from benchmarks.rounds import Sample
from benchmarks.served import ServedMount, served
from kfs.tree.names import segment_name


@contextmanager
def mounted(log: EventLog, cache: Path) -> Iterator[ServedMount]:
    """Mount a log for the length of a block; tables are kept in ``cache``."""
    with (
        tempfile.TemporaryDirectory(prefix="kfs-benchmark-mnt.") as mountpoint,
        served(log.directory.parent, Path(mountpoint), "auto", cache) as mount,
    ):
        yield mount


def partition(log: EventLog, mount: ServedMount) -> Path:
    """Return where the log's partition is."""
    return mount.mountpoint / log.topic / "0"


def watched(mount: ServedMount, work: Callable[[], None], records: int) -> Sample:
    """Run ``work``; the CPU time is the daemon's."""
    before, started = mount.usage(), time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    return Sample(records, seconds, mount.usage().since(before).cpu_seconds)


def cat(path: Path) -> Callable[[], None]:
    """Return what reads a file as ``cat`` does."""
    return lambda: run(["cat", str(path)])


def run(command: Sequence[str]) -> None:
    """Run a command, its output thrown away."""
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def read_lines(log: EventLog, records: int, rounds: int) -> Iterator[tuple[str, Sample]]:
    """Read the first segment's lines, of ``records`` records: nothing known of it, then with its table ready."""
    with tempfile.TemporaryDirectory() as cache:
        for task, times in (("cat of segment/*.jsonl, the first time", 1), ("cat of segment/*.jsonl", rounds)):
            yield task, _best_of(log, Path(cache), f"segment/{segment_name(0)}", records, times)


def read_raw(log: EventLog, rounds: int) -> Iterator[tuple[str, Sample]]:
    """Read the first segment's ``.log``, through the mount and where it lies; it counts in bytes."""
    source = log.segments()[0]
    size = source.stat().st_size
    with tempfile.TemporaryDirectory() as cache:
        yield "cat of raw/*.log", _best_of(log, Path(cache), f"raw/{source.name}", size, rounds)
    direct = []
    for _ in range(rounds):
        started = time.perf_counter()
        run(["cat", str(source)])
        direct.append(time.perf_counter() - started)
    yield "cat of the file itself", Sample(size, min(direct), 0.0)


def _best_of(log: EventLog, cache: Path, name: str, records: int, rounds: int) -> Sample:
    """Read a file so many times, each through a mount of its own: what the kernel keeps of it goes with the mount."""
    best: Sample | None = None
    for _ in range(rounds):
        with mounted(log, cache) as mount:
            sample = watched(mount, cat(partition(log, mount) / name), records)
        best = sample if best is None else sample.or_better(best)
    assert best is not None
    return best


def list_segments(log: EventLog) -> Iterator[tuple[str, Sample]]:
    """List a directory of many segments with their sizes: the first time, again, and on the next mount."""
    with tempfile.TemporaryDirectory() as cache:
        with mounted(log, Path(cache)) as mount:
            command = ["ls", "-l", str(partition(log, mount) / "segment")]
            for task in ("ls -l, the first time", "ls -l again"):
                yield task, watched(mount, lambda: run(command), log.records)
        with mounted(log, Path(cache)) as mount:
            command = ["ls", "-l", str(partition(log, mount) / "segment")]
            yield "ls -l on the next mount", watched(mount, lambda: run(command), log.records)
