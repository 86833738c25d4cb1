"""The benchmark of scans, with few records: does it still run, and do its contenders make the same?"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

for needed in ("duckdb", "kafka", "orjson", "pyarrow"):
    pytest.importorskip(needed, reason="needs kfs[benchmarks]")

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import kfs
from benchmarks.arrow import built_batches, parquet_of
from benchmarks.bulk import measure, parse
from benchmarks.bulk_report import report
from benchmarks.events import event_log
from kfs.format.codecs import Codec

RECORDS = 3000
CODECS = [codec.label for codec in Codec]


def test_every_contender_reads_every_log(tmp_path: Path) -> None:
    groups = ["--only=arrow", "--only=duckdb"]
    options = [f"--records={RECORDS}", "--rounds=1", "--no-java", f"--directory={tmp_path}"]
    found = list(measure(parse([*options, *groups])))
    asked = [f"{query}, {of}" for query, of in product(("count(*)", "group by"), ("log", "Parquet"))]
    assert {(each.group, each.log, each.contender) for each in found} == {
        *product(("arrow",), CODECS, ("kfs", "aiokafka and pyarrow")),
        *product(("duckdb",), CODECS, asked),
    }
    assert {each.amount for each in found} == {RECORDS}
    lines = list(report(found))
    assert any(line.startswith("kfs : aiokafka and pyarrow") for line in lines)
    assert any(line.startswith("group by, log : group by, Parquet") for line in lines)


def test_contenders_make_the_same_table(tmp_path: Path) -> None:
    log = event_log(tmp_path, Codec.LZ4, RECORDS)
    built = pa.Table.from_batches(built_batches(log))
    with kfs.open(log.directory.parent) as data:
        assert pa.table(data.scan(include_headers=True)) == built
    path = parquet_of(log)
    assert pq.read_table(path).equals(built)
    query = "select count(*), count(distinct json_extract_string(decode(value), '$.event')) from built"
    assert duckdb.execute(query).fetchall() == [(RECORDS, 8)]
