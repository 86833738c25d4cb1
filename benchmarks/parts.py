"""What it costs to ask for a part of a log, beside what that is measured by.

    python -m benchmarks.parts [--only QUESTION] [--rounds N]

Each question takes turns with its peer: all of the log, a shell's tools, kcat and a broker, the same number of records
that are asked for by offset, Parquet, one partition instead of many, or a Python that does nothing. What is printed is
the ratio question : peer, its median and the middle half of its spread, and the ratio that is wanted.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from benchmarks.command_line import add_place_of_logs
from benchmarks.events import EventLog, event_log, many_partitions
from benchmarks.machine import machine
from benchmarks.offsets_topic import write_commits
from benchmarks.produced import Producer, broker_over
from benchmarks.rounds import Sample, timed_process
from benchmarks.served import served_by
from benchmarks.tables import aligned
from benchmarks.trees import MAIN, PROGRAM, Comparison, compile_bytecode, ratios_of
from kfs.format.codecs import Codec

_PYTHON: Final = (sys.executable, *PROGRAM)
_KFS: Final = (*_PYTHON, MAIN)
_ROUNDS: Final = 7
_SEGMENTS: Final = 5

_COUNT_DATASET: Final = """
import sys, duckdb, kfs
with kfs.open(sys.argv[1]) as data:
    events = data.dataset()
    print(duckdb.sql("select count(*) from events " + sys.argv[2]).fetchall())
"""
_COUNT_PARQUET: Final = """
import sys, duckdb, pyarrow.dataset
events = pyarrow.dataset.dataset(sys.argv[1])
print(duckdb.sql("select count(*) from events " + sys.argv[2]).fetchall())
"""
_SCAN: Final = """
import sys, kfs
with kfs.open(sys.argv[1]) as data:
    print(sum(batch.num_rows for batch in data.scan(jobs=int(sys.argv[2]))))
"""


@dataclass(frozen=True, slots=True)
class Logs:
    """What is asked: one long partition, with and without indexes, as Parquet, and as many small partitions."""

    long: EventLog
    unindexed: Path
    parquet: Path
    many: EventLog
    as_many_in_one: EventLog
    commits: Path

    @classmethod
    def below(cls, root: Path, records: int, partitions: int, producer: Producer = Producer.KFS) -> Logs:
        """Return the logs below a directory, written unless they are there; kfs writes those of many partitions."""
        long = event_log(root, Codec.LZ4, records, producer=producer)
        many = many_partitions(root, long, partitions, _SEGMENTS)
        as_many_in_one = event_log(root, Codec.LZ4, many.records)
        return cls(long, _without_indexes(long), _as_parquet(long), many, as_many_in_one, _commits(many, partitions))

    def fill(self, argument: str, **more: str) -> str:
        """Return an argument with the places and offsets of these logs, and ``more``."""
        long, half = self.long, self.long.records // 2
        return argument.format(
            long=long.directory.parent,
            topic=long.topic,
            half=half,
            end=half + long.records // 60,
            unindexed=self.unindexed,
            parquet=self.parquet,
            many=self.many.directory,
            one=self.as_many_in_one.directory.parent,
            commits=self.commits,
            **more,
        )


def _without_indexes(log: EventLog) -> Path:
    root = log.directory.parent.with_name(f"{log.directory.parent.name}-unindexed")
    partition = root / log.directory.name
    if not partition.exists():
        partition.mkdir(parents=True)
        for segment in log.segments():
            os.link(segment, partition / segment.name)
    return root


def _as_parquet(log: EventLog) -> Path:
    path = log.directory.parent.with_name(f"{log.topic}.parquet")
    if not path.exists():
        subprocess.run([*_KFS, "cat", log.directory.parent, log.topic, "-f", "parquet", "-o", path], check=True)
    return path


def _commits(log: EventLog, partitions: int) -> Path:
    """Return a log directory with commits for each partition, in the middle of its records."""
    root = log.directory.with_name(f"{log.directory.name}-commits")
    if not root.exists():
        write_commits(root, "events", partitions, log.records // partitions // 2)
    return root


class Place(Enum):
    """Where a question and its peer are asked."""

    DISK = auto()
    #: Both are asked by a shell: the question in the topics of a mount of many partitions, its peer in a directory of
    #: the same lines.
    MOUNT = auto()
    #: The peer asks a broker that has the long log: ``{broker}`` is its address.
    BROKER = auto()


#: A process to be run: its arguments, as :meth:`Logs.fill` fills them.
Arguments = Sequence[str]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, what it is measured by, the ratio of the times that is wanted, and the programs that it takes."""

    name: str
    asked: Arguments
    peer_name: str
    peer: Arguments
    wanted: float
    place: Place = Place.DISK
    programs: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Return the programs that aren't there."""
        return [program for program in self.programs if shutil.which(program) is None]


def _kfs(*arguments: str) -> Arguments:
    return (*_KFS, *arguments)


def _shell(command: str) -> Arguments:
    return ("sh", "-c", command.replace("kfs ", shlex.join(_KFS).replace("{", "{{").replace("}", "}}") + " "))


_CAT: Final = _kfs("cat", "{long}", "{topic}")
_TEXT: Final = "user-47111"
_REGEX: Final = '"price":49[0-9][.]9.*"qty":[13]'
_NOTHING: Final = (*_PYTHON, "pass")

QUESTIONS: Final = (
    Question(
        "all of it",
        _CAT,
        "kcat, a broker",
        ("kcat", "-C", "-q", "-e", "-J", "-b", "{broker}", "-t", "{topic}", "-p", "0", "-o", "beginning"),
        0.5,
        Place.BROKER,
        programs=("kcat", "java"),
    ),
    Question(
        "a sixtieth by time",
        _kfs("cat", "{long}", "{topic}", "--since", "{since}", "--before", "{before}"),
        "by offset",
        _kfs("cat", "{long}", "{topic}", "--offsets", "{half}:{end}"),
        1.1,
    ),
    Question("--key", (*_CAT, "--key", _TEXT), "all of it", _CAT, 1.0),
    Question("--grep TEXT", (*_CAT, "--grep", _TEXT), "all of it", _CAT, 1.0),
    Question(
        "--grep TEXT, beside grep",
        (*_CAT, "--grep", _TEXT),
        "kfs cat | grep",
        _shell(f"kfs cat {{long}} {{topic}} | grep -c {_TEXT}; true"),
        1.0,
    ),
    Question(
        "--grep TEXT, beside rg",
        (*_CAT, "--grep", _TEXT),
        "kfs cat | rg",
        _shell(f"kfs cat {{long}} {{topic}} | rg -c {_TEXT}; true"),
        1.0,
        programs=("rg",),
    ),
    Question(
        "--grep REGEX",
        (*_CAT, "--grep", _REGEX),
        "kfs cat | grep",
        _shell(f"kfs cat {{long}} {{topic}} -f value | LC_ALL=C grep -cE {shlex.quote(_REGEX)}; true"),
        1.0,
    ),
    Question("--format value", (*_CAT, "--format", "value"), "JSON", _CAT, 0.5),
    Question("--count", (*_CAT, "--count"), "all of it", _CAT, 0.5),
    Question(
        "count(*) of a dataset",
        (*_PYTHON, _COUNT_DATASET, "{long}", ""),
        "Parquet",
        (*_PYTHON, _COUNT_PARQUET, "{parquet}", ""),
        2.0,
    ),
    Question(
        "a range of a dataset",
        (*_PYTHON, _COUNT_DATASET, "{long}", 'where "offset" between {half} and {end}'),
        "Parquet",
        (*_PYTHON, _COUNT_PARQUET, "{parquet}", 'where "offset" between {half} and {end}'),
        2.0,
    ),
    Question("two processes", (*_CAT, "-j", "2"), "one", (*_CAT, "-j", "1"), 1 / 1.8),
    Question(
        "scan without indexes",
        (*_PYTHON, _SCAN, "{unindexed}", "2"),
        "with indexes",
        (*_PYTHON, _SCAN, "{long}", "2"),
        1.1,
    ),
    Question("many partitions: cat", _kfs("cat", "{many}"), "in one partition", _kfs("cat", "{one}"), 1.5),
    Question("many partitions: verify", _kfs("verify", "{many}"), "in one partition", _kfs("verify", "{one}"), 1.5),
    Question(
        "many partitions: groups",
        _kfs("groups", "{commits}", "{many}"),
        "commits alone",
        _kfs("groups", "{commits}"),
        1.5,
    ),
    Question(
        "many partitions: last.json",
        ("sh", "-c", "cat */*/last.json"),
        "files in tmpfs",
        ("sh", "-c", "cat */*/last.json"),
        10.0,
        Place.MOUNT,
    ),
    Question("--version", _kfs("--version"), "python -c pass", _NOTHING, 6.0),
    Question("--help", _kfs("--help"), "python -c pass", _NOTHING, 9.0),
    Question("ls", _kfs("ls", "{long}", "{topic}/0"), "python -c pass", _NOTHING, 9.0),
    Question("cat --last 1", (*_CAT, "--last", "1"), "python -c pass", _NOTHING, 12.0),
)


def compare(question: Question, logs: Logs, rounds: int) -> Comparison:
    """Let a question and its peer take turns: a round that doesn't count, then ``rounds`` that do."""
    found = Comparison(question.name, [], [])
    with ExitStack() as stack:
        ask, ask_peer = _runs_of(question, logs, stack)
        for number in range(rounds + 1):
            samples = ask_peer(), ask()
            if number:
                found.old.append(samples[0])
                found.new.append(samples[1])
    return found


Run = Callable[[], Sample]


def _runs_of(question: Question, logs: Logs, stack: ExitStack) -> tuple[Run, Run]:
    if question.place is Place.MOUNT:
        return _runs_in_mount(question, logs, stack)
    since, before = _times(logs.long)
    more = {"since": since, "before": before}
    if question.place is Place.BROKER:
        more["broker"] = stack.enter_context(broker_over(logs.long.directory))
    asked, peer = ([logs.fill(each, **more) for each in arguments] for arguments in (question.asked, question.peer))
    # A search that finds nothing, or a grep, ends with a status of its own.
    return (lambda: timed_process(asked, 0, accepted=(0, 3))), (lambda: timed_process(peer, 0))


def _runs_in_mount(question: Question, logs: Logs, stack: ExitStack) -> tuple[Run, Run]:
    copies = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=_MEMORY)))

    def ask() -> Sample:
        with tempfile.TemporaryDirectory() as scratch, ExitStack() as mounted:
            command = [*_KFS, "mount", "--foreground", "--no-index", str(logs.many.directory), f"{scratch}/mnt"]
            mount = mounted.enter_context(served_by(Path(scratch, "mnt"), command, {"XDG_CACHE_HOME": scratch}))
            if not os.listdir(copies):
                _copy_last(mount.mountpoint, copies)
                return Sample(0, 1.0, 1.0)  # of the round that doesn't count
            return timed_process(["sh", "-c", 'cd "$0" && exec "$@"', str(mount.mountpoint), *question.asked], 0)

    def ask_peer() -> Sample:
        if not os.listdir(copies):
            return Sample(0, 1.0, 1.0)
        return timed_process(["sh", "-c", 'cd "$0" && exec "$@"', str(copies), *question.peer], 0)

    return ask, ask_peer


_MEMORY: Final = "/dev/shm" if os.path.isdir("/dev/shm") else None


def _copy_last(mountpoint: Path, copies: Path) -> None:
    for last in mountpoint.glob("*/*/last.json"):
        copy = copies / last.relative_to(mountpoint)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(last.read_bytes())


def _times(log: EventLog) -> tuple[str, str]:
    """Return the timestamps of the records where a question's offsets begin and end."""
    import kfs

    half = log.records // 2
    with kfs.open(log.directory.parent) as data:
        partition = data[log.topic][0]
        return str(partition[half].timestamp), str(partition[half + log.records // 60].timestamp)


HEAD: Final = ("question", "s", "peer", "s", "wall", "middle half", "CPU", "middle half", "wanted")


def rows(questions: Sequence[Question], logs: Logs, rounds: int) -> Iterator[list[str]]:
    """Yield a row of the table for each question."""
    for question in questions:
        if missing := question.missing():
            yield [question.name, f"needs {', '.join(missing)}", *[""] * (len(HEAD) - 2)]
            continue
        found = compare(question, logs, rounds)
        peer, asked = (f"{statistics.median(each.seconds for each in side):.3f}" for side in (found.old, found.new))
        yield [question.name, asked, question.peer_name, peer, *ratios_of(found), f"{question.wanted:.2g}"]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--records", type=int, default=1_500_000, help="how many the long partition has")
    parser.add_argument("--partitions", type=int, default=2000, help="how many small partitions there are")
    parser.add_argument("--only", action="append", choices=[question.name for question in QUESTIONS])
    add_place_of_logs(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    options = parse(arguments)
    logs = Logs.below(options.directory, options.records, options.partitions, options.producer)
    compile_bytecode(Path(sys.executable))
    print(f"{machine()}, logs of {options.producer}")
    asked = [question for question in QUESTIONS if question.name in (options.only or question.name)]
    print("\n".join(aligned(HEAD, list(rows(asked, logs, options.rounds)))))


if __name__ == "__main__":
    main()
