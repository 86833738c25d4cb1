"""The fate of every byte of a segment: nothing that is intact is lost, and nothing is forgotten."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kfs.format.control_record import AbortMarker, encode_control_record
from kfs.format.record import Record
from kfs.format.writer import encode_batch
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.producer_state import ProducerState
from kfs.log.segment import Segment
from kfs.log.storage import Storage
from kfs.recover.losses import consequences
from kfs.recover.segment_plan import Fate, Stretch, plan_segment
from tests.corpus import corpus_names
from tests.log.damages import (
    Damage,
    damaged,
    disorder,
    intact_records,
    is_ambiguous,
    joined_parts,
    local_damage,
    may_be_in_the_making,
    written,
)
from tests.log.some_logs import some_batches
from tests.logs import (
    START,
    Batch,
    batch,
    damage_in,
    dense,
    joined,
    open_log,
    positions,
    record,
    records,
    records_in,
    write_checkpoint,
    write_log,
)

pytestmark = pytest.mark.usefixtures("quiet")


def plan_of(log: Log, producers: ProducerState | None = None) -> list[tuple[Segment, list[Stretch]]]:
    producers = producers or ProducerState()
    return [(segment, plan_segment(segment, producers)) for segment in log.segments]


def planned(directory: Path, data: bytes, base_offset: int = 0) -> list[tuple[int, int, str, int, int]]:
    """Write a segment of any bytes and return its plan, reasons aside."""
    write_log(directory / "t-0", base_offset, data)
    ((_, stretches),) = plan_of(open_log(directory / "t-0"))
    check_cover(stretches, len(data))
    return [(each.position, each.end, each.fate.value, each.first_offset, each.last_offset) for each in stretches]


def check_cover(stretches: Sequence[Stretch], size: int) -> None:
    """Hold the stretches to cover a file exactly, kept ones joined."""
    ends = [0, *(each.end for each in stretches)]
    assert [each.position for each in stretches] == ends[:-1]
    assert ends[-1] == size
    assert all(each.position < each.end for each in stretches)
    assert not any(one.fate is other.fate is Fate.KEPT for one, other in pairwise(stretches))


def test_an_intact_segment_is_kept_whole(tmp_path: Path) -> None:
    data = joined(dense(10, 59))
    assert planned(tmp_path, data, 10) == [(0, len(data), "kept", 10, 59)]


def test_a_broken_batch_is_lost_between_those_around_it(tmp_path: Path) -> None:
    content = dense(0, 29)
    data = bytearray(joined(content))
    start, end = positions(content)[2:4]
    data[end - 1] ^= 1
    assert planned(tmp_path, bytes(data)) == [
        (0, start, "kept", 0, 9),
        (start, end, "lost", 10, 14),
        (end, len(data), "kept", 15, 29),
    ]


def test_garbage_between_batches_loses_no_offset(tmp_path: Path) -> None:
    content = dense(0, 29)
    at = positions(content)[3]
    data = joined(content)
    found = planned(tmp_path, data[:at] + b"garbage" * 30 + data[at:])
    assert found[1] == (at, at + 210, "lost", 15, 14)
    ((_, (_, lost, _)),) = plan_of(open_log(tmp_path / "t-0"))
    assert not lost.has_offsets


def test_zeros_at_the_end_are_padding(tmp_path: Path) -> None:
    data = joined(dense(0, 9))
    assert planned(tmp_path, data + bytes(4096)) == [
        (0, len(data), "kept", 0, 9),
        (len(data), len(data) + 4096, "padding", 10, 9),
    ]


@pytest.mark.parametrize("left", [10, 40, 70])
def test_an_incomplete_batch_at_the_end_is_lost(left: int, tmp_path: Path) -> None:
    content = dense(0, 14)
    data = joined(content)[: positions(content)[2] + left]
    start = positions(content)[2]
    claimed = 14 if left >= 27 else 9  # where the last offset delta ends
    assert planned(tmp_path, data) == [(0, start, "kept", 0, 9), (start, len(data), "lost", 10, claimed)]


def test_batches_that_stand_twice_are_set_aside(tmp_path: Path) -> None:
    content = dense(0, 19)
    twice = [*content[:3], content[1], content[2], *content[3:]]
    ends = [*positions(twice), len(joined(twice))]
    assert planned(tmp_path, joined(twice)) == [
        (0, ends[3], "kept", 0, 14),
        (ends[3], ends[4], "extra", 5, 9),
        (ends[4], ends[5], "extra", 10, 14),
        (ends[5], ends[6], "kept", 15, 19),
    ]


def test_a_batch_that_overlaps_is_set_aside_whole(tmp_path: Path) -> None:
    content = [batch(records(0, 9)), batch(records(5, 14)), batch(records(15, 19))]
    ends = [*positions(content), len(joined(content))]
    assert planned(tmp_path, joined(content)) == [
        (0, ends[1], "kept", 0, 9),
        (ends[1], ends[2], "extra", 5, 14),
        (ends[2], ends[3], "kept", 15, 19),
    ]


def test_a_batch_that_reaches_into_the_next_segment_is_set_aside(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", 0, joined([batch(records(0, 4)), batch(records(5, 12))]))
    write_log(tmp_path / "t-0", 10, joined(dense(10, 19)))
    (_, first), (_, second) = plan_of(open_log(tmp_path / "t-0"))
    assert [(each.fate, each.first_offset, each.last_offset) for each in first] == [
        (Fate.KEPT, 0, 4),
        (Fate.EXTRA, 5, 12),
    ]
    assert [each.fate for each in second] == [Fate.KEPT]


def test_batches_that_damage_hides_are_set_aside(tmp_path: Path) -> None:
    """Behind garbage the log goes on at a higher offset: what is intact before that, and lower, isn't lost."""
    content = [batch(records(10, 14)), batch(records(0, 4)), batch(records(5, 9)), batch(records(15, 19))]
    ends = [len(joined(content[:count])) for count in range(5)]
    data = joined(content[:1]) + b"garbage" * 10 + joined(content[1:])
    assert planned(tmp_path, data) == [
        (0, ends[1], "kept", 10, 14),
        (ends[1], ends[1] + 70, "lost", 15, 14),
        (ends[1] + 70, ends[2] + 70, "extra", 0, 4),
        (ends[2] + 70, ends[3] + 70, "extra", 5, 9),
        (ends[3] + 70, ends[4] + 70, "kept", 15, 19),
    ]


def transactional(first: int, last: int, producer_id: int = 7) -> Batch:
    content = records(first, last)
    data = encode_batch(content, producer_id=producer_id, producer_epoch=0, base_sequence=first, transactional=True)
    return Batch(data, tuple(content))


def abort(offset: int, producer_id: int = 7) -> Batch:
    marker = Record(offset, START, *encode_control_record(AbortMarker(0)))
    data = encode_batch([marker], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)
    return Batch(data, (marker,))


def test_what_recovery_would_refuse_is_set_aside(tmp_path: Path) -> None:
    """A broker doesn't start on a batch in no transaction while its producer has one open."""
    content = [transactional(0, 4), Batch(_plain(5), ()), abort(6), Batch(_plain(7), ())]
    ends = [*positions(content), len(joined(content))]
    assert planned(tmp_path, joined(content)) == [
        (0, ends[1], "kept", 0, 4),
        (ends[1], ends[2], "extra", 5, 5),
        (ends[2], ends[4], "kept", 6, 7),
    ]


def _plain(offset: int) -> bytes:
    return encode_batch([record(offset)], producer_id=7, producer_epoch=0, base_sequence=offset)


def consequences_of(directory: Path) -> list[str]:
    log = open_log(directory)
    producers = ProducerState()
    gone = [(segment, each) for segment, stretches in plan_of(log, producers) for each in stretches]
    return consequences(log, [pair for pair in gone if pair[1].fate is not Fate.KEPT], producers.entries())


def test_a_lost_marker_leaves_its_transaction_open(tmp_path: Path) -> None:
    content = [batch(records(0, 4)), transactional(5, 9), abort(10), batch(records(11, 12))]
    data = bytearray(joined(content))
    data[positions(content)[3] - 1] ^= 1
    directory = tmp_path / "t-0"
    path = write_log(directory, 0, bytes(data))
    found = consequences_of(directory)
    assert len(found) == 2
    assert f"position {positions(content)[2]} of {path} was a transaction marker of producer 7" in found[0]
    assert "no marker ends the transaction of producer 7 from offset 5 on" in found[1]


def test_a_transaction_that_was_open_before_is_no_consequence(tmp_path: Path) -> None:
    content = [batch(records(0, 4)), batch(records(5, 9)), transactional(10, 14)]
    data = bytearray(joined(content))
    data[positions(content)[2] - 1] ^= 1
    write_log(tmp_path / "t-0", 0, bytes(data))
    assert consequences_of(tmp_path / "t-0") == []


def test_losses_of_a_compacted_topic_may_bring_keys_back(tmp_path: Path) -> None:
    content = dense(0, 29)
    data = bytearray(joined(content))
    data[100] ^= 1
    write_log(tmp_path / "t-0", 0, bytes(data))
    assert consequences_of(tmp_path / "t-0") == []
    write_checkpoint(tmp_path, "cleaner-offset-checkpoint", {("t", 0): 20})
    (found,) = consequences_of(tmp_path / "t-0")
    assert found.startswith("the topic is compacted: a lost tombstone")


@settings(max_examples=150)
@given(
    content=some_batches(1000),
    done=st.lists(local_damage | disorder, min_size=1, max_size=4),
    closed=st.booleans(),
)
def test_whatever_is_damaged_the_plan_covers_it_and_what_is_kept_is_a_log(
    content: list[Batch], done: list[Damage], closed: bool
) -> None:
    parts = damaged(content, done)
    data = joined_parts(parts)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "t-0"
        write_log(directory, 1000, data)
        end = content[-1].last_offset + 1
        if closed:
            write_log(directory, end, batch([record(end)]).data)
        stretches = plan_of(open_log(directory))[0][1]
        check_cover(stretches, len(data))
        kept = b"".join(data[each.position : each.end] for each in stretches if each.fate is Fate.KEPT)
        copy = Path(name) / "copy" / "t-0"
        write_log(copy, 1000, kept)
        log = open_log(copy)
        assert damage_in(log) == []
        assert log.segments[0].tail()[0] == len(kept)
        found = {one.offset: one for one in records_in(log)}
        assert list(found) == sorted(found)
        assume(not is_ambiguous(parts) and (closed or not may_be_in_the_making(parts)))
        aside = b"".join(data[each.position : each.end] for each in stretches if each.fate is Fate.EXTRA)
        for part in parts:
            if part.was is not None and part.is_intact:
                body = part.was.data[17 if part.was.data[16] == 2 else 12 :]
                assert body in kept or body in aside
        if not any(part.is_moved for part in parts) and not aside:
            assert intact_records(parts).items() <= found.items() <= written(content).items() | found.items()


@pytest.mark.parametrize("name", [name for name in corpus_names() if name != "g_damage"])
def test_of_what_brokers_wrote_nothing_is_lost(name: str, corpus: Callable[[str], Path]) -> None:
    data_dir = DataDir([str(corpus(name) / "data")], Storage())
    seen = 0
    for log in data_dir.logs():
        for segment, stretches in plan_of(log):
            size = segment.size()
            check_cover(stretches, size)
            assert {each.fate for each in stretches} <= {Fate.KEPT, Fate.PADDING}, segment.files.log.path
            seen += len(stretches)
    assert seen > 0
