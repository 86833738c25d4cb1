"""Listings that go on where they stopped."""

from __future__ import annotations

from itertools import chain

import pytest

from kfs.mount.listing import MAX_UNDER_WAY, Listings
from kfs.tree.node import LIVE, Directory
from tests.mount.clock import Clock
from tests.mount.toy_tree import Slot, ToyTree


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def listings(clock: Clock) -> Listings:
    return Listings(clock)


@pytest.fixture
def records(toy_tree: ToyTree) -> Directory:
    directory = toy_tree.resolve("/records")
    assert isinstance(directory, Directory)
    return directory


def deliver(listings: Listings, directory: Directory, cookie: int, room: int) -> list[str]:
    """Deliver one reply with room for so many entries, as a front does."""
    head, rest = listings.after(b"/records", directory, cookie, False)
    names: list[str] = []
    for entry in chain(head, rest):
        if len(names) == room:
            listings.pause(b"/records", cookie, False, entry, rest)
            break
        names.append(entry.name)
        cookie = entry.cookie
    return names


def test_replies_follow_each_other_without_gaps_from_one_iterator(
    listings: Listings, records: Directory, toy_tree: ToyTree
) -> None:
    names: list[str] = []
    while reply := deliver(listings, records, len(names), 7):
        names += reply
    assert names == [f"{number}.json" for number in range(1000)]
    # One for the listing, and one to see that nothing follows its last entry.
    assert toy_tree.control[Slot.LISTINGS] == 2


def test_a_listing_left_for_long_is_started_again_at_its_place(
    listings: Listings, records: Directory, clock: Clock, toy_tree: ToyTree
) -> None:
    assert deliver(listings, records, 0, 3) == ["0.json", "1.json", "2.json"]
    clock.now += 2 * LIVE
    assert deliver(listings, records, 3, 2) == ["3.json", "4.json"]
    assert toy_tree.control[Slot.LISTINGS] == 2


def test_a_listing_with_attributes_is_not_gone_on_with_without(listings: Listings, records: Directory) -> None:
    deliver(listings, records, 0, 3)
    entry = next(listings.after(b"/records", records, 3, True).rest)
    assert entry.name == "3.json"
    assert entry.attributes is not None


def test_few_listings_are_remembered(listings: Listings, records: Directory, toy_tree: ToyTree) -> None:
    for cookie in range(1, MAX_UNDER_WAY + 2):
        deliver(listings, records, cookie, 1)
    before = toy_tree.control[Slot.LISTINGS]
    assert deliver(listings, records, 2, 1) == ["2.json"]
    assert toy_tree.control[Slot.LISTINGS] == before + 1
