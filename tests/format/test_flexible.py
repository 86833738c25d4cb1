"""Flexible messages: what is written is read back, unknown tags are skipped, broken fields are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.flexible import FlexibleReader, FlexibleWriter
from kfs.format.uuid import Uuid
from tests.format.integers import int16s, int32s, int64s
from tests.format.refusal import refused_at

uuids = st.binary(min_size=16, max_size=16).map(Uuid)
tags = st.dictionaries(st.integers(0, 2**32 - 1), st.binary(max_size=200), max_size=4)

FIELDS: dict[str, tuple[st.SearchStrategy[Any], Callable[..., None], Callable[..., Any]]] = {
    "boolean": (st.booleans(), FlexibleWriter.write_boolean, FlexibleReader.read_boolean),
    "int8": (st.integers(-128, 127), FlexibleWriter.write_int8, FlexibleReader.read_int8),
    "int16": (int16s, FlexibleWriter.write_int16, FlexibleReader.read_int16),
    "uint16": (st.integers(0, 2**16 - 1), FlexibleWriter.write_uint16, FlexibleReader.read_uint16),
    "int32": (int32s, FlexibleWriter.write_int32, FlexibleReader.read_int32),
    "uint32": (st.integers(0, 2**32 - 1), FlexibleWriter.write_uint32, FlexibleReader.read_uint32),
    "int64": (int64s, FlexibleWriter.write_int64, FlexibleReader.read_int64),
    "float64": (st.floats(allow_nan=False), FlexibleWriter.write_float64, FlexibleReader.read_float64),
    "varint": (st.integers(0, 2**32 - 1), FlexibleWriter.write_unsigned_varint, FlexibleReader.read_unsigned_varint),
    "uuid": (uuids, FlexibleWriter.write_uuid, FlexibleReader.read_uuid),
    "bytes": (st.binary(max_size=300), FlexibleWriter.write_bytes, FlexibleReader.read_bytes),
    "null bytes": (st.none() | st.binary(), FlexibleWriter.write_bytes, FlexibleReader.read_nullable_bytes),
    "string": (st.text(), FlexibleWriter.write_string, FlexibleReader.read_string),
    "null string": (st.none() | st.text(), FlexibleWriter.write_string, FlexibleReader.read_nullable_string),
    "tagged fields": (tags, FlexibleWriter.write_tagged_fields, FlexibleReader.read_tagged_fields),
}


@given(st.data(), st.lists(st.sampled_from(sorted(FIELDS)), max_size=8))
def test_fields_are_read_back_in_the_order_in_which_they_were_written(data: st.DataObject, kinds: list[str]) -> None:
    writer = FlexibleWriter()
    values = []
    for kind in kinds:
        strategy, write, _ = FIELDS[kind]
        values.append(data.draw(strategy))
        write(writer, values[-1])
    reader = FlexibleReader(writer.getvalue())
    assert [FIELDS[kind][2](reader) for kind in kinds] == values
    assert reader.remaining == 0
    assert reader.position == len(writer.getvalue())


@given(st.none() | st.lists(st.text(max_size=5), max_size=200).map(tuple))
def test_arrays_are_read_back(elements: tuple[str, ...] | None) -> None:
    writer = FlexibleWriter()
    writer.write_array(elements, FlexibleWriter.write_string)
    assert FlexibleReader(writer.getvalue()).read_nullable_array(FlexibleReader.read_string) == elements


def test_lengths_are_written_plus_one_and_null_as_zero() -> None:
    writer = FlexibleWriter()
    writer.write_string("say")
    writer.write_string("")
    writer.write_string(None)
    writer.write_array((1, 2), FlexibleWriter.write_int8)
    writer.write_tagged_fields({7: b"x", 1: b""})
    assert writer.getvalue() == b"\x04say" + b"\x01" + b"\x00" + b"\x03\x01\x02" + b"\x02\x01\x00\x07\x01x"


@pytest.mark.parametrize(
    "read",
    [
        FlexibleReader.read_string,
        FlexibleReader.read_bytes,
        lambda reader: reader.read_array(FlexibleReader.read_int8),
    ],
)
def test_null_is_refused_where_a_value_must_be(read: Callable[[FlexibleReader], object]) -> None:
    with pytest.raises(CorruptData, match="null where there must be") as refusal:
        read(FlexibleReader(b"?\x00", position=1))
    assert refusal.value.position == 1


def test_a_length_beyond_the_end_is_refused_before_memory_is_spent_on_it() -> None:
    lengths = b"\xff\xff\xff\xff\x0f"
    with pytest.raises(CorruptData, match="array of length 4294967294 where 1 bytes are left"):
        FlexibleReader(lengths + b"x").read_array(FlexibleReader.read_int8)
    with pytest.raises(CorruptData, match="bytes of length 4294967294 where 1 bytes are left"):
        FlexibleReader(lengths + b"x").read_bytes()
    with pytest.raises(CorruptData, match="a field of 4294967295 bytes where 1 are left"):
        FlexibleReader(b"\x01\x00" + lengths + b"x").read_tagged_fields()


def test_a_string_must_be_utf8() -> None:
    with pytest.raises(CorruptData, match="not UTF-8") as refusal:
        FlexibleReader(b"?\x03\xff\xff", position=1).read_string()
    assert refusal.value.position == 1


@pytest.mark.parametrize("kind", sorted(FIELDS))
@given(data=st.binary(max_size=20))
def test_any_bytes_are_read_within_the_end_or_refused(kind: str, data: bytes) -> None:
    reader = FlexibleReader(data)
    position = refused_at(lambda _: FIELDS[kind][2](reader), data)
    assert position is None or 0 <= position <= len(data)
    assert reader.position <= len(data)


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (FlexibleWriter.write_int8, 128),
        (FlexibleWriter.write_int16, -(2**15) - 1),
        (FlexibleWriter.write_uint16, -1),
        (FlexibleWriter.write_int32, 2**31),
        (FlexibleWriter.write_uint32, 2**32),
        (FlexibleWriter.write_int64, 2**63),
        (FlexibleWriter.write_unsigned_varint, -1),
    ],
)
def test_a_value_out_of_range_is_not_written(write: Callable[[FlexibleWriter, int], None], value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        write(FlexibleWriter(), value)
