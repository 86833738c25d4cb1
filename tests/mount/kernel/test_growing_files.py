"""What the kernel is told of files that grow, and when a read may end with such a file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfs.mount.kernel.growing_files import HELD_SECONDS, GrowingFiles
from kfs.tree.node import FOREVER, LIVE, Attributes
from tests.mount.clock import Clock
from tests.mount.toy_tree import FILE_MODE, ToyFile

ID = 7


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Kernel:
    """What was dropped: node ids and offsets."""

    def __init__(self) -> None:
        self.dropped: list[tuple[int, int]] = []

    def drop(self, node_id: int, offset: int) -> None:
        self.dropped.append((node_id, offset))


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def files(kernel: Kernel, clock: Clock) -> GrowingFiles:
    return GrowingFiles(kernel.drop, clock)


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


def read_to(files: GrowingFiles, end: int) -> None:
    with files.read(ID) as ends_at:
        assert ends_at(end)


def test_no_larger_size_is_told_while_a_read_that_ends_with_the_file_is_answered(
    files: GrowingFiles, kernel: Kernel, clock: Clock
) -> None:
    told(files, 100)
    with files.read(ID) as ends_at:
        assert ends_at(120)
        clock.now += 60
        assert told(files, 300).size == 120
        assert told(files, 300).lifetime < LIVE
        files.drop_page(ID)
        assert kernel.dropped == []  # it isn't there yet


def test_a_page_is_dropped_before_a_size_is_told_that_is_beyond_its_end(
    files: GrowingFiles, kernel: Kernel, clock: Clock
) -> None:
    told(files, 100)
    read_to(files, 120)
    clock.now += 60
    assert told(files, 300).size == 120
    files.drop_page(ID)
    assert kernel.dropped == [(ID, 120)]
    clock.now += HELD_SECONDS / 2
    assert told(files, 300).size == 120  # somebody may be copying it
    clock.now += HELD_SECONDS
    assert told(files, 300) == of_size(300)
    assert told(files, 400) == of_size(400)
    files.drop_page(ID)
    assert kernel.dropped == [(ID, 120)]


def test_what_was_answered_while_a_page_was_dropped_may_be_kept(clock: Clock) -> None:
    files = GrowingFiles(lambda _node_id, _offset: read_to(growing[0], 150), clock)
    growing = [files]
    told(files, 100)
    read_to(files, 100)
    files.drop_page(ID)
    clock.now += 2 * HELD_SECONDS
    assert told(files, 300).size == 150


@pytest.mark.parametrize("grows", [True, False])
def test_the_end_of_what_no_longer_grows_waits_for_its_page_too(
    grows: bool, files: GrowingFiles, kernel: Kernel, clock: Clock
) -> None:
    """A segment that is rolled: it has its last size, and the kernel a page that ended before."""
    node = ToyFile(of_size(0), lambda at, length: b"", grows=grows)
    told(files, 100)
    with files.read(ID) as ends_at:
        assert ends_at(100)
        assert files.told(node, of_size(300, lifetime=FOREVER)).size == 100
    files.drop_page(ID)
    assert kernel.dropped == [(ID, 100)]
    assert files.told(node, of_size(300, lifetime=FOREVER)).lifetime < LIVE
    clock.now += 2 * HELD_SECONDS
    assert files.told(node, of_size(300, lifetime=FOREVER)) == of_size(300, lifetime=FOREVER)


def test_what_is_kept_of_a_file_that_is_only_read_is_bounded(files: GrowingFiles, clock: Clock) -> None:
    told(files, 100)
    for _ in range(1000):
        read_to(files, 100)
        files.drop_page(ID)
        clock.now += HELD_SECONDS / 10
    assert len(files._files[ID].dropped) == 1
    assert told(files, 200).size == 100


def test_each_read_holds_the_size_at_its_own_end(files: GrowingFiles) -> None:
    told(files, 100)
    with files.read(ID) as first:
        with files.read(ID) as second:
            assert first(100)
            assert second(110)
        assert told(files, 200).size == 100  # or the first would have zeros from there on
    assert told(files, 200).size == 100


def test_a_longer_answer_doesnt_stand_for_a_shorter_one(files: GrowingFiles, kernel: Kernel, clock: Clock) -> None:
    told(files, 100)
    for end in (110, 120, 130):
        read_to(files, end)
    assert told(files, 200).size == 110
    files.drop_page(ID)
    assert kernel.dropped == [(ID, 110)]
    clock.now += 2 * HELD_SECONDS
    assert told(files, 200) == of_size(200)


def test_who_reads_on_and_on_doesnt_hold_the_file_back(files: GrowingFiles, kernel: Kernel, clock: Clock) -> None:
    behind = []
    for size in range(1000, 2000):
        read_to(files, size)
        behind.append(size - told(files, size).size)
        files.drop_page(ID)
        clock.now += HELD_SECONDS / 10
    assert max(behind) <= 11
    assert len(kernel.dropped) == 1000


def test_a_kernel_that_fails_to_drop_a_page_is_not_asked_for_ever(clock: Clock) -> None:
    def fail(node_id: int, offset: int) -> None:
        raise OSError(node_id, offset)

    files = GrowingFiles(fail, clock)
    read_to(files, 100)
    files.drop_page(ID)
    clock.now += 2 * HELD_SECONDS
    assert told(files, 200) == of_size(200)


def test_a_size_that_was_told_isnt_taken_back(files: GrowingFiles) -> None:
    told(files, 100)
    assert told(files, 200).size == 200
    with files.read(ID) as ends_at:
        assert not ends_at(100)
        assert told(files, 300).size == 200
        assert ends_at(200)
    assert told(files, 150).size == 150


def test_pages_are_dropped_by_another_thread(kernel: Kernel) -> None:
    files = GrowingFiles(kernel.drop)
    files.start()
    read_to(files, 100)
    files.stop()
    assert kernel.dropped == [(ID, 100)]
