"""Damage of any kind: what it doesn't touch is still there, nothing is invented, and nothing else goes wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.codecs import Codec
from kfs.format.layout import MAX_INT64
from kfs.format.record import Record
from kfs.log.block import Block
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from tests.log.damages import (
    Damage,
    Parts,
    damaged,
    disorder,
    intact_records,
    is_ambiguous,
    joined_parts,
    local_damage,
    written,
)
from tests.log.some_logs import some_batches
from tests.logs import (
    START,
    Batch,
    batch,
    batches,
    find_record,
    joined,
    log_name,
    open_log,
    record,
    records_in,
    write_log,
    write_segment,
)
from tests.thoroughness import examples

pytestmark = pytest.mark.usefixtures("quiet")

BASE = 1000


@contextmanager
def log_of(parts: Parts, content: Sequence[Batch], *, closed: bool, with_indexes: bool = False) -> Iterator[Log]:
    """Write what became of ``content``, a segment behind it if it is ``closed``, and the indexes that it had before."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "t-0"
        if with_indexes:
            write_segment(directory, BASE, content, interval=0)
        write_log(directory, BASE, joined_parts(parts))
        if closed:
            write_log(directory, end_of(content), batch([record(end_of(content))]).data)
        yield open_log(directory)


def end_of(content: Sequence[Batch]) -> int:
    return content[-1].last_offset + 1


def found_in(log: Log, content: Sequence[Batch]) -> list[Record]:
    """Return what is found of the damaged segment."""
    return [one for one in records_in(log) if one.offset < end_of(content)]


damages = st.lists(local_damage, min_size=1, max_size=3)
contents = some_batches(BASE)


@settings(max_examples=examples(40, 200))
@given(content=contents, done=damages, closed=st.booleans())
def test_what_damage_does_not_touch_is_found_and_nothing_else(
    content: list[Batch], done: list[Damage], closed: bool
) -> None:
    parts = damaged(content, done)
    assume(not any(part.is_moved for part in parts) and not is_ambiguous(parts))
    expected = intact_records(parts)
    with log_of(parts, content, closed=closed) as log:
        found = {one.offset: one for one in found_in(log, content)}
        assert expected.items() <= found.items()
        # A codec may store what it can't compress as it is: then messages in a broken wrapper can be found.
        assert found.items() <= written(content).items()


@settings(max_examples=examples(20, 100))
@given(content=contents, done=st.lists(local_damage | disorder, min_size=1, max_size=4), closed=st.booleans())
def test_nothing_is_invented_and_no_offset_comes_twice(content: list[Batch], done: list[Damage], closed: bool) -> None:
    parts = damaged(content, done)
    originals = written(content)
    moved = {one.value for part in parts if part.is_moved and part.was is not None for one in part.was.records}
    with log_of(parts, content, closed=closed) as log:
        found = found_in(log, content)
        offsets = [one.offset for one in found]
        assert offsets == sorted(set(offsets))
        for one in found:
            assert one == originals.get(one.offset) or one.value in moved


@settings(max_examples=examples(20, 100))
@given(content=contents, source=st.integers(0, 40), to=st.integers(0, 40), closed=st.booleans())
def test_batches_that_stand_twice_hide_nothing(content: list[Batch], source: int, to: int, closed: bool) -> None:
    index, at = source % len(content), to % (len(content) + 1)
    repeated = [*content[:at], content[index], *content[at:]]
    with log_of(damaged(repeated, []), content, closed=closed) as log:
        assert found_in(log, content) == list(written(content).values())


@settings(max_examples=examples(20, 100))
@given(
    content=contents,
    done=damages,
    closed=st.booleans(),
    order=st.integers(0, 9).map(Random),
)
def test_looking_up_an_offset_finds_what_walking_finds(
    content: list[Batch], done: list[Damage], closed: bool, order: Random
) -> None:
    parts = damaged(content, done)
    assume(not is_ambiguous(parts))
    with (
        log_of(parts, content, closed=closed, with_indexes=True) as indexed,
        log_of(parts, content, closed=closed) as plain,
    ):
        walked = {one.offset: one for one in records_in(plain)}
        offsets = list(range(BASE - 1, content[-1].last_offset + 3))
        order.shuffle(offsets)
        for log in (plain, indexed):
            for offset in offsets:
                found = find_record(log, offset)
                if offset in walked:
                    assert found == walked[offset]
                else:
                    assert found is None or found is CorruptData


@settings(max_examples=examples(20, 100))
@given(
    content=contents,
    done=damages,
    closed=st.booleans(),
    order=st.integers(0, 9).map(Random),
)
def test_walking_from_any_offset_finds_the_rest(
    content: list[Batch], done: list[Damage], closed: bool, order: Random
) -> None:
    parts = damaged(content, done)
    assume(not is_ambiguous(parts))
    with (
        log_of(parts, content, closed=closed, with_indexes=True) as log,
        log_of(parts, content, closed=closed) as plain,
    ):
        whole = records_in(plain)
        starts = list(range(BASE, content[-1].last_offset + 2))
        for start in order.sample(starts, min(5, len(starts))):
            assert records_in(log, start) == [one for one in whole if one.offset >= start]


@settings(max_examples=examples(20, 100))
@given(content=contents, done=st.lists(local_damage | disorder, min_size=1, max_size=3), closed=st.booleans())
def test_blocks_and_damage_cover_the_file_without_gap_or_overlap(
    content: list[Batch], done: list[Damage], closed: bool
) -> None:
    with log_of(damaged(content, done), content, closed=closed) as log:
        segment = log.segments[0]
        position = 0
        for item in segment.walk():
            assert item.position == position
            assert item.end > position
            position = item.end
        end, next_offset = segment.tail()
        assert position == end <= segment.file().size()
        assert next_offset >= BASE
        assert closed <= (end == segment.file().size())


@settings(max_examples=examples(20, 100))
@given(content=contents, done=damages, closed=st.booleans())
def test_everything_that_is_lost_is_a_problem(content: list[Batch], done: list[Damage], closed: bool) -> None:
    parts = damaged(content, done)
    with log_of(parts, content, closed=closed) as log:
        walked = list(log.walk(OffsetRange(0, MAX_INT64)))
        places = {(problem.position, problem.size) for problem in log.problems}
        damaged_places = {
            (item.position, item.end - item.position) for _, item in walked if not isinstance(item, Block)
        }
        assert damaged_places <= places
        for problem in log.problems:
            assert problem.file.endswith(log_name(BASE))
            assert problem.reason


@pytest.mark.parametrize(
    ("kind", "with_indexes"), [(local_damage, True), (local_damage | disorder, False)], ids=["indexed", "not indexed"]
)
@settings(max_examples=examples(20, 100))
@given(data=st.data(), content=contents, closed=st.booleans(), order=st.integers(0, 9).map(Random))
def test_an_answer_does_not_depend_on_what_was_asked_before(
    kind: st.SearchStrategy[Damage],
    with_indexes: bool,
    data: st.DataObject,
    content: list[Batch],
    closed: bool,
    order: Random,
) -> None:
    parts = damaged(content, data.draw(st.lists(kind, min_size=1, max_size=3)))
    questions: list[Callable[[Log], object]] = [
        *(partial(find_record, offset=offset) for offset in range(BASE, end_of(content))),
        *(partial(time_of, timestamp=START + after * 1000) for after in range(0, 31, 5)),
        *(partial(records_in, start=offset) for offset in (BASE, BASE + 3)),
    ]
    with log_of(parts, content, closed=closed, with_indexes=with_indexes) as log:
        order.shuffle(questions)
        after_others = [question(log) for question in questions]
        directory = Path(log.directory.path)
        for question, answer in zip(questions, after_others, strict=True):
            assert question(open_log(directory)) == answer


def time_of(log: Log, timestamp: int) -> int | None:
    return log.offset_for_time(timestamp, OffsetRange(0, MAX_INT64))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4], ids=lambda codec: codec.label)
@pytest.mark.parametrize("magic", [0, 1])
def test_of_a_wrapper_that_is_being_written_no_inner_message_is_shown(magic: int, codec: Codec, tmp_path: Path) -> None:
    random = Random(7)  # what can't be compressed is stored as it is, so that the messages inside can be seen
    before = batches([record(at) for at in range(3)], magic=magic)
    inside = [record(3 + at, random.randbytes(700)) for at in range(6)]
    wrapper = batch(inside, magic=magic, codec=codec)
    for content, shown in ((before, 3), ([], 0)):
        if not content:
            wrapper = batch([replace(one, offset=one.offset - 3) for one in inside], magic=magic, codec=codec)
        size = len(wrapper.data)
        for cut in {1, 13, 17, 40, *range(61, size, 97), size - 1}:
            written_so_far = joined(content) + wrapper.data[:cut]
            log = open_log(write_log(tmp_path / f"{shown} {cut}-0", 0, written_so_far).parent)
            assert len(records_in(log)) == log.log_end_offset == shown, cut
            assert not log.problems, cut


def test_a_cut_message_with_an_impossible_offset_is_not_being_written(tmp_path: Path) -> None:
    cut, intact = batch([record(at) for at in range(3)], magic=0, codec=Codec.GZIP), batch([record(3)], magic=1)
    data = (2**32).to_bytes(8, "big") + cut.data[8:40] + intact.data
    log = open_log(write_log(tmp_path / "t-0", 0, data).parent)
    assert [one.offset for one in records_in(log)] == [3]
    assert log.log_end_offset == 4


@pytest.mark.parametrize("zeros", [1, 16])
def test_a_few_zeros_at_the_end_do_not_prove_the_size_of_a_broken_batch(zeros: int, tmp_path: Path) -> None:
    broken, intact = batch([record(2, b"x" * 200)]), batch([record(6)], magic=1)
    of_another = b"\1" * 20
    kept = len(broken.data) - len(intact.data) - len(of_another)
    data = broken.data[:kept] + intact.data + of_another + bytes(zeros)
    log = open_log(write_log(tmp_path / "t-0", 0, data).parent)
    assert [one.offset for one in records_in(log)] == [6]
    assert log.log_end_offset == 7


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4], ids=lambda codec: codec.label)
def test_a_broken_header_in_the_right_place_does_not_prove_the_size_of_a_broken_batch(
    codec: Codec, tmp_path: Path
) -> None:
    """A codec leaves the header of the first message inside as it is, here where the cut batch would have ended."""
    base = 0x0102_0304_0506  # without zeros in a row, which a codec would make shorter
    broken = batch([record(base + at) for at in range(5)], magic=0, codec=Codec.GZIP)
    intact = batch([record(base + at, b"x" * 100, key=None) for at in range(5, 8)], magic=0, codec=codec)
    inside = intact.data.index((base + 5).to_bytes(8, "big"), 14)
    following = batch([record(base + 8, b"y" * 200)], magic=0)
    data = broken.data[:-inside] + intact.data + following.data
    log = open_log(write_log(tmp_path / "t-0", base, data).parent)
    assert [one.offset - base for one in records_in(log)] == [5, 6, 7, 8]
