"""Whole logs as Arrow: against aiokafka's parser and pyarrow, on two CPUs, and in DuckDB against the same as Parquet.

Groups of ``benchmarks.bulk``, which says how things are measured. Every contender makes the columns of Spark's Kafka
source, headers included, in batches of as many rows; what a query doesn't need isn't asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from aiokafka.record.memory_records import MemoryRecords

import kfs
from benchmarks.events import EventLog
from benchmarks.measurement import Measurement
from benchmarks.readers import parsed_batches
from benchmarks.rounds import Sample, best, on_cpus, timed
from kfs.format.codecs import Codec
from kfs.scan import Scan
from kfs.scan.request import DEFAULT_BATCH_ROWS

if TYPE_CHECKING:
    from benchmarks.bulk import Bench

#: Of the loop over Python objects, which is slower than the others by far.
_SLOW_ROUNDS: Final = 2
_SCHEMA: Final = Scan((), include_headers=True).schema
_CPU_NANOSECONDS: Final = 0  # the field of /proc/PID/schedstat
#: What is asked: the columns that it takes, and the query over a table ``events``.
_QUERIES: Final = {
    "count(*)": (["offset"], "select count(*) from events"),
    "group by": (
        ["value"],
        "select sum(n)::bigint from (select json_extract_string(decode(value), '$.event') as event, count(*) as n"
        " from events group by event)",
    ),
}


def against_aiokafka(bench: Bench) -> Iterator[Measurement]:
    """Every record as Arrow, in one process on one CPU."""
    with on_cpus(bench.cpus[:1]):
        for log in bench.logs():
            contenders = {"kfs": partial(timed, partial(scanned, log, 1))}
            yield from _measured("arrow", log, best(contenders, bench.rounds))
            slow = {"aiokafka and pyarrow": partial(timed, partial(built_of_objects, log))}
            yield from _measured("arrow", log, best(slow, _SLOW_ROUNDS))


def side_by_side(bench: Bench) -> Iterator[Measurement]:
    """One process and two, which are started before, both with two CPUs to run on."""
    if len(bench.cpus) < 2:
        return
    with on_cpus(bench.cpus[:2]):
        for log in bench.logs():
            contenders = {
                f"{jobs} at work": partial(timed_with_children, partial(scanned, log, jobs)) for jobs in (1, 2)
            }
            yield from _measured("arrow-workers", log, best(contenders, bench.rounds))


def in_duckdb(bench: Bench) -> Iterator[Measurement]:
    """Queries over the log, and over a Parquet file of the same records."""
    with on_cpus(bench.cpus):
        parquet = parquet_of(bench.log(Codec.ZSTD))
        for log in bench.logs():
            for name, (columns, query) in _QUERIES.items():
                contenders = {
                    f"{name}, log": partial(timed_with_children, partial(asked_of_log, log, columns, query)),
                    f"{name}, Parquet": partial(timed_with_children, partial(asked_of_parquet, parquet, query)),
                }
                yield from _measured("duckdb", log, best(contenders, bench.rounds))


def scanned(log: EventLog, jobs: int) -> int:
    """Scan a log, and return how many rows that were."""
    with kfs.open(log.directory.parent) as data:
        return sum(batch.num_rows for batch in data.scan(include_headers=True, jobs=jobs))


def built_of_objects(log: EventLog) -> int:
    """Make the same columns out of the records that aiokafka's compiled parser gives."""
    return sum(batch.num_rows for batch in built_batches(log))


def built_batches(log: EventLog) -> Iterator[pa.RecordBatch]:
    """Yield the columns that a scan has, out of objects."""
    rows: list[Any] = []
    for batch in parsed_batches(log.segments(), MemoryRecords):
        rows += batch
        if len(rows) >= DEFAULT_BATCH_ROWS:
            yield _columns_of(rows, log.topic)
            rows = []
    if rows:
        yield _columns_of(rows, log.topic)


def _columns_of(rows: list[Any], topic: str) -> pa.RecordBatch:
    columns = (
        [row.key for row in rows],
        [row.value for row in rows],
        pa.repeat(pa.scalar(topic), len(rows)),
        pa.repeat(pa.scalar(0, pa.int32()), len(rows)),
        [row.offset for row in rows],
        pa.array([row.timestamp * 1000 for row in rows], pa.int64()).view(_SCHEMA.field("timestamp").type),
        [row.timestamp_type for row in rows],
        [row.headers or None for row in rows],
    )
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, _SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def parquet_of(log: EventLog) -> Path:
    """Return a Parquet file of a log, beside it, written unless it is there."""
    path = log.directory.parent.with_suffix(".parquet")
    if not path.exists():
        partial_path = path.with_suffix(".partial")
        with kfs.open(log.directory.parent) as data, pq.ParquetWriter(partial_path, _SCHEMA, compression="zstd") as out:
            for batch in data.scan(include_headers=True, batch_size=128 * 1024):
                out.write_batch(batch)
        partial_path.rename(path)
    return path


def asked_of_log(log: EventLog, columns: list[str], query: str) -> int:
    """Ask DuckDB for a number about a log."""
    with kfs.open(log.directory.parent) as data:
        return _answer(data.scan(columns=columns), query)


def asked_of_parquet(path: Path, query: str) -> int:
    """Ask DuckDB for a number about a Parquet file."""
    return _answer(None, query.replace("events", f"'{path}'", 1))


def _answer(events: Scan | None, query: str) -> int:
    with duckdb.connect() as connection:
        if events is not None:
            connection.register("events", events)
        [(number,)] = connection.execute(query).fetchall()
    assert isinstance(number, int)
    return number


def timed_with_children(work: Callable[[], int]) -> Sample:
    """Run ``work`` as :func:`~benchmarks.rounds.timed` does; children that live on count what they did meanwhile."""
    before = _cpu_of_children()
    sample = timed(work)
    during = sum(used - before.get(pid, 0.0) for pid, used in _cpu_of_children().items())
    return Sample(sample.records, sample.seconds, sample.cpu_seconds + during)


def _cpu_of_children() -> dict[str, float]:
    found: dict[str, float] = {}
    for task in os.listdir("/proc/self/task"):
        for pid in Path(f"/proc/self/task/{task}/children").read_text().split():
            fields = Path(f"/proc/{pid}/schedstat").read_text().split()
            found[pid] = int(fields[_CPU_NANOSECONDS]) / 1e9
    return found


def _measured(group: str, log: EventLog, samples: Iterator[tuple[str, Sample]]) -> Iterator[Measurement]:
    for name, sample in samples:
        yield Measurement(group, log.name, name, sample.records, sample.seconds, sample.cpu_seconds)
