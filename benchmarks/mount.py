"""How fast the mount is: against libfuse, and against ordinary files.

    python -m benchmarks.mount [--records N] [--reads N] [--listed N] [--repeat N] [--cpus LIST] [--json]

The same tasks run on three copies of the same records: the mount with its default front, the mount with libfuse
(``--front mfusepy``), and files that ``cp`` wrote to an ordinary filesystem. The three take turns;
what counts is the best of the repetitions. Every repetition has a mount of its own, so nothing is remembered from
the one before; the files are in the page cache. README.md says more, and has the last results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.logs import TopicLog, write_large_topic, write_topic
from benchmarks.machine import machine
from benchmarks.served import ServedMount, Usage, scratch_directory, served
from benchmarks.tables import aligned
from benchmarks.tasks import TASKS, Chosen, Task, choose, list_all
from kfs.format.codecs import Codec

_DEFAULT: Final = "default"
_LIBFUSE: Final = "libfuse"
_FILES: Final = "files"
#: The names of what is compared, and the front of each that is a mount.
_FRONTS: Final = {_DEFAULT: "auto", _LIBFUSE: "mfusepy"}
_CODECS: Final = (Codec.LZ4, Codec.NONE)
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Measurement:
    """One task, once. Of files there is no process whose ``replies``, CPU and memory could be told."""

    topic: str
    task: str
    variant: str
    seconds: float
    result: int
    replies: int | None = None
    cpu_seconds: float | None = None
    peak_rss: int | None = None
    first_entry_seconds: float | None = None


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print the results."""
    options = parse(arguments)
    if options.cpus is not None:
        os.sched_setaffinity(0, {int(cpu) for cpu in options.cpus.split(",")})
    measurements = measure(options)
    if options.json:
        print(json.dumps([asdict(measurement) for measurement in measurements], indent=1))
    else:
        print("\n".join([machine(), "", *report(measurements, options)]))


def measure(options: argparse.Namespace) -> list[Measurement]:
    """Make the logs, run every task, clean up."""
    with scratch_directory(options.directory) as scratch:
        return [
            *_measure_topics(scratch, options.records, options.reads, options.repeat),
            *_measure_listing(scratch, options.listed),
        ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; ``arguments`` are those of the process unless given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mount", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=100_000, help="how many records a topic has")
    parser.add_argument("--reads", type=int, default=20_000, help="how many of them are read at random")
    parser.add_argument("--listed", type=int, default=10_000_000, help="how many the large directory has; 0 for none")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, of which the best counts")
    parser.add_argument("--cpus", help="run everything on these CPUs only, such as 0,1")
    parser.add_argument("--directory", help="where to make the logs and the files; default: TMPDIR")
    parser.add_argument("--json", action="store_true", help="print every measurement, as JSON")
    return parser.parse_args(arguments)


# --- tasks on records -------------------------------------------------------------------------------------------------


def _measure_topics(scratch: Path, records: int, reads: int, repeat: int) -> Iterator[Measurement]:
    log_dir = scratch / "logs"
    for codec in _CODECS:
        topic = write_topic(log_dir, codec, records)
        files = scratch / "files"
        with served(log_dir / f"{topic.name}-0", scratch / "mnt", "auto") as mount:
            command = ["cp", "-r", "--preserve=timestamps", f"{mount.mountpoint}/{topic.directory}", str(files)]
            subprocess.run(command, check=True)
        results: dict[str, int] = {}
        for measurement in _take_turns(log_dir / f"{topic.name}-0", topic, files, choose(records, reads), repeat):
            if results.setdefault(measurement.task, measurement.result) != measurement.result:
                raise RuntimeError(f"{measurement} differs from {results[measurement.task]}")
            yield measurement
        shutil.rmtree(files)


def _take_turns(log_dir: Path, topic: TopicLog, files: Path, chosen: Chosen, repeat: int) -> Iterator[Measurement]:
    for tasks in _runs():
        for _ in range(repeat):
            for variant, front in _FRONTS.items():
                with served(log_dir, files.with_name("mnt"), front) as mount:
                    for task in tasks:
                        yield _measure(topic, task, variant, mount.mountpoint / topic.directory, chosen, mount)
            for task in tasks:
                yield _measure(topic, task, _FILES, files, chosen, None)


def _runs() -> Iterator[list[Task]]:
    """Yield the tasks that go together on one mount."""
    run: list[Task] = []
    for task in TASKS:
        if run and not task.continues:
            yield run
            run = []
        run.append(task)
    yield run


def _measure(
    topic: TopicLog, task: Task, variant: str, directory: Path, chosen: Chosen, mount: ServedMount | None
) -> Measurement:
    before = mount.usage() if mount is not None else Usage(0, 0)
    started = time.perf_counter()
    result = task.run(directory, chosen)
    seconds = time.perf_counter() - started
    if mount is None:
        return Measurement(topic.name, task.name, variant, seconds, result)
    used = mount.usage().since(before)
    return Measurement(
        topic.name, task.name, variant, seconds, result, used.replies, used.cpu_seconds, mount.peak_rss()
    )


# --- a large directory ------------------------------------------------------------------------------------------------


def _measure_listing(scratch: Path, records: int) -> Iterator[Measurement]:
    if not records:
        return
    log_dir = scratch / "large"
    topic = write_large_topic(log_dir, records)
    for variant, front in _FRONTS.items():
        with served(log_dir / f"{topic.name}-0", scratch / "mnt", front) as mount:
            before = mount.usage()
            lines, first_entry_seconds, seconds = list_all(mount.mountpoint / topic.directory)
            used = mount.usage().since(before)
            yield Measurement(
                topic.name,
                "ls -f",
                variant,
                seconds,
                lines,
                used.replies,
                used.cpu_seconds,
                mount.peak_rss(),
                first_entry_seconds,
            )


# --- the results ------------------------------------------------------------------------------------------------------


def report(measurements: Sequence[Measurement], options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the tables: of every task the best repetition of each variant."""
    best: dict[tuple[str, str], dict[str, Measurement]] = {}
    for each in measurements:
        variants = best.setdefault((each.topic, each.task), {})
        if each.variant not in variants or each.seconds < variants[each.variant].seconds:
            variants[each.variant] = each
    topics = list(dict.fromkeys(topic for topic, _ in best))
    for topic in topics:
        if topic == "large":
            yield f"a directory of {options.listed} records, listed once"
            yield from aligned(_LISTING_HEAD, [_listing_row(each) for each in best[topic, "ls -f"].values()])
        else:
            yield f"{topic}: {options.records} records, {options.reads} of them at random, best of {options.repeat}"
            yield from aligned(_TASK_HEAD, [_task_row(best[topic, task.name]) for task in TASKS])
        yield ""


_TASK_HEAD: Final = (
    *("task", "default s", "libfuse s", "files s", "libfuse/default", "default/files"),
    *("requests", "libfuse's", "daemon CPU s", "libfuse's", "peak RSS MiB", "libfuse's"),
)
_LISTING_HEAD: Final = ("front", "first entry s", "seconds", "entries/s", "requests", "daemon CPU s", "peak RSS MiB")


def _task_row(variants: dict[str, Measurement]) -> list[str]:
    default, libfuse, files = (variants[name] for name in (_DEFAULT, _LIBFUSE, _FILES))
    return [
        default.task,
        *(f"{each.seconds:.3f}" for each in (default, libfuse, files)),
        f"{libfuse.seconds / default.seconds:.1f}",
        f"{default.seconds / files.seconds:.1f}",
        *(str(each.replies) for each in (default, libfuse)),
        *(f"{each.cpu_seconds:.2f}" for each in (default, libfuse)),
        *(_mebibytes(each) for each in (default, libfuse)),
    ]


def _listing_row(each: Measurement) -> list[str]:
    return [
        each.variant,
        f"{each.first_entry_seconds:.4f}",
        f"{each.seconds:.1f}",
        f"{each.result / each.seconds:.0f}",
        str(each.replies),
        f"{each.cpu_seconds:.1f}",
        _mebibytes(each),
    ]


def _mebibytes(each: Measurement) -> str:
    return f"{(each.peak_rss or 0) / _MIB:.0f}"


if __name__ == "__main__":
    main(sys.argv[1:])
