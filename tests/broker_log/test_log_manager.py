"""Partitions that are made go where Kafka would put them, and leave checkpoints that it believes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfs.broker_log.log_manager import LogManager
from kfs.errors import CorruptData, UnusableSource
from kfs.format.checkpoint import TopicPartition, parse_offset_checkpoint
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import DirectoryKind, parse_directory_name
from kfs.log.storage import Storage
from tests.logs import batch, dense, joined, open_log, records, records_in, write_checkpoint, write_partition

HEXES = "0123456789abcdef" * 2


def log_dirs(root: Path, *partitions: list[str]) -> list[str]:
    """Make log directories that hold partitions of those names."""
    paths = []
    for number, names in enumerate(partitions):
        path = root / f"disk{number}"
        path.mkdir()
        for name in names:
            write_partition(path / name, {0: dense(0, 4)})
        paths.append(str(path))
    return paths


def test_a_new_partition_goes_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    paths = log_dirs(tmp_path, ["a-0", "a-1"], ["b-0"], ["c-0", "c-1", "c-2"])
    manager = LogManager(paths)
    chosen = []
    for number in range(5):
        manager.create(TopicPartition("new", number))
        chosen.append(paths.index(str(Path(manager.directory_of(TopicPartition("new", number))).parent)))
    assert chosen == [1, 0, 1, 0, 1]


def test_partitions_on_their_way_count_and_deleted_ones_do_not(tmp_path: Path) -> None:
    paths = log_dirs(tmp_path, [f"a-0.{HEXES}-future"], [f"b-0.{HEXES}-delete", f"c-0.{HEXES}-stray"])
    assert LogManager(paths).next_log_dir() == paths[1]


def test_of_several_with_as_many_the_first_is_taken(tmp_path: Path) -> None:
    paths = log_dirs(tmp_path, [], [])
    assert LogManager(paths).next_log_dir() == paths[0]
    assert LogManager(paths[::-1]).next_log_dir() == paths[1]


def test_a_partition_is_made_once(tmp_path: Path) -> None:
    paths = log_dirs(tmp_path, ["a-0"], [])
    with pytest.raises(FileExistsError, match="already exists"):
        LogManager(paths).create(TopicPartition("a", 0))


def test_a_partition_is_not_made_twice_by_one(tmp_path: Path) -> None:
    manager = LogManager(log_dirs(tmp_path, [], []))
    manager.create(TopicPartition("a", 0))
    with pytest.raises(FileExistsError, match="already exists"):
        manager.create(TopicPartition("a", 0))


@pytest.mark.parametrize("topic", ["t", "t" * 249])
def test_until_it_is_closed_a_partition_looks_like_one_that_was_deleted(tmp_path: Path, topic: str) -> None:
    (path,) = log_dirs(tmp_path, [])
    manager = LogManager([path])
    manager.create(TopicPartition(topic, 12)).append(joined(dense(0, 9)))
    (name,) = (one.name for one in Path(path).iterdir())
    parsed = parse_directory_name(name)
    assert parsed is not None
    assert (parsed.partition, parsed.kind) == (12, DirectoryKind.DELETE)
    assert topic.startswith(parsed.topic)
    manager.close()
    assert not (Path(path) / name).exists()
    assert records_in(open_log(Path(path) / f"{topic}-12")) == records(0, 9)


def test_what_is_discarded_leaves_nothing(tmp_path: Path) -> None:
    (path,) = log_dirs(tmp_path, ["a-0"])
    manager = LogManager([path])
    manager.create(TopicPartition("b", 0)).append(joined(dense(0, 9)))
    manager.discard()
    assert [one.name for one in Path(path).iterdir()] == ["a-0"]


def test_there_must_be_a_directory(tmp_path: Path) -> None:
    for paths in ([], [str(tmp_path / "none")]):
        with pytest.raises(UnusableSource):
            LogManager(paths)


def test_what_was_written_is_checkpointed_and_readable(tmp_path: Path) -> None:
    (path,) = log_dirs(tmp_path, [])
    manager = LogManager([path])
    first = manager.create(TopicPartition("first", 0))
    first.append(joined(dense(0, 9)))
    second = manager.create(TopicPartition("second", 0), first_offset=100)
    second.append(batch(records(100, 104)).data)
    second.log_start_offset = 102
    manager.close()
    ends = {TopicPartition("first", 0): 10, TopicPartition("second", 0): 105}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert parse_offset_checkpoint((tmp_path / "disk0" / name).read_bytes()) == ends
    starts = parse_offset_checkpoint((tmp_path / "disk0" / "log-start-offset-checkpoint").read_bytes())
    assert starts == {TopicPartition("second", 0): 102}
    assert (tmp_path / "disk0" / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    log = DataDir([path], Storage()).log("second", 0)
    assert log is not None
    assert records_in(log, 100) == records(100, 104)


def test_what_is_said_of_other_partitions_stays(tmp_path: Path) -> None:
    (path,) = log_dirs(tmp_path, ["a-0"])
    write_checkpoint(tmp_path / "disk0", "recovery-point-offset-checkpoint", {("a", 0): 3})
    manager = LogManager([path])
    manager.create(TopicPartition("b", 0))
    manager.close()
    points = parse_offset_checkpoint((tmp_path / "disk0" / "recovery-point-offset-checkpoint").read_bytes())
    assert points == {TopicPartition("a", 0): 3, TopicPartition("b", 0): 0}
    # Of a-0 it isn't known that it was closed cleanly.
    assert not (tmp_path / "disk0" / ".kafka_cleanshutdown").exists()


def test_an_unreadable_checkpoint_is_not_overwritten(tmp_path: Path) -> None:
    (path,) = log_dirs(tmp_path, ["a-0"])
    (tmp_path / "disk0" / "recovery-point-offset-checkpoint").write_text("0\n7\n")
    manager = LogManager([path])
    with pytest.raises(CorruptData, match="recovery-point"):
        manager.close()
