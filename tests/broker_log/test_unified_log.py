"""A partition that kfs writes is one that kfs, and a broker, opens: segments, snapshots, epochs and all beside them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.log_loader import LoadParameters
from kfs.broker_log.log_segment import batch_headers
from kfs.broker_log.unified_log import UnifiedLog
from kfs.errors import CorruptData, InvalidOffset, InvalidTransaction, RecoveryRefused
from kfs.format.batch_header import read_header
from kfs.format.checkpoint import EpochEntry, parse_leader_epoch_checkpoint
from kfs.format.codecs import Codec
from kfs.format.control_record import AbortMarker, CommitMarker, encode_control_record
from kfs.format.layout import MAX_INT32, MAX_INT64
from kfs.format.legacy_writer import encode_message_set
from kfs.format.offset_assignment import assign_offset
from kfs.format.producer_snapshot import parse_producer_snapshot
from kfs.format.record import Record
from kfs.format.uuid import Uuid
from kfs.format.writer import encode_batch
from tests.corpus import take_manifest
from tests.log.some_logs import some_batches
from tests.logs import START, Batch, batch, dense, joined, log_name, open_log, records, records_in

SMALL = LogConfig(segment_bytes=1000, segment_ms=MAX_INT64, index_interval_bytes=100)


def clock() -> int:
    return START


def write(directory: Path, content: Sequence[Batch], config: LogConfig = SMALL) -> UnifiedLog:
    log = UnifiedLog.create(str(directory), config, clock=clock)
    for one in content:
        log.append(one.data)
    return log


def reopened(directory: Path, *, clean: bool = False, config: LogConfig = SMALL) -> UnifiedLog:
    parameters = LoadParameters(had_clean_shutdown=clean)
    return UnifiedLog.open(str(directory), config, parameters, clock=clock)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def logs_in(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def test_segments_are_rolled_before_they_are_too_large(tmp_path: Path) -> None:
    content = dense(0, 99)
    write(tmp_path / "topic-0", content).close()
    logs = sorted((tmp_path / "topic-0").glob("*.log"))
    assert b"".join(log.read_bytes() for log in logs) == joined(content)
    assert all(log.stat().st_size <= SMALL.segment_bytes for log in logs)
    assert all(one.stat().st_size + len(content[0].data) > SMALL.segment_bytes for one in logs[:-1])
    assert records_in(open_log(tmp_path / "topic-0")) == [record for one in content for record in one.records]


def test_each_roll_and_the_end_leave_a_snapshot(tmp_path: Path) -> None:
    log = UnifiedLog.create(str(tmp_path / "topic-0"), SMALL, clock=clock)
    for first in range(0, 100, 5):
        log.append(encode_batch(records(first, first + 4), producer_id=3, producer_epoch=0, base_sequence=first))
    log.close()
    snapshots = sorted((tmp_path / "topic-0").glob("*.snapshot"))
    assert [int(path.stem) for path in snapshots] == [*logs_in(tmp_path / "topic-0")[1:], 100]
    for path in snapshots:
        (entry,) = parse_producer_snapshot(path.read_bytes())
        assert entry.last_offset == entry.last_sequence == int(path.stem) - 1


def test_epochs_of_batches_and_of_leaders_are_kept(tmp_path: Path) -> None:
    log = UnifiedLog.create(str(tmp_path / "topic-0"), clock=clock)
    log.assign_epoch(1)
    log.append(encode_batch(records(0, 4), partition_leader_epoch=1))
    log.append(encode_batch(records(5, 9), partition_leader_epoch=4))
    log.assign_epoch(6)
    log.close()
    content = (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_bytes()
    assert parse_leader_epoch_checkpoint(content) == (EpochEntry(1, 0), EpochEntry(4, 5), EpochEntry(6, 10))
    again = UnifiedLog.open(str(tmp_path / "topic-0"), clock=clock)
    assert [entry.leader_epoch for entry in again.epochs.entries] == [1, 4]  # of 6 there was never a batch


def test_an_older_format_has_no_epochs(tmp_path: Path) -> None:
    log = UnifiedLog.create(str(tmp_path / "topic-0"), clock=clock)
    log.append(encode_batch(records(0, 4), partition_leader_epoch=1))
    log.append(encode_message_set(records(5, 5), magic=1))
    assert log.epochs.entries == ()


def test_the_topic_id_and_the_first_offset_are_given(tmp_path: Path) -> None:
    log = UnifiedLog.create(str(tmp_path / "topic-0"), first_offset=70, topic_id=Uuid(bytes(range(1, 17))), clock=clock)
    log.append(batch(records(75, 79)).data)
    log.close()
    assert (log.log_start_offset, log.log_end_offset) == (70, 80)
    assert logs_in(tmp_path / "topic-0") == [70]
    assert open_log(tmp_path / "topic-0").log_end_offset == 80
    assert (tmp_path / "topic-0" / "partition.metadata").read_text().startswith("version: 0\ntopic_id: AQID")


def test_offsets_below_the_end_are_refused(tmp_path: Path) -> None:
    log = write(tmp_path / "topic-0", dense(0, 9))
    with pytest.raises(InvalidOffset, match="offset 9 is below the end of the log, 10"):
        log.append(batch(records(9, 12)).data)
    with pytest.raises(ValueError, match="segments have at most 1000"):
        log.append(batch([Record(10, START, None, bytes(2000))]).data)
    with pytest.raises(CorruptData):
        log.append(b"anything but a batch, and longer than a header is, which has sixty-one bytes")


def test_offsets_are_assigned_where_that_is_asked(tmp_path: Path) -> None:
    log = UnifiedLog.create(str(tmp_path / "topic-0"), first_offset=1000, clock=clock)
    assert log.append_as_leader(joined(dense(0, 9)), leader_epoch=7) == 1000
    assert log.append_as_leader(encode_message_set(records(5, 5), magic=1)) == 1010
    log.close()
    assert [record.offset for record in records_in(open_log(tmp_path / "topic-0"))] == list(range(1000, 1011))
    header = read_header((tmp_path / "topic-0" / log_name(1000)).read_bytes(), 0, 0)
    assert header.leader_epoch == 7


def test_offsets_inside_of_a_compressed_message_are_not_assigned() -> None:
    data = encode_message_set(records(0, 4), magic=1, codec=Codec.GZIP)
    with pytest.raises(ValueError, match="compressed message"):
        assign_offset(data, read_header(data, 0, 0), 100)


def test_a_gap_of_more_than_an_int32_begins_a_segment(tmp_path: Path) -> None:
    far = MAX_INT32 + 100
    log = write(tmp_path / "topic-0", [batch(records(0, 4)), batch(records(far, far + 4))])
    log.close()
    assert logs_in(tmp_path / "topic-0") == [0, far]


def transaction(log: UnifiedLog, first: int, last: int, producer: int) -> None:
    log.append(
        encode_batch(records(first, last), producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
    )


def end(log: UnifiedLog, offset: int, producer: int, marker: AbortMarker | CommitMarker) -> None:
    record = Record(offset, START, *encode_control_record(marker))
    log.append(encode_batch([record], producer_id=producer, producer_epoch=0, transactional=True, control=True))


def test_aborted_transactions_stand_in_the_index_of_their_markers_segment(tmp_path: Path) -> None:
    log = UnifiedLog.create(str(tmp_path / "topic-0"), clock=clock)
    transaction(log, 0, 4, producer=1)
    log.roll()
    transaction(log, 5, 9, producer=2)
    end(log, 10, 1, AbortMarker(0))
    end(log, 11, 2, CommitMarker(0))
    log.close()
    assert [path.name for path in (tmp_path / "topic-0").glob("*.txnindex")] == [log_name(5, ".txnindex")]
    transaction(log, 12, 14, producer=3)
    with pytest.raises(InvalidTransaction):
        log.append(encode_batch(records(15, 15), producer_id=3, producer_epoch=0, base_sequence=3))


# --- opening again --------------------------------------------------------------------------------------------------


@given(some_batches(most=12), st.booleans())
@settings(max_examples=40)
def test_a_closed_log_opens_as_it_was_and_recovers_to_itself(
    tmp_path_factory: pytest.TempPathFactory, content: list[Batch], clean: bool
) -> None:
    directory = tmp_path_factory.mktemp("log") / "topic-0"
    config = LogConfig(segment_bytes=4000, segment_ms=MAX_INT64, index_interval_bytes=100)
    written = write(directory, content, config)
    written.close()
    before = contents(directory)
    again = reopened(directory, clean=clean, config=config)
    assert again.log_end_offset == written.log_end_offset
    again.close()
    after = contents(directory)
    assert {name: after.get(name) for name in before} == before
    # Where an older format follows in a segment, recovery leaves a snapshot of where it begins, as Kafka's does.
    assert all(name.endswith(".snapshot") for name in after.keys() - before.keys())
    assert clean or {one.data[16] for one in content} != {2} or after == before


@given(some_batches(most=12), st.data())
@settings(max_examples=60)
def test_a_log_torn_anywhere_recovers_to_the_batches_before(
    tmp_path_factory: pytest.TempPathFactory, content: list[Batch], data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("log") / "topic-0"
    config = LogConfig(segment_bytes=4000, segment_ms=MAX_INT64, index_interval_bytes=100)
    write(directory, content, config).close()
    torn = data.draw(st.sampled_from([path for path in sorted(directory.glob("*.log")) if path.stat().st_size]))
    whole = torn.read_bytes()
    # Within a batch: where one ends, nobody could tell that something was behind it.
    ends = {header.position + header.size for header in batch_headers(whole)} | {0}
    torn.write_bytes(whole[: data.draw(st.integers(0, len(whole)).filter(lambda at: at not in ends))])
    recovered = reopened(directory, config=config)
    recovered.close()
    left = [record for one in content if one.last_offset < recovered.log_end_offset for record in one.records]
    assert records_in(open_log(directory)) == left
    assert joined(content).startswith(b"".join(path.read_bytes() for path in sorted(directory.glob("*.log"))))
    assert logs_in(directory)[-1] == int(torn.stem)
    assert recovered.log_end_offset <= content[-1].last_offset


def test_a_log_goes_on_where_it_was_closed(tmp_path: Path) -> None:
    write(tmp_path / "topic-0", dense(0, 49)).close()
    log = reopened(tmp_path / "topic-0", clean=True)
    for one in dense(50, 99):
        log.append(one.data)
    log.flush()
    log.close()
    assert records_in(open_log(tmp_path / "topic-0")) == records(0, 99)


@pytest.mark.parametrize("offset", [0, 7, 20, 57, 99])
def test_a_cut_log_is_one_that_never_had_more(offset: int, tmp_path: Path) -> None:
    cut = write(tmp_path / "cut-0", dense(0, 99))
    cut.truncate_to(offset)
    cut.close()
    kept = [one for one in dense(0, 99) if one.last_offset < offset]
    assert cut.log_end_offset == offset
    assert records_in(open_log(tmp_path / "cut-0")) == [record for one in kept for record in one.records]
    write(tmp_path / "short-0", kept).close()
    logs = {
        name: data for name, data in contents(tmp_path / "cut-0").items() if not name.endswith(".snapshot") and data
    }
    assert logs == {
        name: data for name, data in contents(tmp_path / "short-0").items() if not name.endswith(".snapshot") and data
    }


def test_a_cut_below_the_first_segment_empties_the_log(tmp_path: Path) -> None:
    log = UnifiedLog.create(str(tmp_path / "topic-0"), first_offset=50, clock=clock)
    log.append(batch(records(50, 59)).data)
    log.truncate_to(10)
    log.close()
    assert logs_in(tmp_path / "topic-0") == [10]
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    log.truncate_to(10)
    with pytest.raises(ValueError, match="offset -1"):
        log.truncate_to(-1)


def test_a_transaction_that_was_cut_is_open_no_more(tmp_path: Path) -> None:
    log = UnifiedLog.create(str(tmp_path / "topic-0"), clock=clock)
    transaction(log, 0, 4, producer=1)
    transaction(log, 5, 9, producer=2)
    log.truncate_to(5)
    assert log.producers.state.first_undecided_offset == 0
    log.truncate_to(0)
    assert log.producers.state.first_undecided_offset is None


def test_opening_what_a_broker_refuses_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "topic-0", dense(0, 9)).close()
    (tmp_path / "topic-0" / "leader-epoch-checkpoint").write_text("0\n1\nnothing\n")
    before = take_manifest(tmp_path)
    with pytest.raises(RecoveryRefused, match="leader-epoch-checkpoint"):
        reopened(tmp_path / "topic-0")
    assert take_manifest(tmp_path) == before


def test_a_killed_writer_leaves_what_can_be_recovered(tmp_path: Path) -> None:
    log = write(tmp_path / "topic-0", dense(0, 49))
    log.flush()
    shutil.copytree(tmp_path / "topic-0", tmp_path / "copy-0")
    log.close()
    again = reopened(tmp_path / "copy-0")
    again.close()
    assert again.log_end_offset == 50
    assert contents(tmp_path / "copy-0") == contents(tmp_path / "topic-0")
