"""Columns made by hand, of records that are like none that a producer writes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from hypothesis import strategies as st

from kfs.format.columns import RecordColumns
from kfs.format.record import Header, TimestampType
from kfs.format.varint import encode_varint
from kfs.render.timestamps import FIRST_MILLISECOND, LAST_MILLISECOND
from tests.format.integers import int64s
from tests.fuzz.mutations import TEXTS

pieces = st.binary(max_size=20) | st.text(max_size=20).map(str.encode) | st.sampled_from(TEXTS)
payloads = st.none() | st.lists(pieces, max_size=6).map(b"".join)
headers = st.lists(st.tuples(pieces, payloads), max_size=3)
DAY = 86_400_000
timestamps = (
    int64s
    | st.integers(FIRST_MILLISECOND - 2, LAST_MILLISECOND + 2)
    | st.builds(
        lambda days, near: days * DAY + near, st.integers(-800_000, 2_932_000), st.sampled_from((-1, 0, 1, DAY // 2))
    )
)
Content = tuple[bytes | None, bytes | None, Sequence[Header]]


def columns_of(
    contents: Sequence[Content], times: Sequence[int] = (), kind: TimestampType = TimestampType.CREATE_TIME
) -> RecordColumns:
    """Return columns made by hand, over a buffer with a byte between any two things in it."""
    buffer = bytearray(b"\xff")
    int32s: list[array[int]] = [array("i") for _ in range(5)]
    for key, value, some_headers in contents:
        row = []
        for data in (key, value):
            row += [len(buffer), -1 if data is None else len(data)]
            buffer += (data or b"") + b"\xff"
        row.append(len(buffer) if some_headers else -1)
        buffer += encode_varint(len(some_headers))
        for name, data in some_headers:
            buffer += encode_varint(len(name)) + name
            buffer += encode_varint(-1) if data is None else encode_varint(len(data)) + data
        for column, number in zip(int32s, row, strict=True):
            column.append(number)
    key_starts, key_lengths, value_starts, value_lengths, header_starts = int32s
    return RecordColumns(
        bytes(buffer),
        array("q", range(len(contents))),
        array("q", times or [1] * len(contents)),
        kind,
        key_starts,
        key_lengths,
        value_starts,
        value_lengths,
        header_starts,
    )
