"""What LOG_DIR arguments name: log directories, single partitions, loose files, and copies of one partition."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfs.errors import SourceLost, UnusableSource
from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint
from kfs.format.partition_metadata import PartitionMetadata, encode_partition_metadata
from kfs.format.uuid import Uuid
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import delete_directory_name
from kfs.log.log import Log
from kfs.log.log_dir import LogDir
from kfs.log.storage import Storage
from tests.logs import (
    batch,
    bytes_read,
    dense,
    joined,
    log_name,
    record,
    records_in,
    set_high_watermark,
    set_log_start,
    watch_reads,
    write_log,
    write_partition,
)

ID = "d76a33fa3c734388981af789ddeff3e6"


def opened(*paths: Path, until_high_watermark: bool = False) -> DataDir:
    return DataDir([str(path) for path in paths], Storage(), until_high_watermark=until_high_watermark)


def partitions_of(data_dir: DataDir) -> dict[str, list[int]]:
    return {topic: data_dir.partitions(topic) for topic in data_dir.topics()}


def log_of(data_dir: DataDir, topic: str = "t", partition: int = 0) -> Log:
    log = data_dir.log(topic, partition)
    assert log is not None
    return log


def offsets_of(log: Log) -> list[int]:
    return [one.offset for one in records_in(log)]


def root(tmp_path: Path, name: str = "data") -> Path:
    """Make a log directory, which a broker's file shows to be one."""
    directory = tmp_path / name
    directory.mkdir()
    (directory / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    return directory


# --- what an argument may be ----------------------------------------------------------------------------------------


def test_a_log_directory_has_the_partitions_in_it(tmp_path: Path) -> None:
    data = root(tmp_path)
    for name in ("b-1", "b-0", "b-10", "a.x-y-0", "__consumer_offsets-3"):
        write_partition(data / name, {0: dense(0, 4)})
    (data / "not a partition").mkdir()
    (data / "file-0").write_bytes(b"")
    assert partitions_of(opened(data)) == {"__consumer_offsets": [3], "a.x-y": [0], "b": [0, 1, 10]}
    assert opened(data).log("b", 2) is None
    assert opened(data).partitions("none") == []


def test_a_log_directory_needs_no_file_of_a_broker(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 4)})
    assert partitions_of(opened(tmp_path)) == {"t": [0]}


@pytest.mark.parametrize("marker", ["meta.properties", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"])
def test_an_empty_log_directory_is_one_by_its_files(marker: str, tmp_path: Path) -> None:
    (tmp_path / marker).write_bytes(b"")
    assert partitions_of(opened(tmp_path)) == {}


def test_a_single_partition_directory_is_shown_alone(tmp_path: Path) -> None:
    data = root(tmp_path)
    for name in ("t-0", "t-1"):
        write_partition(data / name, {0: dense(0, 9)})
    set_log_start(data, "t", 1, 5)
    data_dir = opened(data / "t-1")
    assert partitions_of(data_dir) == {"t": [1]}
    # The checkpoints that lie above it speak of it.
    assert log_of(data_dir, "t", 1).log_start_offset == 5


def test_a_partition_directory_copied_elsewhere_is_shown_too(tmp_path: Path) -> None:
    write_partition(tmp_path / "copy of a disk", {0: dense(0, 9)})
    data_dir = opened(tmp_path / "copy of a disk")
    assert partitions_of(data_dir) == {"copy of a disk": [0]}
    assert offsets_of(log_of(data_dir, "copy of a disk")) == list(range(10))


def test_an_empty_partition_directory_is_one_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "t-3").mkdir()
    assert partitions_of(opened(tmp_path / "t-3")) == {"t": [3]}


def test_loose_log_files_form_the_partition_that_their_directory_is(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-5", {0: dense(0, 9), 10: dense(10, 19), 20: dense(20, 29)})
    data_dir = opened(directory / log_name(20), directory / log_name(10))
    assert partitions_of(data_dir) == {"t": [5]}
    assert offsets_of(log_of(data_dir, "t", 5)) == list(range(10, 30))


def test_loose_log_files_elsewhere_are_called_after_their_directory(tmp_path: Path) -> None:
    (tmp_path / "rescued").mkdir()
    first = write_log(tmp_path / "rescued", 0, joined(dense(0, 9)))
    first = first.rename(tmp_path / "rescued" / "some.log")
    data_dir = opened(first)
    assert partitions_of(data_dir) == {"rescued": [0]}
    assert offsets_of(log_of(data_dir, "rescued")) == list(range(10))


def test_a_loose_file_without_a_base_in_its_name_begins_with_its_first_batch(tmp_path: Path) -> None:
    path = write_log(tmp_path / "x", 70, joined(dense(70, 79))).rename(tmp_path / "x" / "renamed.log")
    (log,) = opened(path).logs()
    assert [segment.base_offset for segment in log.segments] == [70]
    assert offsets_of(log) == list(range(70, 80))


@pytest.mark.parametrize("suffix", [".log.deleted", ".log.swap", ".log.cleaned"])
def test_a_loose_file_is_shown_whatever_its_state(suffix: str, tmp_path: Path) -> None:
    path = write_log(tmp_path / "t-0", 0, joined(dense(0, 9)), suffix)
    assert offsets_of(log_of(opened(path))) == list(range(10))


def test_a_deleted_partition_named_itself_is_shown_as_any_other(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / f"t-0.{ID}-delete", {0: dense(0, 9)})
    assert offsets_of(log_of(opened(directory))) == list(range(10))


@pytest.mark.parametrize(
    "make",
    [
        lambda path: None,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b"text"),
        lambda path: (path.mkdir(), (path / "notes.txt").write_bytes(b"")),
        lambda path: path.symlink_to("nowhere"),
    ],
    ids=["missing", "empty", "a file", "other files", "dangling"],
)
def test_what_is_nothing_of_kafkas_is_refused_by_name(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "what")
    with pytest.raises(UnusableSource, match=str(tmp_path / "what")):
        opened(tmp_path / "what")


def test_a_topic_filter_hides_other_topics(tmp_path: Path) -> None:
    for name in ("a-0", "b-0", "ab-0", f"a-1.{ID}-delete", f"b-1.{ID}-delete"):
        write_partition(tmp_path / name, {0: dense(0, 4)})
    data_dir = DataDir([str(tmp_path)], Storage(), topic_filter=lambda topic: topic.startswith("a"))
    assert partitions_of(data_dir) == {"a": [0], "ab": [0]}
    assert [(log.topic, name) for name, log in data_dir.deleted()] == [("a", f"1.{ID}-delete")]


def test_the_high_watermark_is_asked_for_once_and_for_all(tmp_path: Path) -> None:
    data = root(tmp_path)
    write_partition(data / "t-0", {0: dense(0, 9)})
    set_high_watermark(data, "t", 0, 6)
    assert log_of(opened(data)).visible().end == 10
    assert log_of(opened(data, until_high_watermark=True)).visible().end == 6


# --- names that are no partitions -----------------------------------------------------------------------------------


def test_links_to_partition_directories_are_partitions_and_broken_ones_hide_nothing(tmp_path: Path) -> None:
    data = root(tmp_path)
    write_partition(tmp_path / "elsewhere", {0: dense(0, 4)})
    write_partition(data / "t-0", {0: dense(0, 4)})
    (data / "linked-0").symlink_to(tmp_path / "elsewhere")
    (data / "dangling-0").symlink_to("nowhere")
    (data / "loop-0").symlink_to("loop-0")
    os.mkfifo(data / "pipe-0")
    data_dir = opened(data)
    assert partitions_of(data_dir) == {"linked": [0], "t": [0]}
    assert list(data_dir.problems) == []


def test_deleted_partitions_are_not_among_the_others(tmp_path: Path) -> None:
    write_partition(tmp_path / f"gone-0.{ID}-delete", {0: dense(0, 4)})
    write_partition(tmp_path / "t-0", {0: dense(0, 4)})
    data_dir = opened(tmp_path)
    assert partitions_of(data_dir) == {"t": [0]}
    ((name, log),) = data_dir.deleted()
    assert name == f"0.{ID}-delete"
    assert offsets_of(log) == list(range(5))


def test_deleted_segments_are_there_as_soon_as_they_are_seen(tmp_path: Path) -> None:
    """Their log and that of the partition look at one directory at different times, and it had none in between."""
    directory = write_partition(tmp_path / "t-0", {base: dense(base, base + 4) for base in (0, 5, 10)})
    data_dir = opened(tmp_path)
    log = log_of(data_dir)
    for base in (0, 5):
        (directory / log_name(base)).rename(directory / log_name(base, ".log.deleted"))
        log.look_again()
        deleted = data_dir.deleted_segments(log)
        assert deleted is not None
        assert offsets_of(deleted) == list(range(base, base + 5))
        (directory / log_name(base, ".log.deleted")).unlink()
        deleted.look_again()
        assert offsets_of(deleted) == []


# --- several copies -------------------------------------------------------------------------------------------------


def replica(directory: Path, count: int, epoch: int | None, value: bytes = b"v") -> Path:
    """Write a copy of a partition with so many records, whose log ends in that leader epoch."""
    write_partition(directory, {0: [batch([record(at, value) for at in range(count)])]})
    if epoch is not None:
        checkpoint = encode_leader_epoch_checkpoint([EpochEntry(0, 0), EpochEntry(epoch, 1)])
        (directory / "leader-epoch-checkpoint").write_bytes(checkpoint)
    return directory


def test_copies_stay_the_same_when_they_are_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfs.log.data_dir.LOOK_AGAIN_SECONDS", 0)
    roots = [root(tmp_path, "one"), root(tmp_path, "two")]
    replica(roots[0] / "t-0", 9, 3)
    replica(roots[1] / "t-0", 5, 3)
    data_dir = opened(*roots)
    log = log_of(data_dir)
    for _ in range(2):
        assert [other.directory.path for _, other in data_dir.replicas()] == [str(roots[1] / "t-0")]
        assert data_dir.copies_of(log) == [other for _, other in data_dir.replicas()]


@pytest.mark.parametrize(
    ("first", "second", "served"),
    [
        ((5, 3), (9, 2), "a"),
        ((5, 2), (9, 3), "b"),
        ((5, 3), (9, 3), "b"),
        ((9, 3), (5, 3), "a"),
        ((5, None), (9, None), "b"),
        ((5, 0), (9, None), "a"),
    ],
)
def test_of_two_copies_the_one_with_the_highest_epoch_then_the_longest_is_served(
    first: tuple[int, int | None], second: tuple[int, int | None], served: str, tmp_path: Path
) -> None:
    roots = [root(tmp_path, "one"), root(tmp_path, "two")]
    replica(roots[0] / "t-0", *first, b"a")
    replica(roots[1] / "t-0", *second, b"b")
    data_dir = opened(*roots)
    assert partitions_of(data_dir) == {"t": [0]}
    assert {one.value for one in records_in(log_of(data_dir))} == {served.encode()}
    ((name, other),) = data_dir.replicas()
    assert name == ("0@1" if served == "a" else "0@0")
    assert {one.value for one in records_in(other)} == {b"b" if served == "a" else b"a"}
    (problem,) = data_dir.problems
    assert "t-0 has several copies" in problem.reason
    assert problem.file == str(roots["ab".index(served)] / "t-0")


@pytest.mark.parametrize("kind", ["future", "stray"])
def test_a_moving_or_stray_copy_is_a_copy(kind: str, tmp_path: Path) -> None:
    replica(tmp_path / "t-0", 9, 1)
    replica(tmp_path / f"t-0.{ID}-{kind}", 5, 1)
    data_dir = opened(tmp_path)
    assert len(records_in(log_of(data_dir))) == 9
    assert [(name, len(records_in(log))) for name, log in data_dir.replicas()] == [(f"0.{ID}-{kind}", 5)]


@pytest.mark.parametrize("kind", ["future", "stray"])
def test_a_stray_partition_that_is_nowhere_else_is_served(kind: str, tmp_path: Path) -> None:
    replica(tmp_path / f"t-0.{ID}-{kind}", 5, 1)
    data_dir = opened(tmp_path)
    assert len(records_in(log_of(data_dir))) == 5
    assert list(data_dir.replicas()) == []
    assert list(data_dir.problems) == []


def test_the_same_directory_given_twice_is_one(tmp_path: Path) -> None:
    replica(tmp_path / "t-0", 5, 1)
    data_dir = opened(tmp_path, tmp_path)
    assert partitions_of(data_dir) == {"t": [0]}
    assert len(records_in(log_of(data_dir))) == 5


# --- what changes ---------------------------------------------------------------------------------------------------


def test_partitions_come_and_go(tmp_path: Path, eager: None) -> None:
    data = root(tmp_path)
    replica(data / "t-0", 5, None)
    data_dir = opened(data)
    log = log_of(data_dir)
    assert partitions_of(data_dir) == {"t": [0]}
    replica(data / "t-1", 3, None)
    replica(data / "u-0", 3, None)
    assert partitions_of(data_dir) == {"t": [0, 1], "u": [0]}
    assert log_of(data_dir) is log
    (data / "t-0").rename(data / f"t-0.{ID}-delete")
    assert partitions_of(data_dir) == {"t": [1], "u": [0]}
    assert data_dir.log("t", 0) is None
    assert [name for name, _ in data_dir.deleted()] == [f"0.{ID}-delete"]


def test_a_log_directory_that_goes_is_a_problem_and_no_crash(tmp_path: Path, eager: None) -> None:
    data = root(tmp_path)
    replica(data / "t-0", 5, None)
    data_dir = opened(data)
    assert partitions_of(data_dir) == {"t": [0]}
    data.rename(tmp_path / "moved")
    with pytest.raises(SourceLost, match="can't be listed"):
        partitions_of(data_dir)
    assert "can't be listed" in next(iter(data_dir.problems)).reason
    (tmp_path / "moved").rename(data)
    assert partitions_of(data_dir) == {"t": [0]}
    assert len(records_in(log_of(data_dir))) == 5


# --- size -----------------------------------------------------------------------------------------------------------


def make_many(data: Path, partitions: int, segments: int) -> None:
    """Write partitions of sparse segments, whose content nobody must look at."""
    for number in range(partitions):
        directory = data / f"topic-{number % 100}-{number // 100}"
        directory.mkdir()
        for base in range(segments):
            path = directory / log_name(base * 1000)
            path.touch()
            os.truncate(path, 1 << 30)


@pytest.mark.parametrize(
    ("partitions", "segments"), [(300, 10), pytest.param(10_000, 10, marks=pytest.mark.long)], ids=["300", "10,000"]
)
def test_opening_many_partitions_reads_no_log_data(
    partitions: int, segments: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = root(tmp_path)
    make_many(data, partitions, segments)
    reads = watch_reads(monkeypatch)
    data_dir = opened(data)
    topics = partitions_of(data_dir)
    assert sum(map(len, topics.values())) == partitions
    assert sum(len(log.segments) for log in data_dir.logs()) == partitions * segments
    assert bytes_read(reads, "") == 0


# --- topics that had the same name ----------------------------------------------------------------------------------


class Known:
    """Knows ids and names, and remembers what it was asked."""

    def __init__(self, ids: dict[str, Uuid], names: dict[Uuid, str] | None = None) -> None:
        self.ids = ids
        self.names = names or {}
        self.asked: list[object] = []

    def topic_id(self, topic: str, log_dir: LogDir | None) -> Uuid | None:
        self.asked.append(topic)
        return self.ids.get(topic)

    def topic_name(self, topic_id: Uuid) -> str | None:
        self.asked.append(topic_id)
        return self.names.get(topic_id)

    def is_tiered(self, topic: str, log_dir: LogDir | None) -> bool | None:
        raise NotImplementedError

    def partition_count(self, topic: str, log_dir: LogDir | None) -> int | None:
        raise NotImplementedError


OLD, NEW = Uuid(b"o" * 16), Uuid(b"n" * 16)


def of_topic(directory: Path, topic_id: Uuid | None, count: int) -> None:
    replica(directory, count, 1)
    if topic_id is not None:
        (directory / "partition.metadata").write_bytes(encode_partition_metadata(PartitionMetadata(topic_id)))


def known(data_dir: DataDir, ids: dict[str, Uuid], names: dict[Uuid, str] | None = None) -> Known:
    made = Known(ids, names)
    data_dir.topic_ids = lambda: made
    return made


@pytest.mark.parametrize("metadata", [{}, {"t": NEW}])
def test_a_stray_directory_of_an_older_topic_is_no_copy(metadata: dict[str, Uuid], tmp_path: Path) -> None:
    of_topic(tmp_path / "t-0", NEW, 4)
    of_topic(tmp_path / f"t-0.{ID}-stray", OLD, 9)
    data_dir = opened(tmp_path)
    known(data_dir, metadata)
    assert len(records_in(log_of(data_dir))) == 4
    assert list(data_dir.replicas()) == []
    assert [(name, len(records_in(log))) for name, log in data_dir.deleted("t")] == [(f"0.{ID}-stray", 9)]
    (problem,) = data_dir.problems
    assert f"of an older topic t with id {OLD}; the topic's id is now {NEW}" in problem.reason


def test_a_stray_directory_of_a_topic_that_is_elsewhere_now_is_not_taken_for_it(tmp_path: Path) -> None:
    of_topic(tmp_path / f"t-0.{ID}-stray", OLD, 9)
    of_topic(tmp_path / "u-0", NEW, 1)
    data_dir = opened(tmp_path)
    known(data_dir, {"t": NEW})
    assert partitions_of(data_dir) == {"u": [0]}
    assert [name for name, _ in data_dir.deleted("t")] == [f"0.{ID}-stray"]


@pytest.mark.parametrize("topic_id", [None, NEW])
def test_a_stray_directory_of_the_same_topic_is_a_copy(topic_id: Uuid | None, tmp_path: Path) -> None:
    of_topic(tmp_path / "t-0", NEW, 4)
    of_topic(tmp_path / f"t-0.{ID}-stray", topic_id, 3)
    data_dir = opened(tmp_path)
    known(data_dir, {"t": NEW})
    assert [name for name, _ in data_dir.replicas()] == [f"0.{ID}-stray"]
    assert list(data_dir.deleted()) == []


def test_a_stray_directory_that_the_metadata_knows_nothing_of_is_served(tmp_path: Path) -> None:
    of_topic(tmp_path / f"t-0.{ID}-stray", OLD, 9)
    data_dir = opened(tmp_path)
    known(data_dir, {})
    assert len(records_in(log_of(data_dir))) == 9


def test_of_copies_with_different_ids_that_of_the_topic_is_served(tmp_path: Path) -> None:
    of_topic(tmp_path / "a" / "t-0", OLD, 9)
    of_topic(tmp_path / "b" / "t-0", NEW, 4)
    data_dir = opened(tmp_path / "a", tmp_path / "b")
    known(data_dir, {"t": NEW})
    assert len(records_in(log_of(data_dir))) == 4
    assert any("of an older topic t" in problem.reason for problem in data_dir.problems)


def test_without_metadata_copies_with_different_ids_are_served_as_copies(tmp_path: Path) -> None:
    of_topic(tmp_path / "a" / "t-0", OLD, 9)
    of_topic(tmp_path / "b" / "t-0", NEW, 4)
    data_dir = opened(tmp_path / "a", tmp_path / "b")
    assert len(records_in(log_of(data_dir))) == 9


def test_a_name_that_was_cut_off_is_made_whole(tmp_path: Path) -> None:
    topic = "x" * 200 + "y" * 49
    name = delete_directory_name(topic, 0, ID)
    assert len(name) == 255
    of_topic(tmp_path / name, OLD, 3)
    data_dir = opened(tmp_path)
    known(data_dir, {}, {OLD: topic})
    assert data_dir.deleted_topics() == {topic}
    ((shown, log),) = data_dir.deleted(topic)
    assert (shown, log.topic, len(records_in(log))) == (f"0.{ID}-delete", topic, 3)


@pytest.mark.parametrize("name", [None, "another topic"])
def test_a_name_that_was_cut_off_stays_where_nobody_knows_better(name: str | None, tmp_path: Path) -> None:
    topic = "x" * 249
    directory = delete_directory_name(topic, 0, ID)
    of_topic(tmp_path / directory, OLD, 3)
    data_dir = opened(tmp_path)
    known(data_dir, {}, {OLD: name} if name else {})
    (shown,) = data_dir.deleted_topics()
    assert directory.startswith(f"{shown}-0.")


def test_nobody_is_asked_where_names_suffice(tmp_path: Path) -> None:
    of_topic(tmp_path / "t-0", NEW, 4)
    of_topic(tmp_path / f"t-0.{ID}-future", NEW, 3)
    of_topic(tmp_path / f"gone-0.{ID}-delete", OLD, 3)
    data_dir = opened(tmp_path)
    asked = known(data_dir, {"t": NEW}).asked
    assert partitions_of(data_dir) == {"t": [0]}
    log_of(data_dir)
    assert data_dir.deleted_topics() == {"gone"}
    assert asked == []


def test_every_directory_is_told(tmp_path: Path) -> None:
    of_topic(tmp_path / "t-0", NEW, 4)
    of_topic(tmp_path / f"gone-0.{ID}-delete", OLD, 3)
    assert {directory.path for directory in opened(tmp_path).directories()} == {
        str(tmp_path / "t-0"),
        str(tmp_path / f"gone-0.{ID}-delete"),
    }


def test_a_log_may_be_asked_for_while_the_directory_is_listed(tmp_path: Path) -> None:
    for partition in range(3):
        write_partition(tmp_path / f"t-{partition}", {0: dense(0, 9)})
    data_dir = DataDir([str(tmp_path)], Storage())
    log = data_dir.log("t", 0)
    assert log is not None

    others, other = iter(range(9)), log

    class Asked(Log):
        def __getattribute__(self, name: str) -> Any:
            if name == "directory":
                data_dir._logs[f"another {next(others)}"] = other
            return super().__getattribute__(name)

    data_dir._logs[log.directory.path] = Asked(log.directory, log.storage)
    shutil.rmtree(tmp_path / "t-2")
    data_dir._looked = -1.0
    assert data_dir.partitions("t") == [0, 1]
