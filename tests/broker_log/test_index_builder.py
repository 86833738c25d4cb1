"""Index entries are made where Kafka 4.x makes them, whether it appends or recovers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kfs.broker_log.file_records import FileRecords
from kfs.broker_log.index_builder import IndexBuilder
from kfs.errors import IndexFull, InvalidOffset, OffsetOverflow
from kfs.format.layout import MAX_INT32, NO_TIMESTAMP, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kfs.log.offset_index import OffsetPosition
from kfs.log.time_index import TimestampOffset
from kfs.storage.open_files import OpenFile

CorpusPath = Callable[[str], Path]
Added = tuple[int, int, int]  # last offset, timestamp, size


def built(batches: Iterable[Added], base_offset: int = 0, **options: int) -> IndexBuilder:
    builder = IndexBuilder(base_offset, **options)
    position = 0
    for last_offset, timestamp, size in batches:
        builder.add(last_offset, timestamp, position, size)
        position += size
    return builder


def entries(builder: IndexBuilder) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    return list(OFFSET_INDEX_ENTRY.iter_unpack(builder.offset_index)), list(
        TIME_INDEX_ENTRY.iter_unpack(builder.time_index)
    )


def test_an_entry_is_made_when_more_than_the_interval_lies_before_a_batch() -> None:
    exactly = built([(0, 1, 100), (1, 2, 100)], interval_bytes=100)
    assert entries(exactly) == ([], [])
    more = built([(0, 1, 101), (1, 2, 100), (2, 3, 1), (3, 4, 1)], interval_bytes=100)
    assert entries(more) == ([(1, 101), (3, 202)], [(2, 1), (4, 3)])


def test_entries_have_the_last_offset_relative_to_the_base() -> None:
    builder = built([(1009, 5, 10), (1019, 6, 10)], base_offset=1000, interval_bytes=0)
    assert entries(builder) == ([(19, 10)], [(6, 19)])
    assert builder.last_offset == 1019
    assert builder.last_time_entry == TimestampOffset(6, 1019)


def test_a_lookup_gives_the_last_entry_at_or_below_an_offset() -> None:
    builder = built([(100 + 10 * number, number, 10) for number in range(3000)], base_offset=90, interval_bytes=0)
    for offset, (found, position) in {
        90: (90, 0),
        109: (90, 0),
        110: (110, 10),
        119: (110, 10),
        120: (120, 20),
    }.items():
        assert builder.lookup(offset) == OffsetPosition(found, position)
    for number in (1, 500, 1974, 1975, 1976, 2000, 2999):
        assert builder.lookup(100 + 10 * number + 3) == OffsetPosition(100 + 10 * number, 10 * number)


@pytest.mark.parametrize(("offset", "left"), [(9, 0), (19, 0), (20, 1), (29, 1), (30, 2), (1000, 3)])
def test_a_truncation_drops_the_entries_at_and_above_an_offset(offset: int, left: int) -> None:
    builder = built([(9, 9, 10), (19, 19, 10), (29, 29, 10), (39, 39, 10)], interval_bytes=0)
    builder.truncate_to(offset)
    assert len(builder.offset_index) == left * OFFSET_INDEX_ENTRY.size
    assert len(builder.time_index) == left * TIME_INDEX_ENTRY.size
    assert builder.last_offset == (left * 10 + 9 if left else 0)


def test_a_time_entry_is_of_the_latest_so_far_and_left_out_where_nothing_is_later() -> None:
    builder = built([(0, 50, 10), (1, 40, 10), (2, 45, 10), (3, 60, 10), (4, 10, 10)], interval_bytes=0)
    assert entries(builder)[1] == [(50, 0), (60, 3)]
    assert len(entries(builder)[0]) == 4
    builder.finish()
    assert entries(builder)[1] == [(50, 0), (60, 3)]


def test_the_latest_timestamp_closes_the_time_index() -> None:
    builder = built([(0, 50, 10), (1, 70, 10), (2, 70, 10)], interval_bytes=1000)
    builder.finish()
    assert entries(builder) == ([], [(70, 1)])
    assert builder.largest == TimestampOffset(70, 1)


def test_a_log_without_timestamps_has_no_time_entries() -> None:
    builder = built([(0, NO_TIMESTAMP, 10), (1, NO_TIMESTAMP, 10)], interval_bytes=0)
    builder.finish()
    assert entries(builder) == ([(1, 10)], [])


def test_offsets_beyond_an_int32_do_not_fit() -> None:
    built([(1000 + MAX_INT32, 0, 1)], base_offset=1000)
    for offset in (1001 + MAX_INT32, 999):
        with pytest.raises(OffsetOverflow):
            built([(offset, 0, 1)], base_offset=1000)


def test_an_offset_that_goes_back_is_refused_where_an_entry_is_due() -> None:
    with pytest.raises(InvalidOffset, match="not above 5"):
        built([(4, 1, 10), (5, 2, 10), (5, 3, 10)], interval_bytes=0)
    assert len(built([(4, 1, 10), (5, 2, 10), (3, 3, 10)], interval_bytes=20).offset_index) == 0


def test_the_first_entry_may_be_of_any_offset() -> None:
    assert entries(built([(4, 1, 10), (0, 2, 10)], interval_bytes=0))[0] == [(0, 10)]


def test_an_index_is_full_and_the_last_time_entry_has_its_place() -> None:
    builder = built([(0, 0, 1), (1, 1, 1)], interval_bytes=0, max_index_bytes=24)  # 3 offset, 2 time entries
    assert builder.is_full
    with pytest.raises(IndexFull, match="time index"):
        builder.add(2, 2, 2, 1)
    builder.finish()
    assert len(builder.time_index) == 24


def test_a_segment_that_is_opened_again_counts_from_there() -> None:
    before = built([(0, 1, 10), (1, 2, 10)], interval_bytes=5)
    builder = IndexBuilder(0, interval_bytes=5)
    builder.resume(bytes(before.offset_index), bytes(before.time_index), before.largest)
    builder.add(2, 3, 20, 10)
    assert builder.offset_index == before.offset_index
    builder.add(3, 4, 30, 10)
    assert entries(builder) == ([(1, 10), (3, 30)], [(2, 1), (4, 3)])
    with pytest.raises(InvalidOffset):
        builder.add(3, 5, 40, 10)


@pytest.mark.parametrize("name", ["b_txn", "g_damage", "g_kill9"])
def test_the_indexes_of_a_broker_are_made_again(name: str, corpus: CorpusPath) -> None:
    """Of closed segments; the broker's ``log.index.interval.bytes`` is the only thing to know."""
    root = corpus(name) / ("before" if name == "g_damage" else "data")
    compared = 0
    for partition in sorted(path for path in root.iterdir() if path.is_dir()):
        for log in sorted(partition.glob("*.log"))[:-1]:
            builder = IndexBuilder(int(log.stem), interval_bytes=400)
            for header in FileRecords(OpenFile(str(log)), log.stat().st_size).headers():
                builder.add(header.last_offset, header.max_timestamp, header.position, header.size)
            builder.finish()
            assert builder.offset_index == log.with_suffix(".index").read_bytes(), log
            assert builder.time_index == log.with_suffix(".timeindex").read_bytes(), log
            compared += 1
    assert compared
