"""What a mount of very many partitions costs: time, memory and descriptors, whatever is asked for.

    python -m benchmarks.many [--topics N] [--partitions N] [--segments N] [--descriptors N]

The partitions are small and their files hard links, so that their number is what counts. The daemon may have as many
descriptors open as ``--descriptors`` says, which is its hard limit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.machine import machine
from benchmarks.many_logs import many_logs
from benchmarks.served import ServedMount, scratch_directory, served_by
from benchmarks.tables import aligned
from benchmarks.trees import MAIN, PROGRAM, compile_bytecode

_MEMORY: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None
_MEBIBYTE: Final = 1024 * 1024
#: Shell commands, run in the mount one after another: each sees all partitions.
_TASKS: Final = {
    "ls": "ls",
    "ls *": "ls *",
    "every meta/log.json": "for topic in *; do cat $topic/*/meta/log.json; done",
    "every last.json": "for topic in *; do cat $topic/*/last.json; done",
    "find -name last.json": "find . -name last.json",
    "nothing, for 5 s": "sleep 5",
    "files in .kfs": "cat .kfs/stats.json .kfs/problems.jsonl .kfs/checkpoints/*/*; ls .kfs/deleted .kfs/replicas",
}
HEAD: Final = ("task", "s", "daemon CPU s", "peak RSS MiB", "descriptors")


def rows(log_dir: Path, scratch: Path, descriptors: int) -> Iterator[list[str]]:
    """Yield a row of the table for the mount itself, and then for each task."""
    limited = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(descriptors)]
    command = [*limited, sys.executable, *PROGRAM, MAIN, "mount", "--foreground", "--no-index", str(log_dir)]
    started = time.perf_counter()
    with served_by(scratch / "mnt", [*command, str(scratch / "mnt")], {"XDG_CACHE_HOME": str(scratch)}) as mount:
        yield _row("mount", started, 0.0, mount)
        for name, task in _TASKS.items():
            before, started = mount.usage().cpu_seconds, time.perf_counter()
            subprocess.run(["sh", "-c", task], cwd=mount.mountpoint, stdout=subprocess.DEVNULL, check=True)
            yield _row(name, started, before, mount)


def _row(name: str, started: float, cpu_before: float, mount: ServedMount) -> list[str]:
    seconds, cpu = time.perf_counter() - started, mount.usage().cpu_seconds - cpu_before
    return [name, f"{seconds:.2f}", f"{cpu:.2f}", f"{mount.peak_rss() / _MEBIBYTE:.0f}", str(mount.descriptors())]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=200, help="how many each topic has")
    parser.add_argument("--segments", type=int, default=10, help="how many each partition has")
    parser.add_argument("--descriptors", type=int, default=1024, help="how many the daemon may have open")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    options = parse(arguments)
    compile_bytecode(Path(sys.executable))
    print(machine())
    print(f"{options.topics * options.partitions} partitions of {options.segments} segments")
    with scratch_directory(_MEMORY) as scratch:
        many_logs(scratch / "logs", options.topics, options.partitions, options.segments)
        print("\n".join(aligned(HEAD, list(rows(scratch / "logs", scratch, options.descriptors)))))


if __name__ == "__main__":
    main()
