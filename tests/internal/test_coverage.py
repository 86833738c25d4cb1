"""What share of a coordinator's partitions is here, and where what isn't found would be."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.format.java_text import java_hash
from kfs.internal.coverage import Coverage, coverage_of

TOPIC = "__consumer_offsets"
NAMES = [f"group-{number}" for number in range(40)]


def kept(count: int, here: Iterable[int], names: Iterable[str] = NAMES) -> list[tuple[int, list[str]]]:
    """Return what is in the partitions that are here, of so many."""
    return [(partition, [name for name in names if java_hash(name) % count == partition]) for partition in here]


def test_metadata_says_how_many_there_are() -> None:
    found = coverage_of(TOPIC, kept(8, [0, 2, 3, 5]), 8)
    assert (found.count, found.lacks_some, found.is_complete) == (8, True, False)
    assert found.sentence() == (
        "4 of the 8 partitions of __consumer_offsets are here, by the cluster's metadata; not here: 1, 4, 6 to 7"
    )


def test_metadata_that_is_older_than_the_topic_is_not_believed() -> None:
    found = coverage_of(TOPIC, kept(8, range(8)), 4)
    assert (found.counts, found.is_from_metadata) == ((8,), False)


def test_names_say_how_many_there_are() -> None:
    found = coverage_of(TOPIC, kept(8, [1, 3, 5, 6]), None)
    assert found.counts == (8,)
    assert found.sentence() == (
        "4 of the 8 partitions of __consumer_offsets are here, by what is in them; not here: 0, 2, 4, 7"
    )


def test_what_the_first_half_holds_may_be_all_there_is() -> None:
    """Names in the first 4 of 8 partitions are where they would be of 4: nothing tells the difference."""
    found = coverage_of(TOPIC, kept(8, range(4)), None)
    assert (found.counts, found.count, found.lacks_some, found.is_complete) == ((4, 8), None, False, False)
    assert found.sentence() == (
        "it is unknown how many partitions __consumer_offsets has (4 or 8, by what is in them); here: 0 to 3"
    )


def test_all_of_them_is_nothing_to_speak_of() -> None:
    found = coverage_of(TOPIC, kept(8, range(8)), None)
    assert (found.is_complete, found.sentence()) == (True, None)


@pytest.mark.parametrize("names", [[], NAMES[:1]])
def test_as_many_as_there_are_by_default_are_all(names: list[str]) -> None:
    assert coverage_of(TOPIC, kept(50, range(50), names), None).is_complete
    assert not coverage_of(TOPIC, kept(50, range(49), names), None).is_complete


def test_empty_partitions_say_how_many_there_are_at_least() -> None:
    found = coverage_of(TOPIC, [(2, []), (4, [])], None)
    assert (found.counts, found.least, found.lacks_some) == ((), 5, True)
    assert found.sentence() == (
        "it is unknown how many partitions __consumer_offsets has (at least 5); here: 2, 4; not here: 0 to 1, 3"
    )


def test_names_that_contradict_each_other_say_nothing() -> None:
    found = coverage_of(TOPIC, [(0, ["a"]), (1, ["a"]), (2, ["a"]), (3, ["a"])], None)
    assert (found.counts, found.least) == ((), 4)


def test_nothing_is_said_of_a_topic_that_nobody_knows_of() -> None:
    found = coverage_of(TOPIC, [], None)
    assert (found.is_complete, found.lacks_some, found.sentence()) == (True, False, None)
    assert coverage_of(TOPIC, [], 3).sentence() == (
        "0 of the 3 partitions of __consumer_offsets are here, by the cluster's metadata; not here: 0 to 2"
    )


def test_a_number_of_any_size_in_a_directory_name_costs_nothing() -> None:
    found = coverage_of(TOPIC, [(2**31 - 1, [])], None)
    assert found.sentence() == (
        "it is unknown how many partitions __consumer_offsets has (at least 2147483648); here: 2147483647; "
        "not here: 0 to 2147483646"
    )


def test_what_is_not_found_is_in_a_partition_that_is_named() -> None:
    found = coverage_of(TOPIC, kept(8, [0, 2, 3, 5]), 8)
    names = {java_hash(name) % 8: name for name in NAMES}
    assert found.why_not_found(names[3]) is None
    assert found.why_not_found(names[6]) == "it would be in __consumer_offsets-6, which is not here"
    unsure = coverage_of(TOPIC, kept(8, range(4)), None)
    assert unsure.why_not_found(names[2]) is None  # of 4 and of 8 it is 2
    assert unsure.why_not_found(names[6]) == "it would be in __consumer_offsets-6, which is not here"
    assert "it is unknown" in str(coverage_of(TOPIC, [(0, [])], None).why_not_found("x"))
    assert coverage_of(TOPIC, [], None).why_not_found("x") == "no partition of __consumer_offsets is here"


@given(st.integers(1, 60), st.data())
def test_the_true_number_is_always_among_those_that_are_possible(count: int, data: st.DataObject) -> None:
    here = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    names = data.draw(st.lists(st.text(max_size=6), max_size=8))
    found: Coverage = coverage_of(TOPIC, kept(count, here, names), None)
    assert not found.counts or count in found.counts or found.counts == (50,)
    for name in names:
        assert not found.counts or java_hash(name) % count in found.partitions_of(name) or found.counts == (50,)
