"""Batches rendered as they are decoded: the lines of their records, up to the first that is something else."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.format.batch_table import BatchTable
from kfs.format.codecs import Codec
from kfs.format.decode import PythonDecoder
from kfs.format.layout import BATCH_OVERHEAD, MAX_INT64
from kfs.format.record import Record, TimestampType
from kfs.format.writer import encode_batch
from kfs.render.record_json import record_line
from kfs.render.renderers import LineRenderer
from tests.format.some_records import batches, stamped
from tests.implementations import EVERY_RENDERER

LIMIT = 1 << 24
TIMESTAMP_TYPES = [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]


def table_of(content: Sequence[bytes], position: int = 1000, before: int = 3) -> BatchTable:
    """Return the table of batches behind one another, in a buffer with something before and behind them."""
    data = b"".join(content)
    table = PythonDecoder().scan(bytes(before) + data + b"behind", before, position, -1, MAX_INT64, LIMIT)
    assert len(table) == len(content)
    return table


def numbered(count: int, first: int) -> list[Record]:
    return [Record(first + number, 1000 + number, None, b"value %d" % (first + number)) for number in range(count)]


def lines_of(records: Sequence[Record]) -> bytes:
    return "".join(f"{record_line('t', 0, record)}\n" for record in records).encode()


@EVERY_RENDERER
@settings(max_examples=60, deadline=None)
@given(
    content=st.lists(
        st.tuples(batches(), st.sampled_from(Codec), st.sampled_from(TIMESTAMP_TYPES)), min_size=1, max_size=6
    ),
    asked=st.tuples(st.integers(0, 6), st.integers(0, 6)),
)
def test_batches_become_the_lines_of_their_records(
    renderer: type[LineRenderer],
    content: list[tuple[list[Record], Codec, TimestampType]],
    asked: tuple[int, int],
) -> None:
    data, shown, offset = [], [], 0
    for records, codec, timestamp_type in content:
        moved = [replace(record, offset=record.offset - records[0].offset + offset) for record in records]
        offset = moved[-1].offset + 1
        data.append(encode_batch(moved, codec=codec, timestamp_type=timestamp_type))
        is_stamped = timestamp_type is TimestampType.LOG_APPEND_TIME
        latest = max(record.timestamp for record in moved)
        shown.append(lines_of(stamped(moved, timestamp_type, latest) if is_stamped else moved))
    table = table_of(data)
    first, stop = sorted(min(row, len(data)) for row in asked)
    assert renderer("t", 0).batches(table, first, stop, LIMIT) == (b"".join(shown[first:stop]), stop)


@EVERY_RENDERER
@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_control_records_end_them(renderer: type[LineRenderer], codec: Codec) -> None:
    first, second, last = numbered(3, 0), numbered(1, 3), numbered(2, 4)
    table = table_of(
        [encode_batch(first, codec=codec), encode_batch(second, control=True), encode_batch(last, codec=codec)]
    )
    one = renderer("t", 0)
    assert one.batches(table, 0, 3, LIMIT) == (lines_of(first), 1)
    assert one.batches(table, 1, 3, LIMIT) == (b"", 1)
    assert one.batches(table, 2, 3, LIMIT) == (lines_of(last), 3)


@EVERY_RENDERER
@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_a_batch_that_cannot_be_decoded_ends_them(renderer: type[LineRenderer], codec: Codec) -> None:
    first, second, last = numbered(3, 0), numbered(3, 3), numbered(2, 6)
    lying = bytearray(encode_batch(second, codec=codec))
    struct.pack_into(">i", lying, 57, 2)  # one record fewer than it has
    struct.pack_into(">I", lying, 17, crc32c(lying[21:]))
    assert len(lying) > BATCH_OVERHEAD
    table = table_of([encode_batch(first, codec=codec), bytes(lying), encode_batch(last, codec=codec)])
    one = renderer("t", 0)
    assert one.batches(table, 0, 3, LIMIT) == (lines_of(first), 1)
    assert one.batches(table, 1, 3, LIMIT) == (b"", 1)
    assert one.batches(table, 2, 3, LIMIT) == (lines_of(last), 3)


@EVERY_RENDERER
@pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda codec: codec.label)
def test_a_batch_past_the_limit_ends_them(renderer: type[LineRenderer], codec: Codec) -> None:
    small = numbered(2, 0)
    large = [Record(2, 1000, None, bytes(100_000))]
    table = table_of([encode_batch(small, codec=codec), encode_batch(large, codec=codec)])
    assert renderer("t", 0).batches(table, 0, 2, 10_000) == (lines_of(small), 1)
    assert renderer("t", 0).batches(table, 0, 2, LIMIT) == (lines_of(small + large), 2)


@EVERY_RENDERER
def test_threads_render_batches_with_one_renderer(renderer: type[LineRenderer]) -> None:
    one = renderer("t", 0)
    content = [numbered(50 * size, 0) for size in range(1, 5)]
    tables = [table_of([encode_batch(records, codec=Codec.LZ4)]) for records in content]
    expected = [(lines_of(records), 1) for records in content]

    def is_as_expected(number: int) -> bool:
        which = number % len(tables)
        return one.batches(tables[which], 0, 1, LIMIT) == expected[which]

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(is_as_expected, range(200)))


@EVERY_RENDERER
def test_rows_that_are_not_there_are_refused(renderer: type[LineRenderer]) -> None:
    table = table_of([encode_batch(numbered(3, 0))])
    with pytest.raises(IndexError):
        renderer("t", 0).batches(table, 0, 2, LIMIT)
