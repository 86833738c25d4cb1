"""Whatever is done to partitions: ``kfs recover --mode kafka`` leaves what a real Kafka broker then leaves."""

from __future__ import annotations

import random
import re
import shutil
import time
from pathlib import Path

import pytest

from kfs.errors import RecoveryRefused
from kfs.format.checkpoint import (
    TopicPartition,
    encode_offset_checkpoint,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
)
from kfs.log.leader_epochs import LeaderEpochs
from kfs.recover.kafka_mode import KafkaMode
from kfs.recover.log_dir_recovery import recover_copy
from tests.broker.random_partitions import damage, write_random_partition
from tests.broker.real_broker import RealBroker
from tests.recover.comparing import content_of, partitions
from tests.recover.recordings import CONFIG
from tests.requirements import need_kafka

SETTINGS = {
    "log.index.interval.bytes": CONFIG.index_interval_bytes,
    "log.index.size.max.bytes": CONFIG.segment_index_bytes,
}
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"


@pytest.mark.parametrize(
    ("count", "seed", "clean"),
    [
        (60, 1, False),
        pytest.param(300, 2, False, marks=pytest.mark.long),
        pytest.param(300, 3, True, marks=pytest.mark.long),
    ],
)
def test_damaged_partitions_are_recovered_as_a_broker_does(count: int, seed: int, clean: bool, tmp_path: Path) -> None:
    broker = RealBroker.make(tmp_path / "broker", need_kafka(), SETTINGS)
    with broker.running():
        broker.create_topics({"topic": count})
    done = write_damaged(tmp_path / "source", count, seed, clean=clean)
    refused = recover_what_can_be(tmp_path / "source", tmp_path / "output")
    assert len(refused) < count // 10
    put_all_in(broker, tmp_path / "source")
    with broker.running():
        pass
    ends = parse_offset_checkpoint((broker.data / RECOVERY_POINTS).read_bytes())
    for ours in partitions(tmp_path / "output"):
        what = f"{ours.name}: {done[ours.name]}"
        compare(ours, broker.data / ours.name, ends[partition_of(ours)], what)
    assert parse_offset_checkpoint((tmp_path / "output" / LOG_STARTS).read_bytes()).items() <= (
        parse_offset_checkpoint((broker.data / LOG_STARTS).read_bytes()).items()
    )


def partition_of(directory: Path) -> TopicPartition:
    topic, _, number = directory.name.rpartition("-")
    return TopicPartition(topic, int(number))


def write_damaged(root: Path, count: int, seed: int, *, clean: bool) -> dict[str, list[str]]:
    """Write a log directory of damaged partitions, and checkpoints that may be out of date; say what was done."""
    root.mkdir()
    done: dict[str, list[str]] = {}
    recovery_points, log_starts = {}, {}
    for number in range(count):
        source = random.Random(seed * 100_000 + number)
        directory = root / f"topic-{number}"
        write_random_partition(directory, source, CONFIG, time.time_ns() // 1_000_000)
        end = max(int(path.stem) for path in directory.glob("*.snapshot"))
        done[directory.name] = [damage(directory, source) for _ in range(source.choice([0, 1, 1, 2, 3]))]
        if source.random() < 0.3:
            recovery_points[partition_of(directory)] = source.randrange(end + 2)
        if source.random() < 0.2:
            log_starts[partition_of(directory)] = source.randrange(end + 5)
    (root / RECOVERY_POINTS).write_bytes(encode_offset_checkpoint(recovery_points))
    (root / LOG_STARTS).write_bytes(encode_offset_checkpoint(log_starts))
    if clean:
        (root / CLEAN_SHUTDOWN).touch()
    return done


def recover_what_can_be(root: Path, output: Path) -> set[str]:
    """Recover; partitions on which a broker would not start are taken away, and returned by name."""
    refused: set[str] = set()
    while True:
        try:
            recover_copy(str(root), str(output), KafkaMode(config=CONFIG))
        except RecoveryRefused as refusal:
            for name in set(re.findall(r"/(topic-\d+)", str(refusal))):
                shutil.rmtree(root / name)
                refused.add(name)
        else:
            return refused


def put_all_in(broker: RealBroker, root: Path) -> None:
    """Give the stopped broker what is in a log directory: partitions, checkpoints, and whether it stopped cleanly."""
    for directory in partitions(root):
        broker.put_in(directory)
    for name in (RECOVERY_POINTS, LOG_STARTS):
        shutil.copy(root / name, broker.data / name)
    if not (root / CLEAN_SHUTDOWN).exists():
        (broker.data / CLEAN_SHUTDOWN).unlink()


def compare(ours: Path, theirs: Path, end: int, what: str) -> None:
    """Compare a partition with the broker's, which led it from ``end`` on and knew the topic's id."""
    known = {path.name for path in theirs.iterdir() if path.suffix != ".deleted"} - {"partition.metadata"}
    assert {path.name for path in ours.iterdir()} == known, what
    for name in known - {"leader-epoch-checkpoint"}:
        assert content_of(ours / name) == content_of(theirs / name), f"{what}: {name}"
    recovered, recorded = (
        parse_leader_epoch_checkpoint((directory / "leader-epoch-checkpoint").read_bytes())
        for directory in (ours, theirs)
    )
    led = LeaderEpochs(recovered)
    if recorded:  # else the broker has not got as far as leading it
        led.assign(recorded[-1].leader_epoch, end)
    assert led.entries == recorded, what
