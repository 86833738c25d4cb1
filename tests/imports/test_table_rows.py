"""Arrow and Parquet files are imported: those of ``kfs cat``, those of others, and hostile ones."""

from __future__ import annotations

import io
import os
import random
import tempfile
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from kfs.cat.output import TableFormat
from kfs.cat.table_file import FILE_COLUMNS, TableWriter
from kfs.errors import BadLine, KfsError
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT64
from kfs.format.record import Record, TimestampType
from kfs.imports.layout import BatchLayout
from kfs.imports.lines import ImportedRecord
from kfs.imports.table_rows import TableInput, rows_of
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.scan import Scan
from tests.corpus import corpus_names
from tests.imports.test_import import DAMAGED, CorpusPath, all_lines, holds, imported, some_records, topics_of
from tests.logs import open_log, records_in
from tests.thoroughness import examples

KINDS = list(TableInput)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def encoded(table: pa.Table, kind: TableInput, rows: int = 3) -> bytes:
    """Write a table as somebody else would, ``rows`` rows at a time."""
    out = io.BytesIO()
    if kind is TableInput.PARQUET:
        parquet.write_table(table, out, row_group_size=rows)
    else:
        make = pa.ipc.new_file if kind is TableInput.ARROW_FILE else pa.ipc.new_stream
        with make(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
    return out.getvalue()


def scanned(root: Path, kind: TableInput, batch_size: int = 16384) -> bytes:
    """Write all records of a log directory as ``kfs cat`` does."""
    data_dir = DataDir([str(root)], Storage())
    scan = Scan(data_dir.logs, columns=FILE_COLUMNS, jobs=1, batch_size=batch_size)
    out = io.BytesIO()
    table_format = TableFormat.PARQUET if kind is TableInput.PARQUET else TableFormat.ARROW
    is_file = kind is not TableInput.ARROW_STREAM
    with TableWriter(scan.schema, table_format, out, is_file=is_file, metadata={}) as writer:
        for batch in scan:
            writer.write(batch)
    data_dir.close()
    return out.getvalue()


def rows_in(data: bytes) -> list[ImportedRecord | BadLine]:
    kind = TableInput.of(data[:8])
    assert kind is not None
    return list(rows_of(io.BytesIO(data), kind, "input"))


def spark_rows(count: int = 5, **changes: Any) -> pa.Table:
    """Rows with the columns of Spark's Kafka source, of which some may be others; None takes one away."""
    start = datetime(2023, 11, 14, tzinfo=UTC)
    columns = {
        "key": pa.array([b"k%d" % at for at in range(count)]),
        "value": pa.array([b"v%d" % at for at in range(count)]),
        "topic": pa.array(["t"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(7, 7 + count)),
        "timestamp": pa.array([start + timedelta(milliseconds=at) for at in range(count)], pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * count, pa.int32()),
    }
    return pa.table({name: column for name, column in (columns | changes).items() if column is not None})


def record_of(line: ImportedRecord | BadLine) -> Record:
    assert isinstance(line, ImportedRecord), line
    return line.record


# --- there and back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in corpus_names() if name != DAMAGED])
def test_every_recorded_topic_comes_back_by_a_table(
    name: str, kind: TableInput, corpus: CorpusPath, tmp_path: Path
) -> None:
    root = corpus(name) / "data"
    lines = all_lines(root, topics_of(root))
    if not lines:
        pytest.skip("no records")
    imported(tmp_path / "made", rows_in(scanned(root, kind)), BatchLayout())
    topics = topics_of(tmp_path / "made")
    assert holds(None, BatchLayout().codec, lines)
    assert all_lines(tmp_path / "made", topics) == lines


@settings(max_examples=examples(30, 200))
@given(data=st.data(), kind=st.sampled_from(KINDS), batch_size=st.integers(1, 5))
@pytest.mark.usefixtures("quiet")
def test_any_records_come_back(data: st.DataObject, kind: TableInput, batch_size: int) -> None:
    partitions = [TopicPartition("t", 0), TopicPartition("t", 3), TopicPartition("a.b-c_d", 0)]
    content = {
        partition: [_with_names_of_text(record) for record in data.draw(some_records(None))]
        for partition in data.draw(st.lists(st.sampled_from(partitions), min_size=1, unique=True))
    }
    lines = [
        ImportedRecord("input", 1, partition, record) for partition, records in content.items() for record in records
    ]
    with tempfile.TemporaryDirectory() as name:
        first, second = Path(name) / "first", Path(name) / "second"
        imported(first, lines, BatchLayout(batch_records=data.draw(st.integers(1, 5))))
        imported(second, rows_in(scanned(first, kind, batch_size)), BatchLayout())
        for partition, records in content.items():
            assert records_in(open_log(second / str(partition))) == records


def _with_names_of_text(record: Record) -> Record:
    """A header's name is text in a table."""
    headers = tuple((key.decode(errors="replace").encode(), value) for key, value in record.headers)
    return replace(record, headers=headers)


@pytest.mark.parametrize("kind", KINDS)
def test_how_far_it_is_read_is_told_to_the_byte(kind: TableInput) -> None:
    data = encoded(spark_rows(5000), kind, rows=500)
    told: list[int] = []
    assert len(list(rows_of(io.BytesIO(data), kind, "input", told.append))) == 5000
    assert sum(told) == len(data)
    assert sum(size > 0 for size in told) > 2


# --- the files of others --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_of_sparks_source_are_enough(kind: TableInput) -> None:
    found = rows_in(encoded(spark_rows(), kind))
    assert [(line.number, line.unit) for line in found if isinstance(line, ImportedRecord)] == [
        (at, "row") for at in range(1, 6)
    ]
    assert record_of(found[2]) == Record(9, 1699920000002, b"k2", b"v2", (), TimestampType.CREATE_TIME)


@pytest.mark.parametrize(
    "changes",
    [
        {"key": pa.array(["k0", "k1"]), "value": pa.array(["v0", "v1"], pa.large_string())},
        {"value": pa.array([b"v0", b"v1"], pa.large_binary()), "key": pa.array([b"k0", b"k1"], pa.binary(2))},
        {"value": pa.array([b"v0", b"v1"], pa.binary_view()), "topic": pa.array(["t", "t"], pa.string_view())},
        {"topic": pa.array(["t", "t"]).dictionary_encode(), "key": pa.array([b"k0", b"k1"]).dictionary_encode()},
        {"partition": pa.array([0, 0], pa.uint8()), "offset": pa.array([7, 8], pa.uint64())},
        {"timestampType": pa.array([0, 0], pa.int64()), "added": pa.array([1.5, 2.5])},
        {"timestamp": pa.array([1699920000000, 1699920000001], pa.timestamp("ms"))},
        {"timestamp": pa.array([1699920000000000000, 1699920000001000000], pa.timestamp("ns", "Asia/Tokyo"))},
        {"timestamp": None, "timestampMillis": pa.array([1699920000000, 1699920000001])},
        {"timestamp": pa.array([None, 1699920000001], pa.timestamp("ms")),
         "timestampMillis": pa.array([1699920000000, None], pa.int64())},
        {"headers": pa.array([None, []], HEADERS)},
        {"headers": pa.nulls(2)},
    ],
)  # fmt: skip
def test_types_that_say_the_same_are_taken(changes: dict[str, Any]) -> None:
    expected = list(map(record_of, rows_in(encoded(spark_rows(2), TableInput.ARROW_FILE))))
    assert list(map(record_of, rows_in(encoded(spark_rows(2, **changes), TableInput.ARROW_FILE)))) == expected


def test_headers_keep_their_order_duplicates_and_nulls() -> None:
    headers = [{"key": "b", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b""}]
    for column in (pa.array([headers], HEADERS), pa.array([headers], HEADERS).cast(pa.large_list(HEADERS.value_type))):
        (row,) = rows_in(encoded(spark_rows(1, headers=column), TableInput.PARQUET))
        assert record_of(row).headers == ((b"b", b"1"), (b"a", None), (b"b", b""))


def test_nulls_are_nulls() -> None:
    (row,) = rows_in(encoded(spark_rows(1, key=pa.array([None], pa.binary()), value=pa.nulls(1)), TableInput.PARQUET))
    assert (record_of(row).key, record_of(row).value) == (None, None)


def test_timestamps_as_spark_writes_them_to_parquet() -> None:
    out = io.BytesIO()
    parquet.write_table(spark_rows(2), out, use_deprecated_int96_timestamps=True)
    assert list(map(record_of, rows_in(out.getvalue()))) == list(
        map(record_of, rows_in(encoded(spark_rows(2), TableInput.PARQUET)))
    )


def test_no_time_is_the_last_millisecond_of_1969() -> None:
    before = datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)
    table = spark_rows(1, timestamp=pa.array([before], pa.timestamp("us", "UTC")), timestampType=pa.array([-1]))
    (row,) = rows_in(encoded(table, TableInput.PARQUET))
    assert (record_of(row).timestamp, record_of(row).timestamp_type) == (-1, TimestampType.NO_TIMESTAMP)


# --- hostile files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"offset": None}, "input: no column offset; there are key, value, topic, partition, timestamp, timestampType"),
        ({"key": None, "topic": None}, "input: no column topic, key; there are "),
        ({"timestamp": None}, "input: no column timestamp; there are "),
        ({"offset": pa.array(["7", "8"])}, "input: column offset is of string, expected integers"),
        ({"partition": pa.array([0.0, 1.0])}, "input: column partition is of double, expected integers"),
        ({"timestamp": pa.array([1, 2])}, "input: column timestamp is of int64, expected timestamps"),
        ({"value": pa.array([1, 2])}, "input: column value is of int64, expected bytes or text"),
        ({"topic": pa.array([b"t", b"t"])}, "input: column topic is of binary, expected text"),
        ({"headers": pa.array([[b"a"], []])}, "column headers is of list<item: binary>, expected lists of structs"),
        ({"headers": pa.array([[{"key": "a"}], []])}, "expected lists of structs of key and value"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_are_none_of_a_record_are_refused(kind: TableInput, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(KfsError) as error:
        rows_in(encoded(spark_rows(2, **changes), kind))
    assert reason in str(error.value).replace("list<element:", "list<item:")


def test_a_column_that_is_there_twice_is_refused() -> None:
    table = spark_rows(2).append_column("offset", pa.array([1, 2]))
    with pytest.raises(KfsError, match="input: column offset twice"):
        rows_in(encoded(table, TableInput.ARROW_FILE))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"offset": pa.array([7, -8])}, "offset -8, expected 0 to 9223372036854775806"),
        ({"offset": pa.array([7, 2**64 - 1], pa.uint64())}, "offset 18446744073709551615, expected"),
        ({"offset": pa.array([7, None])}, "offset is null"),
        ({"partition": pa.array([0, -1])}, "partition -1, expected 0 to 2147483647"),
        ({"topic": pa.array(["t", "a/b"])}, "'a/b' is not the name of a topic"),
        ({"topic": pa.array(["t", None])}, "topic is null"),
        ({"timestampType": pa.array([0, 2])}, "timestampType 2, expected -1, 0 or 1"),
        ({"timestamp": pa.array([1000, 1001], pa.timestamp("us"))}, "timestamp 1001 us, expected whole milliseconds"),
        ({"timestamp": pa.array([0, MAX_INT64], pa.timestamp("s"))}, f"timestamp {MAX_INT64 * 1000}, expected"),
        ({"timestamp": pa.array([0, None], pa.timestamp("us"))}, "timestamp is null"),
        ({"timestamp": pa.array([0, 1], pa.timestamp("ms")), "timestampMillis": pa.array([0, 2])},
         "timestamp is 1 milliseconds, but timestampMillis 2"),
        ({"headers": pa.array([[], [{"key": None, "value": b""}]], HEADERS)}, "a header without a key"),
        ({"headers": pa.array([[], [None]], HEADERS)}, "a header without a key"),
    ],
)  # fmt: skip
def test_a_row_that_no_log_can_hold_is_named(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    first, second = rows_in(encoded(spark_rows(2, **changes), TableInput.ARROW_FILE))
    assert isinstance(first, ImportedRecord)
    assert isinstance(second, BadLine)
    assert str(second).startswith(f"input: row 2: {reason}")
    with pytest.raises(BadLine):
        imported(tmp_path / "made", [first, second], BatchLayout())
    assert list((tmp_path / "made").iterdir()) == []


def test_offsets_that_go_back_are_named_by_their_row(tmp_path: Path) -> None:
    data = encoded(spark_rows(3, offset=pa.array([7, 9, 8])), TableInput.PARQUET)
    with pytest.raises(BadLine, match=r"^input: row 3: offset 8 after offset 9 of t-0$"):
        imported(tmp_path / "made", rows_in(data), BatchLayout())


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_was_cut_is_never_taken_for_a_whole_one(kind: TableInput) -> None:
    data = encoded(spark_rows(), kind)
    sizes = range(8, len(data))
    for size in [*random.Random(1).sample(sizes, min(len(sizes), 300)), len(data) - 8, len(data) - 4]:
        with pytest.raises(KfsError, match=f"^input: after row [0-5]: can't be read as {kind}: ."):
            rows_in(data[:size])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_any_damage_is_an_error_or_a_bad_row_and_nothing_worse(kind: TableInput, seed: int) -> None:
    chance = random.Random(seed)
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None] * 4, HEADERS)
    data = encoded(spark_rows(8, headers=headers), kind)
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(chance.choice([1, 1, 2, 8])):
            damaged[chance.randrange(8, len(damaged))] = chance.randrange(256)
        with suppress(KfsError):
            for row in rows_of(io.BytesIO(damaged), kind, "input"):
                assert isinstance(row, ImportedRecord | BadLine)


def test_the_checksums_of_parquet_are_looked_at() -> None:
    out = io.BytesIO()
    with TableWriter(spark_rows().schema, TableFormat.PARQUET, out, is_file=True, metadata={}) as writer:
        for batch in spark_rows(2000).to_batches():
            writer.write(batch)
    data = bytearray(out.getvalue())
    data[200] ^= 1
    with pytest.raises(KfsError, match=r"can't be read as Parquet: .*(CRC|checksum)"):
        rows_in(bytes(data))


def test_what_has_to_be_read_from_its_end_is_no_pipe() -> None:
    for kind in (TableInput.PARQUET, TableInput.ARROW_FILE):
        reading, writing = os.pipe()
        os.close(writing)
        with open(reading, "rb") as file, pytest.raises(KfsError, match=f"^input: is {kind}, whose end"):
            list(rows_of(file, kind, "input"))


@pytest.mark.parametrize("head", [b"", b"{", b'{"topic":', b"\n", b"PAR", b"\xff\xff", b"Arrow"])
def test_what_is_no_table(head: bytes) -> None:
    assert TableInput.of(head) is None


def test_of_tells_tables_by_how_they_begin() -> None:
    for kind in KINDS:
        assert TableInput.of(encoded(spark_rows(0), kind)[:8]) is kind
