"""What is done to a directory of records, always in the same way, wherever it lies."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.logs import FIRST_TIMESTAMP, INTERVAL_MILLISECONDS, NEEDLE

_READ_SIZE: Final = 128 * 1024
_PIPE_SIZE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the tasks need to know: names of records in random order, and a moment in the middle of all records."""

    names: tuple[str, ...]
    midpoint: str

    @property
    def arguments(self) -> bytes:
        """The names as ``xargs`` reads them."""
        return "\n".join(self.names).encode()


def choose(records: int, reads: int) -> Chosen:
    """Choose ``reads`` different records, the same each time."""
    offsets = random.Random(records).sample(range(records), min(reads, records))
    milliseconds = FIRST_TIMESTAMP + records // 2 * INTERVAL_MILLISECONDS
    midpoint = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
    return Chosen(tuple(f"{offset}.json" for offset in offsets), midpoint)


@dataclass(frozen=True, slots=True)
class Task:
    """Something that is timed; ``run`` returns a number that has to be the same wherever the records lie.

    A task that ``continues`` is run right after the one before it, on the same mount.
    """

    name: str
    run: Callable[[Path, Chosen], int]
    continues: bool = False


def read_each(directory: Path, chosen: Chosen) -> int:
    """Open, read and close every chosen record; return how many bytes that were."""
    total = 0
    prefix = f"{directory}/"
    for name in chosen.names:
        descriptor = os.open(prefix + name, os.O_RDONLY)
        while data := os.read(descriptor, _READ_SIZE):
            total += len(data)
        os.close(descriptor)
    return total


def _xargs_cat(directory: Path, chosen: Chosen) -> int:
    return len(_output(["xargs", "cat"], directory, chosen.arguments))


def _grep(directory: Path, _chosen: Chosen) -> int:
    return _output(["grep", "-r", NEEDLE, "."], directory).count(b"\n")


def _ls(directory: Path, _chosen: Chosen) -> int:
    return _output(["ls", "-f"], directory).count(b"\n")


def _ls_long(directory: Path, _chosen: Chosen) -> int:
    return _output(["ls", "-l"], directory).count(b"\n")


def _find_newer(directory: Path, chosen: Chosen) -> int:
    return _output(["find", ".", "-type", "f", "-newermt", chosen.midpoint], directory).count(b"\n")


def _output(command: Sequence[str], directory: Path, given: bytes = b"") -> bytes:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    return subprocess.run(
        command, cwd=directory, input=given, stdout=subprocess.PIPE, check=True, env=environment
    ).stdout


TASKS: Final = (
    Task("random cat, one process", read_each),
    Task("the same again, warm", read_each, continues=True),
    Task("random xargs cat", _xargs_cat),
    Task("grep -r", _grep),
    Task("ls -f", _ls),
    Task("find -newermt", _find_newer),
    Task("ls -l", _ls_long),
)


def list_all(directory: Path) -> tuple[int, float, float]:
    """Run ``ls -f`` and count: return how many lines, the seconds until the first came, and until the last.

    ``ls`` writes names as it reads them, a few kilobytes at a time.
    """
    started = time.perf_counter()
    with subprocess.Popen(["ls", "-f"], cwd=directory, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        lines = process.stdout.read(_PIPE_SIZE).count(b"\n")
        first = time.perf_counter() - started
        while names := process.stdout.read(_PIPE_SIZE):
            lines += names.count(b"\n")
    return lines, first, time.perf_counter() - started
