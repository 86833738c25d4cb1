"""A partition's producers, replayed from its log, are those that the broker wrote into its snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfs.broker_log.file_records import FileRecords
from kfs.errors import CorruptData, InvalidTransaction
from kfs.format.aborted_txn import AbortedTxn, parse_aborted_transactions
from kfs.format.batch_header import BatchHeader, read_header
from kfs.format.control_record import (
    AbortMarker,
    CommitMarker,
    ControlRecord,
    SnapshotFooter,
    UnknownControlRecord,
    encode_control_record,
)
from kfs.format.producer_snapshot import ProducerStateEntry, parse_producer_snapshot
from kfs.format.record import Record
from kfs.format.writer import encode_batch, encode_empty_batch
from kfs.log.producer_state import PRODUCER_ID_EXPIRATION_MS, CompletedTxn, ProducerState
from kfs.storage.open_files import OpenFile
from tests.logs import START, records

CorpusPath = Callable[[str], Path]


def data_batch(
    first: int, last: int, *, producer: int = 7, epoch: int = 0, sequence: int = 0, transactional: bool = False
) -> bytes:
    return encode_batch(
        records(first, last),
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def append(state: ProducerState, data: bytes) -> CompletedTxn | None:
    return state.append(read_header(data, 0, 0))


def end(
    state: ProducerState, marker: ControlRecord, offset: int, *, producer: int = 7, epoch: int = 0
) -> CompletedTxn | None:
    record = Record(offset, START + 5, *encode_control_record(marker))
    data = encode_batch([record], producer_id=producer, producer_epoch=epoch, transactional=True, control=True)
    return state.append(read_header(data, 0, 0), record)


def test_batches_without_a_producer_leave_only_the_end_offset() -> None:
    state = ProducerState()
    append(state, encode_batch(records(0, 9)))
    assert state.is_empty
    assert state.map_end_offset == 10


def test_the_last_batch_of_a_producer_is_kept() -> None:
    state = ProducerState()
    append(state, data_batch(10, 12, sequence=0))
    append(state, data_batch(20, 24, sequence=3))
    assert state.entries() == [ProducerStateEntry(7, 0, 7, 24, 4, START + 24_000, -1, None)]
    assert state.map_end_offset == 25


def test_sequences_wrap() -> None:
    state = ProducerState()
    append(state, data_batch(0, 4, sequence=2**31 - 2))
    known = state.entry(7)
    assert known is not None
    assert (known.first_sequence, known.last_sequence) == (2**31 - 2, 2)


def test_a_batch_that_compaction_emptied_still_counts() -> None:
    state = ProducerState()
    append(state, encode_empty_batch(5, 9, producer_id=7, producer_epoch=1, base_sequence=0, max_timestamp=START))
    assert state.entries() == [ProducerStateEntry(7, 1, 4, 9, 4, START, -1, None)]


def test_a_transaction_is_open_until_its_marker() -> None:
    state = ProducerState()
    append(state, data_batch(0, 4, transactional=True))
    append(state, data_batch(5, 6, sequence=5, transactional=True))
    assert state.first_undecided_offset == 0
    completed = end(state, CommitMarker(3), 7)
    assert completed == CompletedTxn(7, 0, 7, False, 8)
    assert state.first_undecided_offset is None
    assert state.entries() == [ProducerStateEntry(7, 0, 6, 6, 1, START + 5, 3, None)]


def test_an_aborted_transaction_names_the_last_stable_offset_of_its_end() -> None:
    state = ProducerState()
    append(state, data_batch(0, 4, producer=1, transactional=True))
    append(state, data_batch(5, 9, producer=2, transactional=True))
    first = end(state, AbortMarker(0), 10, producer=2)
    second = end(state, AbortMarker(0), 11, producer=1)
    assert first is not None
    assert second is not None
    assert first.is_aborted
    assert first.aborted() == AbortedTxn(2, 5, 10, 0)
    assert second.aborted() == AbortedTxn(1, 0, 11, 12)


def test_a_marker_of_a_transaction_without_records_here_completes_nothing() -> None:
    state = ProducerState()
    assert end(state, AbortMarker(2), 3) is None
    assert state.entries() == [ProducerStateEntry(7, 0, -1, -1, 0, START + 5, 2, None)]


def test_a_new_epoch_forgets_the_batches_of_the_one_before() -> None:
    state = ProducerState()
    append(state, data_batch(0, 4, transactional=True))
    end(state, CommitMarker(0), 5, epoch=1)
    known = state.entry(7)
    assert known is not None
    assert not known.has_batch
    assert (known.producer_epoch, known.last_sequence, known.offset_delta) == (1, -1, 0)


def test_who_is_forgotten_has_nothing_open() -> None:
    state = ProducerState()
    append(state, data_batch(0, 4, transactional=True))
    append(state, data_batch(5, 9, producer=8, transactional=True))
    assert state.is_open(7)
    state.forget(7)
    state.forget(9)
    assert not state.is_open(7)
    assert (state.first_undecided_offset, [entry.producer_id for entry in state.entries()]) == (5, [8])


def test_an_emptied_control_batch_says_nothing() -> None:
    state = ProducerState()
    append(state, data_batch(0, 4, transactional=True))
    data = encode_empty_batch(5, 5, producer_id=7, producer_epoch=0, transactional=True, control=True)
    assert append(state, data) is None
    assert state.first_undecided_offset == 0


def test_what_fits_no_transaction_is_refused() -> None:
    state = ProducerState()
    append(state, data_batch(0, 4, transactional=True))
    with pytest.raises(InvalidTransaction, match="offset 5 of producer 7 isn't in a transaction"):
        append(state, data_batch(5, 6))


@pytest.mark.parametrize("marker", [SnapshotFooter(), UnknownControlRecord(9, b"\0\0\0\x09", None)])
def test_other_control_records_of_a_producer_are_corrupt(marker: ControlRecord) -> None:
    with pytest.raises(CorruptData, match="expected ABORT or COMMIT"):
        end(ProducerState(), marker, 3)


def test_a_snapshot_is_where_a_replay_begins() -> None:
    whole = ProducerState()
    append(whole, data_batch(0, 4, producer=1, transactional=True))
    append(whole, data_batch(5, 9, producer=2))
    rest = ProducerState()
    rest.load(whole.entries(), whole.map_end_offset, START)
    for state in (whole, rest):
        end(state, AbortMarker(0), 10, producer=1)
    assert rest.entries() == whole.entries()
    assert rest.map_end_offset == 11


def test_silent_producers_expire_unless_a_transaction_is_open() -> None:
    state = ProducerState()
    append(state, data_batch(0, 4, producer=1, transactional=True))
    append(state, data_batch(5, 9, producer=2))
    last = START + 9000
    state.remove_expired(last + PRODUCER_ID_EXPIRATION_MS - 1)
    assert len(state.entries()) == 2
    loaded = ProducerState()
    loaded.load(state.entries(), 10, last + PRODUCER_ID_EXPIRATION_MS)
    state.remove_expired(last + PRODUCER_ID_EXPIRATION_MS)
    assert [entry.producer_id for entry in state.entries()] == [1]
    assert loaded.entries() == state.entries()
    assert loaded.first_undecided_offset == 0


# --- recorded brokers -----------------------------------------------------------------------------------------------


def replayed(partition: Path) -> Iterator[tuple[BatchHeader, CompletedTxn | None, ProducerState]]:
    state = ProducerState()
    for log in sorted(partition.glob("*.log")):
        content = FileRecords(OpenFile(str(log)), log.stat().st_size)
        for header in content.headers():
            is_marker = header.is_control and header.producer_id >= 0
            yield header, state.append(header, content.first_record(header) if is_marker else None), state


def partitions(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and list(path.glob("*.log")))


@pytest.mark.parametrize("name", ["a_v2", "b_txn", "b39_txn", "d_groups", "g_running", "g_kill9"])
def test_every_snapshot_of_a_broker_is_what_the_log_says(name: str, corpus: CorpusPath) -> None:
    compared = 0
    for partition in partitions(corpus(name) / "data"):
        snapshots = {int(path.stem): path.read_bytes() for path in partition.glob("*.snapshot")}
        for header, _, state in replayed(partition):
            recorded = snapshots.get(header.last_offset + 1)
            if recorded is not None:
                found = {entry.producer_id: entry for entry in state.entries()}
                assert found == {entry.producer_id: entry for entry in parse_producer_snapshot(recorded)}, partition
                compared += 1
    assert compared


@pytest.mark.parametrize("name", ["b_txn", "b39_txn", "g_kill9"])
def test_every_transaction_index_of_a_broker_is_what_the_log_says(name: str, corpus: CorpusPath) -> None:
    compared = 0
    for partition in partitions(corpus(name) / "data"):
        aborted = [done.aborted() for _, done, _ in replayed(partition) if done is not None and done.is_aborted]
        recorded = [
            transaction
            for path in sorted(partition.glob("*.txnindex"))
            for transaction in parse_aborted_transactions(path.read_bytes())
        ]
        assert aborted == recorded, partition
        compared += len(recorded)
    assert compared
