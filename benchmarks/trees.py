"""Two installations of kfs in alternating rounds: did a change make anything slower?

Both read the same logs; each round runs every task with the one and the other, in turn, so that what else the machine
does falls on both. What is printed is the ratio new : old pair by pair, its median, and the least and greatest of the
middle half of the pairs. A task got slower where that range lies above 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.command_line import add_place_of_logs
from benchmarks.events import EventLog, event_log
from benchmarks.machine import machine
from benchmarks.rounds import Sample, timed_process
from benchmarks.served import served_by
from benchmarks.tables import aligned
from kfs.format.codecs import Codec

_READS: Final = 3000
#: -P: what is installed is run, not what happens to be in the working directory.
PROGRAM: Final = ("-P", "-c")
MAIN: Final = "from kfs.cli.main import main; main()"
_SCAN: Final = """
import sys, kfs
with kfs.open(sys.argv[1]) as data:
    assert sum(batch.num_rows for batch in data.scan(include_headers=True, jobs=int(sys.argv[2]))) == int(sys.argv[3])
"""
_RECORDS: Final = f"""
import random, sys, kfs
with kfs.open(sys.argv[1]) as data:
    log = data[sys.argv[2]][0]
    for offset in random.Random(1).sample(range(int(sys.argv[3])), {_READS}):
        assert log[offset].offset == offset
"""
_READ_FILES: Final = f"""
import random, sys
for offset in random.Random(1).sample(range(int(sys.argv[2])), {_READS}):
    with open(f"{{sys.argv[1]}}/{{offset}}.json", "rb", 0) as file:
        assert file.read()
"""


@dataclass(frozen=True, slots=True)
class Logs:
    """What is read: a long log, and one of few records, for what costs a round trip each."""

    long: EventLog
    short: EventLog


Command = Callable[[Logs], Sequence[str]]


def _kfs(*arguments: str) -> Command:
    return lambda logs: [*PROGRAM, MAIN, *(_filled(argument, logs) for argument in arguments)]


def _program(source: str, *arguments: str) -> Command:
    return lambda logs: [*PROGRAM, source, *(_filled(argument, logs) for argument in arguments)]


def _filled(argument: str, logs: Logs) -> str:
    log = logs.long
    return argument.format(dir=log.directory.parent, partition=log.directory, topic=log.topic, records=log.records)


#: What a fresh process does, by name: the arguments of Python.
COMMANDS: Final[dict[str, Command]] = {
    "--version": _kfs("--version"),
    "ls": _kfs("ls", "{dir}", "{topic}/0"),
    "cat --last 1": _kfs("cat", "{dir}", "{topic}/0", "--last", "1"),
    "verify": _kfs("verify", "{dir}"),
    "cat": _kfs("cat", "{dir}", "{topic}"),
    "dump": _kfs("dump", "--print-data-log", "{partition}"),
    "scan, one process": _program(_SCAN, "{dir}", "1", "{records}"),
    "scan, two": _program(_SCAN, "{dir}", "2", "{records}"),
    "records by offset": _program(_RECORDS, "{dir}", "{topic}", "{records}"),
}
#: What a shell does in a partition of a new mount, by name: a command, and whether it takes the long log.
IN_A_MOUNT: Final[dict[str, tuple[Sequence[str], bool]]] = {
    "mounted lines": (("sh", "-c", "cat segment/*.jsonl"), True),
    "mounted records.jsonl": (("cat", "records.jsonl"), True),
    "mounted random records": ((sys.executable, "-c", _READ_FILES, "offset", "{records}"), False),
    "mounted grep -r": (("grep", "-rc", "offset", "offset"), False),
    "mounted find -newermt": (("find", "offset", "-newermt", "2020-01-01"), False),
    "mounted ls -l": (("ls", "-l", "offset"), False),
}
TASKS: Final = (*COMMANDS, *IN_A_MOUNT)


def measure(task: str, python: Path, logs: Logs) -> Sample:
    """Run a task once with the kfs of an interpreter; of a mount, the CPU time is its daemon's."""
    if task in COMMANDS:
        return timed_process([os.fspath(python), *COMMANDS[task](logs)], logs.long.records)
    command, takes_long = IN_A_MOUNT[task]
    log = logs.long if takes_long else logs.short
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mount_command = [os.fspath(python), *PROGRAM, MAIN, "mount", "--foreground", "--no-index"]
        mount_command += [os.fspath(log.directory.parent), os.fspath(scratch / "mnt")]
        environment = {"XDG_CACHE_HOME": os.fspath(scratch)}
        mount = stack.enter_context(served_by(scratch / "mnt", mount_command, environment))
        before = mount.usage()
        partition = os.fspath(mount.mountpoint / log.topic / "0")
        arguments = [
            argument.format(records=log.records) if "{records}" in argument else argument for argument in command
        ]
        # "$0" is the partition: the command runs in it.
        sample = timed_process(["sh", "-c", 'cd "$0" && exec "$@"', partition, *arguments], log.records)
        return Sample(sample.records, sample.seconds, mount.usage().since(before).cpu_seconds)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What both did in one task, round by round."""

    task: str
    old: list[Sample]
    new: list[Sample]

    def ratios(self, value: Callable[[Sample], float]) -> list[float]:
        """Return new : old of each round, ascending."""
        return sorted(value(new) / max(value(old), 1e-9) for old, new in zip(self.old, self.new, strict=True))


def compare(tasks: Sequence[str], old: Path, new: Path, logs: Logs, rounds: int) -> Iterator[Comparison]:
    """Yield what both took for each task: a round that doesn't count, then ``rounds`` that do."""
    for task in tasks:
        run = partial(measure, task, logs=logs)
        samples: tuple[list[Sample], list[Sample]] = ([], [])
        for number in range(rounds + 1):
            turns = ((old, samples[0]), (new, samples[1]))
            for python, kept in turns if number % 2 else reversed(turns):
                sample = run(python)
                if number:
                    kept.append(sample)
        yield Comparison(task, *samples)


def rows_of(found: Comparison) -> list[str]:
    """Return a row of the table: medians, then ratios of wall and of CPU time with the middle half of their spread."""
    seconds = [statistics.median(sample.seconds for sample in side) for side in (found.old, found.new)]
    return [found.task, *(f"{value:.3f}" for value in seconds), *ratios_of(found)]


def ratios_of(found: Comparison) -> Iterator[str]:
    """Yield the median of the ratios, and the middle half of their spread, of wall and of CPU time."""
    values: tuple[Callable[[Sample], float], ...] = (lambda sample: sample.seconds, lambda sample: sample.cpu_seconds)
    for value in values:
        ratios = found.ratios(value)
        quarter = len(ratios) // 4
        yield f"{statistics.median(ratios):.3f}"
        yield f"{ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}"


def compile_bytecode(python: Path) -> None:
    """Have an interpreter's kfs compiled, as pip does: a tree that isn't compiles its sources at each start."""
    source = "import compileall, kfs; compileall.compile_dir(*kfs.__path__, quiet=1)"
    subprocess.run([python, *PROGRAM, source], check=True)


HEAD: Final = ("task", "old s", "new s", "wall", "middle half", "CPU", "middle half")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trees", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", type=Path, help="the python of the environment that has the old kfs")
    parser.add_argument("--new", type=Path, default=Path(sys.executable), help="that of the new one (this one)")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--records", type=int, default=1_500_000, help="how many records the long log has")
    parser.add_argument("--few", type=int, default=30_000, help="how many the short one has")
    parser.add_argument("--codec", choices=[codec.label for codec in Codec], default=Codec.LZ4.label)
    parser.add_argument("--only", action="append", choices=TASKS, help="this task only; repeatable")
    add_place_of_logs(parser)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, and print a table."""
    options = parse()
    codec = next(codec for codec in Codec if codec.label == options.codec)
    sizes = (options.records, options.few)
    logs = Logs(*(event_log(options.directory, codec, size, producer=options.producer) for size in sizes))
    for python in (options.old, options.new):
        compile_bytecode(python)
    print(f"{machine()}, logs of {options.producer}")
    rows = [rows_of(found) for found in compare(options.only or TASKS, options.old, options.new, logs, options.rounds)]
    print("\n".join(aligned(HEAD, rows)))


if __name__ == "__main__":
    main()
