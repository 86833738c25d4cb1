"""Directory listings that the kernel fetches a few kilobytes at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kfs.tree.node import LIVE, Directory, Entry

#: Resume points of ``.`` and ``..``: above every cookie that a tree may issue.
DOT_COOKIE: Final = 2**63 - 2
DOT_DOT_COOKIE: Final = 2**63 - 1

#: What tells a front's directories apart: their paths, or their node ids.
Place = bytes | int

#: How many listings may be under way before the memory of them is emptied.
MAX_UNDER_WAY: Final = 64


class Listing(NamedTuple):
    """A place in a listing: the entries to deliver are ``head`` and then what ``rest`` gives."""

    head: tuple[Entry, ...]
    rest: Iterator[Entry]


class Listings:
    """The listings under way.

    A reply holds a page of entries and ends in the middle of an iterator; the next request names
    the cookie of the last entry. A request that comes soon goes on with the same iterator, which
    saves the tree the search for the place; any other starts a new one from the cookie, so that
    forgetting a listing costs time and nothing else.
    """

    __slots__ = ("_clock", "_under_way")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._under_way: dict[tuple[Place, int, bool], tuple[Listing, float]] = {}

    def after(self, place: Place, directory: Directory, cookie: int, with_attributes: bool) -> Listing:
        """Return what follows ``cookie`` in the listing of ``directory``, which is at ``place``."""
        kept = self._under_way.pop((place, cookie, with_attributes), None) if cookie else None
        if kept is not None and kept[1] > self._clock():
            return kept[0]
        return Listing((), directory.entries(cookie, with_attributes=with_attributes))

    def pause(self, place: Place, cookie: int, with_attributes: bool, left_over: Entry, rest: Iterator[Entry]) -> None:
        """Keep a listing whose last delivered entry had ``cookie``; ``left_over`` found no room."""
        if len(self._under_way) >= MAX_UNDER_WAY:
            self._under_way.clear()
        self._under_way[place, cookie, with_attributes] = Listing((left_over,), rest), self._clock() + LIVE
