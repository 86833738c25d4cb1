"""A segment is appended to, read, rolled, cut and recovered as Kafka's ``LogSegment`` does it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.log_segment import LogSegment, Recovery, RollParams, fetch_size
from kfs.errors import CorruptData, InvalidOffset, OffsetOverflow
from kfs.format.aborted_txn import AbortedTxn, parse_aborted_transactions
from kfs.format.control_record import AbortMarker, encode_control_record
from kfs.format.layout import MAX_INT32, MAX_INT64
from kfs.format.legacy_writer import encode_message_set
from kfs.format.record import Record
from kfs.format.writer import encode_batch
from kfs.log.leader_epochs import LeaderEpochs
from kfs.log.producer_state import ProducerState
from tests.log.some_logs import some_batches
from tests.logs import START, Batch, batch, dense, joined, log_name, positions, records

NEVER = LogConfig(segment_ms=MAX_INT64)


def segment_of(
    directory: Path, content: Sequence[Batch], base_offset: int = 0, config: LogConfig = NEVER
) -> LogSegment:
    segment = LogSegment.create(str(directory), base_offset, config)
    for one in content:
        segment.append(one.data)
    return segment


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# --- the arithmetic of a read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "max_position", "max_size", "expected"),
    [
        (10, 100, 80, 100, 70),
        (10, 100, 80, 70, 70),
        (10, 100, 80, 69, 69),
        (10, 60, 80, 100, 50),
        (0, 100, 100, 100, 100),
        (0, 100, 200, 500, 100),
        (10, 100, 80, 0, 0),
        (80, 100, 80, 100, 0),
    ],
)
def test_a_read_ends_at_the_first_of_its_limits(
    start: int, end: int, max_position: int, max_size: int, expected: int
) -> None:
    assert fetch_size(start, end, max_position, max_size) == expected


def test_a_read_cannot_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match="-1 bytes"):
        fetch_size(81, 100, 80, 100)


def test_reads_begin_at_the_batch_of_an_offset_and_may_end_within_one(tmp_path: Path) -> None:
    content = dense(0, 29)
    segment = segment_of(tmp_path, content)
    data, starts = joined(content), positions(content)
    for offset in (10, 12, 14):
        found = segment.read(offset, 10_000)
        assert found is not None
        assert (found.offset, found.position, found.data) == (10, starts[2], data[starts[2] :])
    cut = segment.read(0, len(content[0].data) + 7)
    assert cut is not None
    assert cut.data == data[: len(content[0].data) + 7]
    assert not cut.is_first_entry_incomplete


def test_a_first_batch_larger_than_asked_for_is_read_whole_only_on_demand(tmp_path: Path) -> None:
    content = dense(0, 9)
    segment = segment_of(tmp_path, content)
    incomplete = segment.read(0, 10)
    assert incomplete is not None
    assert (len(incomplete.data), incomplete.is_first_entry_incomplete) == (10, True)
    whole = segment.read(0, 10, min_one_message=True)
    assert whole is not None
    assert (whole.data, whole.is_first_entry_incomplete) == (content[0].data, False)
    nothing = segment.read(0, 0)
    assert nothing is not None
    assert (nothing.data, nothing.is_first_entry_incomplete) == (b"", False)
    none = segment.read(0, 0, min_one_message=True)
    assert none is not None
    assert none.data == content[0].data


def test_nothing_is_read_past_the_end_nor_with_a_negative_size(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, dense(0, 9))
    assert segment.read(10, 1000) is None
    with pytest.raises(ValueError, match="-1 bytes"):
        segment.read(0, -1)


def test_positions_and_offsets_bound_a_read(tmp_path: Path) -> None:
    content = dense(0, 29)
    segment = segment_of(tmp_path, content)
    starts = positions(content)
    shown = segment.read(7, 10_000, starts[4])
    assert shown is not None
    assert len(shown.data) == starts[4] - starts[1]
    before = segment.read(7, 10_000, max_offset=22)
    assert before is not None
    assert len(before.data) == starts[4] - starts[1]
    nothing = segment.read(7, 10_000, max_offset=6)
    assert nothing is not None
    assert nothing.data == b""


def test_holes_lead_to_the_next_batch(tmp_path: Path) -> None:
    content = [batch(records(5, 6)), batch(records(20, 22))]
    segment = segment_of(tmp_path, content)
    for offset, expected in {0: 0, 5: 0, 6: 0, 7: 1, 19: 1, 20: 1, 22: 1}.items():
        found = segment.translate_offset(offset)
        assert found is not None
        assert found.position == positions(content)[expected]
        assert found.size == len(content[expected].data)
    assert segment.translate_offset(23) is None


def test_a_search_may_begin_later_than_the_index_says(tmp_path: Path) -> None:
    content = dense(0, 29)
    segment = segment_of(tmp_path, content)
    found = segment.translate_offset(3, positions(content)[2])
    assert found is not None
    assert found.offset == 10


# --- appending ------------------------------------------------------------------------------------------------------


def test_offsets_beyond_an_int32_are_refused_and_nothing_is_appended(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [], base_offset=100)
    segment.append(batch(records(100, 101)).data)
    size = segment.size
    for offset in (101 + MAX_INT32, 99):
        with pytest.raises(OffsetOverflow):
            segment.append(batch(records(offset, offset)).data)
    segment.append(batch(records(100 + MAX_INT32, 100 + MAX_INT32)).data)
    assert segment.size > size
    segment.close()
    assert (tmp_path / log_name(100)).stat().st_size == segment.size


@pytest.mark.parametrize("cut", [1, 16, 17, 30, 61, 80])
def test_part_of_a_batch_is_refused(tmp_path: Path, cut: int) -> None:
    segment = segment_of(tmp_path, [])
    with pytest.raises((ValueError, CorruptData)):
        segment.append(dense(0, 4)[0].data[:cut])
    assert segment.size == 0


def test_a_segment_that_is_opened_again_is_as_it_was(tmp_path: Path) -> None:
    content = dense(0, 99)
    config = LogConfig(index_interval_bytes=200)
    segment_of(tmp_path, content, config=config).close()
    before = contents(tmp_path)
    again = LogSegment(str(tmp_path), 0, config)
    assert again.read_next_offset() == 100
    again.close()
    assert contents(tmp_path) == before
    more = LogSegment(str(tmp_path), 0, config)
    more.append(dense(100, 104)[0].data)
    assert more.read_next_offset() == 105
    more.close()
    assert (tmp_path / log_name(0)).read_bytes() == joined(dense(0, 104))


def test_an_index_may_be_larger_than_the_segment_needs_but_not_smaller(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [], config=LogConfig(index_interval_bytes=0, segment_index_bytes=36))
    appended = 0
    for one in dense(0, 99):
        if segment.should_roll(RollParams(START, one.last_offset, len(one.data), START)):
            break
        segment.append(one.data)
        appended += 1
    assert appended == 3  # an entry for all but the first, and the third time entry is for the end


# --- rolling --------------------------------------------------------------------------------------------------------


def rolls(segment: LogSegment, *, timestamp: int = START, offset: int = 50, size: int = 10, now: int = START) -> bool:
    return segment.should_roll(RollParams(timestamp, offset, size, now))


def test_a_segment_is_rolled_before_it_becomes_too_large(tmp_path: Path) -> None:
    content = dense(0, 9)
    segment = segment_of(tmp_path, content, config=LogConfig(segment_bytes=1000, segment_ms=MAX_INT64))
    assert not rolls(segment, size=1000 - segment.size)
    assert rolls(segment, size=1001 - segment.size)


def test_a_segment_is_rolled_by_the_timestamp_of_its_first_batch(tmp_path: Path) -> None:
    content = [batch(records(0, 4)), batch(records(5, 9))]
    first = START + 4000  # the latest of the first batch
    segment = segment_of(tmp_path, content, config=LogConfig(segment_ms=60_000))
    assert not rolls(segment, timestamp=first + 60_000, now=first + 10**9)
    assert rolls(segment, timestamp=first + 60_001)


def test_the_jitter_makes_it_earlier(tmp_path: Path) -> None:
    LogSegment.create(str(tmp_path), 0).close()
    segment = LogSegment(str(tmp_path), 0, LogConfig(segment_ms=60_000), roll_jitter_ms=10_000)
    segment.append(batch(records(0, 4)).data)
    first = START + 4000
    assert not rolls(segment, timestamp=first + 50_000)
    assert rolls(segment, timestamp=first + 50_001)


def test_without_timestamps_the_clock_counts(tmp_path: Path) -> None:
    segment = LogSegment.create(str(tmp_path), 0, LogConfig(segment_ms=60_000), clock=lambda: START)
    segment.append(encode_message_set(records(0, 0), magic=0))
    assert not rolls(segment, timestamp=-1, now=START + 60_000)
    assert rolls(segment, timestamp=-1, now=START + 60_001)


def test_an_empty_segment_is_not_rolled_for_its_age(tmp_path: Path) -> None:
    segment = LogSegment.create(str(tmp_path), 0, LogConfig(segment_ms=60_000), clock=lambda: START)
    assert not rolls(segment, now=START + 10**9)


def test_an_offset_that_does_not_fit_rolls(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, [])
    assert not rolls(segment, offset=MAX_INT32)
    assert rolls(segment, offset=MAX_INT32 + 1)


# --- cutting --------------------------------------------------------------------------------------------------------


@given(some_batches(), st.integers(0, 60))
@settings(max_examples=60)
def test_a_segment_that_was_cut_is_one_that_never_had_more(
    tmp_path_factory: pytest.TempPathFactory, content: list[Batch], offset: int
) -> None:
    config = LogConfig(index_interval_bytes=100, segment_ms=MAX_INT64)
    cut, short = tmp_path_factory.mktemp("cut"), tmp_path_factory.mktemp("short")
    segment = segment_of(cut, content, config=config)
    kept = [one for one in content if one.last_offset < offset]
    truncated = segment.truncate_to(offset)
    assert truncated == len(joined(content)) - len(joined(kept))
    assert segment.read_next_offset() == (kept[-1].last_offset + 1 if kept else 0)
    segment.close()
    segment_of(short, kept, config=config).close()
    assert contents(cut) == contents(short)


# --- recovering -----------------------------------------------------------------------------------------------------


def recover(
    directory: Path, base_offset: int = 0, config: LogConfig = NEVER
) -> tuple[Recovery, ProducerState, LeaderEpochs]:
    segment = LogSegment(str(directory), base_offset, config)
    producers, epochs = ProducerState(), LeaderEpochs()
    recovery = segment.recover(producers, epochs)
    segment.close()
    return recovery, producers, epochs


@given(some_batches(), st.integers(0, 3000))
@settings(max_examples=60)
def test_recovery_keeps_the_batches_that_are_whole(
    tmp_path_factory: pytest.TempPathFactory, content: list[Batch], cut: int
) -> None:
    config = LogConfig(index_interval_bytes=100, segment_ms=MAX_INT64)
    torn, whole = tmp_path_factory.mktemp("torn"), tmp_path_factory.mktemp("whole")
    data = joined(content)[:cut]
    ends = [start + len(one.data) for one, start in zip(content, positions(content), strict=True)]
    kept = [one for one, end in zip(content, ends, strict=True) if end <= len(data)]
    (torn / log_name(0)).write_bytes(data)
    (torn / log_name(0, ".index")).write_bytes(b"anything")
    recovery, _, _ = recover(torn, config=config)
    assert recovery.valid_bytes == len(joined(kept))
    assert recovery.truncated_bytes == len(data) - len(joined(kept))
    segment_of(whole, kept, config=config).close()
    assert contents(torn) == contents(whole)


@given(some_batches(), st.data())
@settings(max_examples=60)
def test_recovery_ends_at_the_first_batch_with_a_flipped_byte(
    tmp_path_factory: pytest.TempPathFactory, content: list[Batch], data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(content) - 1))
    at = positions(content)[number] + data.draw(st.integers(21, len(content[number].data) - 1))
    damaged = bytearray(joined(content))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    directory = tmp_path_factory.mktemp("flipped")
    (directory / log_name(0)).write_bytes(damaged)
    recovery, _, _ = recover(directory)
    assert recovery.valid_bytes == positions(content)[number]
    assert recovery.reason is not None
    assert recovery.reason.position == recovery.valid_bytes


def test_recovery_finds_epochs_producers_and_aborted_transactions(tmp_path: Path) -> None:
    data = encode_batch(
        records(0, 4), producer_id=7, producer_epoch=1, base_sequence=0, transactional=True, partition_leader_epoch=3
    )
    marker = encode_batch(
        [Record(5, START, *encode_control_record(AbortMarker(2)))],
        producer_id=7,
        producer_epoch=1,
        transactional=True,
        control=True,
        partition_leader_epoch=4,
    )
    (tmp_path / log_name(0)).write_bytes(data + marker)
    recovery, producers, epochs = recover(tmp_path)
    assert recovery == Recovery(len(data + marker), 0, None)
    assert [(entry.leader_epoch, entry.start_offset) for entry in epochs.entries] == [(3, 0), (4, 5)]
    assert [entry.producer_id for entry in producers.entries()] == [7]
    found = parse_aborted_transactions((tmp_path / log_name(0, ".txnindex")).read_bytes())
    assert found == (AbortedTxn(7, 0, 5, 6),)


def test_zeros_at_the_end_are_cut_off(tmp_path: Path) -> None:
    whole = joined(dense(0, 9))
    (tmp_path / log_name(0)).write_bytes(whole + bytes(5000))
    recovery, _, _ = recover(tmp_path)
    assert (recovery.valid_bytes, recovery.truncated_bytes) == (len(whole), 5000)
    assert os.path.getsize(tmp_path / log_name(0)) == len(whole)


def test_what_kafka_gives_up_on_is_told(tmp_path: Path) -> None:
    (tmp_path / log_name(100)).write_bytes(joined(dense(0, 9)))
    with pytest.raises(OffsetOverflow):
        recover(tmp_path, 100)
    (tmp_path / log_name(0)).write_bytes(joined(dense(0, 9) + dense(0, 9)))
    with pytest.raises(InvalidOffset):
        recover(tmp_path, 0, LogConfig(index_interval_bytes=0))
