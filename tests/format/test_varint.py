"""Variable-length integers: what is encoded is read back, and nothing else is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.varint import (
    decode_unsigned_varint,
    decode_varint,
    decode_varlong,
    encode_unsigned_varint,
    encode_varint,
    encode_varlong,
)
from tests.format.integers import int32s, int64s

Encode = Callable[[int], bytes]
Decode = Callable[[bytes, int, int], tuple[int, int]]

uint32s = st.integers(0, 2**32 - 1)
KINDS = pytest.mark.parametrize(
    ("encode", "decode", "max_length"),
    [
        (encode_unsigned_varint, decode_unsigned_varint, 5),
        (encode_varint, decode_varint, 5),
        (encode_varlong, decode_varlong, 10),
    ],
    ids=["unsigned varint", "varint", "varlong"],
)


@given(uint32s, st.binary(max_size=3), st.binary(max_size=3))
def test_an_unsigned_varint_is_read_back(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_unsigned_varint(value)
    end = len(before) + len(encoded)
    assert decode_unsigned_varint(before + encoded + after, len(before), end + len(after)) == (value, end)


@given(int32s, st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_is_read_back(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    end = len(before) + len(encoded)
    assert decode_varint(before + encoded + after, len(before), end + len(after)) == (value, end)


@given(int64s, st.binary(max_size=3), st.binary(max_size=3))
def test_a_varlong_is_read_back(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varlong(value)
    end = len(before) + len(encoded)
    assert decode_varlong(before + encoded + after, len(before), end + len(after)) == (value, end)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "80 01"),
        (-65, "81 01"),
        (8191, "fe 7f"),
        (-8192, "ff 7f"),
        (8192, "80 80 01"),
        (2**31 - 1, "fe ff ff ff 0f"),
        (-(2**31), "ff ff ff ff 0f"),
    ],
)
def test_zigzag_alternates_the_signs(value: int, encoded: str) -> None:
    assert encode_varint(value) == bytes.fromhex(encoded)
    assert encode_varlong(value) == bytes.fromhex(encoded)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "80 01"),
        (300, "ac 02"),
        (2**32 - 1, "ff ff ff ff 0f"),
    ],
)
def test_unsigned_varints_are_not_zigzag(value: int, encoded: str) -> None:
    assert encode_unsigned_varint(value) == bytes.fromhex(encoded)


def test_the_limits_of_int64_take_ten_bytes() -> None:
    assert encode_varlong(2**63 - 1) == bytes.fromhex("fe ff ff ff ff ff ff ff ff 01")
    assert encode_varlong(-(2**63)) == bytes.fromhex("ff ff ff ff ff ff ff ff ff 01")


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (encode_unsigned_varint, -1),
        (encode_unsigned_varint, 2**32),
        (encode_varint, 2**31),
        (encode_varint, -(2**31) - 1),
        (encode_varlong, 2**63),
        (encode_varlong, -(2**63) - 1),
    ],
)
def test_a_value_out_of_range_is_not_encoded(encode: Encode, value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode(value)


@KINDS
def test_what_is_cut_off_is_refused_where_it_begins(encode: Encode, decode: Decode, max_length: int) -> None:
    encoded = b"??" + encode(2**31 - 1)
    for end in range(2, len(encoded)):
        with pytest.raises(CorruptData, match="cut off") as refusal:
            decode(encoded, 2, end)
        assert refusal.value.position == 2


@KINDS
def test_padding_with_zero_bits_is_legal_up_to_the_longest_encoding(
    encode: Encode, decode: Decode, max_length: int
) -> None:
    padded = b"\x80" * (max_length - 1) + b"\x00"
    assert decode(padded, 0, max_length) == (0, max_length)


@KINDS
def test_a_longer_encoding_is_refused(encode: Encode, decode: Decode, max_length: int) -> None:
    with pytest.raises(CorruptData, match=f"longer than {max_length} bytes") as refusal:
        decode(b"?" + b"\x80" * max_length + b"\x00", 1, max_length + 2)
    assert refusal.value.position == 1


def test_bits_that_java_shifts_out_are_dropped() -> None:
    assert decode_unsigned_varint(b"\xff\xff\xff\xff\x7f", 0, 5) == (2**32 - 1, 5)
    assert decode_varlong(b"\xff" * 9 + b"\x7f", 0, 10) == (-(2**63), 10)


@given(st.binary(max_size=12))
def test_any_bytes_are_read_within_the_end_or_refused(data: bytes) -> None:
    for decode in (decode_unsigned_varint, decode_varint, decode_varlong):
        try:
            _, position = decode(data, 0, len(data))
        except CorruptData:
            continue
        assert 0 < position <= len(data)
