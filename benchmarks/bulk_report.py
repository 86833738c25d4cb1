"""The tables of the benchmarks of bulk reading and of Spark: a column for each log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final

from benchmarks.measurement import Measurement
from benchmarks.tables import aligned

_MIB: Final = 1024 * 1024
#: What a table says of its numbers, and how it writes one.
_UNITS: Final[dict[str, tuple[str, Callable[[Measurement], str]]]] = {
    "validate": ("every record looked at, CRC checked, one CPU: million records a second", lambda m: _millions(m)),
    "ndjson": ("to lines of JSON, one CPU: million records a second", lambda m: _millions(m)),
    "lookup": ("one record by offset: microseconds, median", lambda m: f"{m.seconds * 1e6:.1f}"),
    "print": ("a topic to lines, the whole process: million records a second", lambda m: _millions(m)),
    "verify": ("a partition verified, the whole process: million records a second", lambda m: _millions(m)),
    "dump": ("every record by kfs dump, the whole process, one CPU: million records a second", lambda m: _millions(m)),
    "timeindex": ("a time index dumped, the whole process, one CPU: seconds", lambda m: f"{m.seconds:.2f}"),
    "workers": ("processes side by side, two CPUs: million records a second", lambda m: _millions(m)),
    "arrow": ("every column as Arrow, with headers, one CPU: million records a second", lambda m: _millions(m)),
    "arrow-workers": ("scans, processes side by side, two CPUs: million records a second", lambda m: _millions(m)),
    "duckdb": ("a query in DuckDB, all CPUs: seconds", lambda m: f"{m.seconds:.2f}"),
    "memory": ("the most memory above the start: MiB", lambda m: f"{m.amount / _MIB:.0f}"),
    "mount": ("lines of a segment: million records a second", lambda m: _millions(m)),
    "raw": ("a .log: GB a second", lambda m: f"{m.amount / m.seconds / 1e9:.2f}"),
    "spark": ("sum(length(value)) in Spark, local[2]: seconds", lambda m: f"{m.seconds:.2f}"),
    "spark-headers": ("the same with the bytes of headers, in Spark: seconds", lambda m: f"{m.seconds:.2f}"),
    "spark-offsets": ("sum(offset) in Spark: seconds", lambda m: f"{m.seconds:.2f}"),
    "spark-parquet": ("all columns and headers to Parquet, in Spark: seconds", lambda m: f"{m.seconds:.2f}"),
    "spark-ndjson": ("sum(length(value)) of lines of JSON in Spark: seconds", lambda m: f"{m.seconds:.2f}"),
    "listing": ("ls -l of a thousand closed segments: seconds", lambda m: f"{m.seconds:.2f}"),
}
#: Which contenders are compared: how many times faster the first is than the second, or what part of it is reached.
_RATIOS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "validate": (("kfs", "limit"), ("kfs", "Java"), ("kfs", "aiokafka"), ("kfs", "kafka-python")),
    "ndjson": (("kfs", "aiokafka and orjson"),),
    "print": (("kfs cat, 1 CPU", "kafka-dump-log, 1 CPU"), ("kfs cat, 2 CPUs", "kafka-dump-log, 2 CPUs")),
    "verify": (("kfs verify, 1 CPU", "kafka-dump-log, 1 CPU"), ("kfs verify, 2 CPUs", "kafka-dump-log, 2 CPUs")),
    "dump": (("kfs dump", "kafka-dump-log"), ("kfs dump --format json", "kafka-dump-log")),
    "timeindex": (("kfs dump", "kafka-dump-log"),),
    "workers": (
        ("validating, 2 at work", "validating, 1 at work"),
        ("kfs cat --jobs 2", "kfs cat --jobs 1"),
    ),
    "arrow": (("kfs", "aiokafka and pyarrow"),),
    "arrow-workers": (("2 at work", "1 at work"),),
    "duckdb": (("count(*), log", "count(*), Parquet"), ("group by, log", "group by, Parquet")),
    "spark": (("kfs", "Kafka connector"), ("kfs", "limit")),
    "spark-headers": (("kfs", "Kafka connector"), ("kfs", "limit")),
    "spark-offsets": (("kfs, columns=offset", "kfs"), ("kfs, columns=offset", "Kafka connector")),
    "spark-parquet": (("kfs.spark.export", "Kafka connector"), ("kfs", "Kafka connector")),
    "spark-ndjson": (("mount", "files"), ("mount, again", "files, again"), ("mount", "files, again")),
    "mount": (("cat of segment/*.jsonl", "kfs cat --jobs 1"),),
    "raw": (("cat of raw/*.log", "cat of the file itself"),),
}
#: Told by the CPU clock as well: others on the machine disturb it less. It counts every process that took part.
_BY_CPU_TOO: Final = (
    *("validate", "ndjson", "print", "verify", "dump", "timeindex", "arrow", "arrow-workers", "duckdb"),
    *("spark", "spark-headers", "spark-offsets", "spark-parquet", "spark-ndjson"),
)

_Cells = dict[tuple[str, str], Measurement]


def report(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Yield the lines of a table for each group: of every contender with every log, and their ratios."""
    for group, (title, write) in _UNITS.items():
        cells = {(each.contender, each.log): each for each in measurements if each.group == group}
        if cells:
            logs = list(dict.fromkeys(log for _, log in cells))
            contenders = dict.fromkeys(contender for contender, _ in cells)
            rows = [_row(contender, cells, logs, write) for contender in contenders]
            rows += _ratios(group, cells, logs)
            yield from aligned((title, *logs), rows)
            yield ""


def _row(contender: str, cells: _Cells, logs: Sequence[str], write: Callable[[Measurement], str]) -> list[str]:
    found = [cells.get((contender, log)) for log in logs]
    return [contender, *("" if each is None else write(each) for each in found)]


def _ratios(group: str, cells: _Cells, logs: Sequence[str]) -> Iterator[list[str]]:
    for first, second in _RATIOS.get(group, ()):
        pairs = [(cells.get((first, log)), cells.get((second, log))) for log in logs]
        if any(one and other for one, other in pairs):
            yield [f"{first} : {second}", *("" if not (a and b) else _ratio(a, b, _wall) for a, b in pairs)]
            if group in _BY_CPU_TOO:
                yield ["  by CPU time", *("" if not (a and b) else _ratio(a, b, _cpu) for a, b in pairs)]


def _ratio(first: Measurement, second: Measurement, clock: Callable[[Measurement], float]) -> str:
    ratio = first.amount / clock(first) / (second.amount / clock(second))
    if clock is _wall and first.rounds and second.rounds:  # what disturbed a round disturbed both
        ratio = median(other / one for one, other in zip(first.rounds, second.rounds, strict=True))
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def _wall(measurement: Measurement) -> float:
    return measurement.seconds


def _cpu(measurement: Measurement) -> float:
    return measurement.cpu_seconds


def _millions(measurement: Measurement) -> str:
    return f"{measurement.amount / measurement.seconds / 1e6:.2f}"
