"""Offset indexes: lookup, the preallocated tail, and what is found out to be no index."""

from __future__ import annotations

import struct
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.log.index_file import IndexBytes, IndexPool
from kfs.log.offset_index import LAYOUT, OffsetIndex, OffsetPosition, check_offset_index
from kfs.storage.listing import FoundFile
from kfs.storage.open_files import FilePool
from kfs.storage.status import Version

PREALLOCATED = 10 * 1024 * 1024

steps = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 100_000)), max_size=60)
bases = st.sampled_from([0, 5, 368769, 2**31, 2**63 - 2**31])


def ascending(distances: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return entries of ascending relative offsets and positions."""
    offsets = accumulate(offset for offset, _ in distances)
    positions = accumulate(position for _, position in distances)
    return list(zip(offsets, positions, strict=True))


def encoded(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def content(entries: list[tuple[int, int]], file_size: int | None = None) -> IndexBytes:
    data = encoded(entries)
    return IndexBytes(data, len(entries), len(data) if file_size is None else file_size, Version(1, len(data), 0, 0))


def loaded(path: Path, *, closed: bool) -> IndexBytes:
    pool = IndexPool(FilePool())
    return pool.bytes_of(FoundFile(str(path), path.stat().st_ino), LAYOUT, closed=closed)


@given(distances=steps, base=bases, relative=st.integers(-5, 61_000))
def test_lookup_finds_the_last_entry_at_or_below(distances: list[tuple[int, int]], base: int, relative: int) -> None:
    entries = ascending(distances)
    index = OffsetIndex(content(entries), base)
    at = bisect_right([offset for offset, _ in entries], relative) - 1
    expected = OffsetPosition(base + entries[at][0], entries[at][1]) if at >= 0 else None
    assert index.lookup(base + relative) == expected


@given(distances=steps, base=bases)
def test_lookup_finds_every_entry_by_its_own_offset(distances: list[tuple[int, int]], base: int) -> None:
    entries = ascending(distances)
    index = OffsetIndex(content(entries), base)
    for number, (offset, position) in enumerate(entries):
        assert index.entry(number) == OffsetPosition(base + offset, position)
        assert index.lookup(base + offset) == OffsetPosition(base + offset, position)
        before = index.lookup(base + offset - 1)
        assert before is None or before.offset < base + offset


@pytest.mark.parametrize("closed", [True, False])
@given(distances=steps, zeros=st.integers(0, 50))
def test_the_tail_of_zeros_is_not_entries(
    tmp_path_factory: pytest.TempPathFactory, closed: bool, distances: list[tuple[int, int]], zeros: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "00000000000000000000.index"
    entries = ascending(distances)
    path.write_bytes(encoded(entries) + bytes(8 * zeros))
    index = loaded(path, closed=closed)
    assert index.entries == len(entries)
    assert index.file_size == 8 * (len(entries) + zeros)
    assert bytes(index.data[: 8 * index.entries]) == encoded(entries)
    check_offset_index(index, 2**31 - 1)


@pytest.mark.parametrize("closed", [True, False])
def test_a_preallocated_index_is_not_read_through(closed: bool, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(encoded([(3, 497), (8, 1997)]))
    with path.open("r+b") as file:
        file.truncate(PREALLOCATED)
    index = loaded(path, closed=closed)
    assert index.entries == 2
    assert OffsetIndex(index, 368769).lookup(368776) == OffsetPosition(368772, 497)


def test_the_first_entry_may_be_of_the_base_offset_itself(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(encoded([(0, 4097)]) + bytes(80))
    assert loaded(path, closed=False).entries == 1


@pytest.mark.parametrize("closed", [True, False])
def test_an_empty_index_and_one_of_zeros_have_no_entries(closed: bool, tmp_path: Path) -> None:
    for number, size in enumerate((0, 8, 64, 4096)):
        path = tmp_path / f"{number}.index"
        path.write_bytes(bytes(size))
        index = loaded(path, closed=closed)
        assert (index.entries, index.file_size) == (0, size)
        check_offset_index(index, 0)
        assert OffsetIndex(index, 0).lookup(2**63 - 1) is None


@pytest.mark.parametrize(
    ("entries", "position", "reason"),
    [
        ([(-1, 5)], 0, r"negative entry \(-1, 5\)"),
        ([(5, -1)], 0, r"negative entry \(5, -1\)"),
        ([(5, 10), (4, 20)], 8, "offset 4 after 5"),
        ([(5, 10), (5, 20)], 8, "offset 5 after 5"),
        ([(5, 10), (6, 10)], 12, "position 10 after 10"),
        ([(5, 10), (6, 20), (7, 15)], 20, "position 15 after 20"),
        ([(5, 10), (-7, 20)], 8, "offset -7 after 5"),
        ([(5, 10), (6, 1000)], 8, "entry for position 1000 in a log of 1000 bytes"),
    ],
)
def test_entries_that_cannot_be_are_found_out(entries: list[tuple[int, int]], position: int, reason: str) -> None:
    with pytest.raises(CorruptData, match=reason) as caught:
        check_offset_index(content(entries), 1000)
    assert caught.value.position == position


@pytest.mark.parametrize("size", [1, 7, 9, 37])
def test_a_size_that_is_no_multiple_of_an_entry_is_found_out(size: int) -> None:
    with pytest.raises(CorruptData, match=f"index of {size} bytes, not a multiple of 8"):
        check_offset_index(content([], file_size=size), 1000)


@given(distances=steps)
def test_a_sound_index_passes(distances: list[tuple[int, int]]) -> None:
    entries = ascending(distances)
    check_offset_index(content(entries), entries[-1][1] + 1 if entries else 0)
