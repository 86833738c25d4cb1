"""Leader epochs are kept as ``LeaderEpochFileCache`` keeps them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.format.checkpoint import EpochEntry
from kfs.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET, LeaderEpochs

numbers = st.integers(0, 12)
entries = st.lists(st.builds(EpochEntry, numbers, numbers))


def epochs(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochEntry(*pair) for pair in pairs)


def pairs_in(cache: LeaderEpochs) -> list[tuple[int, int]]:
    return [(entry.leader_epoch, entry.start_offset) for entry in cache.entries]


def test_an_epoch_begins_where_it_is_assigned() -> None:
    cache = LeaderEpochs()
    assert cache.assign(0, 0)
    assert cache.assign(3, 17)
    assert pairs_in(cache) == [(0, 0), (3, 17)]
    assert cache.latest_epoch == 3


def test_the_latest_epoch_again_is_nothing_new() -> None:
    cache = epochs((2, 10))
    assert not cache.assign(2, 10)
    assert not cache.assign(2, 30)
    assert pairs_in(cache) == [(2, 10)]


@pytest.mark.parametrize(
    ("epoch", "offset", "left"),
    [
        (3, 5, [(1, 0), (3, 5)]),  # below the start of the latest
        (2, 15, [(1, 0), (2, 15)]),  # again, but it is not the latest
        (4, 10, [(1, 0), (4, 10)]),  # nothing was written in the one before
        (1, 40, [(1, 40)]),  # an epoch that goes back takes all above it along
        (0, 0, [(0, 0)]),
        (2, 12, [(1, 0), (2, 12)]),
    ],
)
def test_what_contradicts_a_new_entry_is_dropped(epoch: int, offset: int, left: list[tuple[int, int]]) -> None:
    cache = epochs((1, 0), (2, 10), (3, 20))
    assert cache.assign(epoch, offset)
    assert pairs_in(cache) == left


def test_a_checkpoint_that_goes_back_is_put_in_order_as_it_is_loaded() -> None:
    assert pairs_in(epochs((0, 0), (5, 30), (2, 40), (3, 35), (4, 50))) == [(0, 0), (3, 35), (4, 50)]


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="leader epoch -1"):
        LeaderEpochs().assign(-1, 0)
    with pytest.raises(ValueError, match="offset -1"):
        LeaderEpochs().assign(0, -1)


def test_recovery_takes_only_epochs_above_those_known() -> None:
    cache = epochs((2, 10))
    assert not cache.assign_from_batch(-1, 20)
    assert not cache.assign_from_batch(1, 20)
    assert not cache.assign_from_batch(2, 5)
    assert cache.assign_from_batch(3, 20)
    assert pairs_in(cache) == [(2, 10), (3, 20)]


def test_truncation_from_the_end_drops_epochs_that_begin_there_or_later() -> None:
    cache = epochs((0, 0), (1, 10), (2, 20))
    assert not cache.truncate_from_end(21)
    assert not cache.truncate_from_end(-1)
    assert cache.truncate_from_end(10)
    assert pairs_in(cache) == [(0, 0)]


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (0, [(1, 5), (2, 20), (4, 30)]),
        (5, [(1, 5), (2, 20), (4, 30)]),
        (7, [(1, 7), (2, 20), (4, 30)]),
        (20, [(2, 20), (4, 30)]),
        (99, [(4, 99)]),
    ],
)
def test_truncation_from_the_start_keeps_the_epoch_of_that_offset(offset: int, left: list[tuple[int, int]]) -> None:
    cache = epochs((1, 5), (2, 20), (4, 30))
    before = pairs_in(cache)
    assert cache.truncate_from_start(offset) == (left != before)
    assert pairs_in(cache) == left


def test_an_offset_belongs_to_the_last_epoch_that_begins_at_or_before_it() -> None:
    cache = epochs((1, 5), (2, 20))
    assert [cache.epoch_for(offset) for offset in (4, 5, 19, 20, 99)] == [None, 1, 1, 2, 2]


def test_an_epoch_ends_where_the_next_begins() -> None:
    cache = epochs((2, 5), (4, 20), (7, 30))
    undefined = (UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
    asked = {epoch: cache.end_offset_for(epoch, 45) for epoch in (-1, 0, 2, 3, 4, 7, 8)}
    assert asked == {-1: undefined, 0: (0, 5), 2: (2, 20), 3: (2, 20), 4: (4, 30), 7: (7, 45), 8: undefined}


@given(entries, numbers, numbers)
def test_epochs_and_offsets_always_ascend(before: list[EpochEntry], start: int, end: int) -> None:
    cache = LeaderEpochs(before)
    cache.truncate_from_end(end)
    cache.truncate_from_start(start)
    found = pairs_in(cache)
    assert found == sorted(found)
    assert len({epoch for epoch, _ in found}) == len({offset for _, offset in found}) == len(found)
    assert all(offset >= start for _, offset in found)
