"""Whatever lies where an index should lie, it never changes an answer."""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64, NO_TIMESTAMP
from kfs.format.record import Record
from kfs.log import segment
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.window import FIRST_READ
from tests.log.some_logs import some_segments
from tests.logs import (
    START,
    Batch,
    batch,
    bytes_read,
    dense,
    find_record,
    log_name,
    open_log,
    positions,
    record,
    records_in,
    watch_reads,
    write_partition,
    write_segment,
)

pytestmark = pytest.mark.usefixtures("quiet")

Segments = Mapping[int, Sequence[Batch]]
EVERYTHING = OffsetRange(0, MAX_INT64)


@pytest.fixture(scope="module", autouse=True)
def _small_segments_are_read_by_their_index() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "_SCANNED_BYTES", 0)
        yield


# --- answers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answers:
    """What a log answers to every question that an index could help with."""

    records: dict[int, Record | type[CorruptData] | None]
    offsets_by_time: dict[int, int | None]
    following: dict[int, list[Record]]
    end: int


def questions(segments: Segments) -> tuple[list[int], list[int]]:
    """Return the offsets and times worth asking for: all there are, what lies between, before and behind."""
    everything = [one for content in segments.values() for batch in content for one in batch.records]
    offsets = sorted({one.offset + near for one in everything for near in (-1, 0, 1)} - {-1})
    times = sorted({one.timestamp + near for one in everything for near in (-1, 0, 1)} | {0, START + 10**9})
    return offsets, times


def answers(log: Log, segments: Segments, order: int) -> Answers:
    """Ask everything, in an order that ``order`` shuffles: an answer must not depend on those before it."""
    offsets, times = questions(segments)
    shuffled = random.Random(order)
    asked: list[tuple[str, int]] = [("offset", offset) for offset in offsets] + [("time", time) for time in times]
    asked += [("from", offset) for offset in shuffled.sample(offsets, min(4, len(offsets)))]
    shuffled.shuffle(asked)
    result = Answers({}, {}, {}, 0)
    for kind, number in asked:
        if kind == "offset":
            result.records[number] = find_record(log, number)
        elif kind == "time":
            result.offsets_by_time[number] = log.offset_for_time(number, EVERYTHING)
        else:
            result.following[number] = records_in(log, number)
    return Answers(result.records, result.offsets_by_time, result.following, log.log_end_offset)


def truth(segments: Segments, asked: Answers) -> Answers:
    """Answer the same questions from what was written."""
    everything = {one.offset: one for content in segments.values() for batch in content for one in batch.records}
    in_order = [everything[offset] for offset in sorted(everything)]

    def at_or_after(time: int) -> int | None:
        return next((one.offset for one in in_order if one.timestamp >= time and one.timestamp != NO_TIMESTAMP), None)

    return Answers(
        {offset: everything.get(offset) for offset in asked.records},
        {time: at_or_after(time) for time in asked.offsets_by_time},
        {offset: [one for one in in_order if one.offset >= offset] for offset in asked.following},
        in_order[-1].offset + 1,
    )


@contextmanager
def partition_of(segments: Segments, interval: int) -> Iterator[Path]:
    """Write a partition for one example."""
    with tempfile.TemporaryDirectory() as directory:
        yield write_partition(Path(directory) / "t-0", segments, interval=interval)


# --- what may lie there ---------------------------------------------------------------------------------------------

Change = Callable[[bytes], bytes | None]
OFFSET_ENTRY, TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")


def entries(layout: struct.Struct, data: bytes) -> list[tuple[int, int]]:
    return list(layout.iter_unpack(data[: len(data) // layout.size * layout.size]))


def shifted(layout: struct.Struct, first: int, second: int) -> Change:
    """Move one or both numbers of every entry by as much."""

    def change(data: bytes) -> bytes:
        moved = [(one + first, other + second) for one, other in entries(layout, data)]
        return b"".join(layout.pack(*entry) for entry in moved)

    return change


def slipped(layout: struct.Struct) -> Change:
    """Give every entry the second number of the next."""

    def change(data: bytes) -> bytes:
        return b"".join(layout.pack(one[0], other[1]) for one, other in pairwise(entries(layout, data)))

    return change


def any_change(layout: struct.Struct) -> st.SearchStrategy[Change]:
    """What can happen to an index whatever is in it."""
    return st.one_of(
        st.just(lambda data: data),
        st.just(lambda data: None),
        st.integers(0, 40).map(lambda size: lambda data: bytes(size)),
        st.integers(0, 60).map(lambda size: lambda data: data[:size]),
        st.integers(0, 60).map(lambda size: lambda data: data + bytes(size)),
        st.binary(max_size=60).map(lambda garbage: lambda data: garbage),
        st.tuples(st.integers(0, 40), st.integers(0, 7)).map(lambda at: lambda data: flipped(data, *at)),
        st.builds(shifted, st.just(layout), st.integers(-3, 3), st.integers(-3, 3)),
        st.just(slipped(layout)),
    )


def flipped(data: bytes, position: int, bit: int) -> bytes:
    if not data:
        return data
    position %= len(data)
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


@st.composite
def invented_offset_index(draw: st.DrawFn, base: int, content: Sequence[Batch]) -> bytes:
    """Draw an index in order, of offsets and positions that are there, but need not belong together."""
    places = draw(st.lists(st.sampled_from(positions(content)) | st.integers(0, 3000), unique=True, max_size=6))
    offsets = draw(st.lists(st.integers(0, content[-1].last_offset - base + 3), unique=True, max_size=6))
    return b"".join(map(OFFSET_ENTRY.pack, sorted(offsets), sorted(places)))


def is_a_lie_that_fits(content: Sequence[Batch], timestamp: int, offset: int) -> bool:
    """Whether the batch at ``offset`` is of that time, and a later one came before: no index of this log says so."""
    before = [one.timestamp for batch in content for one in batch.records if batch.last_offset < offset]
    here = [one.timestamp for batch in content for one in batch.records if batch.holds(offset)]
    return timestamp <= max(here, default=-1) and max(before, default=-1) > timestamp


@st.composite
def invented_time_index(draw: st.DrawFn, base: int, content: Sequence[Batch]) -> bytes:
    """Draw a time index in order, of times and offsets that are there, but need not belong together."""
    everything = [one for batch in content for one in batch.records]
    times = draw(st.lists(st.sampled_from([one.timestamp for one in everything]), unique=True, max_size=6))
    offsets = draw(st.lists(st.sampled_from([one.offset for one in everything]), unique=True, max_size=6))
    return b"".join(
        TIME_ENTRY.pack(time, offset - base)
        for time, offset in zip(sorted(times), sorted(offsets), strict=False)
        if time >= 0 and not is_a_lie_that_fits(content, time, offset)
    )


@st.composite
def replaced_indexes(draw: st.DrawFn, segments: Segments) -> Callable[[Path], None]:
    """Draw what to do to the indexes of a partition."""
    changes: dict[str, bytes | Change] = {}
    for base, content in segments.items():
        other = draw(st.sampled_from(list(segments)))
        for suffix, layout, invented in (
            (".index", OFFSET_ENTRY, invented_offset_index(base, content)),
            (".timeindex", TIME_ENTRY, invented_time_index(base, content)),
        ):
            kind = draw(st.sampled_from(["changed", "invented", "foreign"]))
            name = log_name(base, suffix)
            if kind == "changed":
                changes[name] = draw(any_change(layout))
            elif kind == "invented":
                changes[name] = draw(invented)
            else:
                changes[name] = (lambda source: lambda data: source.encode())(log_name(other, suffix))

    def apply(directory: Path) -> None:
        originals = {name: (directory / name).read_bytes() for name in changes}
        for name, change in changes.items():
            data = change if isinstance(change, bytes) else change(originals[name])
            if data is None:
                (directory / name).unlink()
            else:
                (directory / name).write_bytes(originals.get(data.decode("latin-1"), data))

    return apply


# --- properties -----------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(segments=some_segments(), interval=st.sampled_from([0, 100, 4096]), order=st.integers(0, 99))
def test_every_answer_is_what_was_written(segments: Segments, interval: int, order: int) -> None:
    with partition_of(segments, interval) as directory:
        found = answers(open_log(directory), segments, order)
        assert found == truth(segments, found)


@settings(max_examples=60)
@given(data=st.data(), segments=some_segments(), order=st.integers(0, 99))
def test_wrong_indexes_change_no_answer(data: st.DataObject, segments: Segments, order: int) -> None:
    replace_indexes = data.draw(replaced_indexes(segments))
    with partition_of(segments, interval=0) as directory:
        replace_indexes(directory)
        found = answers(open_log(directory), segments, order)
        assert found == truth(segments, found)


# --- how they are used ----------------------------------------------------------------------------------------------


def two_segments(tmp_path: Path) -> Path:
    """Write a segment of ten batches of more than the index interval, and another behind it."""
    content = [batch([record(at, bytes(1000)) for at in range(first, first + 10)]) for first in range(0, 100, 10)]
    return write_partition(tmp_path / "t-0", {0: content, 100: dense(100, 109)})


OFFSETS, TIMES = log_name(0, ".index"), log_name(0, ".timeindex")


def test_an_index_that_is_replaced_is_read_again(tmp_path: Path, eager: None) -> None:
    directory = two_segments(tmp_path)
    good = (directory / OFFSETS).read_bytes()
    (directory / OFFSETS).write_bytes(b"\xff" * 80)
    log = open_log(directory)
    assert log.segments[0].position_before(57) == (0, 0 - 1)
    (directory / OFFSETS).unlink()
    (directory / OFFSETS).write_bytes(good)
    assert log.segments[0].position_before(57)[0] > 0
    assert find_record(log, 57) == record(57, bytes(1000))


@pytest.mark.parametrize("interval", [0, 700])  # an entry for every batch, or not for all of them
@pytest.mark.parametrize("claimed", [0, 3, 60, 84, 89])
def test_a_base_offset_that_flipped_where_the_last_entry_points_ends_no_log(
    claimed: int, interval: int, tmp_path: Path
) -> None:
    content = dense(0, 99)
    directory = write_partition(tmp_path / "t-0", {0: content}, interval=interval)
    log = bytearray((directory / log_name(0)).read_bytes())
    last = parse_index(directory / log_name(0, ".index"))[-1]
    assert positions(content).index(last) < len(content)
    log[last : last + 8] = claimed.to_bytes(8, "big")  # no CRC covers it
    (directory / log_name(0)).write_bytes(log)
    lost = content[positions(content).index(last)]
    reopened = open_log(directory)
    assert reopened.log_end_offset == (100 if lost.last_offset < 99 else lost.first_offset)
    for offset in {*range(100)} - {*range(lost.first_offset, lost.last_offset + 1)}:
        assert find_record(reopened, offset) == record(offset)


def parse_index(path: Path) -> list[int]:
    """Return the positions in an offset index."""
    return [position for _, position in struct.iter_unpack(">ii", path.read_bytes())]


def test_a_lookup_reads_little_of_a_large_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = [batch([record(at, bytes(3000))]) for at in range(1000)]
    directory = write_partition(tmp_path / "t-0", {0: content, 1000: [batch([record(1000)])]}, interval=4096)
    log = open_log(directory)
    assert find_record(log, 10) == content[10].records[0]
    reads = watch_reads(monkeypatch)
    assert find_record(log, 777) == content[777].records[0]
    assert bytes_read(reads) < 200_000


@pytest.mark.parametrize("size", [100, 3000])
def test_a_segment_that_one_read_has_as_a_whole_is_looked_through_without_its_index(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "_SCANNED_BYTES", FIRST_READ)
    content = [batch([record(at, bytes(size))]) for at in range(20)]
    directory = write_partition(tmp_path / "t-0", {0: content, 20: [batch([record(20)])]}, interval=1)
    (directory / OFFSETS).write_bytes(b"no index")
    log = open_log(directory)
    for at in (19, 0, 7):
        assert find_record(log, at) == content[at].records[0]
    assert records_in(log, 5) == [record(at, bytes(size)) for at in range(5, 20)] + [record(20)]
    assert bool(list(log.problems)) == (size * 20 > FIRST_READ)


def test_without_an_index_a_second_lookup_is_short_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = [batch([record(at, bytes(3000))]) for at in range(1000)]
    directory = tmp_path / "t-0"
    write_segment(directory, 0, content)
    write_segment(directory, 1000, [batch([record(1000)])])
    (directory / OFFSETS).unlink()
    log = open_log(directory)
    assert find_record(log, 990) == content[990].records[0]
    reads = watch_reads(monkeypatch)
    assert find_record(log, 777) == content[777].records[0]
    assert bytes_read(reads) < 400_000
