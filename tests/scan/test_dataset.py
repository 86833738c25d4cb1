"""What engines push down: only that is read, and the answer is the one that a filter over all records gives."""

from __future__ import annotations

import copy
import operator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kfs
from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.log.bulk import BulkReader
from kfs.read.selection import Selection
from kfs.render.arrow_batches import schema_of
from kfs.render.arrow_columns import Column
from kfs.scan.condition import Condition
from kfs.scan.dataset import ScanDataset
from tests.corpus import corpus_names
from tests.logs import START, dense, joined, log_name, write_log
from tests.recorded_damage import DAMAGED, CorpusPath
from tests.thoroughness import examples

SOUND = [name for name in corpus_names() if name != DAMAGED]
FIELD = {column.label: ds.field(column.label) for column in Column}
offset, partition, timestamp, millis = (FIELD[name] for name in ("offset", "partition", "timestamp", "timestampMillis"))


def dataset_of(root: Path, topic: str | None = None, **options: Any) -> ScanDataset:
    data = kfs.open(str(root))
    return (data if topic is None else data[topic]).dataset(**{"jobs": 1, **options})


def by_duckdb(query: str, records: ScanDataset | pa.Table) -> list[tuple[Any, ...]]:
    """Return what a query selects from ``records``."""
    rows: list[tuple[Any, ...]] = duckdb.execute(query).fetchall()
    return rows


def moment(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds * 1000, pa.timestamp("us", tz="UTC"))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the base offset of each batch (v2) that is decoded."""
    found: list[int] = []
    of_itself = BulkReader.decoded

    def noted(self: BulkReader, scanned: Any) -> Any:
        found.extend(scanned.table.base_offsets[scanned.first : scanned.stop])
        return of_itself(self, scanned)

    monkeypatch.setattr(BulkReader, "decoded", noted)
    return found


@pytest.fixture
def two_partitions(tmp_path: Path) -> Path:
    """Two partitions of 40 records, ten a batch, a second from record to record."""
    for number in range(2):
        write_log(tmp_path / f"t-{number}", 0, joined(dense(0, 39, size=10)))
    return tmp_path


# --- the same rows --------------------------------------------------------------------------------------------------


@cache
def table_of(root: Path) -> pa.Table:
    return kfs.open(str(root)).scan(columns=list(FIELD), jobs=1).to_table()


@cache
def filters(root: Path) -> st.SearchStrategy[ds.Expression]:
    """Return filters over columns of the records in ``root``, about values that these have, or are near to."""
    table = table_of(root)
    names = ["topic", "partition", "offset", "timestamp", "timestampMillis", "key", "baseOffset", "timestampType"]
    single = st.one_of([comparisons(name, table[name]) for name in names])
    return st.recursive(
        single,
        lambda inner: st.one_of(
            st.builds(operator.and_, inner, inner), st.builds(operator.or_, inner, inner), inner.map(operator.inv)
        ),
        max_leaves=5,
    )


def comparisons(name: str, column: pa.ChunkedArray) -> st.SearchStrategy[ds.Expression]:
    field, found = FIELD[name], pc.drop_null(column).unique()
    if pa.types.is_timestamp(column.type):
        found = found.cast(pa.int64())
    values = st.sampled_from(sorted(found.to_pylist()) or [b"" if pa.types.is_binary(column.type) else 0])
    if pa.types.is_integer(found.type):
        values = st.builds(operator.add, values, st.integers(-2, 2))
    scalars = values.map(lambda value: pa.scalar(value, column.type))
    compare = st.sampled_from([operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge])
    return st.one_of(
        st.builds(lambda how, value: how(field, value), compare, scalars),
        st.builds(lambda some: field.isin(pa.array(some, column.type)), st.lists(values, min_size=1, max_size=3)),
        st.sampled_from([field.is_null(), field.is_valid()]),
    )


@settings(max_examples=examples(25, 5000))
@given(data=st.data())
def test_rows_are_those_of_a_filter_over_all(data: st.DataObject, corpus: CorpusPath) -> None:
    root = corpus(data.draw(st.sampled_from(SOUND))) / "data"
    expression = data.draw(filters(root))
    dataset = dataset_of(root)
    expected = table_of(root).select(dataset.schema.names).filter(expression)
    assert dataset.to_table(filter=expression).equals(expected)
    assert dataset.count_rows(expression) == dataset.filter(expression).count_rows() == len(expected)
    assert dataset.to_table(["partition"], expression).equals(expected.select(["partition"]))


@pytest.mark.parametrize("where", ["true", '"offset" between 7 and 60', "timestampMillis < 0", "codec = 'lz4'"])
@pytest.mark.parametrize("name", SOUND)
def test_duckdb_counts_what_it_counts_in_a_table(name: str, where: str, corpus: CorpusPath) -> None:
    root = corpus(name) / "data"
    dataset, table = dataset_of(root, jobs=2), table_of(root)
    query = f'select topic, partition, count(*), max("offset") from records where {where} group by all order by all'
    assert dataset.count_rows() == len(table)
    assert by_duckdb(query, dataset) == by_duckdb(query, table)


# --- no more than that ----------------------------------------------------------------------------------------------


def test_a_count_decodes_nothing(two_partitions: Path, decoded: list[int]) -> None:
    dataset = dataset_of(two_partitions)
    assert by_duckdb("select count(*) from records", dataset) == [(80,)]
    assert by_duckdb("select count(*) from records where partition = 1", dataset) == [(40,)]
    assert pl.scan_pyarrow_dataset(dataset).select(pl.len()).collect().item() == 80
    assert dataset.count_rows() == 80
    assert decoded == []


@pytest.mark.parametrize(
    ("where", "rows", "batches"),
    [
        ('"offset" between 12 and 17', 12, [10, 10]),
        ('partition = 1 and "offset" >= 25', 15, [20, 30]),
        ('"offset" in (3, 4)', 4, [0, 0]),
        ("topic = 'others'", 0, []),
        ('"offset" = 11 and "offset" = 12', 0, []),
        (f"timestampMillis >= {START + 30_000} and partition = 0", 10, [30]),
    ],
)
def test_duckdb_reads_the_batches_that_it_asks_for(
    where: str, rows: int, batches: list[int], two_partitions: Path, decoded: list[int]
) -> None:
    query = f'select topic, partition, "offset", value from records where {where}'
    assert len(by_duckdb(query, dataset_of(two_partitions))) == rows
    assert decoded == batches


@pytest.mark.parametrize(
    ("condition", "rows", "batches"),
    [
        (pl.col("offset").is_between(12, 17), 12, [10, 10]),
        ((pl.col("partition") == 1) & (pl.col("offset") >= 25), 15, [20, 30]),
        (pl.col("timestamp") >= datetime.fromtimestamp(START / 1000 + 30, UTC), 20, [30, 30]),
    ],
)
def test_polars_reads_the_batches_that_it_asks_for(
    condition: pl.Expr, rows: int, batches: list[int], two_partitions: Path, decoded: list[int]
) -> None:
    frame = pl.scan_pyarrow_dataset(dataset_of(two_partitions)).filter(condition).select("value").collect()
    assert len(frame) == rows
    assert decoded == batches


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (offset == 7, Selection(7, 8)),
        ((offset >= 5) & (offset < 9), Selection(5, 9)),
        ((offset == 3) | (offset == 90), Selection(3, 91)),
        (offset.isin([4, 9]), Selection(4, 10)),
        (~(offset < 5), Selection(5)),
        ((offset < 9) | (partition == 1), Selection()),
        (offset + 1 < 5, Selection()),  # pyarrow doesn't simplify it
        ((timestamp >= moment(50)) & (timestamp <= moment(70)), Selection(since=50, before=71)),
        ((millis >= 50) & (millis <= 70), Selection(since=50, before=71)),
        (timestamp == pa.scalar(50_001, pa.timestamp("us", tz="UTC")), Selection(since=50, before=51)),
        (millis >= 50, Selection(since=50)),
        # Times may be missing (-1), or null: before 1970 nothing bounds them.
        (timestamp < moment(70), Selection()),
        (millis >= -1, Selection()),
        ((timestamp >= moment(50)) | timestamp.is_null(), Selection()),
        (timestamp.is_null(), Selection()),
        ((offset >= MAX_INT64 - 1) & (millis >= MAX_INT64 - 1), Selection(MAX_INT64 - 1, since=MAX_INT64 - 1)),
    ],
    ids=str,
)
def test_what_a_filter_bounds(condition: ds.Expression, expected: Selection) -> None:
    assert Condition(schema_of(tuple(Column)), condition).selection() == expected


# --- as a dataset ---------------------------------------------------------------------------------------------------


def test_expressions_for_columns(two_partitions: Path, decoded: list[int]) -> None:
    dataset = dataset_of(two_partitions)
    found = dataset.to_table(columns={"next": offset + 1, "p": partition}, filter=offset < 1)
    assert found.to_pylist() == [{"next": 1, "p": 0}, {"next": 1, "p": 1}]
    assert decoded == [0, 0]
    assert dataset.head(3, columns=["offset"])["offset"].to_pylist() == [0, 1, 2]
    with pytest.raises(pa.ArrowInvalid, match="nothing"):
        dataset.to_table(columns=["nothing"])


def test_what_was_appended_is_there(two_partitions: Path) -> None:
    dataset = dataset_of(two_partitions).filter(offset >= 38)
    assert dataset.count_rows() == 4
    with (two_partitions / "t-0" / log_name(0)).open("ab") as file:
        file.write(joined(dense(40, 44)))
    assert dataset.count_rows() == 9
    assert len(dataset.filter(partition == 1).to_table()) == 2


def test_what_goes_past_it_fails(two_partitions: Path) -> None:
    dataset = dataset_of(two_partitions)
    with pytest.raises(FileNotFoundError, match=r"to_table\(\)"):
        dataset.sort_by("offset").to_table()
    with pytest.raises(FileNotFoundError, match=r"to_table\(\)"):
        ds.dataset([dataset, dataset]).to_table()
    with pytest.raises(TypeError, match="pickled"):
        copy.deepcopy(dataset)


# --- damage, and isolation ------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(two_partitions: Path) -> Path:
    """The second batch of partition 0 is broken."""
    each = dense(0, 39, size=10)
    data = bytearray(joined(each))
    data[len(each[0].data) + 70] ^= 1
    write_log(two_partitions / "t-0", 0, bytes(data))
    return two_partitions


def test_damage_where_the_filter_may_be_true(damaged: Path) -> None:
    dataset = dataset_of(damaged)
    for condition in (offset < 30, (offset == 15) & (partition == 0), timestamp >= moment(START)):
        with pytest.raises(CorruptData, match="CRC"):
            dataset.to_table(filter=condition)
    for condition, rows in ((offset < 10, 20), (offset >= 20, 40), (partition == 1, 40)):
        assert dataset.to_table(filter=condition).num_rows == rows


def test_damage_is_skipped_and_told(damaged: Path) -> None:
    told: list[object] = []
    dataset = dataset_of(damaged, on_damage="skip", on_problem=told.append)
    assert by_duckdb('select count(*) from records where "offset" < 20', dataset) == [(30,)]
    assert len(told) == len(dataset.problems) == len(dataset.filter(offset > 1).problems) == 1


def test_the_isolation_level(corpus: CorpusPath) -> None:
    root = corpus("b_txn") / "data"
    committed = dataset_of(root, isolation="read_committed")
    assert committed.count_rows() == len(committed.to_table()) < dataset_of(root).count_rows()
