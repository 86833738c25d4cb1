"""Where a wrapper begins, as a broker takes it, which is laxer than a reader."""

from __future__ import annotations

from struct import Struct

import pytest

from kfs.errors import CorruptData, LimitExceeded
from kfs.format.batch_header import BatchHeader, read_header
from kfs.format.codecs import Codec
from kfs.format.layout import MAGIC_V0, MAGIC_V1
from kfs.format.wrapper import first_inner_offset
from tests.format.test_decode import PLAIN, message, wrapper_of
from tests.logs import dense

LIMIT = 1_000_000
_OFFSET = Struct(">q")


def wrapper(magic: int, offset: int, codec: Codec = Codec.GZIP) -> tuple[BatchHeader, bytes]:
    """Return a wrapper of the records 10 to 16 with some offset."""
    (content,) = dense(10, 16, 7, magic=magic, codec=codec)
    data = _OFFSET.pack(offset) + content.data[8:]
    return read_header(data, 0, 0), data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("offset", [0, 5, 16, 17, 1 << 40])
def test_offsets_inside_of_v0_are_absolute(offset: int, codec: Codec) -> None:
    assert first_inner_offset(*wrapper(MAGIC_V0, offset, codec), LIMIT) == 10


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (6, 0), (16, 10), (17, 11), (1 << 40, (1 << 40) - 6)])
def test_offsets_inside_of_v1_count_back_from_the_wrapper_s(offset: int, first: int) -> None:
    assert first_inner_offset(*wrapper(MAGIC_V1, offset), LIMIT) == first


def test_a_wrapper_of_v1_below_its_last_message_is_invalid() -> None:
    with pytest.raises(CorruptData, match="last inner offset 6 in a wrapper of offset 5"):
        first_inner_offset(*wrapper(MAGIC_V1, 5), LIMIT)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (message(0, 10, PLAIN) + message(0, 3, PLAIN), 10),  # offsets that go back
        (message(0, 10, PLAIN) + message(0, 11, PLAIN)[:-1], 10),  # cut off
        (message(1, 10, PLAIN), 10),  # of another format
        (message(0, 10, b"\xff\xff\xff\xff\x00\x00\x00\x09"), 10),  # a value that isn't there
        (b"", "no inner messages"),
        (message(0, 10, PLAIN)[:-1], "no inner messages"),
        (message(0, 10, PLAIN, Codec.GZIP), "inside a compressed message"),
        (message(0, 10, PLAIN) + bytes(22), "an inner message of 0 bytes"),
    ],
)
def test_a_broker_looks_at_little_more_than_the_first_message(content: bytes, expected: int | str) -> None:
    data = wrapper_of(content, MAGIC_V0, 50)
    if isinstance(expected, int):
        assert first_inner_offset(read_header(data, 0, 0), data, LIMIT) == expected
        return
    with pytest.raises(CorruptData, match=expected):
        first_inner_offset(read_header(data, 0, 0), data, LIMIT)


def test_what_decompresses_to_too_much_is_refused() -> None:
    with pytest.raises(LimitExceeded):
        first_inner_offset(*wrapper(MAGIC_V0, 16), 50)
