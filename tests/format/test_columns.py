"""Columns: records are views of them, and slices of them are columns again."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.batch_header import read_header
from kfs.format.columns import RecordColumns
from kfs.format.decoders import BlockDecoder
from kfs.format.record import Record, TimestampType
from kfs.format.writer import encode_batch
from tests.format.faults import with_fault
from tests.format.some_records import batches
from tests.implementations import EVERY_DECODER


def columns_of(records: list[Record], decoder: BlockDecoder) -> RecordColumns:
    data = encode_batch(records)
    return decoder.decode(read_header(data, 0, 0), data, 1 << 24)


@EVERY_DECODER
@given(records=batches())
def test_a_record_is_what_its_columns_say(decoder: BlockDecoder, records: list[Record]) -> None:
    columns = columns_of(records, decoder)
    assert len(columns) == len(records)
    assert list(columns) == records
    for index, record in enumerate(records):
        assert columns.record(index) == record
        assert columns.key(index) == record.key
        assert columns.value(index) == record.value
        assert columns.headers(index) == record.headers
        assert (columns.header_starts[index] >= 0) == bool(record.headers)
        for lengths, data in ((columns.key_lengths, record.key), (columns.value_lengths, record.value)):
            assert lengths[index] == (-1 if data is None else len(data))
    assert columns.nbytes >= len(columns.buffer)


@EVERY_DECODER
@given(records=batches(), bounds=st.tuples(st.integers(0, 20), st.integers(0, 20)))
def test_a_slice_has_the_records_between(decoder: BlockDecoder, records: list[Record], bounds: tuple[int, int]) -> None:
    columns = columns_of(records, decoder)
    start, stop = min(bounds), min(max(bounds), len(records))
    assert list(columns.slice(start, stop)) == records[start:stop]
    assert columns.slice(0, len(records)) is columns


@EVERY_DECODER
def test_columns_are_arrays_of_the_declared_types(decoder: BlockDecoder) -> None:
    columns = columns_of([Record(5, 6, b"k", b"v", ((b"h", None),))], decoder)
    for column in (columns.offsets, columns.timestamps):
        assert isinstance(column, array)
        assert column.typecode == "q"
    for column in (
        columns.key_starts,
        columns.key_lengths,
        columns.value_starts,
        columns.value_lengths,
        columns.header_starts,
    ):
        assert column.typecode == "i"
    assert columns.timestamp_type is TimestampType.CREATE_TIME


@EVERY_DECODER
def test_a_broken_record_raises_and_keeps_its_place_in_a_slice(decoder: BlockDecoder) -> None:
    records = [Record(at, at, None, b"%d" % at) for at in range(5)]
    fault = CorruptData("broken")
    columns = with_fault(columns_of(records, decoder), 3, fault)
    for view, index in ((columns, 3), (columns.slice(2, 5), 1)):
        with pytest.raises(CorruptData) as caught:
            view.record(index)
        assert caught.value is fault
        assert list(view.faults) == [index]
    assert list(columns.slice(0, 3)) == records[:3]
    assert columns.slice(4, 5).faults == {}
