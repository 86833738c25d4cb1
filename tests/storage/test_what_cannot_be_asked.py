"""What a disk doesn't tell is never taken for missing, whoever asks; nor is what it tells only at the second time."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kfs.broker_log.log_config import LogConfig
from kfs.cli.main import main
from kfs.errors import CorruptData, KfsError, NotFound, Shortage, SourceLost
from kfs.internal.cluster.cluster import Cluster
from kfs.log.block import Block
from kfs.log.data_dir import DataDir
from kfs.log.offset_range import OffsetRange
from kfs.log.storage import Storage
from kfs.recover.kafka_mode import KafkaMode
from kfs.recover.log_dir_recovery import Mode, recover_copy
from kfs.recover.salvage_mode import SalvageMode
from kfs.storage.descriptors import BUDGET
from kfs.storage.listing import FoundFile, found_at, list_directory, list_files, list_names, matching
from kfs.storage.status import PathKind, is_there, kind_at, size_at, status_at, status_if_there
from kfs.verify.finding import FindingKind, Severity
from tests.failing_disk import FailingDisk
from tests.internal.cluster.writing import DIRECTORY, snapshot_bytes, topic, write_log
from tests.internal.group_logs import InternalPartition, commit, groups_of
from tests.logs import (
    content_of,
    dense,
    directory_at,
    joined,
    log_name,
    names,
    open_tree,
    positions,
    records_in,
    set_log_start,
    write_partition,
)
from tests.verify.checking import kinds, one, verified

SALVAGE = SalvageMode(config=LogConfig(), clock=lambda: 0, storage=Storage())
KAFKA = KafkaMode(config=LogConfig(), clock=lambda: 0)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    BUDGET.let_all_go()
    return FailingDisk(monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory of two partitions."""
    for name in ("t-0", "u-0"):
        write_partition(tmp_path / "data" / name, {0: dense(0, 9), 10: dense(10, 19)})
    return tmp_path / "data"


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_what_a_path_leads_to(tmp_path: Path, disk: FailingDisk) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "down").symlink_to(tmp_path)
    (tmp_path / "failing").write_bytes(b"abc")
    disk.refuse(tmp_path / "failing")
    expected = {
        "file": PathKind.FILE,
        "link": PathKind.FILE,
        "dangling": PathKind.NOTHING,
        "loop": PathKind.NOTHING,
        "down": PathKind.DIRECTORY,
        "failing": PathKind.UNKNOWN,
        "none": PathKind.NOTHING,
        "file/below": PathKind.NOTHING,
        "x" * 300: PathKind.NOTHING,
        "a\0b": PathKind.NOTHING,
    }
    assert {name: kind_at(str(tmp_path / name)) for name in expected} == expected
    there = {name for name in expected if is_there(str(tmp_path / name))}
    assert there == {"file", "link", "dangling", "loop", "down", "failing"}
    assert [size_at(str(tmp_path / name)) for name in ("file", "link", "none", "failing")] == [3, 3, 0, 0]
    assert status_if_there(str(tmp_path / "none")) is None
    with pytest.raises(OSError, match="Input/output error"):
        status_if_there(str(tmp_path / "failing"))
    assert found_at(str(tmp_path / "none")) is None
    assert found_at(str(tmp_path / "failing")) == FoundFile(str(tmp_path / "failing"), -1, PathKind.UNKNOWN)
    listed = {found.name: (found.kind, found.is_link) for found in list_directory(str(tmp_path))}
    links = {"link", "dangling", "loop", "down"}
    assert listed == {name: (expected[name], name in links) for name in there - {"failing"}} | {
        "failing": (PathKind.FILE, False)  # the listing itself says so
    }
    assert set(list_files(str(tmp_path))) == {"file", "failing"}
    assert set(list_names(str(tmp_path))) == set(listed)
    (down,) = [found for found in list_directory(str(tmp_path)) if found.name == "down"]
    assert down.inode == tmp_path.stat().st_ino


def test_a_version_is_another_after_each_write(tmp_path: Path) -> None:
    path = tmp_path / "file"
    versions = set()
    for content in (b"a", b"ab", b"abc"):
        path.write_bytes(content)
        versions.add(status_at(str(path)).version)
    assert len(versions) == 3
    assert len({status_at(str(path)).number}) == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_is_refused_for_a_moment_is_asked_again(number: int, tmp_path: Path, disk: FailingDisk) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    for call in (status_at, list_names, list_directory, matching):
        asked = {status_at: "file", matching: "*"}.get(call, "")
        path = tmp_path / "file" if call is status_at else tmp_path
        disk.refuse(path, number, times=2)
        assert call(str(tmp_path / asked))
        disk.refuse(path, number)
        with pytest.raises(Shortage, match="ulimit -n"):
            call(str(tmp_path / asked))
        disk.refuse(path, times=0)


def test_a_pattern_matches_what_a_shell_would(tmp_path: Path, disk: FailingDisk) -> None:
    for name in ("a/kafka-1", "a/kafka-2", "b/kafka-1", ".c/kafka-1", "b/other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "b" / "kafka-9").symlink_to("nowhere")

    def matched(pattern: str) -> list[str]:
        return [str(Path(path).relative_to(tmp_path)) for path in matching(str(tmp_path / pattern))]

    assert matched("*/kafka-*") == ["a/kafka-1", "a/kafka-2", "b/kafka-1", "b/kafka-9"]
    assert matched("*/kafka-1") == ["a/kafka-1", "b/kafka-1"]
    assert matched("[ab]/kafka-?") == ["a/kafka-1", "a/kafka-2", "b/kafka-1", "b/kafka-9"]
    assert matched(".*/*") == [".c/kafka-1"]
    assert matched("x*/kafka-*") == matched("none/*") == []
    disk.refuse(tmp_path / "a", errno.EACCES)
    assert matched("*/kafka-*") == ["b/kafka-1", "b/kafka-9"]
    disk.refuse(tmp_path / "a", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        matched("*/kafka-*")


# --- who asks --------------------------------------------------------------------------------------------------------


def test_a_pattern_of_sparks_is_no_shorter_for_want_of_a_descriptor(root: Path, disk: FailingDisk) -> None:
    from kfs.spark.paths import expand_paths

    disk.refuse(root, errno.EMFILE, times=1)
    assert expand_paths([str(root / "*-0")]) == [str(root / "t-0"), str(root / "u-0")]
    disk.refuse(root, errno.EMFILE)
    with pytest.raises(Shortage):
        expand_paths([str(root / "*-0")])


@pytest.mark.parametrize("mode", [SALVAGE, KAFKA])
def test_a_partition_is_not_left_out_for_want_of_a_descriptor(
    mode: Mode, root: Path, tmp_path: Path, disk: FailingDisk
) -> None:
    for count in range(1, 4):
        disk.refuse(root / "t-0", errno.EMFILE, times=count)
        report = recover_copy(str(root), str(tmp_path / f"out-{count}"), mode)
        assert list(report.left_out) == []
        with DataDirOf(tmp_path / f"out-{count}") as data:
            assert {log.topic: len(list(records_in(log))) for log in data.logs()} == {"t": 20, "u": 20}


@pytest.mark.parametrize("mode", [SALVAGE, KAFKA])
def test_a_partition_that_cannot_be_asked_is_told(mode: Mode, root: Path, tmp_path: Path, disk: FailingDisk) -> None:
    disk.refuse(root / "t-0")
    if mode is KAFKA:
        with pytest.raises(KfsError, match="Input/output error"):
            recover_copy(str(root), str(tmp_path / "out"), mode)
        return
    report = recover_copy(str(root), str(tmp_path / "out"), mode)
    (left_out,) = report.left_out
    assert left_out.left_out == f"{root / 't-0'}: Input/output error"


def test_a_file_that_cannot_be_asked_is_told_by_recovery(root: Path, tmp_path: Path, disk: FailingDisk) -> None:
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    disk.refuse(root / "meta.properties")
    report = recover_copy(str(root), str(tmp_path / "out"), SALVAGE)
    assert str(root / "meta.properties") in {change.file for change in report.changes}


@pytest.mark.parametrize("mode", [SALVAGE, KAFKA])
def test_a_link_to_itself_keeps_nothing_from_being_recovered(mode: Mode, root: Path, tmp_path: Path) -> None:
    (root / "loop").symlink_to("loop")
    (root / "t-0" / "loop").symlink_to("loop")
    report = recover_copy(str(root), str(tmp_path / "out"), mode)
    told = {change.file: change.what for change in report.partitions[0].changes}
    assert told[str(root / "t-0" / "loop")].startswith("left out")


def test_a_link_to_itself_keeps_nothing_from_being_verified(root: Path) -> None:
    (root / "loop").symlink_to("loop")
    assert one(verified(root), FindingKind.STRAY_FILE).file == str(root / "loop")


def test_what_cannot_be_read_is_an_error_and_not_in_use(root: Path, disk: FailingDisk) -> None:
    for name in (log_name(0), log_name(10, ".index")):
        disk.refuse(root / "t-0" / name)
    told = [finding for finding in verified(root) if finding.kind is FindingKind.READ_ERROR]
    assert {Path(finding.file).name for finding in told} == {log_name(0), log_name(10, ".index")}
    assert {finding.severity for finding in told} == {Severity.ERROR}


def test_what_cannot_be_read_is_not_missing_too(root: Path, disk: FailingDisk) -> None:
    (root / "u-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    assert FindingKind.PARTITION_METADATA_MISSING in kinds(verified(root))
    disk.refuse(root / "t-0" / "partition.metadata")
    assert FindingKind.PARTITION_METADATA_MISSING not in kinds(verified(root))


def test_a_raw_file_that_cannot_be_asked_is_an_error(root: Path, disk: FailingDisk) -> None:
    tree = open_tree(root)
    raw = directory_at(tree, "t/0/raw")
    disk.refuse(root / "t-0" / log_name(0))
    with pytest.raises(CorruptData, match="Input/output error"):
        raw.lookup(log_name(0))
    with pytest.raises(NotFound):
        raw.lookup(log_name(1))
    assert log_name(10) in names(raw)
    assert log_name(0) in content_of(tree, "t/0/meta/problems.jsonl").decode()


def test_whether_the_stop_was_clean_may_be_unknown(root: Path, disk: FailingDisk) -> None:
    tree = open_tree(root)
    disk.refuse(root / ".kafka_cleanshutdown")
    assert json.loads(content_of(tree, ".kfs/log-dirs.jsonl"))["cleanShutdown"] is None


def test_a_log_start_that_cannot_be_read_is_told(root: Path, disk: FailingDisk) -> None:
    set_log_start(root, "t", 0, 5)
    checkpoint = root / "log-start-offset-checkpoint"
    with DataDirOf(root / "t-0") as data:
        (log,) = data.logs()
        assert log.log_start_offset == 5
    disk.refuse(checkpoint)
    with DataDirOf(root / "t-0") as data:
        (log,) = data.logs()
        _ = log.log_start_offset
        assert [problem.file for problem in data.problems] == [str(checkpoint)]


def test_a_metadata_log_that_cannot_be_asked_is_an_error(tmp_path: Path, disk: FailingDisk) -> None:
    write_log(tmp_path, [[topic("t", 1)]])
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    with DataDirOf(tmp_path) as data:
        assert Cluster(data).state() is not None
    disk.refuse(tmp_path / DIRECTORY)
    with DataDirOf(tmp_path) as data, pytest.raises(SourceLost, match="Input/output error"):
        Cluster(data).state()


def test_a_partition_behind_a_link_that_leads_to_a_failing_disk_is_there(
    root: Path, tmp_path: Path, disk: FailingDisk
) -> None:
    (tmp_path / "other").mkdir()
    (root / "v-0").symlink_to(tmp_path / "other")
    (root / "w-0").symlink_to("nowhere")
    disk.refuse(root / "v-0", errno.EACCES)
    with DataDirOf(root) as data:
        assert data.topics() == ["t", "u", "v"]
        log = data.log("v", 0)
        assert log is not None
        with pytest.raises(SourceLost, match="Permission denied"):
            _ = log.segments


@pytest.mark.parametrize("failing", [0, 1])
def test_a_copy_that_cannot_be_listed_keeps_none_of_the_others_from_being_read(
    failing: int, tmp_path: Path, disk: FailingDisk
) -> None:
    content = dense(0, 9)
    data = bytearray(joined(content))
    data[positions(content)[0] + 70] ^= 1
    roots = [tmp_path / "one", tmp_path / "two"]
    for each in roots:
        write_partition(each / "t-0", {0: content})
        (each / "meta.properties").write_text("version=1\n")
        (each / "t-0" / log_name(0)).write_bytes(data)
    disk.refuse(roots[failing] / "t-0")
    with DataDirOf(*roots) as data_dir:
        log = data_dir.log("t", 0)
        assert log is not None
        assert log.directory.path == str(roots[1 - failing] / "t-0")
        blocks = (item for _, item in log.walk(OffsetRange(0, 10)))
        assert [block.header.base_offset for block in blocks if isinstance(block, Block)] == [5]
        (_, other) = next(iter(data_dir.replicas()))
        with pytest.raises(SourceLost, match="Input/output error"):
            _ = other.segments
        assert any("Input/output error" in problem.reason for problem in other.problems)


@pytest.mark.parametrize("failing", [0, 1])
def test_another_brokers_metadata_log_is_read_where_one_cannot_be_listed(
    failing: int, tmp_path: Path, disk: FailingDisk
) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for each in roots:
        each.mkdir()
        write_log(each, [[topic("t", 1)]])
        (each / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    with DataDirOf(*roots) as data:
        for directory in (roots[failing] / DIRECTORY, roots[failing]):
            disk.refuse(directory)
            state = Cluster(data).state()
            assert state is not None
            assert list(state.image.topic_ids) == ["t"]


def test_groups_are_read_beside_a_copy_that_cannot_be_listed(tmp_path: Path, disk: FailingDisk) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for each in roots:
        partition = InternalPartition(each)
        (each / "meta.properties").write_text("version=1\n")
        partition.append(commit("g", "t", 0, 1))
        second = partition.active.stat().st_size
        partition.append(commit("g", "t", 0, 2))
        data = bytearray(partition.active.read_bytes())
        data[second + 70] ^= 1
        partition.active.write_bytes(data)
        disk.refuse(partition.directory, times=0 if each is roots[0] else None)
    assert groups_of(*roots).names() == ("g",)


def test_a_first_snapshot_that_cannot_be_read_is_told(tmp_path: Path, disk: FailingDisk) -> None:
    (tmp_path / "bootstrap.checkpoint").write_bytes(snapshot_bytes([topic("first", 9)]))
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    disk.refuse(tmp_path / "bootstrap.checkpoint")
    with DataDirOf(tmp_path) as data:
        assert Cluster(data).bootstrap() is None
        assert [problem.reason for problem in data.problems] == ["not used: Input/output error"]


def test_a_dump_of_a_directory_goes_on_when_descriptors_are_there_again(root: Path, disk: FailingDisk) -> None:
    disk.refuse(root / "t-0", errno.EMFILE, times=2)
    done = CliRunner().invoke(main, ["dump", str(root / "t-0")])
    assert (done.exit_code, done.stderr) == (0, "")


def test_damage_of_a_file_that_cannot_be_asked_is_not_lost_data(root: Path, disk: FailingDisk) -> None:
    pytest.importorskip("pyarrow")
    from tests.spark.reads import options_for, planned, read

    path = root / "t-0" / log_name(0)
    data = bytearray(path.read_bytes())
    data[positions(dense(0, 9))[1] + 70] ^= 1
    path.write_bytes(data)
    options = options_for(root, assign='{"t":[0]}', failOnDataLoss="false")
    reading = read(planned(options), options)
    next(reading)
    disk.refuse(path)
    with pytest.raises(CorruptData):
        list(reading)


class DataDirOf(DataDir):
    """Log directories, until the block is left."""

    def __init__(self, *paths: Path) -> None:
        super().__init__([str(path) for path in paths], Storage())

    def __enter__(self) -> DataDirOf:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
