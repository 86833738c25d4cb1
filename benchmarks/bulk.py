"""How fast whole logs are read: against Kafka's own readers, those of Python's clients, and the limit of all of them.

    python -m benchmarks.bulk [--records N] [--rounds N] [--only GROUP]... [--cpus LIST] [--chart FILE] [--json]

Every contender reads the same segments, from the page cache, on the same CPUs; they take turns, and what counts is
the best of the rounds. The logs and Kafka's jars (2 GB) are made once and kept below ``--directory``.
README.md says more, and has the last results.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks import arrow, bulk_mount, readers
from benchmarks.command_line import codecs_of, parser_for, say
from benchmarks.events import EventLog, event_log, many_segments
from benchmarks.kafka_tools import JavaLoop, KafkaTools
from benchmarks.lookups import microseconds_a_record
from benchmarks.measurement import Measurement
from benchmarks.memory import peak_memory
from benchmarks.produced import Producer
from benchmarks.rounds import Run, Sample, best, on_cpus, timed, timed_process
from kfs.format.codecs import Codec

#: Of the parser that is slower than the others by far.
_SLOW_ROUNDS: Final = 1
_PROCESS_ROUNDS: Final = 2
_SEGMENTS: Final = 1000
_BATCHES_IN_SEGMENT: Final = 10
_READS: Final = 500
_TIME_ENTRY_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Bench:
    """What every group of measurements is given."""

    root: Path
    records: int
    rounds: int
    cpus: tuple[int, ...]
    codecs: tuple[Codec, ...]
    tools: KafkaTools | None
    producer: Producer

    def log(self, codec: Codec) -> EventLog:
        """Return the log of a codec."""
        return event_log(self.root, codec, self.records, producer=self.producer)

    def logs(self) -> Iterator[EventLog]:
        """Yield the log of each codec."""
        return map(self.log, self.codecs)

    def small_batches(self) -> Iterator[EventLog]:
        """Yield uncompressed logs in tiny batches, of a fifth of the records."""
        for records_in_batch in (10, 1):
            yield event_log(self.root, Codec.NONE, self.records // 5, records_in_batch, self.producer)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print the results."""
    options = parse(arguments)
    measurements = list(measure(options))
    say(measurements, options.json)
    if options.chart is not None:
        from benchmarks.chart import draw  # needs matplotlib

        draw(measurements, options.chart)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; ``arguments`` are those of the process unless given."""
    parser = parser_for("benchmarks.bulk", __doc__, _GROUPS, 5, "rounds, of which the best counts")
    parser.add_argument("--cpus", help="run on these CPUs only, such as 0,1; the first of them where one is enough")
    parser.add_argument("--no-java", action="store_true", help="without Kafka's own readers, and any producer but kfs")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> Iterator[Measurement]:
    """Make the logs, and measure group by group; progress goes to standard error."""
    root: Path = options.directory
    root.mkdir(parents=True, exist_ok=True)
    cpus = tuple(map(int, options.cpus.split(","))) if options.cpus else tuple(sorted(os.sched_getaffinity(0)))
    tools = None if options.no_java else KafkaTools(root)
    producer = Producer.KFS if options.no_java else options.producer
    bench = Bench(root, options.records, options.rounds, cpus, codecs_of(options), tools, producer)
    for group in options.only or _GROUPS:
        for measurement in _GROUPS[group](bench):
            print(f"{measurement}", file=sys.stderr, flush=True)
            yield measurement


# --- within a process, on one CPU -------------------------------------------------------------------------------------


def _validate(bench: Bench) -> Iterator[Measurement]:
    """Every record looked at, every CRC checked."""
    with on_cpus(bench.cpus[:1]), JavaLoop(bench.tools) if bench.tools else nullcontext() as java:
        for log in (*bench.logs(), *bench.small_batches()):
            segments = log.segments()
            contenders: dict[str, Run] = {
                "limit": partial(timed, partial(readers.limit, segments)),
                "kfs": partial(timed, partial(readers.kfs_validate, segments)),
                "kfs, into columns": partial(timed, partial(readers.kfs_decode, segments)),
                "aiokafka": partial(timed, partial(readers.aiokafka_validate, segments)),
            }
            if java is not None:
                contenders["Java"] = partial(java.run, segments)
            yield from _measured("validate", log, contenders, bench.rounds)
            slow = {"kafka-python": partial(timed, partial(readers.kafka_python_validate, segments))}
            yield from _measured("validate", log, slow, _SLOW_ROUNDS)


def _ndjson(bench: Bench) -> Iterator[Measurement]:
    """Every record as a line of JSON, into /dev/null."""
    with on_cpus(bench.cpus[:1]), open(os.devnull, "wb", buffering=0) as output:
        for log in (*bench.logs(), *bench.small_batches()):
            contenders = {
                "kfs": partial(timed, partial(readers.kfs_ndjson, log.segments(), output)),
                "aiokafka and orjson": partial(timed, partial(readers.aiokafka_ndjson, log.segments(), output)),
            }
            yield from _measured("ndjson", log, contenders, bench.rounds)


def _lookup(bench: Bench) -> Iterator[Measurement]:
    """One record by its offset."""
    with on_cpus(bench.cpus[:1]):
        for log in bench.logs():
            cold, cached = microseconds_a_record(log, min(_READS, bench.records))
            yield Measurement("lookup", log.name, "nothing decoded", 1, cold / 1e6, 0.0)
            yield Measurement("lookup", log.name, "batch in the cache", 1, cached / 1e6, 0.0)


def _measured(group: str, log: EventLog, contenders: Mapping[str, Run], rounds: int) -> Iterator[Measurement]:
    for name, sample in best(contenders, rounds):
        yield _measurement(group, log, name, sample)


def _measurement(group: str, log: EventLog, name: str, sample: Sample) -> Measurement:
    return Measurement(group, log.name, name, sample.records, sample.seconds, sample.cpu_seconds)


# --- whole processes --------------------------------------------------------------------------------------------------


def _print_all(bench: Bench) -> Iterator[Measurement]:
    """A topic printed by a process of its own, on one CPU and on all."""
    for log in bench.logs():
        for cpus in dict.fromkeys((bench.cpus[:1], bench.cpus)):
            on = f"{len(cpus)} CPU{'s' if len(cpus) > 1 else ''}"
            contenders: dict[str, Run] = {f"kfs cat, {on}": partial(timed_process, _cat(log, len(cpus)), log.records)}
            if bench.tools is not None:
                contenders[f"kafka-dump-log, {on}"] = partial(bench.tools.dump_log, log.segments(), log.records)
            with on_cpus(cpus):
                yield from _measured("print", log, contenders, _PROCESS_ROUNDS)


def _verify(bench: Bench) -> Iterator[Measurement]:
    """A partition verified by a process of its own, on one CPU and on all; indexes as well, which Kafka isn't given."""
    kfs = str(Path(sys.executable).with_name("kfs"))
    for log in (*bench.logs(), *bench.small_batches()):
        for cpus in dict.fromkeys((bench.cpus[:1], bench.cpus)):
            on = f"{len(cpus)} CPU{'s' if len(cpus) > 1 else ''}"
            command = [kfs, "verify", str(log.directory), "--jobs", str(len(cpus))]
            contenders: dict[str, Run] = {f"kfs verify, {on}": partial(timed_process, command, log.records)}
            if bench.tools is not None:
                deep = partial(bench.tools.dump_log, log.segments(), log.records, "--deep-iteration")
                contenders[f"kafka-dump-log, {on}"] = deep
            with on_cpus(cpus):
                yield from _measured("verify", log, contenders, _PROCESS_ROUNDS)


def _dump(bench: Bench) -> Iterator[Measurement]:
    """Every record of every segment printed by ``kfs dump`` and by Kafka's own tool, in the same lines."""
    with on_cpus(bench.cpus[:1]):
        for log in (*bench.logs(), *bench.small_batches()):
            contenders: dict[str, Run] = {
                "kfs dump": partial(timed_process, _dump_command(log), log.records),
                "kfs dump --format json": partial(timed_process, _dump_command(log, "--format=json"), log.records),
            }
            if bench.tools is not None:
                contenders["kafka-dump-log"] = partial(bench.tools.dump_log, log.segments(), log.records)
            yield from _measured("dump", log, contenders, _PROCESS_ROUNDS)


def _dump_command(log: EventLog, *options: str) -> list[str]:
    kfs = Path(sys.executable).with_name("kfs")
    return [str(kfs), "dump", "--print-data-log", *options, "--files", ",".join(map(str, log.segments()))]


def _time_index(bench: Bench) -> Iterator[Measurement]:
    """The time index of a segment of one-record batches, and of one that is twice as long."""
    kfs = str(Path(sys.executable).with_name("kfs"))
    for records in (bench.records // 200, bench.records // 100):
        log = event_log(bench.root, Codec.NONE, records, 1, bench.producer)
        with TemporaryDirectory() as copies, on_cpus(bench.cpus[:1]):
            directory = Path(shutil.copytree(log.directory, Path(copies) / log.directory.name))
            [index] = directory.glob("*.timeindex")
            entries = index.stat().st_size // _TIME_ENTRY_BYTES
            contenders: dict[str, Run] = {"kfs dump": partial(timed_process, [kfs, "dump", str(index)], entries)}
            if bench.tools is not None:
                contenders["kafka-dump-log"] = partial(bench.tools.dump_index, index, entries)
            for name, sample in best(contenders, _PROCESS_ROUNDS):
                label = f"{entries} entries, {records} batches"
                yield Measurement("timeindex", label, name, entries, sample.seconds, sample.cpu_seconds)


def _cat(log: EventLog, jobs: int, path: str = "") -> list[str]:
    """Return the command that prints a log's topic, or what lies at ``path`` in it."""
    kfs = Path(sys.executable).with_name("kfs")
    return [str(kfs), "cat", str(log.directory.parent), log.topic + path, "--jobs", str(jobs)]


def _workers(bench: Bench) -> Iterator[Measurement]:
    """One worker process and two, both with two CPUs to run on."""
    if len(bench.cpus) < 2:
        return
    with on_cpus(bench.cpus[:2]):
        for log in bench.logs():
            parts = [part for segment in log.segments() for part in readers.parts(segment)]
            with ProcessPoolExecutor(1) as one, ProcessPoolExecutor(2) as two:
                pools = {"1": one, "2": two}
                validating = {
                    f"validating, {number} at work": partial(timed, partial(_validate_parts, pool, parts))
                    for number, pool in pools.items()
                }
                yield from _measured("workers", log, validating, bench.rounds)
            printing = {
                f"kfs cat --jobs {jobs}": partial(timed_process, _cat(log, jobs), log.records) for jobs in (1, 2)
            }
            yield from _measured("workers", log, printing, _PROCESS_ROUNDS)


def _validate_parts(pool: ProcessPoolExecutor, parts: Sequence[tuple[Path, int, int]]) -> int:
    return sum(pool.map(readers.kfs_validate_part, *zip(*parts, strict=True)))


def _memory(bench: Bench) -> Iterator[Measurement]:
    """The most memory that printing takes, above that of a process which has just started."""
    kfs = str(Path(sys.executable).with_name("kfs"))
    started = peak_memory([kfs, "--help"])
    for log in bench.logs():
        for jobs in (1, 2):
            peak = peak_memory(_cat(log, jobs))
            yield Measurement("memory", log.name, f"kfs cat --jobs {jobs}", peak - started, 0.0, 0.0)


# --- the mount --------------------------------------------------------------------------------------------------------


def _mount(bench: Bench) -> Iterator[Measurement]:
    """The first segment through a mount."""
    with on_cpus(bench.cpus):
        for log in bench.logs():
            segment = log.segments()[0]
            records = readers.kfs_validate([segment])
            for name, sample in bulk_mount.read_lines(log, records, bench.rounds):
                yield _measurement("mount", log, name, sample)
            command = [*_cat(log, 1)[:2], str(segment), log.topic, "--jobs", "1"]
            printing = {"kfs cat --jobs 1": partial(timed_process, command, records)}
            yield from _measured("mount", log, printing, bench.rounds)


def _raw(bench: Bench) -> Iterator[Measurement]:
    """Kafka's own file through a mount."""
    with on_cpus(bench.cpus):
        for log in bench.logs():
            for name, sample in bulk_mount.read_raw(log, bench.rounds):
                yield _measurement("raw", log, name, sample)


def _listing(bench: Bench) -> Iterator[Measurement]:
    """A directory of a thousand segments with their sizes."""
    source = bench.log(Codec.LZ4)
    log = many_segments(bench.root, source, _SEGMENTS, _BATCHES_IN_SEGMENT)
    with on_cpus(bench.cpus):
        for name, sample in bulk_mount.list_segments(log):
            yield _measurement("listing", log, name, sample)


_GROUPS: Final[dict[str, Callable[[Bench], Iterator[Measurement]]]] = {
    "validate": _validate,
    "ndjson": _ndjson,
    "lookup": _lookup,
    "print": _print_all,
    "verify": _verify,
    "dump": _dump,
    "timeindex": _time_index,
    "workers": _workers,
    "memory": _memory,
    "arrow": arrow.against_aiokafka,
    "arrow-workers": arrow.side_by_side,
    "duckdb": arrow.in_duckdb,
    "mount": _mount,
    "raw": _raw,
    "listing": _listing,
}

if __name__ == "__main__":
    main(sys.argv[1:])
