"""What the kernel is told of files that grow, and when a read may end with such a file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfs.mount.growing import HELD_SECONDS, GrowingFiles
from kfs.tree.node import FOREVER, LIVE, Attributes
from tests.mount.clock import Clock
from tests.mount.toy_tree import FILE_MODE, ToyFile

ID = 7


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def files(clock: Clock) -> GrowingFiles:
    return GrowingFiles(clock)


def of_size(size: int, *, lifetime: float = LIVE) -> Attributes:
    return Attributes(ID, FILE_MODE, size, 0, 0, 0, lifetime=lifetime)


def told(files: GrowingFiles, size: int) -> Attributes:
    return files.told(ToyFile(of_size(0), lambda at, length: b"", grows=True), of_size(size))


def test_only_files_that_grow_are_kept_in_mind(files: GrowingFiles) -> None:
    fixed = ToyFile(of_size(0), lambda at, length: b"")
    growing = replace(fixed, grows=True)
    assert files.told(fixed, of_size(5)) == of_size(5)
    assert files.told(growing, of_size(5, lifetime=FOREVER)) == of_size(5, lifetime=FOREVER)
    assert not files.has(ID)
    assert files.told(growing, of_size(5)) == of_size(5)
    assert files.has(ID)


def test_a_read_that_falls_short_of_what_was_told_is_no_answer(files: GrowingFiles) -> None:
    told(files, 100)
    with files.read(ID) as ends_at:
        assert not ends_at(99)
        assert told(files, 300).size == 100  # or the next attempt might fall short as well
        assert ends_at(100)


def test_no_larger_size_is_told_while_a_read_that_ends_with_the_file_is_answered(
    files: GrowingFiles, clock: Clock
) -> None:
    told(files, 100)
    with files.read(ID) as ends_at:
        assert ends_at(120)
        clock.now += 60
        assert told(files, 300).size == 120
    found = told(files, 300)
    assert found.size == 120
    assert found.lifetime == pytest.approx(HELD_SECONDS)
    clock.now += HELD_SECONDS / 2
    assert told(files, 300).lifetime == pytest.approx(HELD_SECONDS / 2)
    clock.now += HELD_SECONDS
    assert told(files, 300) == of_size(300)


def test_each_read_holds_the_size_at_its_own_end(files: GrowingFiles, clock: Clock) -> None:
    told(files, 100)
    with files.read(ID) as first:
        with files.read(ID) as second:
            assert first(100)
            assert second(110)
        clock.now += 1
        assert told(files, 200).size == 100  # or the first would have zeros from there on
    assert told(files, 200).size == 100
    clock.now += 1
    assert told(files, 200).size == 200


def test_a_longer_answer_doesnt_let_go_of_one_that_was_given_before(files: GrowingFiles, clock: Clock) -> None:
    told(files, 100)
    for end in (100, 110, 120):
        with files.read(ID) as ends_at:
            assert ends_at(end)
        assert told(files, 200).size == 100
        clock.now += HELD_SECONDS * 0.26
    for size in (110, 120, 200):
        clock.now += HELD_SECONDS * 0.26
        found = told(files, 200)
        assert found.size == size
        assert found.lifetime <= LIVE


def test_who_reads_on_and_on_doesnt_hold_the_file_back(files: GrowingFiles, clock: Clock) -> None:
    sizes = []
    for size in range(1000, 2000):
        with files.read(ID) as ends_at:
            assert ends_at(size)
        sizes.append((size, told(files, size).size))
        clock.now += HELD_SECONDS / 10
    assert all(size - at <= 11 for size, at in sizes)


def test_a_size_that_was_told_isnt_taken_back(files: GrowingFiles) -> None:
    told(files, 100)
    with files.read(ID) as ends_at:
        assert told(files, 200).size == 200
        assert not ends_at(100)
        assert told(files, 300).size == 200
        assert ends_at(200)
    assert told(files, 150).size == 150


def test_what_is_held_is_forgotten(files: GrowingFiles, clock: Clock) -> None:
    for node_id in range(1000):
        with files.read(node_id) as ends_at:
            assert ends_at(1)
        clock.now += 1
    assert len(files._held) < 300
