"""The cache of blocks: bounded in bytes, found by any offset inside, the least recently used gone first."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kfs.log.offset_cache import OffsetCache


@dataclass(frozen=True, slots=True)
class Value:
    """Something that answers for a range of offsets."""

    first_offset: int
    last_offset: int
    nbytes: int = 10


def test_a_value_is_found_by_every_offset_inside_and_no_other() -> None:
    cache: OffsetCache[Value] = OffsetCache(100)
    value = Value(10, 14)
    cache.put(1, value)
    assert [cache.find(1, offset) for offset in range(8, 17)] == [None, None, *[value] * 5, None, None]
    assert cache.find(2, 12) is None


def test_neighbours_are_told_apart() -> None:
    cache: OffsetCache[Value] = OffsetCache(100)
    values = [Value(first, first + 4) for first in (20, 0, 10, 5)]
    for value in values:
        cache.put(7, value)
    for value in values:
        assert cache.find(7, value.first_offset) is value
        assert cache.find(7, value.last_offset) is value
    assert cache.find(7, 15) is None


def test_what_was_used_longest_ago_goes_first() -> None:
    cache: OffsetCache[Value] = OffsetCache(30)
    first, second, third, fourth = (Value(at, at) for at in range(4))
    for value in (first, second, third):
        cache.put(1, value)
    assert cache.find(1, 0) is first
    cache.put(1, fourth)
    assert cache.find(1, 1) is None
    assert [cache.find(1, offset) for offset in (0, 2, 3)] == [first, third, fourth]
    assert cache.nbytes == 30


def test_a_value_larger_than_the_cache_is_not_kept_and_drives_nothing_out() -> None:
    cache: OffsetCache[Value] = OffsetCache(30)
    small = Value(0, 0)
    cache.put(1, small)
    cache.put(1, Value(5, 9, nbytes=31))
    assert cache.find(1, 7) is None
    assert cache.find(1, 0) is small


def test_a_value_takes_the_place_of_one_with_the_same_first_offset() -> None:
    cache: OffsetCache[Value] = OffsetCache(100)
    cache.put(1, Value(0, 9, nbytes=50))
    shorter = Value(0, 4, nbytes=20)
    cache.put(1, shorter)
    assert cache.find(1, 4) is shorter
    assert cache.find(1, 7) is None
    assert cache.nbytes == 20


def test_a_cleared_cache_is_empty() -> None:
    cache: OffsetCache[Value] = OffsetCache(100)
    cache.put(1, Value(0, 9))
    cache.clear()
    assert cache.find(1, 5) is None
    assert cache.nbytes == 0
    cache.put(1, Value(0, 9))
    assert cache.find(1, 5) is not None


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30), st.integers(0, 5), st.integers(1, 40)), max_size=80))
def test_what_is_found_covers_what_was_asked_for_and_the_bound_holds(
    actions: list[tuple[int, int, int, int]],
) -> None:
    cache: OffsetCache[Value] = OffsetCache(100)
    for slot, first, length, size in actions:
        cache.put(slot, Value(first, first + length, size))
        assert cache.nbytes <= 100
        assert cache.find(slot, first) == Value(first, first + length, size)
    for offset in range(37):
        found = cache.find(1, offset)
        assert found is None or found.first_offset <= offset <= found.last_offset
