"""Records in Arrow's buffers: both implementations make the same of any columns, valid and complete."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kfs.format.batch_header import later_sequence
from kfs.format.codecs import Codec
from kfs.format.columns import RecordColumns
from kfs.format.java_text import java_text
from kfs.format.layout import MAX_INT32
from kfs.format.record import TimestampType
from kfs.render.arrow_builder import FIRST_MILLISECOND, LAST_MILLISECOND, ArrowBuffers, ArrowBuilder
from kfs.render.arrow_columns import BatchFields, Column, columns_named
from tests.format.integers import int32s, int64s
from tests.implementations import ARROW_BUILDERS, EVERY_ARROW_BUILDER
from tests.render.some_columns import Content, columns_of, headers, payloads, timestamps
from tests.thoroughness import examples

pa = pytest.importorskip("pyarrow")
arrow_batches = pytest.importorskip("kfs.render.arrow_batches")

EVERYTHING = tuple(Column)
Row = dict[str, Any]
some_columns = st.lists(st.sampled_from(EVERYTHING), min_size=1, unique=True).map(tuple)
batch_fields = st.builds(
    BatchFields,
    position=int64s,
    base_offset=st.just(0),
    leader_epoch=int32s,
    producer_id=int64s,
    producer_epoch=int32s,
    base_sequence=st.integers(-1, MAX_INT32),
    is_transactional=st.booleans(),
    codec=st.sampled_from(Codec),
    magic=st.integers(0, 2),
)


def rows_of(columns: Sequence[Column], buffers: ArrowBuffers) -> list[Row]:
    """Return what was gathered as Python objects, after Arrow itself has looked at all of it."""
    schema = arrow_batches.schema_of(columns)
    batch = arrow_batches.record_batch(schema, columns, buffers)
    batch.validate(full=True)
    assert batch.schema == schema
    rows: list[Row] = batch.cast(_as_integers(schema)).to_pylist()
    return rows


def _as_integers(schema: Any) -> Any:
    """A schema with microseconds in place of timestamps, which may be more than Python's datetime can hold."""
    return pa.schema(
        [pa.field(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in schema]
    )


def expected_row(columns: RecordColumns, index: int, fields: BatchFields) -> Row:
    """Return a record as it should be, every column of it."""
    record = columns.record(index)
    fits = FIRST_MILLISECOND <= record.timestamp <= LAST_MILLISECOND
    return {
        "key": record.key,
        "value": record.value,
        "topic": "töpic",
        "partition": 7,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000 if fits else None,
        "timestampType": int(record.timestamp_type),
        "headers": [{"key": java_text(name), "value": value} for name, value in record.headers] or None,
        "timestampMillis": record.timestamp,
        "segment": 5,
        "position": fields.position,
        "baseOffset": fields.base_offset,
        "leaderEpoch": fields.leader_epoch,
        "producerId": fields.producer_id,
        "producerEpoch": fields.producer_epoch,
        "sequence": later_sequence(fields.base_sequence, record.offset - fields.base_offset),
        "isTransactional": bool(fields.is_transactional),
        "codec": Codec(fields.codec).label,
        "magic": fields.magic,
    }


@settings(max_examples=examples(100, 600))
@given(
    wanted=some_columns,
    blocks=st.lists(
        st.tuples(
            st.lists(st.tuples(payloads, payloads, headers), max_size=6), batch_fields, st.sampled_from(TimestampType)
        ),
        max_size=4,
    ),
    data=st.data(),
)
def test_what_is_gathered_is_what_is_there(
    wanted: tuple[Column, ...],
    blocks: list[tuple[list[Content], BatchFields, TimestampType]],
    data: st.DataObject,
) -> None:
    builders = [builder(wanted, "töpic".encode(), 7, 5) for builder in ARROW_BUILDERS]
    expected: list[Row] = []
    for contents, fields, kind in blocks:
        count = len(contents)
        columns = columns_of(contents, data.draw(st.lists(timestamps, min_size=count, max_size=count)), kind)
        start = data.draw(st.integers(0, count))
        indexes: Sequence[int] = range(start, data.draw(st.integers(start, count)))
        if data.draw(st.booleans()):
            indexes = sorted(data.draw(st.sets(st.integers(0, count - 1))) if count else [])
        rows = [expected_row(columns, index, fields) for index in indexes]
        expected += [{column.label: row[column.label] for column in wanted} for row in rows]
        for builder in builders:
            builder.add(columns, indexes, fields)
            assert builder.rows == len(expected)
        if data.draw(st.booleans()):
            assert len({builder.nbytes for builder in builders}) == 1
            for builder in builders:
                assert rows_of(wanted, builder.finish()) == expected
                assert (builder.rows, builder.nbytes) == (0, 0)
            expected = []
    for builder in builders:
        assert rows_of(wanted, builder.finish()) == expected


@EVERY_ARROW_BUILDER
@given(count=st.integers(0, 40), null_at=st.sets(st.integers(0, 39)), sizes=st.lists(st.integers(0, 40), min_size=40))
@example(count=40, null_at={39}, sizes=[16, 17] * 20)
def test_fields_of_any_size_and_nulls_anywhere(
    builder: type[ArrowBuilder], count: int, null_at: set[int], sizes: list[int]
) -> None:
    values = [None if at in null_at else bytes([at]) * sizes[at] for at in range(count)]
    columns = columns_of([(value, value, ((b"h", value),)) for value in values])
    wanted = (Column.KEY, Column.VALUE, Column.HEADERS)
    one = builder(wanted, b"t", 0, 0)
    for at in range(count):  # one by one, so that no bitmap begins at a byte
        one.add(columns, range(at, at + 1))
    rows = rows_of(wanted, one.finish())
    assert [row["key"] for row in rows] == [row["value"] for row in rows] == values
    assert [row["headers"][0]["value"] for row in rows] == values


@EVERY_ARROW_BUILDER
def test_what_is_finished_stays_as_it_is(builder: type[ArrowBuilder]) -> None:
    one = builder((Column.VALUE,), b"t", 0, 0)
    one.add(columns_of([(None, b"first", ())]), range(1))
    finished = one.finish()
    one.add(columns_of([(None, b"later", ())] * 100), range(100))
    one.finish()
    assert rows_of((Column.VALUE,), finished) == [{"value": b"first"}]


@EVERY_ARROW_BUILDER
@pytest.mark.parametrize("milliseconds", [LAST_MILLISECOND, LAST_MILLISECOND + 1, FIRST_MILLISECOND - 1, 2**63 - 1, -1])
def test_times_that_microseconds_cannot_count_are_null(builder: type[ArrowBuilder], milliseconds: int) -> None:
    one = builder((Column.TIMESTAMP, Column.TIMESTAMP_MILLIS), b"t", 0, 0)
    one.add(columns_of([(None, None, ())] * 3, [5, milliseconds, 6]), range(3))
    first, second, third = rows_of((Column.TIMESTAMP, Column.TIMESTAMP_MILLIS), one.finish())
    assert (first["timestamp"], third["timestamp"]) == (5000, 6000)
    fits = abs(milliseconds) <= LAST_MILLISECOND
    assert second == {"timestamp": milliseconds * 1000 if fits else None, "timestampMillis": milliseconds}


@EVERY_ARROW_BUILDER
def test_a_record_that_is_not_there_is_refused(builder: type[ArrowBuilder]) -> None:
    for indexes in (range(2), [0, 1], [-1], range(-1, 1)):
        if builder is not ARROW_BUILDERS[0] or max(indexes) > 0:  # Python counts from the end
            with pytest.raises(IndexError):
                builder(EVERYTHING, b"t", 0, 0).add(columns_of([(b"k", b"v", ())]), indexes)


@EVERY_ARROW_BUILDER
@pytest.mark.parametrize(
    ("column", "number"),
    [*product(["key_lengths", "value_lengths"], [2**31 - 1, 40]), *product(["key_starts", "value_starts"], [-1, 99])],
)
def test_nothing_outside_of_the_buffer_is_read(builder: type[ArrowBuilder], column: str, number: int) -> None:
    columns = columns_of([(b"k", b"v", ())])
    getattr(columns, column)[0] = number
    with pytest.raises(ValueError, match="outside of their buffer"):
        builder(EVERYTHING, b"t", 0, 0).add(columns, range(1))


@pytest.mark.skipif(len(ARROW_BUILDERS) < 2, reason="nothing was compiled")
@pytest.mark.parametrize("start", [0, 1, 2, 40, 2**31 - 1])
def test_compiled_code_reads_no_headers_outside_of_the_buffer(start: int) -> None:
    columns = columns_of([(b"k", b"v", ((b"h", b"x"),))])
    columns.buffer = b"\xff" * len(columns.buffer)
    columns.header_starts[0] = start
    with pytest.raises(ValueError, match="outside of their buffer"):
        ARROW_BUILDERS[1]((Column.HEADERS,), b"t", 0, 0).add(columns, range(1))


def test_columns_go_by_their_names() -> None:
    assert columns_named(["offset", "key"]) == (Column.OFFSET, Column.KEY)
    for wrong, reason in ((["Offset"], "no column 'Offset'"), (["key", "key"], "twice"), ([], "no columns")):
        with pytest.raises(ValueError, match=reason):
            columns_named(wrong)
