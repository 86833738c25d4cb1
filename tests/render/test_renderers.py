"""Both renderers give the same bytes, measure the same sizes, and keep to the buffer of the columns."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.columns import NO_FAULTS, RecordColumns
from kfs.format.record import TimestampType
from kfs.render.renderers import LineRenderer
from kfs.render.timestamps import FIRST_MILLISECOND, LAST_MILLISECOND, iso_time
from tests.implementations import EVERY_RENDERER, RENDERERS
from tests.render.some_columns import Content, columns_of, headers, payloads, pieces, timestamps
from tests.thoroughness import examples

#: From this size on, the compiled renderer measures text before it makes room for it.
MEASURED = 64 * 1024

COLUMNS = ["key_starts", "key_lengths", "value_starts", "value_lengths", "header_starts"]


def lines_of(renderer: type[LineRenderer], columns: RecordColumns) -> tuple[bytes, array[int], array[int], list[bytes]]:
    """Return what a renderer makes of columns in each of its ways."""
    one = renderer("topic", 7)
    rendered = one.lines(columns, (0, len(columns)))
    assert one.text(columns) == rendered.buffer
    return rendered.buffer, rendered.starts, one.starts(columns), [one.line(columns, at) for at in range(len(columns))]


def each_way() -> Iterator[int]:
    """Have text written in each way that this processor knows, one after another."""
    from kfs.render.compiled_json import WAYS, write_by

    try:
        yield from map(write_by, WAYS)
    finally:
        write_by(WAYS[-1])


def check(columns: RecordColumns) -> None:
    """Hold the renderers, and the ways of each, to one another."""
    expected = lines_of(RENDERERS[0], columns)
    buffer, starts, measured, lines = expected
    assert starts == measured
    assert b"".join(lines) == buffer
    for renderer in RENDERERS[1:]:
        for _ in each_way():
            assert lines_of(renderer, columns) == expected


@settings(max_examples=examples(100, 600))
@given(
    contents=st.lists(st.tuples(payloads, payloads, headers), max_size=6),
    kind=st.sampled_from(TimestampType),
    data=st.data(),
)
def test_all_renderers_give_the_same_lines(contents: list[Content], kind: TimestampType, data: st.DataObject) -> None:
    times = data.draw(st.lists(timestamps, min_size=len(contents), max_size=len(contents)))
    check(columns_of(contents, times, kind))


@settings(max_examples=60)
@given(
    text=pieces, end=pieces, extra=st.integers(-40, 40), unit=st.sampled_from([b"a", b'"', b"\\n", b"\x01", b"\xff"])
)
@example(text=b"", end=b"", extra=0, unit=b"\x01")
@example(text=b"", end=b"\xff", extra=-1, unit=b"\x01")
def test_all_renderers_give_the_same_lines_of_large_text(text: bytes, end: bytes, extra: int, unit: bytes) -> None:
    size = MEASURED + extra - len(text) - len(end)
    large = text + (unit * size)[:size] + end
    check(columns_of([(b"before", large, ()), (large, None, ((large, large),)), (None, b"after", ())]))


@given(contents=st.lists(st.tuples(payloads, payloads, headers), min_size=1, max_size=4), data=st.data())
def test_all_renderers_leave_out_what_is_broken(contents: list[Content], data: st.DataObject) -> None:
    columns = columns_of(contents)
    assert columns.faults is NO_FAULTS
    columns.faults = dict.fromkeys(
        data.draw(st.sets(st.integers(0, len(contents) - 1), min_size=1)), CorruptData("broken")
    )
    check(columns)


@EVERY_RENDERER
@given(timestamp=timestamps)
@example(timestamp=FIRST_MILLISECOND)
@example(timestamp=LAST_MILLISECOND)
@example(timestamp=951_782_400_000)  # 2000-02-29
@example(timestamp=-2_203_891_200_001)  # 1900-02-28
@example(timestamp=-1)
def test_times_are_those_of_the_calendar(renderer: type[LineRenderer], timestamp: int) -> None:
    line = renderer("t", 0).line(columns_of([(None, None, ())], [timestamp]), 0)
    time = iso_time(timestamp)
    shown = "null" if time is None else f'"{time}"'
    assert f'"timestamp":{timestamp},"timestampType":"CreateTime","time":{shown},"key"'.encode() in line


@EVERY_RENDERER
def test_a_record_that_is_not_there_has_no_line(renderer: type[LineRenderer]) -> None:
    columns = columns_of([(b"k", b"v", ())])
    with pytest.raises(IndexError):
        renderer("t", 0).line(columns, 1)


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Threads that take turns wherever they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless_threads")
@EVERY_RENDERER
def test_threads_share_a_renderer(renderer: type[LineRenderer]) -> None:
    one = renderer("t", 0)
    blocks = [columns_of([(b"k", b"v" * 300 * size, ((b"h", b"x"),))] * (400 // size)) for size in range(1, 5)]
    expected = [one.lines(block, (0, 1)).buffer for block in blocks]

    def rendered(number: int) -> bool:
        which = number % len(blocks)
        return one.lines(blocks[which], (0, 1)).buffer == expected[which]

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(rendered, range(400)))


@pytest.mark.skipif(len(RENDERERS) < 2, reason="nothing was compiled")
@pytest.mark.parametrize(
    ("column", "number"),
    [
        *product(COLUMNS, [2**31 - 1, 40]),
        # A negative length is null, a negative start of headers none.
        *product(["key_starts", "value_starts"], [-1, -(2**31)]),
    ],
)
def test_compiled_code_reads_nothing_outside_of_the_buffer(column: str, number: int) -> None:
    columns = columns_of([(b"k", b"v", ((b"h", b"x"),))])
    getattr(columns, column)[0] = number
    renderer = RENDERERS[1]("t", 0)
    for use in (lambda: renderer.lines(columns, (0, 0)), lambda: renderer.starts(columns)):
        with pytest.raises(ValueError, match="outside of their buffer"):
            use()


@pytest.mark.skipif(len(RENDERERS) < 2, reason="nothing was compiled")
@pytest.mark.parametrize("column", ["timestamps", "key_starts", "value_lengths", "header_starts"])
def test_compiled_code_wants_columns_of_one_length(column: str) -> None:
    columns = columns_of([(b"k", b"v", ()), (b"k", b"v", ())])
    getattr(columns, column).pop()
    with pytest.raises(ValueError, match="different lengths"):
        RENDERERS[1]("t", 0).lines(columns, (0, 1))
