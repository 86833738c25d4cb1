"""What is measured and rendered before anybody asks: only for those who go through it in order."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kfs.errors import CorruptData
from kfs.log.segment import Segment
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.lines.record_lines import SegmentLines
from kfs.tree.lines.source import Chunk
from tests.logs import batch, content_of, dense, file_at, open_tree, record, write_partition

BASES = tuple(range(0, 80, 10))
ACTIVE = BASES[-1]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaTree:
    """Of eight segments, on two cores, whose sizes are found ahead."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1}, raising=False)
    write_partition(tmp_path / "t-0", {base: dense(base, base + 9) for base in BASES})
    tree = open_tree(tmp_path)
    tree.work_ahead()
    return tree


def path_of(base: int) -> str:
    return f"t/0/segment/{base:020d}.jsonl"


def measured(tree: KafkaTree) -> set[int]:
    """Return the segments whose size is known, once nothing is being measured any more."""
    deadline = time.monotonic() + 10
    while tree.context.sizing.is_at_work:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    [view] = tree.views.shown()
    return {segment.base_offset for segment in view.log.segments if view.lines.segment_text(segment).is_measured}


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
    assert measured(tree) >= {0, 30, 40}  # where the one before it ends is known anew


def test_a_closed_tree_measures_nothing_more(tree: KafkaTree) -> None:
    file = file_at(tree, path_of(0))
    tree.context.sizing.stop()
    file.attributes()
    assert measured(tree) == {0}


# --- reading on -----------------------------------------------------------------------------------------------------


@pytest.fixture
def long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaTree:
    """Of a closed segment of some 4 MB of lines, and an active one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1}, raising=False)
    values = [batch([record(at, b"x" * 20_000) for at in range(start, start + 4)]) for start in range(0, 200, 4)]
    write_partition(tmp_path / "t-0", {0: values, 200: dense(200, 209)})
    tree = open_tree(tmp_path)
    tree.work_ahead()
    return tree


def chunks_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return where in the log chunks that are rendered from now on end."""
    positions: list[int] = []
    pieces = SegmentLines.chunks

    def noting(self: SegmentLines, segment: Segment, position: int, seen: int, ends: Sequence[int]) -> Iterator[Chunk]:
        for end, piece in zip(ends, pieces(self, segment, position, seen, ends), strict=False):
            positions.append(end)
            yield piece

    monkeypatch.setattr(SegmentLines, "chunks", noting)
    return positions


def settle(tree: KafkaTree) -> None:
    deadline = time.monotonic() + 10
    while tree.context.reading.is_at_work:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def as_if_chunks_took(tree: KafkaTree, seconds: float) -> None:
    """Have a reader be quick or slow, however busy this machine is."""
    tree.context.text._pace = seconds


def test_who_reads_on_finds_it_rendered_and_nothing_is_rendered_twice(
    long: KafkaTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_at(long, path_of(0))
    expected = content_of(open_tree(Path(long.data_dir.paths[0])), path_of(0))
    rendered = chunks_read(monkeypatch)
    as_if_chunks_took(long, 1e6)
    step = len(expected) // 7
    assert file.read(0, step) == expected[:step]
    settle(long)
    asked = len(rendered)
    assert asked == -(-step // 80_000)
    for start in range(step, len(expected), step):
        assert file.read(start, step) == expected[start : start + step]
        settle(long)
        assert len(rendered) >= min(asked + step // 80_000 + 4, 50)
    assert len(rendered) == len(set(rendered)) == 50


def test_two_who_read_on_side_by_side_are_told_from_each_other(
    long: KafkaTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_at(long, path_of(0))
    size = file.attributes().size
    half = size // 2
    rendered = chunks_read(monkeypatch)
    as_if_chunks_took(long, 1e6)
    step = 100_000
    for at in range(0, 300_000, step):
        for start in (0, half):
            file.read(start + at, step)
            settle(long)
    assert max(end for end in rendered if end < half) > 600_000
    assert max(rendered) > half + 600_000


def test_who_is_slower_than_rendering_finds_nothing_rendered_ahead(
    long: KafkaTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_at(long, path_of(0))
    size = file.attributes().size
    rendered = chunks_read(monkeypatch)
    for start in range(0, size // 2, 100_000):
        as_if_chunks_took(long, 0)
        file.read(start, 100_000)
        settle(long)
        assert len(rendered) <= (start + 100_000) // 80_000 + 1


def test_what_was_read_makes_room_for_what_is_still_to_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [batch([record(at, b"x" * 80_000)]) for at in range(20)]
    write_partition(tmp_path / "t-0", {0: values, 20: dense(20, 29)})
    monkeypatch.setattr("kfs.tree.context._TEXT_BYTES", 400_000)
    file = file_at(open_tree(tmp_path), path_of(0))
    rendered = chunks_read(monkeypatch)
    for at in (0, 100_000, 200_000):
        file.read(at, 10)  # three chunks, a little of each
    assert len(rendered) == 3
    file.read(400_000, 1_200_000)
    again = len(rendered)
    for at in (0, 100_000, 200_000):
        file.read(at, 10)
    assert len(rendered) == again


def test_what_fails_for_one_is_tried_again_by_who_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [batch([record(at, b"x" * 80_000)]) for at in range(8)]
    write_partition(tmp_path / "t-0", {0: values, 8: dense(8, 17)})
    tree = open_tree(tmp_path)
    file = file_at(tree, path_of(0))
    expected = content_of(tree, path_of(0))
    begun, go_on = threading.Event(), threading.Event()
    pieces = SegmentLines.chunks

    def failing(self: SegmentLines, segment: Segment, position: int, seen: int, ends: Sequence[int]) -> Iterator[Chunk]:
        if len(ends) == 8:
            begun.set()
            go_on.wait(10)
            raise OSError("gone for a moment")
        return pieces(self, segment, position, seen, ends)

    monkeypatch.setattr(SegmentLines, "chunks", failing)
    with ThreadPoolExecutor() as pool:
        whole = pool.submit(file.read, 0, len(expected))
        assert begun.wait(10)
        part = pool.submit(file.read, 200_000, 1000)
        go_on.set()
        assert part.result(10) == expected[200_000:201_000]
        with pytest.raises(OSError, match="gone for a moment"):
            whole.result(10)
    assert file.read(0, 1000) == expected[:1000]


def test_who_reads_here_and_there_has_nothing_rendered_ahead(long: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_at(long, path_of(0))
    size = file.attributes().size
    rendered = chunks_read(monkeypatch)
    for start in (size // 2, size // 4, size - 1000, 0):
        file.read(start, 1000)
    settle(long)
    assert len(rendered) == 4


def test_damage_that_is_read_ahead_is_an_error_where_it_is_and_nowhere_else(long: KafkaTree) -> None:
    path = Path(long.data_dir.paths[0]) / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    file = file_at(long, path_of(0))
    size, failed, step = file.attributes().size, 0, 4096
    for start in range(0, size, step):
        try:
            assert len(file.read(start, step)) == min(step, size - start)
        except CorruptData:
            failed += 1
    assert failed == 1
