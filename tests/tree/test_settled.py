"""What a name leads to is looked for until it stays: for as long as it is another thing that goes."""

from __future__ import annotations

import pytest

from kfs.errors import CorruptData, NotFound, Stale
from kfs.tree import node
from kfs.tree.node import settled


class Sweep:
    """A log of which retention takes one segment after another: at each look another one has just gone."""

    def __init__(self, segments: int) -> None:
        self.left = segments
        self.looks = 0

    def look(self) -> str:
        self.looks += 1
        if self.left:
            self.left -= 1
            raise Stale(f"{self.left}.log: file is gone")
        return "what is left"


def test_what_is_there_after_a_sweep_of_many_segments_is_found() -> None:
    assert settled(Sweep(200).look) == "what is left"


def test_what_is_gone_in_the_same_way_each_time_is_not_there() -> None:
    looks = 0

    def look() -> str:
        nonlocal looks
        looks += 1
        raise Stale("0.log: leads nowhere")

    with pytest.raises(NotFound):
        settled(look)
    assert looks <= 10


def test_an_end_comes_to_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_LOOKING_SECONDS", 0.01)
    with pytest.raises(NotFound):
        settled(Sweep(10**9).look)


def test_other_errors_are_not_looked_at_twice() -> None:
    looks = 0

    def look() -> str:
        nonlocal looks
        looks += 1
        raise CorruptData("damaged", 0, "0.log")

    with pytest.raises(CorruptData):
        settled(look)
    assert looks == 1
