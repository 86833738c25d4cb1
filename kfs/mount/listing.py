"""Directory listings that the kernel fetches a few kilobytes at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kfs.tree.node import LIVE, Directory, Entry

#: Resume points of ``.`` and ``..``: above every cookie that a tree may issue.
DOT_COOKIE: Final = 2**63 - 2
DOT_DOT_COOKIE: Final = 2**63 - 1

#: The key of a front's directory: its path or its node id.
Place = bytes | int

#: The most listings in progress; beyond that all are dropped.
MAX_UNDER_WAY: Final = 64


class Listing(NamedTuple):
    """A position in a listing: ``head`` and then ``rest`` are the entries to deliver."""

    head: tuple[Entry, ...]
    rest: Iterator[Entry]


class Listings:
    """The listings in progress.

    A reply holds a page of entries and ends in the middle of an iterator; the next request names the cookie of the last
    entry. A request that comes soon continues with the same iterator, which saves the tree a search for the position.
    Any other starts a new one from the cookie, so forgetting a listing only costs time.
    """

    __slots__ = ("_clock", "_under_way")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._under_way: dict[tuple[Place, int, bool], tuple[Listing, float]] = {}

    def after(self, place: Place, directory: Directory, cookie: int, with_attributes: bool) -> Listing:
        """Return the entries after ``cookie`` in the listing of ``directory``, which is at ``place``."""
        kept = self._under_way.pop((place, cookie, with_attributes), None) if cookie else None
        if kept is not None and kept[1] > self._clock():
            return kept[0]
        return Listing((), directory.entries(cookie, with_attributes=with_attributes))

    def pause(self, place: Place, cookie: int, with_attributes: bool, left_over: Entry, rest: Iterator[Entry]) -> None:
        """Keep a listing whose last delivered entry had ``cookie``; ``left_over`` didn't fit."""
        if len(self._under_way) >= MAX_UNDER_WAY:
            self._under_way.clear()
        self._under_way[place, cookie, with_attributes] = Listing((left_over,), rest), self._clock() + LIVE
