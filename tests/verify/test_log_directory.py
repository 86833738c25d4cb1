"""What a log directory has beside partitions, and what several have to agree on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.broker_log.log_config import LogConfig
from kfs.errors import UnusableSource
from kfs.format.codecs import Codec
from kfs.format.control_record import SnapshotHeader, encode_control_record
from kfs.format.record import Record
from kfs.format.writer import encode_batch
from kfs.log.log_dir import CHECKPOINTS
from kfs.verify.finding import FindingKind, Severity
from tests.failing_disk import FailingDisk
from tests.logs import START, dense, log_name, write_partition
from tests.verify.broker import Broker, Produce
from tests.verify.checking import complaints, found_in, kinds, one, verified

CorpusPath = Callable[[str], Path]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The log directory of a broker that was stopped: one partition of ten records."""
    broker = Broker(tmp_path / "data", LogConfig(), 0)
    broker.do(Produce(0, 10, Codec.NONE, is_append_time=False, back=0))
    broker.stop()
    (tmp_path / "data" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    assert verified(tmp_path / "data") == []
    return tmp_path / "data"


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_past_the_end_is_named(name: str, root: Path) -> None:
    (root / name).write_text("0\n1\nt 0 10\n")
    assert complaints(verified(root)) == []
    (root / name).write_text("0\n1\nt 0 12\n")
    finding = one(complaints(verified(root)), FindingKind.CHECKPOINT_PAST_END)
    assert (finding.file, finding.offsets) == (str(root / name), (10, 11))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_broken_checkpoint_is_named_and_one_of_others_is_worth_knowing(name: str, root: Path) -> None:
    (root / name).write_text("0\n2\nt 0 10\n")
    assert found_in(complaints(verified(root)), name) == [(FindingKind.CHECKPOINT_FORMAT, (2, 11))]
    assert found_in(verified(root / name), name) == [(FindingKind.CHECKPOINT_FORMAT, (2, 11))]
    (root / name).write_text("0\n1\ngone 3 10\n")
    finding = one(verified(root), FindingKind.CHECKPOINT_UNKNOWN_PARTITION)
    assert (finding.severity, finding.file) == (Severity.INFO, str(root / name))


@pytest.mark.parametrize(
    ("name", "kind", "severity"),
    [
        ("lost+found", FindingKind.DIRECTORY_NAME, Severity.ERROR),
        ("notopic", FindingKind.DIRECTORY_NAME, Severity.ERROR),
        (f"t-1.{'a' * 32}-stray", FindingKind.STRAY_DIRECTORY, Severity.INFO),
        (f"t-1.{'a' * 32}-future", FindingKind.FUTURE_DIRECTORY, Severity.INFO),
        (f"t-1.{'a' * 32}-delete", FindingKind.DELETED_DIRECTORY, Severity.INFO),
    ],
)
def test_directories_that_are_no_partitions_are_listed(
    name: str, kind: FindingKind, severity: Severity, root: Path
) -> None:
    (root / name).mkdir()
    finding = one(verified(root), kind)
    assert (finding.file, finding.severity) == (str(root / name), severity)


def test_tiered_storage_s_cache_and_kafka_s_own_files_are_nothing_to_speak_of(root: Path) -> None:
    (root / "remote-log-index-cache").mkdir()
    (root / ".lock").touch()
    assert verified(root) == []


def test_what_can_be_had_back_of_a_deleted_topic_is_said(root: Path) -> None:
    name = f"old-1.{'a' * 32}-delete"
    write_partition(root / name, {5: dense(5, 9), 10: dense(10, 19)})
    finding = one(verified(root), FindingKind.DELETED_DIRECTORY)
    assert finding.offsets == (5, 19)
    assert "old-1 of a deleted topic" in finding.sentence
    assert "2 segments" in finding.sentence


def test_files_that_are_not_kafka_s_are_listed(root: Path) -> None:
    (root / "notes.txt").touch()
    (root / "replication-offset-checkpoint.tmp").touch()
    assert [(Path(each.file).name, each.kind, each.severity) for each in verified(root)] == [
        ("notes.txt", FindingKind.STRAY_FILE, Severity.INFO),
        ("replication-offset-checkpoint.tmp", FindingKind.TEMPORARY_FILE, Severity.INFO),
    ]


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("meta.properties", "version=7\n", FindingKind.META_PROPERTIES_FORMAT),
        (".kafka_cleanshutdown", "{", FindingKind.CLEAN_SHUTDOWN_FORMAT),
        ("t-0/partition.metadata", "version: 0\n", FindingKind.PARTITION_METADATA_FORMAT),
        ("t-0/leader-epoch-checkpoint", "0\n5\n", FindingKind.EPOCHS_FORMAT),
    ],
)
def test_small_files_that_make_no_sense_are_named(name: str, content: str, kind: FindingKind, root: Path) -> None:
    (root / name).write_text(content)
    assert one(verified(root), kind).file == str(root / name)
    assert kinds(verified(root / name)) == {kind}


def test_a_partition_without_metadata_beside_others_that_have_it_is_named(root: Path) -> None:
    shutil.copytree(root / "t-0", root / "t-1")
    (root / "t-1" / "partition.metadata").unlink()
    finding = one(complaints(verified(root)), FindingKind.PARTITION_METADATA_MISSING)
    assert finding.file == str(root / "t-1" / "partition.metadata")
    (root / "t-0" / "partition.metadata").unlink()
    assert FindingKind.PARTITION_METADATA_MISSING not in kinds(verified(root))  # an older broker's


def test_a_topic_has_one_id(root: Path) -> None:
    shutil.copytree(root / "t-0", root / "t-1")
    (root / "t-1" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    assert one(complaints(verified(root)), FindingKind.TOPIC_ID_MISMATCH).file == str(
        root / "t-1" / "partition.metadata"
    )


def test_one_broker_has_a_partition_once(root: Path) -> None:
    other = root.parent / "other"
    shutil.copytree(root, other)
    (other / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=abc\n")
    assert complaints(verified(root, other)) == []  # another broker's replica
    (other / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    finding = one(complaints(verified(root, other)), FindingKind.PARTITION_TWICE)
    assert str(root / "t-0") in finding.sentence + finding.file
    assert str(other / "t-0") in finding.sentence + finding.file
    for directory in (root, other):
        (directory / "meta.properties").unlink()
    assert one(verified(root, other), FindingKind.PARTITION_TWICE).severity is Severity.INFO  # whose it is isn't known


def test_a_path_that_is_named_twice_is_checked_once(root: Path) -> None:
    (root / "t-0" / "notes.txt").touch()
    assert verified(root, root) == verified(root)
    assert verified(root / "meta.properties", root / "meta.properties") == []


def test_what_lies_in_place_of_a_file_and_can_t_be_read_is_named(root: Path) -> None:
    path = root / "t-0" / "leader-epoch-checkpoint"
    path.unlink()
    path.mkdir()
    assert one(complaints(verified(root)), FindingKind.READ_ERROR).file == str(path)


def test_log_directories_have_ids_of_their_own(root: Path) -> None:
    other = root.parent / "other"
    for directory, node in ((root, 1), (other, 2)):
        directory.mkdir(exist_ok=True)
        lines = ["version=1", f"node.id={node}", "cluster.id=abc", "directory.id=AAAAAAAAAAAAAAAAAAAAAg"]
        (directory / "meta.properties").write_text("\n".join(lines))
    assert FindingKind.DIRECTORY_ID_REPEATED in kinds(complaints(verified(root, other)))


# --- KRaft's snapshots ----------------------------------------------------------------------------------------------


def test_a_cut_or_changed_kraft_snapshot_is_named(corpus: CorpusPath, tmp_path: Path) -> None:
    source = next((corpus("e_meta") / "data" / "__cluster_metadata-0").glob("*.checkpoint"))
    path = tmp_path / source.name
    data = source.read_bytes()
    path.write_bytes(data)
    assert verified(path) == []
    path.write_bytes(data[:-10])
    assert {FindingKind.BATCH_TRUNCATED, FindingKind.KRAFT_SNAPSHOT} <= kinds(verified(path))
    path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    assert FindingKind.BATCH_CRC in kinds(verified(path))
    path.write_bytes(encode_batch([Record(0, START, *encode_control_record(SnapshotHeader(0)))], control=True))
    assert [each.sentence for each in verified(path)] == [
        "its last record is not a SNAPSHOT_FOOTER: the snapshot is incomplete"
    ]


def test_a_brokers_first_snapshot_is_looked_at(corpus: CorpusPath, tmp_path: Path) -> None:
    shutil.copytree(corpus("e_meta") / "data", tmp_path / "data")
    path = tmp_path / "data" / "bootstrap.checkpoint"
    path.write_bytes(path.read_bytes()[:-1])
    assert {FindingKind.BATCH_TRUNCATED, FindingKind.KRAFT_SNAPSHOT} == kinds(complaints(verified(tmp_path / "data")))


# --- what can't be looked at ----------------------------------------------------------------------------------------


def test_what_is_not_kafka_s_can_t_be_verified(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "notes.txt", tmp_path / "missing", tmp_path / "empty"):
        with pytest.raises(UnusableSource, match=path.name):
            verified(path)


def test_a_log_of_another_name_is_taken_by_its_first_offset(tmp_path: Path) -> None:
    partition = write_partition(tmp_path / "t-0", {40: dense(40, 49)})
    (log,) = partition.glob("*.log")
    copy = tmp_path / "copy.log.bak"
    data = log.read_bytes()
    copy.write_bytes(data)
    assert verified(copy) == []
    copy.write_bytes(data[:200] + b"?" + data[201:])
    assert kinds(verified(copy)) == {FindingKind.BATCH_CRC}


def test_an_index_without_its_log_is_an_orphan(tmp_path: Path) -> None:
    partition = write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    next(partition.glob("*.log")).unlink()
    (index,) = partition.glob("*.index")
    assert kinds(verified(index)) == {FindingKind.INDEX_ORPHAN}


def test_a_partition_that_cannot_be_listed_is_a_finding_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write_partition(tmp_path / f"t-{number}", {0: dense(0, 9)})
    (tmp_path / "t-2" / log_name(0)).write_bytes(b"\xa5" * 500)
    FailingDisk(monkeypatch).refuse(tmp_path / "t-1")
    found = complaints(verified(tmp_path))
    [unlisted] = [each for each in found if each.kind is FindingKind.READ_ERROR]
    assert (unlisted.file, unlisted.sentence) == (str(tmp_path / "t-1"), "can't be listed: Input/output error")
    assert FindingKind.BATCH_HEADER in kinds(each for each in found if "t-2" in each.file)
