"""Time indexes: lookup, the preallocated tail, and what is found out to be no index."""

from __future__ import annotations

import struct
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.log.index_file import IndexBytes, IndexPool
from kfs.log.time_index import LAYOUT, TimeIndex, TimestampOffset, check_time_index
from kfs.storage.listing import FoundFile
from kfs.storage.open_files import FilePool
from kfs.storage.status import Version

steps = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 1000)), max_size=60)


def ascending(distances: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return entries of ascending timestamps and relative offsets."""
    timestamps = accumulate((time for time, _ in distances), initial=1_700_000_000_000)
    offsets = accumulate(offset for _, offset in distances)
    return list(zip(timestamps, offsets, strict=False))


def encoded(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def content(entries: list[tuple[int, int]], file_size: int | None = None) -> IndexBytes:
    data = encoded(entries)
    return IndexBytes(data, len(entries), len(data) if file_size is None else file_size, Version(1, len(data), 0, 0))


@given(distances=steps, base=st.sampled_from([0, 2**40]), sought=st.integers(1_699_999_999_990, 1_700_060_000_000))
def test_lookup_finds_the_last_entry_that_is_earlier(distances: list[tuple[int, int]], base: int, sought: int) -> None:
    entries = ascending(distances)
    index = TimeIndex(content(entries), base)
    assert index.lookup(sought) == bisect_left([timestamp for timestamp, _ in entries], sought) - 1
    for number, (timestamp, relative) in enumerate(entries):
        assert index.entry(number) == TimestampOffset(timestamp, base + relative)
        assert index.lookup(timestamp) == number - 1
        assert index.lookup(timestamp + 1) == number


@given(distances=steps, zeros=st.integers(0, 50), closed=st.booleans())
def test_the_tail_of_zeros_is_not_entries(
    tmp_path_factory: pytest.TempPathFactory, distances: list[tuple[int, int]], zeros: int, closed: bool
) -> None:
    path = tmp_path_factory.mktemp("index") / "00000000000000000000.timeindex"
    entries = ascending(distances)
    path.write_bytes(encoded(entries) + bytes(12 * zeros))
    found = FoundFile(str(path), path.stat().st_ino)
    index = IndexPool(FilePool()).bytes_of(found, LAYOUT, closed=closed)
    assert index.entries == len(entries)
    assert bytes(index.data[: 12 * index.entries]) == encoded(entries)
    check_time_index(index)


@pytest.mark.parametrize(
    ("entries", "position"),
    [
        ([(5, 1), (4, 2)], 12),
        ([(5, 2), (6, 1)], 12),
        ([(5, 1), (6, 2), (5, 3)], 24),
        ([(5, -2)], 0),
        ([(-2, 0)], 0),
    ],
)
def test_entries_that_cannot_be_are_found_out(entries: list[tuple[int, int]], position: int) -> None:
    with pytest.raises(CorruptData, match="time index entry") as caught:
        check_time_index(content(entries))
    assert caught.value.position == position


def test_the_closing_entry_may_repeat_the_one_before(tmp_path: Path) -> None:
    check_time_index(content([(5, 1), (6, 2), (6, 2)]))


@pytest.mark.parametrize("size", [1, 11, 13, 31])
def test_a_size_that_is_no_multiple_of_an_entry_is_found_out(size: int) -> None:
    with pytest.raises(CorruptData, match=f"time index of {size} bytes, not a multiple of 12"):
        check_time_index(content([], file_size=size))
