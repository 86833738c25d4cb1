"""How fast Spark reads log directories: with the data source, from a mount, and through a broker with its own source.

    python -m benchmarks.spark [--records N] [--rounds N] [--only GROUP]... [--codec CODEC]... [--chart FILE] [--json]

One session, ``local[2]``, warm; contenders take turns, and what counts are medians: of seconds, and of the ratios
within a round. The broker runs on the same machine, on copies of the same logs. README.md says more, and has the last
results.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

import kfs.spark
from benchmarks import bulk_mount
from benchmarks.command_line import codecs_of, parser_for, say
from benchmarks.descendants import timed_with_descendants
from benchmarks.events import EventLog, event_log
from benchmarks.kafka_jars import spark_kafka_jars
from benchmarks.measurement import Measurement
from benchmarks.ready_made import ReadyMadeSource, ready_batches
from benchmarks.rounds import Run, Sample, in_turn, on_cpus
from kfs.render.arrow_columns import SPARK_COLUMNS, SPARK_COLUMNS_WITH_HEADERS, Column
from kfs.spark.columns import ddl_of
from tests.broker.real_broker import RealBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_CORES: Final = 2
#: Until what the JVM has compiled no longer changes much.
_WARM_ROUNDS: Final = 3
#: The broker's: as Kafka's scripts start it, but for the memory.
_BROKER_JAVA: Final = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC")
_COMPRESSION: Final = "snappy"
_VALUES: Final = "sum(length(value))"
#: Every name and value of a header.
_HEADERS: Final = (
    f"{_VALUES} + sum(coalesce(aggregate(headers, 0, (sum, each) -> sum + length(each.key) + length(each.value)), 0))"
)

Query = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Bench:
    """What every group of measurements is given; ``servers`` is where the broker listens, if there is one."""

    root: Path
    spark: SparkSession
    servers: str
    logs: tuple[EventLog, ...]
    rounds: int
    warmed: set[str]

    def of_kfs(self, log: EventLog, **options: str) -> DataFrame:
        """Return a log, as the data source reads it."""
        return self._read("kfs", log, **options).load(str(log.directory.parent))

    def of_kafka(self, log: EventLog, **options: str) -> DataFrame:
        """Return a log, as Spark's Kafka source gets it from the broker in two tasks."""
        return self._read("kafka", log, minPartitions=str(_CORES), **options).load()

    def _read(self, format_name: str, log: EventLog, **options: str) -> DataFrameReader:
        given = {"kafka.bootstrap.servers": self.servers, "subscribe": log.topic, **options}
        return self.spark.read.format(format_name).options(**given)

    def ready_made(self, columns: Sequence[Column]) -> DataFrame:
        """Return columns of the first log, out of batches that are ready; others differ from it in the topic only."""
        reader = self.spark.read.format("ready-made").schema(ddl_of(columns))
        return reader.load(str(ready_batches(self.logs[0])))

    def measured(self, group: str, log: EventLog, runs: Mapping[str, Run], rounds: int) -> Iterator[Measurement]:
        """Let contenders take turns, first until they are warm."""
        in_turn(runs, 1 if group in self.warmed else _WARM_ROUNDS)
        self.warmed.add(group)
        for name, samples in in_turn(runs, rounds).items():
            seconds = tuple(sample.seconds for sample in samples)
            cpu_seconds = median(sample.cpu_seconds for sample in samples)
            yield Measurement(group, log.name, name, log.records, median(seconds), cpu_seconds, seconds)


class Question:
    """What contenders are asked about a log of so many records; all have to have the same answer."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._answers: set[object] = set()

    def asked(self, query: Query) -> Sample:
        """Ask once.

        Raises:
            RuntimeError: there was another answer before.
        """

        def work() -> int:
            self._answers.add(query())
            return self._records

        sample = timed_with_descendants(work)
        if len(self._answers) > 1:
            raise RuntimeError(f"different answers: {self._answers}")
        return sample

    def runs(self, queries: Mapping[str, Query]) -> dict[str, Run]:
        """Return what asks each."""
        return {name: partial(self.asked, query) for name, query in queries.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print the results."""
    options = parse(arguments)
    measurements = list(measure(options))
    say(measurements, options.json)
    if options.chart is not None:
        from benchmarks.chart import SPARK_PANELS, draw  # needs matplotlib

        draw(measurements, options.chart, SPARK_PANELS)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; ``arguments`` are those of the process unless given."""
    meaning = "rounds; half as many where files are written or mounted"
    parser = parser_for("benchmarks.spark", __doc__, _GROUPS, 7, meaning)
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark; repeatable"
    )
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> Iterator[Measurement]:
    """Make the logs, start what is needed, and measure group by group; progress goes to standard error."""
    root: Path = options.directory
    root.mkdir(parents=True, exist_ok=True)
    logs = tuple(event_log(root, codec, options.records, producer=options.producer) for codec in codecs_of(options))
    settings = dict(each.split("=", 1) for each in options.conf)
    groups = options.only or list(_GROUPS)
    with on_cpus(sorted(os.sched_getaffinity(0))[:_CORES]), _session(settings) as spark:
        bench = Bench(root, spark, "", logs, options.rounds, set())
        alone = [group for group in groups if group in _WITHOUT_BROKER]
        yield from _measured(bench, alone)
        if len(alone) < len(groups):
            with _broker_of(logs, root) as broker:
                bench = replace(bench, servers=f"127.0.0.1:{broker.port}")
                yield from _measured(bench, [group for group in groups if group not in alone])


def _measured(bench: Bench, groups: Sequence[str]) -> Iterator[Measurement]:
    for group in groups:
        for measurement in _GROUPS[group](bench):
            print(f"{measurement}", file=sys.stderr, flush=True)
            yield measurement


@contextmanager
def _broker_of(logs: Sequence[EventLog], root: Path) -> Iterator[RealBroker]:
    """Run a broker that has copies of logs."""
    java = shutil.which("java")
    if java is None:
        raise RuntimeError("Spark and Kafka need Java")
    with tempfile.TemporaryDirectory(prefix="kfs-benchmark.", dir=root) as directory:
        broker = RealBroker.make(Path(directory) / "broker", java, {}, _BROKER_JAVA)
        broker.take_over([log.directory for log in logs])
        with broker.running():
            yield broker


@contextmanager
def _session(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(f"local[{_CORES}]")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraClassPath", f"{spark_kafka_jars()}/*")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        session.sparkContext.setLogLevel("OFF")
        kfs.spark.register(session)
        session.dataSource.register(ReadyMadeSource)
        yield session
    finally:
        session.stop()


def _number(expression: str, frame: Callable[[], DataFrame]) -> Query:
    """Return what loads a log anew and asks for one number."""

    def ask() -> object:
        [row] = frame().selectExpr(expression).collect()
        return row[0]

    return ask


def _asked(
    bench: Bench, group: str, log: EventLog, expression: str, frames: Mapping[str, Callable[[], DataFrame]]
) -> Iterator[Measurement]:
    queries = {name: _number(expression, frame) for name, frame in frames.items()}
    yield from bench.measured(group, log, Question(log.records).runs(queries), bench.rounds)


def _values(bench: Bench) -> Iterator[Measurement]:
    """The bytes of all values."""
    for log in bench.logs:
        frames = {
            "kfs": partial(bench.of_kfs, log),
            "kfs, columns=value": partial(bench.of_kfs, log, columns="value"),
            "Kafka connector": partial(bench.of_kafka, log),
            "limit": partial(bench.ready_made, SPARK_COLUMNS),
        }
        yield from _asked(bench, "spark", log, _VALUES, frames)


def _headers(bench: Bench) -> Iterator[Measurement]:
    """The bytes of all values, and of all names and values of headers."""
    for log in bench.logs:
        frames = {
            "kfs": partial(bench.of_kfs, log, includeHeaders="true"),
            "Kafka connector": partial(bench.of_kafka, log, includeHeaders="true"),
            "limit": partial(bench.ready_made, SPARK_COLUMNS_WITH_HEADERS),
        }
        yield from _asked(bench, "spark-headers", log, _HEADERS, frames)


def _offsets(bench: Bench) -> Iterator[Measurement]:
    """The sum of all offsets, with nothing else made and with everything."""
    for log in bench.logs:
        frames = {
            "kfs, columns=offset": partial(bench.of_kfs, log, columns="offset"),
            "kfs": partial(bench.of_kfs, log),
            "Kafka connector": partial(bench.of_kafka, log),
        }
        yield from _asked(bench, "spark-offsets", log, "sum(offset)", frames)


def _parquet(bench: Bench) -> Iterator[Measurement]:
    """All columns and headers into Parquet files."""
    with tempfile.TemporaryDirectory(prefix="kfs-benchmark.", dir=bench.root) as directory:
        for log in bench.logs:
            queries = {
                "kfs.spark.export": partial(_exported, bench, log, f"{directory}/target"),
                "kfs": partial(_written, partial(bench.of_kfs, log, includeHeaders="true"), f"{directory}/target"),
                "Kafka connector": partial(
                    _written, partial(bench.of_kafka, log, includeHeaders="true"), f"{directory}/target"
                ),
            }
            runs = Question(log.records).runs(queries)
            yield from bench.measured("spark-parquet", log, runs, _fewer(bench.rounds))


def _written(frame: Callable[[], DataFrame], target: str) -> int:
    frame().write.option("compression", _COMPRESSION).parquet(target)
    return _rows_below(target)


def _exported(bench: Bench, log: EventLog, target: str) -> int:
    kfs.spark.export(bench.spark, str(log.directory.parent), target, compression=_COMPRESSION)
    return _rows_below(target)


def _rows_below(target: str) -> int:
    """Return how many rows the files of a dataset have, and remove it."""
    rows: int = sum(pq.read_metadata(path).num_rows for path in Path(target).rglob("*.parquet"))
    shutil.rmtree(target)
    return rows


def _ndjson(bench: Bench) -> Iterator[Measurement]:
    """The lines of a mount, and of files that were copied from it."""
    for log in bench.logs:
        with tempfile.TemporaryDirectory() as cache:
            files, question = _copied_lines(log, Path(cache)), Question(log.records)
            runs = {
                "mount": partial(_from_mount, bench, log, Path(cache), question),
                "mount, again": partial(_from_mount, bench, log, Path(cache), question, is_again=True),
                "files": partial(_from_files, bench, files, question),
                "files, again": partial(question.asked, partial(_from_lines, bench, files)),
            }
            yield from bench.measured("spark-ndjson", log, runs, _fewer(bench.rounds))


def _from_mount(bench: Bench, log: EventLog, cache: Path, question: Question, *, is_again: bool = False) -> Sample:
    """Ask a new mount: what the kernel keeps of one goes with it; ``is_again``: one that was read before."""
    with bulk_mount.mounted(log, cache) as mount:
        query = partial(_from_lines, bench, bulk_mount.partition(log, mount) / "segment")
        if is_again:
            query()
        return question.asked(query)


def _from_files(bench: Bench, directory: Path, question: Question) -> Sample:
    """Ask files that the kernel has nothing of, as it has of a new mount."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return question.asked(partial(_from_lines, bench, directory))


def _from_lines(bench: Bench, directory: Path) -> object:
    lines = bench.spark.read.schema(kfs.spark.json_schema).json(f"{directory}/*.jsonl")
    [row] = lines.selectExpr(_VALUES).collect()
    return row[0]


def _copied_lines(log: EventLog, cache: Path) -> Path:
    """Return a directory of the files of lines that a mount has, copied unless they are there."""
    directory = log.directory.parent.with_suffix(".lines")
    if not directory.exists():
        partial_directory = directory.with_suffix(".partial")
        shutil.rmtree(partial_directory, ignore_errors=True)
        with bulk_mount.mounted(log, cache) as mount:
            shutil.copytree(bulk_mount.partition(log, mount) / "segment", partial_directory)
        partial_directory.rename(directory)
    return directory


def _fewer(rounds: int) -> int:
    return -(-rounds // 2)


_GROUPS: Final[dict[str, Callable[[Bench], Iterator[Measurement]]]] = {
    "values": _values,
    "headers": _headers,
    "offsets": _offsets,
    "parquet": _parquet,
    "ndjson": _ndjson,
}
#: Who has nothing to do with the broker, whose JVM takes processor time when it is idle, too.
_WITHOUT_BROKER: Final = frozenset({"ndjson"})

if __name__ == "__main__":
    main(sys.argv[1:])
