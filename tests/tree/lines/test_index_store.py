"""Tables on disk: kept, found again, thrown away when they don't match, bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.log.problem import Problem
from kfs.tree.lines.index import LineIndex
from kfs.tree.lines.index_store import LineIndexStore

INT64 = st.integers(-(2**63), 2**63 - 1)


def a_table(chunks: int = 3) -> LineIndex:
    table = LineIndex(100)
    for number in range(chunks - 1):
        table.size += 70_000
        table.log_end += 10_000
        table.last_offset += 50
        table.note_times(1_600_000_000_000 + number, 1_600_000_000_500 + number)
        table.begin_chunk()
    table.problems = [Problem("/data/t-0/00000000000000000100.log", 4711, 12, "stored CRC 1, computed 2")]
    return table


def content(table: LineIndex) -> object:
    columns = [list(getattr(table, name)) for name in ("text_starts", "positions", "after", "earliest", "latest")]
    return columns, table.size, table.log_end, table.last_offset, table.problems


@given(st.lists(st.tuples(INT64, INT64, INT64, INT64, INT64)), INT64, INT64, INT64)
def test_a_table_is_restored_from_its_bytes(
    rows: list[tuple[int, int, int, int, int]], size: int, log_end: int, last_offset: int
) -> None:
    table = LineIndex(0)
    for row in rows:
        table.begin_chunk()
        table.text_starts[-1], table.positions[-1], table.after[-1], table.earliest[-1], table.latest[-1] = row
    table.size, table.log_end, table.last_offset = size, log_end, last_offset
    assert content(LineIndex.decode(table.encode())) == content(table)


@given(st.binary(max_size=200))
def test_other_bytes_are_no_table(data: bytes) -> None:
    try:
        LineIndex.decode(data)
    except ValueError:
        return
    pytest.fail("arbitrary bytes were taken for a table")


def test_a_kept_table_is_found_under_its_key_and_no_other(tmp_path: Path) -> None:
    store = LineIndexStore(str(tmp_path / "lines"))
    store.save("key", a_table())
    found = LineIndexStore(str(tmp_path / "lines")).load("key")
    assert found is not None
    assert content(found) == content(a_table())
    assert store.load("another key") is None


def test_a_table_under_the_name_of_another_key_is_not_believed(tmp_path: Path) -> None:
    store = LineIndexStore(str(tmp_path))
    store.save("one", a_table())
    (kept,) = tmp_path.iterdir()
    store.save("two", a_table(5))
    (other,) = set(tmp_path.iterdir()) - {kept}
    os.replace(kept, other)
    assert store.load("two") is None


def test_a_damaged_table_is_none(tmp_path: Path) -> None:
    store = LineIndexStore(str(tmp_path))
    store.save("key", a_table())
    (kept,) = tmp_path.iterdir()
    intact = kept.read_bytes()
    for at in range(len(intact)):
        kept.write_bytes(intact[:at] + bytes([intact[at] ^ 0x10]) + intact[at + 1 :])
        assert store.load("key") is None
    kept.write_bytes(intact[:-1])
    assert store.load("key") is None


def test_the_tables_used_longest_ago_make_room(tmp_path: Path) -> None:
    size = len(a_table(1000).encode())
    store = LineIndexStore(str(tmp_path), capacity=size * 10)
    for number in range(40):
        store.save(f"key {number}", a_table(1000))
        for age, path in enumerate(sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)):
            os.utime(path, (1_000_000 - age, 1_000_000 - age))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= size * 10
    assert store.load("key 39") is not None
    assert store.load("key 0") is None


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = LineIndexStore(str(tmp_path / "file" / "lines"))
    store.save("key", a_table())
    assert store.load("key") is None
