"""``meta/``: what Kafka keeps about a log, as JSON, and what is wrong with it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfs.format.aborted_txn import AbortedTxn, encode_aborted_transactions
from kfs.format.batch_header import BatchHeader, read_header
from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint
from kfs.format.partition_metadata import PartitionMetadata, encode_partition_metadata
from kfs.format.producer_snapshot import ProducerStateEntry, encode_producer_snapshot
from kfs.format.uuid import Uuid
from kfs.log.storage import Storage
from kfs.tree.kafka_tree import KafkaTree
from kfs.verify import segment
from kfs.verify.segment import SegmentReport
from kfs.verify.segment_task import SegmentTask
from tests.corpus import corpus_names
from tests.expected import ExpectedBatch, expected_batches
from tests.format.recorded_batches import recorded_batches
from tests.logs import (
    content_of,
    dense,
    directory_at,
    joined,
    log_name,
    names,
    open_tree,
    set_high_watermark,
    set_log_start,
    write_log,
    write_partition,
)

CorpusPath = Callable[[str], Path]
FILES = [
    "log.json",
    "segments.jsonl",
    "leader-epochs.jsonl",
    "producers.jsonl",
    "aborted-transactions.jsonl",
    "transactions.json",
    "batches.jsonl",
    "problems.jsonl",
]
#: Those for which a log may have to be read.
COSTLY = ["log.json", "transactions.json", "batches.jsonl", "problems.jsonl"]


def rows(tree: KafkaTree, path: str) -> list[dict[str, Any]]:
    """Parse the lines of a file."""
    content = content_of(tree, path)
    assert content == b"" or content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


def log_of(tree: KafkaTree, path: str = "t/0") -> dict[str, Any]:
    (row,) = rows(tree, f"{path}/meta/log.json")
    return row


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory with ``t-0``: offsets 10 to 39 in two segments."""
    write_partition(tmp_path / "t-0", {10: dense(10, 24), 25: dense(25, 39)})
    return tmp_path


# --- every corpus ---------------------------------------------------------------------------------------------------


def row_of(expected: ExpectedBatch, header: BatchHeader) -> dict[str, Any]:
    """Return what ``batches.jsonl`` must say of a batch; ``header`` is for what Kafka's list doesn't tell."""
    is_v2 = expected.magic == 2
    is_wrapper = not is_v2 and expected.compression != "none"
    row: dict[str, Any] = {
        "segment": int(os.path.basename(expected.file).split(".")[0]),
        "position": expected.position,
        "size": expected.size,
        "magic": expected.magic,
        "baseOffset": None if is_wrapper else expected.base_offset,
        "lastOffset": expected.last_offset,
        "count": None if is_wrapper else (expected.count if is_v2 else 1),
        "codec": expected.compression,
        "timestampType": expected.timestamp_type.label,
        "maxTimestamp": expected.max_timestamp,
        "crc": expected.crc,
    }
    if is_v2:
        row |= {
            "leaderEpoch": expected.leader_epoch,
            "producerId": expected.producer_id,
            "producerEpoch": expected.producer_epoch,
            "baseSequence": expected.base_sequence,
            "lastSequence": header.last_sequence,
            "isTransactional": expected.is_transactional,
            "isControl": expected.is_control,
            "deleteHorizonMs": header.base_timestamp if expected.has_delete_horizon else None,
        }
    return row


@pytest.mark.parametrize("name", [name for name in corpus_names() if name != "g_damage"])
def test_batches_are_those_that_kafka_reads(name: str, corpus: CorpusPath) -> None:
    tree = open_tree(corpus(name) / "data")
    expected: dict[str, list[dict[str, Any]]] = {}
    for one in recorded_batches(corpus(name)):
        header = read_header(one.data.ljust(61, b"\0"), 0, 0)
        expected.setdefault(os.path.dirname(one.expected.file), []).append(row_of(one.expected, header))
    for topic in names(tree.root):
        for partition in names(directory_at(tree, topic)):
            path = f"{topic}/{partition}"
            assert rows(tree, f"{path}/meta/batches.jsonl") == expected.pop(f"{topic}-{partition}", []), path
    assert all(directory.endswith("-delete") for directory in expected)


def test_batches_of_a_damaged_log_are_those_that_are_intact(corpus: CorpusPath) -> None:
    tree = open_tree(corpus("g_damage") / "data")
    before: dict[str, list[ExpectedBatch]] = {}
    for batch in expected_batches(corpus("g_damage"), "batches_before.jsonl"):
        before.setdefault(os.path.dirname(batch.file), []).append(batch)
    for partition in names(directory_at(tree, "broken")):
        known = {(one.crc, one.base_offset) for one in before[f"broken-{partition}"]}
        found = {(row["crc"], row["baseOffset"]) for row in rows(tree, f"broken/{partition}/meta/batches.jsonl")}
        assert found <= known, partition
        assert len(found) >= len(known) // 2


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", corpus_names())
def test_every_file_is_json_a_line(name: str, corpus: CorpusPath) -> None:
    tree = open_tree(corpus(name) / "data")
    for topic in names(tree.root):
        for partition in names(directory_at(tree, topic)):
            path = f"{topic}/{partition}/meta"
            assert names(directory_at(tree, path)) == FILES
            for file in FILES:
                for row in rows(tree, f"{path}/{file}"):
                    assert isinstance(row, dict)


@pytest.mark.parametrize("name", [name for name in corpus_names() if name != "g_damage"])
def test_of_what_brokers_wrote_nothing_is_said_to_be_wrong(name: str, corpus: CorpusPath) -> None:
    tree = open_tree(corpus(name) / "data")
    for topic in names(tree.root):
        for partition in names(directory_at(tree, topic)):
            assert rows(tree, f"{topic}/{partition}/meta/problems.jsonl") == []
    assert rows(tree, ".kfs/problems.jsonl") == []


@pytest.mark.parametrize("name", [name for name in corpus_names() if name != "g_damage"])
def test_segments_are_the_files_on_the_disk(name: str, corpus: CorpusPath) -> None:
    data = corpus(name) / "data"
    tree = open_tree(data)
    for topic in names(tree.root):
        for partition in names(directory_at(tree, topic)):
            directory = data / f"{topic}-{partition}"
            found = rows(tree, f"{topic}/{partition}/meta/segments.jsonl")
            logs = sorted(directory.glob("*.log"))
            assert [row["file"] for row in found] == [str(path) for path in logs]
            assert [row["size"] for row in found] == [path.stat().st_size for path in logs]
            assert [row["active"] for row in found] == [path == logs[-1] for path in logs]
            for kind in ("index", "timeindex", "txnindex"):
                assert [row[kind] for row in found] == [path.with_suffix(f".{kind}").exists() for path in logs]


# --- log.json -------------------------------------------------------------------------------------------------------


def test_the_log_says_where_it_begins_and_ends_by_each_authority(root: Path) -> None:
    topic_id = Uuid(bytes(range(16)))
    metadata = encode_partition_metadata(PartitionMetadata(topic_id))
    (root / "t-0" / "partition.metadata").write_bytes(metadata)
    checkpoint = encode_leader_epoch_checkpoint([EpochEntry(0, 0), EpochEntry(4, 30)])
    (root / "t-0" / "leader-epoch-checkpoint").write_bytes(checkpoint)
    set_log_start(root, "t", 0, 12)
    set_high_watermark(root, "t", 0, 35)
    tree = open_tree(root)
    assert log_of(tree) == {
        "topic": "t",
        "partition": 0,
        "topicId": str(topic_id),
        "directory": str(root / "t-0"),
        "kind": "current",
        "segments": 2,
        "size": sum(path.stat().st_size for path in (root / "t-0").glob("*.log")),
        "firstBaseOffset": 10,
        "logStartOffset": 12,
        "logStartOffsetCheckpoint": 12,
        "highWatermarkCheckpoint": 35,
        "lastStableOffset": 40,
        "logEndOffset": 40,
        "lastLeaderEpoch": 4,
        "missing": None,
    }
    assert rows(tree, "t/0/meta/leader-epochs.jsonl") == [
        {"leaderEpoch": 0, "startOffset": 0},
        {"leaderEpoch": 4, "startOffset": 30},
    ]


def test_offsets_that_are_missing_below_the_first_segment_are_said_to_be(root: Path) -> None:
    set_log_start(root, "t", 0, 3)
    missing = log_of(open_tree(root))["missing"]
    assert (missing["from"], missing["to"]) == (3, 10)


def test_a_partition_with_nothing_in_it_has_a_log_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    tree = open_tree(tmp_path)
    row = log_of(tree)
    assert (row["segments"], row["size"], row["firstBaseOffset"], row["logEndOffset"]) == (0, 0, None, 0)
    (row,) = rows(tree, "t/0/meta/transactions.json")
    assert (row["lastStableOffset"], row["open"], row["aborted"]["count"]) == (0, [], 0)
    for name in set(FILES) - {"log.json", "transactions.json"}:
        assert content_of(tree, f"t/0/meta/{name}") == b""


# --- producers and transactions -------------------------------------------------------------------------------------


def entry(producer_id: int) -> ProducerStateEntry:
    return ProducerStateEntry(
        producer_id=producer_id,
        producer_epoch=2,
        last_sequence=7,
        last_offset=33,
        offset_delta=3,
        timestamp=1_700_000_000_000,
        coordinator_epoch=1,
        current_txn_first_offset=30,
    )


def test_producers_are_those_of_the_newest_snapshot_that_can_be_read(root: Path) -> None:
    (root / "t-0" / log_name(25, ".snapshot")).write_bytes(encode_producer_snapshot([entry(1)]))
    (root / "t-0" / log_name(40, ".snapshot")).write_bytes(encode_producer_snapshot([entry(5), entry(6)]))
    (root / "t-0" / log_name(41, ".snapshot")).write_bytes(b"garbage")
    found = rows(open_tree(root), "t/0/meta/producers.jsonl")
    assert [row["producerId"] for row in found] == [5, 6]
    assert found[0] == {
        "snapshotOffset": 40,
        "producerId": 5,
        "producerEpoch": 2,
        "coordinatorEpoch": 1,
        "currentTxnFirstOffset": 30,
        "firstSequence": 4,
        "lastSequence": 7,
        "lastOffset": 33,
        "offsetDelta": 3,
        "lastTimestamp": 1_700_000_000_000,
    }


def test_aborted_transactions_are_those_of_every_index(root: Path) -> None:
    transaction = AbortedTxn(producer_id=1, first_offset=11, last_offset=14, last_stable_offset=15)
    (root / "t-0" / log_name(10, ".txnindex")).write_bytes(encode_aborted_transactions([transaction]))
    assert rows(open_tree(root), "t/0/meta/aborted-transactions.jsonl") == [
        {"segment": 10, "producerId": 1, "firstOffset": 11, "lastOffset": 14, "lastStableOffset": 15}
    ]


@pytest.mark.parametrize("name", ["b_txn", "b39_txn"])
def test_the_transactions_of_a_corpus_are_those_that_the_dump_tool_prints(name: str, corpus: CorpusPath) -> None:
    tree = open_tree(corpus(name) / "data")
    found = 0
    for topic in names(tree.root):
        for partition in names(directory_at(tree, topic)):
            directory = corpus(name) / "data" / f"{topic}-{partition}"
            size = sum(path.stat().st_size for path in directory.glob("*.txnindex"))
            listed = rows(tree, f"{topic}/{partition}/meta/aborted-transactions.jsonl")
            assert len(listed) == size // 34
            found += len(listed)
    assert found > 0


# --- problems -------------------------------------------------------------------------------------------------------


def test_problems_say_file_position_size_and_reason(root: Path) -> None:
    path = root / "t-0" / log_name(10)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    size = len(dense(20, 24)[0].data)
    (problem,) = rows(open_tree(root), "t/0/meta/problems.jsonl")
    assert problem.pop("reason").startswith("record batch with stored CRC")
    assert problem == {"file": str(path), "position": len(data) - size, "size": size, "kind": "batch-crc"}


def test_problems_are_complete_though_nothing_was_read_before(root: Path) -> None:
    for base in (10, 25):
        path = root / "t-0" / log_name(base)
        path.write_bytes(b"\xff" + path.read_bytes()[1:])
    (root / "log-start-offset-checkpoint").write_bytes(b"garbage")
    (root / "t-0" / "leader-epoch-checkpoint").write_bytes(b"garbage")
    files = {os.path.basename(row["file"]) for row in rows(open_tree(root), "t/0/meta/problems.jsonl")}
    assert files == {log_name(10), log_name(25), "leader-epoch-checkpoint", "log-start-offset-checkpoint"}


def test_every_problem_stands_once_however_often_it_is_met(root: Path) -> None:
    path = root / "t-0" / log_name(10)
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    tree = open_tree(root)
    for _ in range(3):
        list(directory_at(tree, "t/0/offset").entries())
        assert len(rows(tree, "t/0/meta/problems.jsonl")) == 1


def test_hostile_data_does_not_fill_the_memory_with_problems(tmp_path: Path) -> None:
    good = joined(dense(0, 0))
    path = write_log(tmp_path / "t-0", 0, good)
    # A duplicate of an older batch is a problem each time.
    with path.open("ab") as log:
        log.write(good * 12_000)
    tree = open_tree(tmp_path)
    found = rows(tree, "t/0/meta/problems.jsonl")
    assert len(found) <= 1_010
    assert any("more of these" in row["reason"] for row in found)


# --- sizes and times ------------------------------------------------------------------------------------------------


def test_a_listing_asks_for_no_pass_over_the_log(root: Path) -> None:
    entries = {entry.name: entry.attributes for entry in directory_at(open_tree(root), "t/0/meta").entries()}
    assert list(entries) == FILES
    # The others are small, and may grow: their sizes are told one by one.
    assert {name for name, attributes in entries.items() if attributes is None} == set(FILES) >= set(COSTLY)


def test_what_does_not_change_keeps_its_time(root: Path) -> None:
    for path in (root / "t-0").iterdir():
        os.utime(path, ns=(0, 1_600_000_000_000_000_000))
    os.utime(root / "t-0", ns=(0, 1_600_000_000_000_000_000))
    tree = open_tree(root)
    for name in FILES:
        assert tree.resolve(f"t/0/meta/{name}").attributes().mtime_ns == 1_600_000_000_000_000_000, name


def test_what_changes_gets_a_new_time_and_inode(root: Path, eager: None) -> None:
    tree = open_tree(root)
    before = tree.resolve("t/0/meta/log.json").attributes()
    with (root / "t-0" / log_name(25)).open("ab") as log:
        log.write(joined(dense(40, 44)))
    after = tree.resolve("t/0/meta/log.json").attributes()
    assert log_of(tree)["logEndOffset"] == 45
    assert after.mtime_ns > before.mtime_ns
    assert after.node_id != before.node_id


@pytest.mark.parametrize("keeps_number", [False, True])
def test_a_compaction_during_the_checks_is_no_problem(
    keeps_number: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file may even have the number of the one that was listed, which was removed before it was made."""
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19), 20: dense(20, 29)})
    compacted = joined(dense(0, 19, size=4))
    tree = open_tree(tmp_path)
    check = segment.check_segment
    tasks: list[SegmentTask] = []

    def compact_first(task: SegmentTask, storage: Storage) -> SegmentReport:
        if not tasks:
            for suffix in (".log", ".index", ".timeindex"):
                (directory / log_name(10, suffix)).unlink()
            for suffix in (".index", ".timeindex"):
                (directory / log_name(0, suffix)).unlink()
            path = directory / log_name(0)
            if not keeps_number:
                path.rename(tmp_path / "deleted")
            path.write_bytes(compacted)
        tasks.append(task)
        return check(task, storage)

    monkeypatch.setattr(segment, "check_segment", compact_first)
    assert rows(tree, "t/0/meta/problems.jsonl") == []
    assert len(tasks) == 3
