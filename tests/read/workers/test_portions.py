"""What is gathered in shared memory, or copied there, is at the other end what was gathered."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.log.problem import Problem
from kfs.read.workers import portion as portions_module
from kfs.read.workers import shared
from kfs.read.workers.channel import Channel
from kfs.read.workers.job import place_of, weight_of
from kfs.read.workers.portion import items_of, send_portion
from kfs.read.workers.shared import ParentMemory, WorkerMemory
from kfs.render.arrow_builder import ArrowBuffers, ArrowBuilder, arrow_builder, open_arena
from kfs.render.arrow_columns import Column
from tests.render.some_columns import Content, columns_of, headers, payloads
from tests.thoroughness import examples

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="processes share memory by memfd_create")
COLUMNS = (Column.KEY, Column.VALUE, Column.TOPIC, Column.OFFSET, Column.HEADERS, Column.IS_TRANSACTIONAL)
Copied = tuple[int, list[bytes | None]]

blocks = st.lists(st.tuples(payloads, payloads, headers), max_size=12)


class Ends:
    """Both ends of a channel in one process, and what was lent and borrowed over it."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self._theirs, self._ours = Channel(theirs), Channel(ours)
        self.worker, self._parent_memory = WorkerMemory(), ParentMemory()
        self.worker.arena = open_arena()

    @property
    def regions(self) -> dict[int, object]:
        """What the parent has of the worker's regions."""
        return dict(self._parent_memory._regions)

    def carried(self, items: list[ArrowBuffers | Problem]) -> list[ArrowBuffers | Problem]:
        """Return what arrives of what is sent."""
        send_portion(self._theirs, self.worker, items, sum(map(weight_of, items)))
        portion, descriptor = self._ours.receive()
        try:
            return items_of(portion, self._parent_memory, descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def give_back(self) -> None:
        """Return what nobody looks at any more."""
        self.worker.returned(self._parent_memory.take_returned())

    def rest(self) -> None:
        """Have a request end, and the next one begin."""
        self.give_back()
        self.worker.rest(self._parent_memory.rest())


@contextmanager
def connected() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Ends(ours, theirs)


def copied(items: list[ArrowBuffers | Problem]) -> list[Copied | Problem]:
    return [
        item if isinstance(item, Problem) else (item.rows, [None if it is None else bytes(it) for it in item.buffers])
        for item in items
    ]


def built(builder: ArrowBuilder, contents: list[Content]) -> ArrowBuffers:
    columns = columns_of(contents)
    for start in range(0, len(contents), 5):
        builder.add(columns, range(start, min(start + 5, len(contents))))
    return builder.finish()


@settings(max_examples=examples(50, 300), deadline=None)
@given(
    portions=st.lists(st.lists(blocks | st.just("damage"), min_size=1, max_size=4), min_size=1, max_size=6),
    least=st.sampled_from((64, 700, 3000, 1 << 16)),
    inline=st.sampled_from((0, 300)),
    kept=st.sets(st.integers(0, 5)),
    last=st.sets(st.integers(0, 5)),
)
def test_what_arrives_is_what_was_gathered(
    portions: list[list[list[Content] | str]], least: int, inline: int, kept: set[int], last: set[int]
) -> None:
    alone = arrow_builder(COLUMNS, "töpic", 7, 5)
    sizes = (
        mock.patch.object(shared, "_LEAST_BYTES", least),
        mock.patch.object(portions_module, "_INLINE_BYTES", inline),
    )
    held = []
    with sizes[0], sizes[1], connected() as ends:
        builder = arrow_builder(COLUMNS, "töpic", 7, 5, ends.worker.arena)
        ends.worker.begin()
        for number, portion in enumerate(portions):
            items: list[ArrowBuffers | Problem] = []
            expected: list[Copied | Problem] = []
            for block in portion:
                if isinstance(block, str):
                    problem = Problem("file", number, 0, block)
                    items.append(problem)
                    expected.append(problem)
                else:
                    items.append(built(builder, block))
                    expected += copied([built(alone, block)])
            arrived = ends.carried(items)
            assert copied(arrived) == expected
            if number in kept:
                held.append((arrived, expected))
            del arrived, items
            if number in last:
                ends.rest()
            else:
                ends.give_back()
        for found, expected in held:  # whatever was written since
            assert copied(found) == expected


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_regions_that_a_worker_drops_are_dropped_by_both() -> None:
    contents: list[Content] = [(b"key", bytes(20_000), ())] * 20
    with connected() as ends:
        builder = arrow_builder(COLUMNS, "t", 0, 0, ends.worker.arena)
        ends.worker.begin()
        counts = []
        for _ in range(5):
            held = [ends.carried([built(builder, contents)]) for _ in range(10)]
            del held
            ends.give_back()
            ends.carried([built(builder, contents)])  # says what was dropped
            ends.give_back()
            counts.append((descriptors(), len(ends.regions)))
        assert len(set(counts)) == 1
        assert counts[0][1] <= 5
        ends.rest()
        assert not ends.regions
        before = descriptors()
        for _ in range(5):
            ends.carried([built(builder, contents)])
            ends.rest()
        assert descriptors() <= before


@pytest.mark.skipif(open_arena() is None, reason="only compiled code has an arena")
def test_most_is_gathered_where_it_is_read() -> None:
    contents: list[Content] = [(b"key", bytes(500), ((b"name", b"value"),))] * 200
    with connected() as ends:
        builder = arrow_builder(COLUMNS, "t", 0, 0, ends.worker.arena)
        ends.worker.begin()
        first, *later = (built(builder, contents) for _ in range(5))
        # Nobody knows how large the first one becomes.
        assert {place_of(it) is None for it in first.buffers if it is not None and it.nbytes} == {True}
        assert {place_of(it) is None for one in later for it in one.buffers if it is not None} == {False}
        assert copied(ends.carried([first, *later])) == copied([first]) * 5


@pytest.mark.skipif(open_arena() is None, reason="only compiled code has an arena")
def test_memory_stays_while_it_is_looked_at() -> None:
    arena = open_arena()
    assert arena is not None
    builder = arrow_builder((Column.VALUE,), "t", 0, 0, arena)
    contents: list[Content] = [(None, b"x" * 100, ())] * 10
    built(builder, contents)
    arena.use(memoryview(bytearray(4096)))
    finished = built(builder, contents)
    assert [place_of(it) is None for it in finished.buffers if it is not None] == [False, False]
    builder.add(columns_of(contents), range(5))
    arena.use(memoryview(bytearray(4096)))  # too early, but nothing breaks
    builder.add(columns_of(contents), range(5, 10))
    late = builder.finish()
    assert [place_of(it) for it in late.buffers if it is not None] == [None, None]
    arena.use(None)
    assert copied([finished, late]) == copied([built(builder, contents)]) * 2
