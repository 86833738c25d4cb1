"""Engines take a scan as it is: all of every column, what is damaged, and no more than they want of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kfs.format.codecs import Codec
from kfs.read.workers import pool
from kfs.render.arrow_columns import Column
from kfs.scan import Scan
from tests.logs import batch, dense, joined, record, write_log
from tests.recorded_damage import CorpusPath
from tests.scan.scanning import Row, expected_rows, opened, rows_of


def by_pyarrow(scan: Scan) -> list[Row]:
    return rows_of(pa.table(scan))


def by_pyarrow_reader(scan: Scan) -> list[Row]:
    return rows_of(pa.RecordBatchReader.from_stream(scan).read_all())


def by_duckdb(scan: Scan) -> list[Row]:
    found = duckdb.execute("select * replace (epoch_us(timestamp) as timestamp) from scan")
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def by_polars(scan: Scan) -> list[Row]:
    rows: list[Row] = pl.DataFrame(scan).with_columns(pl.col("timestamp").dt.epoch("us")).to_dicts()
    return rows


def by_pandas(scan: Scan) -> list[Row]:
    frame = pd.DataFrame.from_arrow(scan)
    frame["timestamp"] = frame["timestamp"].astype("int64")
    rows: list[Row] = frame.astype(object).to_dict("records")
    for row in rows:  # pandas has lists as arrays
        row["headers"] = None if row["headers"] is None else list(row["headers"])
    return rows


ENGINES = pytest.mark.parametrize("engine", [by_pyarrow, by_pyarrow_reader, by_duckdb, by_polars, by_pandas])


@ENGINES
@pytest.mark.parametrize("name", ["a_v2", "b_txn", "f_mixed"])
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.usefixtures("eager_processes")
def test_an_engine_has_every_record(
    name: str, jobs: int, engine: Callable[[Scan], list[Row]], corpus: CorpusPath
) -> None:
    scan = Scan(opened(corpus(name) / "data").logs, include_headers=True, batch_size=100, jobs=jobs)
    expected = expected_rows(corpus(name))
    assert engine(scan) == expected
    assert engine(scan) == expected  # as often as it likes


@ENGINES
def test_an_engine_takes_every_column(engine: Callable[[Scan], list[Row]], corpus: CorpusPath) -> None:
    scan = Scan(opened(corpus("b_txn") / "data").logs, columns=[column.label for column in Column], jobs=1)
    assert engine(scan) == by_pyarrow(scan)
    assert {row["codec"] for row in engine(scan)} == {codec.label for codec in Codec}


@ENGINES
def test_an_engine_takes_nothing(engine: Callable[[Scan], list[Row]], tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", 0, b"")
    assert engine(Scan(opened(tmp_path).logs, include_headers=True)) == []


@ENGINES
def test_an_engine_says_where_the_damage_is(engine: Callable[[Scan], list[Row]], tmp_path: Path) -> None:
    content = dense(0, 9)
    data = bytearray(joined(content))
    data[-2] ^= 1
    path = write_log(tmp_path / "t-0", 0, bytes(data))
    with pytest.raises(Exception, match=f"{path}: position {len(content[0].data)}: .*CRC"):
        engine(Scan(opened(tmp_path).logs, include_headers=True))
    skipping = Scan(opened(tmp_path).logs, include_headers=True, on_damage="skip")
    assert [row["offset"] for row in engine(skipping)] == list(range(5))
    assert len(skipping.problems) == 1


@pytest.mark.usefixtures("eager_processes")
def test_duckdb_leaves_off_where_it_has_enough(corpus: CorpusPath) -> None:
    scan = Scan(opened(corpus("a_v2") / "data").logs, batch_size=1, jobs=2)
    assert duckdb.execute("select count(*) from (select * from scan limit 3)").fetchall() == [(3,)]
    assert not pool.POOL._busy
    assert not scan.problems


def test_queries_say_what_python_says(corpus: CorpusPath) -> None:
    rows = expected_rows(corpus("a_v2"))
    scan = Scan(opened(corpus("a_v2") / "data").logs, columns=["topic", "partition", "key"])
    counted = Counter((row["topic"], row["key"]) for row in rows)
    found = duckdb.execute("select topic, key, count(*) from scan group by all").fetchall()
    assert {(topic, key): count for topic, key, count in found} == counted
    frame = pl.DataFrame(scan).group_by("topic", "key").len()
    assert {(topic, key): count for topic, key, count in frame.rows()} == counted


def test_a_field_of_json_is_grouped_by(tmp_path: Path) -> None:
    kinds = [("view", "click", "Ünïcode")[offset * offset % 3] for offset in range(90)]
    content = [record(offset, json.dumps({"id": offset, "kind": kind}).encode()) for offset, kind in enumerate(kinds)]
    write_log(tmp_path / "t-0", 0, batch(content).data)
    scan = Scan(opened(tmp_path).logs, columns=["value"])
    expected = dict(Counter(kinds))
    query = "select json_extract_string(decode(value), '$.kind') as kind, count(*) from scan group by kind"
    assert dict(duckdb.execute(query).fetchall()) == expected
    kind = pl.col("value").cast(pl.String).str.json_path_match("$.kind")
    assert dict(pl.DataFrame(scan).group_by(kind).len().rows()) == expected
