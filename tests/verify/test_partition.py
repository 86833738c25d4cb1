"""What segments have to agree on with the files beside them: producers, transactions, epochs, what lies around."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kfs.broker_log.log_config import LogConfig
from kfs.format.aborted_txn import (
    AbortedTxn,
    encode_aborted_transactions,
    parse_aborted_transactions,
)
from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint
from kfs.format.codecs import Codec
from kfs.format.layout import BATCH_HEADER
from kfs.format.producer_snapshot import ProducerStateEntry, encode_producer_snapshot, parse_producer_snapshot
from kfs.format.writer import encode_batch
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.segment_files import PartitionFiles, SegmentFiles
from kfs.log.storage import ListedLogs, Storage
from kfs.verify.finding import Finding, FindingKind, Severity
from kfs.verify.segment import check_segment
from kfs.verify.verification import Verification
from tests.logs import (
    batch,
    dense,
    joined,
    log_name,
    record,
    records,
    set_log_start,
    write_log,
    write_partition,
    write_segment,
)
from tests.verify.broker import Broker, End, Lead, Produce, Roll, Step
from tests.verify.checking import complaints, found_in, kinds, one, verified

IDEMPOTENT, FIRST, SECOND = 1, 3, 4


def produce(producer: int, records: int = 2) -> Produce:
    return Produce(producer, records, Codec.NONE, is_append_time=False, back=0)


def abort(producer: int) -> End:
    return End(producer, is_commit=False, bump=False)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition of three segments, with three aborted transactions, one of which began in the segment before."""
    broker = Broker(tmp_path / "data", LogConfig(), 0)
    steps: list[Step] = [
        *(produce(0), produce(IDEMPOTENT), produce(FIRST), produce(SECOND), abort(FIRST), Roll()),
        *(produce(FIRST), abort(SECOND), produce(IDEMPOTENT), Lead(), produce(SECOND), Roll()),
        *(produce(IDEMPOTENT), abort(SECOND), produce(0)),
    ]
    for step in steps:
        broker.do(step)
    broker.stop()
    directory = tmp_path / "data" / "t-0"
    assert [path.name for path in sorted(directory.glob("*.log"))] == [log_name(base) for base in (0, 9, 16)]
    assert complaints(verified(tmp_path / "data")) == []
    return directory


# --- transaction indexes --------------------------------------------------------------------------------------------


def test_of_the_recorded_steps_three_transactions_were_aborted(partition: Path) -> None:
    entries = [
        entry
        for path in sorted(partition.glob("*.txnindex"))
        for entry in parse_aborted_transactions(path.read_bytes(), int(path.stem))
    ]
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries] == [
        (FIRST, 4, 8),
        (SECOND, 6, 11),
        (SECOND, 14, 18),
    ]


ChangeEntry = Callable[[AbortedTxn], AbortedTxn]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda entry: replace(entry, producer_id=99), "no ABORT marker"),
        (lambda entry: replace(entry, last_offset=entry.last_offset + 1), "no ABORT marker"),
        (lambda entry: replace(entry, first_offset=entry.first_offset + 1), "the transaction began at 6"),
        (lambda entry: replace(entry, last_stable_offset=0), "last stable offset 0, it was"),
    ],
)
def test_an_entry_that_contradicts_the_log_is_named(change: ChangeEntry, says: str, partition: Path) -> None:
    path = partition / log_name(9, ".txnindex")
    (entry,) = parse_aborted_transactions(path.read_bytes(), 9)
    path.write_bytes(encode_aborted_transactions([change(entry)]))
    finding = one(complaints(verified(partition)), FindingKind.TXNINDEX_ENTRY_WRONG)
    assert (finding.file, finding.bytes) == (str(path), (0, 34))
    assert says in finding.sentence


def test_a_missing_entry_and_a_missing_index_are_named(partition: Path) -> None:
    path = partition / log_name(9, ".txnindex")
    path.write_bytes(b"")
    missing = one(complaints(verified(partition)), FindingKind.TXNINDEX_ENTRY_MISSING)
    assert (missing.file, missing.offsets) == (str(path), (6, 11))
    path.unlink()
    gone = one(complaints(verified(partition)), FindingKind.TXNINDEX_MISSING)
    assert (gone.file, gone.offsets, gone.severity) == (str(path), (6, 11), Severity.ERROR)


def test_a_transaction_index_is_held_to_its_segment_when_it_is_named_alone(partition: Path) -> None:
    path = partition / log_name(16, ".txnindex")
    assert verified(path) == []
    (entry,) = parse_aborted_transactions(path.read_bytes(), 16)
    path.write_bytes(encode_aborted_transactions([replace(entry, producer_id=99)]))
    assert kinds(verified(path)) == {FindingKind.TXNINDEX_ENTRY_WRONG, FindingKind.TXNINDEX_ENTRY_MISSING}


# --- producer snapshots ---------------------------------------------------------------------------------------------


def change_snapshot(path: Path, change: Callable[[list[ProducerStateEntry]], Iterable[ProducerStateEntry]]) -> None:
    entries = list(parse_producer_snapshot(path.read_bytes()))
    path.write_bytes(encode_producer_snapshot(change(entries)))


def only(producer: int, **fields: int | None) -> Callable[[list[ProducerStateEntry]], list[ProducerStateEntry]]:
    def change(entries: list[ProducerStateEntry]) -> list[ProducerStateEntry]:
        return [replace(entry, **fields) if entry.producer_id == producer else entry for entry in entries]  # type: ignore[arg-type]

    return change


@pytest.mark.parametrize("offset", [9, 16, 21])
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"producer_epoch": 7}, "producer epoch 7, in the log 0"),
        ({"last_sequence": 1000}, "last sequence 1000, in the log"),
        ({"last_offset": 1}, "last offset 1, in the log"),
        ({"last_offset": 500}, "last offset 500, not below the snapshot's offset"),
        ({"offset_delta": 1000}, "offset delta 1000"),
        ({"timestamp": 5}, "timestamp 5"),
        ({"current_txn_first_offset": 1}, "transaction open from 1, in the log from None"),
        ({"coordinator_epoch": 9}, "coordinator epoch 9, in the log -1"),
    ],
)
def test_a_snapshot_that_contradicts_the_log_is_named(
    offset: int, fields: dict[str, int], says: str, partition: Path
) -> None:
    path = partition / log_name(offset, ".snapshot")
    change_snapshot(path, only(IDEMPOTENT, **fields))
    finding = one(complaints(verified(partition)), FindingKind.SNAPSHOT_CONTRADICTION)
    assert finding.file == str(path)
    assert finding.bytes is not None
    assert (finding.bytes[1] - finding.bytes[0], finding.offsets) == (46, (offset, offset))
    assert says in finding.sentence


def test_a_snapshot_may_forget_who_is_silent_but_no_open_transaction(partition: Path) -> None:
    path = partition / log_name(16, ".snapshot")
    change_snapshot(path, lambda entries: [entry for entry in entries if entry.producer_id != IDEMPOTENT])
    assert complaints(verified(partition)) == []
    change_snapshot(path, lambda entries: [entry for entry in entries if entry.producer_id != SECOND])
    finding = one(complaints(verified(partition)), FindingKind.SNAPSHOT_CONTRADICTION)
    assert "has a transaction open from 14" in finding.sentence


def test_a_snapshot_of_somebody_else_is_named(partition: Path) -> None:
    stranger = ProducerStateEntry(77, 0, 3, 5, 0, 1, -1, None)
    change_snapshot(partition / log_name(9, ".snapshot"), lambda entries: [*entries, stranger])
    finding = one(complaints(verified(partition)), FindingKind.SNAPSHOT_CONTRADICTION)
    assert "the log has no batch of it" in finding.sentence


def test_where_the_log_begins_later_its_first_snapshot_is_believed(partition: Path) -> None:
    for path in partition.glob(log_name(0, ".*")):
        path.unlink()
    assert complaints(verified(partition)) == []
    change_snapshot(partition / log_name(16, ".snapshot"), only(IDEMPOTENT, last_sequence=1000))
    assert kinds(complaints(verified(partition))) == {FindingKind.SNAPSHOT_CONTRADICTION}
    (partition / log_name(9, ".snapshot")).unlink()
    change_snapshot(partition / log_name(16, ".snapshot"), only(IDEMPOTENT, last_sequence=5))
    assert complaints(verified(partition)) == []  # what a producer did before isn't known


def test_snapshots_that_are_missing_misplaced_or_broken_are_named(partition: Path) -> None:
    (partition / log_name(500, ".snapshot")).write_bytes((partition / log_name(21, ".snapshot")).read_bytes())
    (partition / log_name(16, ".snapshot")).unlink()
    (partition / log_name(9, ".snapshot")).write_bytes(b"\1\2\3")
    (partition / log_name(21, ".snapshot")).unlink()
    found = complaints(verified(partition.parent))
    assert found_in(found, log_name(500, ".snapshot")) == [(FindingKind.SNAPSHOT_MISPLACED, None)]
    assert found_in(found, log_name(16, ".snapshot")) == [(FindingKind.SNAPSHOT_MISSING, None)]
    assert found_in(found, log_name(9, ".snapshot")) == [(FindingKind.SNAPSHOT_FORMAT, (0, 3))]
    assert found_in(found, log_name(21, ".snapshot")) == [(FindingKind.SNAPSHOT_MISSING, None)]
    (partition.parent / ".kafka_cleanshutdown").unlink()
    assert found_in(complaints(verified(partition.parent)), log_name(21, ".snapshot")) == []  # it may be running


def test_a_batch_outside_of_its_producer_s_transaction_is_named(tmp_path: Path) -> None:
    first = encode_batch(records(0, 1), base_sequence=0, transactional=True, producer_id=5, producer_epoch=0)
    second = encode_batch(records(2, 3), base_sequence=2, producer_id=5, producer_epoch=0)
    write_log(tmp_path / "t-0", 0, first + second)
    finding = one(verified(tmp_path / "t-0"), FindingKind.TRANSACTION_STATE)
    assert finding.offsets == (2, 3)


# --- leader epochs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "kind", "offsets"),
    [
        ([(0, 0)], FindingKind.EPOCHS_CONTRADICTION, (14, 20)),
        ([(0, 0), (1, 15)], FindingKind.EPOCHS_CONTRADICTION, (14, 20)),
        ([(0, 0), (1, 13)], FindingKind.EPOCHS_CONTRADICTION, (0, 13)),
        ([(0, 0), (1, 14), (2, 22)], FindingKind.EPOCHS_PAST_END, (22, 22)),
        ([(1, 14), (0, 0)], FindingKind.EPOCHS_ORDER, None),
    ],
)
def test_epochs_that_contradict_the_batches_are_named(
    entries: list[tuple[int, int]], kind: FindingKind, offsets: tuple[int, int] | None, partition: Path
) -> None:
    path = partition / "leader-epoch-checkpoint"
    path.write_bytes(encode_leader_epoch_checkpoint(EpochEntry(*entry) for entry in entries))
    found = [each for each in complaints(verified(partition)) if each.kind is kind]
    assert [(each.file, each.offsets) for each in found][:1] == [(str(path), offsets)]


@pytest.mark.parametrize(
    "entries",
    [
        [(0, 0), (1, 14), (2, 21)],  # a leader that has written nothing yet
        [(0, 5), (1, 14)],  # what lies below was deleted
        [(1, 15)],
        [(0, 0), (1, 14), (3, 21)],
    ],
)
def test_what_leaders_and_retention_make_of_epochs_is_legal(entries: list[tuple[int, int]], partition: Path) -> None:
    path = partition / "leader-epoch-checkpoint"
    path.write_bytes(encode_leader_epoch_checkpoint(EpochEntry(*entry) for entry in entries))
    assert complaints(verified(partition)) == []


def with_epoch(data: bytes, epoch: int) -> bytes:
    fields = list(BATCH_HEADER.unpack_from(data))
    fields[2] = epoch
    return BATCH_HEADER.pack(*fields) + data[BATCH_HEADER.size :]


def test_epochs_of_batches_never_go_back(tmp_path: Path) -> None:
    content = [with_epoch(batch([record(at)]).data, epoch) for at, epoch in enumerate([3, 3, 2, 3])]
    write_log(tmp_path / "t-0", 0, b"".join(content))
    write_log(tmp_path / "t-0", 4, with_epoch(batch([record(4)]).data, 1))
    found = [each for each in verified(tmp_path / "t-0") if each.kind is FindingKind.BATCH_EPOCH]
    assert [(Path(each.file).name, each.offsets) for each in found] == [(log_name(0), (2, 2)), (log_name(4), (4, 4))]


# --- between segments, and around them ------------------------------------------------------------------------------


def test_a_gap_is_named_unless_compaction_may_have_left_it(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "data" / "t-0", {0: dense(0, 9), 20: dense(20, 29)})
    assert one(complaints(verified(directory)), FindingKind.OFFSET_GAP).offsets == (10, 19)
    (tmp_path / "data" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    assert complaints(verified(tmp_path / "data")) == []
    compacted = write_partition(tmp_path / "c-0", {0: [*dense(0, 3), *dense(7, 9)], 20: dense(20, 29)})
    assert complaints(verified(compacted)) == []


@pytest.fixture
def with_a_lost_segment(tmp_path: Path) -> Path:
    """A partition with holes, as compaction leaves them, one segment of which is gone; its snapshot is there."""
    segments = {0: [*dense(0, 3), *dense(7, 9)], 20: dense(20, 29), 30: dense(30, 39)}
    directory = write_partition(tmp_path / "c-0", segments)
    for base in (20, 30):
        (directory / log_name(base, ".snapshot")).write_bytes(encode_producer_snapshot([]))
    assert complaints(verified(directory)) == []
    for path in directory.glob(log_name(20, ".*")):
        if path.suffix != ".snapshot":
            path.unlink()
    os.utime(directory / log_name(0), (1000, 1000))
    os.utime(directory / log_name(20, ".snapshot"), (1000, 1000))
    return directory


def test_a_segment_that_only_its_snapshot_is_left_of_is_named_in_a_compacted_log_too(with_a_lost_segment: Path) -> None:
    finding = one(complaints(verified(with_a_lost_segment)), FindingKind.OFFSET_GAP)
    assert (finding.file, finding.offsets) == (str(with_a_lost_segment / log_name(30)), (10, 29))
    assert finding.sentence.endswith(f"and {log_name(20, '.snapshot')} belongs to one that began there")


def test_it_is_named_behind_damage_too(with_a_lost_segment: Path) -> None:
    path = with_a_lost_segment / log_name(0)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, (1000, 1000))
    assert one(complaints(verified(with_a_lost_segment)), FindingKind.OFFSET_GAP).severity is Severity.WARNING


def stop_there_once(directory: Path) -> None:
    """The broker was stopped cleanly while the first segment was the last one, and went on with it."""
    os.utime(directory / log_name(20, ".snapshot"), (900, 900))


def merge_by_an_old_broker(directory: Path) -> None:
    """Brokers before 2.8 keep the last snapshots, whatever the cleaner merges."""
    (directory / log_name(30, ".snapshot")).unlink()
    write_segment(directory, 40, dense(40, 49))
    (directory / log_name(40, ".snapshot")).write_bytes(encode_producer_snapshot([]))


@pytest.mark.parametrize("happened", [stop_there_once, merge_by_an_old_broker])
def test_what_compaction_may_have_left_of_a_segment_is_worth_knowing(
    happened: Callable[[Path], None], with_a_lost_segment: Path
) -> None:
    happened(with_a_lost_segment)
    found = verified(with_a_lost_segment)
    assert complaints(found) == []
    assert one(found, FindingKind.OFFSET_GAP).severity is Severity.INFO


def test_records_below_the_log_start_offset_are_listed(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19)})
    set_log_start(tmp_path, "t", 0, 13)
    finding = one(verified(tmp_path), FindingKind.BELOW_LOG_START)
    assert (finding.offsets, finding.severity, finding.file) == ((0, 12), Severity.INFO, str(tmp_path / "t-0"))


def test_what_lies_around_is_listed(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    for name in (
        *("leader-epoch-checkpoint.tmp", "notes.txt", log_name(0, ".log.deleted"), log_name(50, ".snapshot.deleted")),
        *(log_name(90, ".txnindex"), log_name(0, ".timeindex.cleaned"), log_name(70, ".log.swap")),
    ):
        (directory / name).touch()
    found = {Path(each.file).name: (each.kind, each.severity) for each in verified(directory)}
    assert found == {
        "leader-epoch-checkpoint.tmp": (FindingKind.TEMPORARY_FILE, Severity.INFO),
        "notes.txt": (FindingKind.STRAY_FILE, Severity.INFO),
        log_name(0, ".log.deleted"): (FindingKind.DELETED_FILE, Severity.INFO),
        log_name(50, ".snapshot.deleted"): (FindingKind.DELETED_FILE, Severity.INFO),
        log_name(90, ".txnindex"): (FindingKind.INDEX_ORPHAN, Severity.WARNING),
        log_name(0, ".timeindex.cleaned"): (FindingKind.CLEANED_FILE, Severity.WARNING),
        log_name(70, ".log.swap"): (FindingKind.SWAP_FILE, Severity.WARNING),
    }


def test_each_partition_is_listed_once_however_many_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t-{partition}" for partition in range(5)]
    for name in names:
        write_partition(tmp_path / name, {0: dense(0, 9), 10: dense(10, 19)})
    (tmp_path / "t-5").mkdir()
    listed: list[str] = []
    list_files = PartitionDirectory.list

    def note(directory: PartitionDirectory, next_offset: Callable[[SegmentFiles], int]) -> PartitionFiles:
        listed.append(directory.path)
        return list_files(directory, next_offset)

    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))  # a directory that has just changed is listed until two listings agree
    storage = Storage()
    storage.listed = ListedLogs(most=1)
    verification = Verification([str(tmp_path)], storage)
    monkeypatch.setattr(PartitionDirectory, "list", note)
    list(verification.run(check_segment(task, storage) for task in verification.tasks()))
    assert listed == [str(tmp_path / name) for name in (*names, "t-5")]
    assert verification.totals.segments == 10


def test_a_file_that_vanishes_meanwhile_is_no_damage(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19)})
    verification = Verification([str(directory)], Storage())
    tasks = list(verification.tasks())
    for path in directory.glob(log_name(0, ".*")):
        path.unlink()
    found = list(verification.run(check_segment(task, Storage()) for task in tasks))
    assert [(each.kind, each.severity) for each in found if Path(each.file).suffix == ".log"] == [
        (FindingKind.READ_ERROR, Severity.INFO)
    ]


@pytest.mark.parametrize("is_kept", ["log", "index"])
def test_a_segment_that_is_compacted_meanwhile_is_no_damage(is_kept: str, tmp_path: Path) -> None:
    """The file that the listing saw is another one by now, and has the offsets of those behind it, too."""
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19), 20: dense(20, 29)})
    compacted = write_partition(tmp_path / "cleaner" / "t-0", {0: dense(0, 19, size=4)})
    verification = Verification([str(directory)], Storage())
    tasks = list(verification.tasks())
    for path in compacted.iterdir():
        if path.suffix != f".{is_kept}":
            path.replace(directory / path.name)
    reports = [check_segment(task, Storage()) for task in tasks]
    changed = reports[0].findings
    assert {each.severity for each in changed} == {Severity.INFO}
    assert {each.kind for each in changed} == {FindingKind.READ_ERROR}
    assert any("replaced" in each.sentence for each in changed)


def said(found: Iterable[Finding]) -> str:
    return " ".join(each.sentence for each in found)


def test_hostile_bytes_are_bounded_in_what_is_said_of_them(tmp_path: Path) -> None:
    good = joined(dense(0, 0))
    write_log(tmp_path / "t-0", 0, good * 3000)
    found = [each for each in verified(tmp_path / "t-0") if each.kind is FindingKind.OFFSETS_REPEATED]
    assert len(found) == 1001
    assert "and 1999 more of these" in said(found)
