"""Finding nodes by path without asking the tree more often than needed."""

from __future__ import annotations

import pytest

from kfs.errors import NotADirectory, NotFound
from kfs.mount.libfuse.paths import GENERATION_SIZE, Paths
from kfs.mount.nodes import OPENED_SECONDS, found
from kfs.tree.node import LIVE
from tests.mount.clock import Clock
from tests.mount.toy_tree import Control, Slot, ToyTree


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def control(toy_tree: ToyTree) -> Control:
    return toy_tree.control


@pytest.fixture
def paths(toy_tree: ToyTree, clock: Clock) -> Paths:
    return Paths(toy_tree, clock)


def test_a_node_is_found_at_its_path(paths: Paths, toy_tree: ToyTree) -> None:
    assert paths.find(b"/") is toy_tree.root
    assert paths.find(b"/static/inner/deep/file") is toy_tree.resolve("/static/inner/deep/file")
    assert paths.find_directory(b"/static/inner") is toy_tree.resolve("/static/inner")


def test_names_that_are_not_utf8_are_found(paths: Paths) -> None:
    assert paths.find(b"/names/\xff\xfe").attributes().size == 2


def test_what_is_not_there_is_refused(paths: Paths) -> None:
    with pytest.raises(NotFound):
        paths.find(b"/static/nothing")
    with pytest.raises(NotADirectory):
        paths.find(b"/static/a.txt/nothing")
    with pytest.raises(NotADirectory):
        paths.find_directory(b"/static/a.txt")


def test_a_node_is_looked_up_once_for_as_long_as_it_lives(paths: Paths, control: Control, clock: Clock) -> None:
    for _ in range(5):
        paths.find(b"/records/5.json")
    assert control[Slot.LOOKUPS] == 1
    clock.now += LIVE
    paths.find(b"/records/5.json")
    assert control[Slot.LOOKUPS] == 2


def test_a_node_is_not_trusted_longer_than_the_directory_above_it(paths: Paths, control: Control, clock: Clock) -> None:
    control[Slot.VANISHED] = 0
    paths.find_directory(b"/live")
    clock.now += LIVE * 0.9
    paths.find(b"/live/vanishing")
    control[Slot.VANISHED] = 1
    clock.now += LIVE * 0.2
    with pytest.raises(NotFound):
        paths.find(b"/live/vanishing")


def test_a_name_that_was_missing_is_not_remembered(paths: Paths, control: Control) -> None:
    with pytest.raises(NotFound):
        paths.find(b"/live/appearing")
    control[Slot.APPEARED] = 1
    assert paths.find(b"/live/appearing").attributes().size == 5


def test_memory_is_bounded(paths: Paths, control: Control) -> None:
    for number in range(3 * GENERATION_SIZE):
        paths.find(b"/million/%d.json" % number)
    control[Slot.LOOKUPS] = 0
    for number in range(3 * GENERATION_SIZE - GENERATION_SIZE // 2, 3 * GENERATION_SIZE):
        paths.find(b"/million/%d.json" % number)
    assert control[Slot.LOOKUPS] == 0
    paths.find(b"/million/0.json")
    assert control[Slot.LOOKUPS] == 1


def test_what_is_opened_is_what_the_path_leads_to_for_a_while_yet(paths: Paths, control: Control, clock: Clock) -> None:
    paths.find(b"/records/5.json")
    clock.now += LIVE * 0.9
    opened = paths.ask(b"/records/5.json", found, OPENED_SECONDS)[0]
    assert control[Slot.LOOKUPS] == 2
    clock.now += OPENED_SECONDS
    assert paths.find(b"/records/5.json") is opened
    assert control[Slot.LOOKUPS] == 2
    clock.now += OPENED_SECONDS
    paths.find(b"/records/5.json")
    assert control[Slot.LOOKUPS] == 3
