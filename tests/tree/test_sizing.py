"""Segments that are measured before anybody asks: only for those who go through them in order."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kfs.tree.kafka_tree import KafkaTree
from tests.logs import content_of, dense, file_at, open_tree, write_partition

BASES = tuple(range(0, 80, 10))
ACTIVE = BASES[-1]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaTree:
    """Of eight segments, on two cores, whose sizes are found ahead."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1}, raising=False)
    write_partition(tmp_path / "t-0", {base: dense(base, base + 9) for base in BASES})
    tree = open_tree(tmp_path)
    tree.context.sizing.start()
    return tree


def path_of(base: int) -> str:
    return f"t/0/segment/{base:020d}.jsonl"


def measured(tree: KafkaTree) -> set[int]:
    """Return the segments whose size is known, once nothing is being measured any more."""
    deadline = time.monotonic() + 10
    while tree.context.sizing.is_at_work:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    [view] = tree.context.views.values()
    return {segment.base_offset for segment in view.log.segments if view.segment_text(segment).is_measured}


def size_of(tree: KafkaTree, base: int) -> int:
    return file_at(tree, path_of(base)).attributes().size


def test_whoever_asks_for_the_first_finds_the_next_ones_measured(tree: KafkaTree) -> None:
    size_of(tree, 0)
    assert measured(tree) == {0, 10, 20, 30, 40}


def test_it_goes_on_with_whoever_asks_but_not_to_the_active_segment(tree: KafkaTree) -> None:
    for base in (0, 10, 20, 30):
        size_of(tree, base)
    assert measured(tree) == {*BASES} - {ACTIVE}


def test_who_asks_for_one_in_the_middle_is_not_taken_to_want_more(tree: KafkaTree) -> None:
    size_of(tree, 40)
    assert measured(tree) == {40}


def test_sizes_found_ahead_are_right(tree: KafkaTree, tmp_path: Path) -> None:
    alone = open_tree(tmp_path)
    sizes = [size_of(tree, base) for base in BASES]
    assert sizes == [len(content_of(alone, path_of(base))) for base in BASES]


def test_a_segment_that_vanishes_does_no_harm(tree: KafkaTree, tmp_path: Path) -> None:
    file = file_at(tree, path_of(0))
    for path in (tmp_path / "t-0").glob(f"{20:020d}.*"):
        path.unlink()
    file.attributes()
    assert measured(tree) >= {0, 10, 30, 40}


def test_a_closed_tree_measures_nothing_more(tree: KafkaTree) -> None:
    file = file_at(tree, path_of(0))
    tree.context.sizing.stop()
    file.attributes()
    assert measured(tree) == {0}
