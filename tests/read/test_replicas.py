"""Three brokers' disks after an election that lost records: what consumers got afterwards is read, and nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kfs.log.block import Block
from kfs.log.offset_range import OffsetRange
from kfs.read.isolation_level import IsolationLevel
from tests.corpus import extract
from tests.logs import open_log
from tests.read.oracle.judging import shown_by_all
from tests.read.views import Asked, Shown, of_lines
from tests.system.kafka_mount import KafkaMount
from tests.system.kafka_mount import kfs as run_kfs

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("quiet")

#: Made by ``tests.broker.record_replicas``.
ARCHIVE: Final = Path(__file__).with_name("replicas.tar.zst")
#: Two damages, and many more for the long matrix.
SEEDS: Final = [0, 20, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 40) if seed != 20)]
#: ``stock`` is compacted.
PARTITIONS: Final = ("orders-0", "orders-1", "payments-0", "stock-0")
AS_WRITTEN: Final = PARTITIONS[:3]
Consumed = dict[str, dict[str, list[dict[str, Any]]]]


class Replicas:
    """The disks of brokers 1, 2 and 3, and what a consumer got before the election and after it."""

    def __init__(self, root: Path) -> None:
        self.disks = [root / "data" / f"broker-{number}" for number in (1, 2, 3)]
        self.before: Consumed = json.loads((root / "before.json").read_text())
        self.after: Consumed = json.loads((root / "after.json").read_text())
        self.committed: dict[str, dict[str, int]] = json.loads((root / "committed.json").read_text())


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    extract(ARCHIVE, tmp_path / "disks")
    return Replicas(tmp_path / "disks" / "replicas")


def values(records: list[dict[str, Any]]) -> Shown:
    return {each["offset"]: None if each["value"] is None else each["value"].encode() for each in records}


def asked(replicas: Replicas, name: str, level: str = "read_uncommitted", order: tuple[int, ...] = (0, 1, 2)) -> Asked:
    topic, _, partition = name.rpartition("-")
    roots = [replicas.disks[number] for number in order]
    return Asked.of(*roots, isolation=IsolationLevel(level), topic=topic, partition=int(partition))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def damage_elsewhere(replicas: Replicas, seed: int) -> None:
    """Damage batches that disks have in common, none of them on two disks, and not the last ones."""
    rng = random.Random(seed)
    for name in PARTITIONS:
        logs = [open_log(disk / name) for disk in replicas.disks]
        ends = [log.log_end_offset for log in logs]
        taken: list[OffsetRange] = []
        for log in logs:
            blocks = [item for _, item in log.walk(OffsetRange(0, min(ends))) if isinstance(item, Block)][:-3]
            for block in rng.sample(blocks, min(3, len(blocks))):
                offsets = OffsetRange(block.header.base_offset, block.header.last_offset + 1)
                if not any(offsets.start < each.end and each.start < offsets.end for each in taken):
                    taken.append(offsets)
                    flip(Path(block.file), block.position + rng.randrange(21, len(block.data)))


def newest(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the values that keys have, without those that are deleted."""
    found = {each["key"]: each["value"] for each in records}
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", PARTITIONS)
def test_the_history_that_was_elected_is_shown(name: str, level: str, replicas: Replicas) -> None:
    assert shown_by_all(asked(replicas, name, level)) == values(replicas.after[level][name])


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_shown_whole_though_every_disk_is_damaged_elsewhere(seed: int, replicas: Replicas) -> None:
    damage_elsewhere(replicas, seed)
    order = random.Random(seed).sample((0, 1, 2), 3)
    for name in AS_WRITTEN:
        for level in ("read_uncommitted", "read_committed"):
            assert shown_by_all(asked(replicas, name, level, tuple(order))) == values(replicas.after[level][name])


@pytest.mark.parametrize("seed", SEEDS)
def test_no_key_of_a_compacted_log_comes_back(seed: int, replicas: Replicas) -> None:
    damage_elsewhere(replicas, seed)
    disks = [str(disk) for disk in replicas.disks]
    done = run_kfs("cat", disks[0], "stock/0", "--also", disks[1], "--also", disks[2])
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    expected = newest(replicas.after["read_uncommitted"]["stock-0"])
    assert newest(shown).items() <= expected.items()


def test_what_the_election_lost_is_under_replicas(replicas: Replicas, tmp_path: Path) -> None:
    mount = KafkaMount(tmp_path / "mounted", *replicas.disks)
    mount.start()
    try:
        for name in AS_WRITTEN:
            topic, _, partition = name.rpartition("-")
            shown = of_lines((mount.point / topic / partition / "records.jsonl").read_bytes().splitlines())
            assert shown == values(replicas.after["read_uncommitted"][name])
            copies = sorted((mount.point / ".kfs" / "replicas" / topic).iterdir())
            found = [of_lines((copy / "records.jsonl").read_bytes().splitlines()) for copy in copies]
            assert values(replicas.before["read_uncommitted"][name]) in found
    finally:
        mount.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_are_those_that_were_committed(seed: int, replicas: Replicas) -> None:
    damage_elsewhere(replicas, seed)
    disks = random.Random(seed).sample([str(disk) for disk in replicas.disks], 3)
    done = run_kfs("groups", "--json", *disks)
    found = {
        group["group"]: {f"{each['topic']}-{each['partition']}": each["offset"] for each in group["offsets"]}
        for group in map(json.loads, done.stdout.splitlines())
    }
    assert found == replicas.committed


@pytest.mark.parametrize("seed", SEEDS)
def test_recovery_gives_back_the_history_that_was_elected(seed: int, replicas: Replicas, tmp_path: Path) -> None:
    damage_elsewhere(replicas, seed)
    died, *elected = replicas.disks
    one, other = random.Random(seed).sample(elected, 2)
    output = tmp_path / "recovered"
    done = run_kfs("recover", one, "--also", other, "--also", died, "--output", output)
    assert done.returncode == 0, done.stdout.decode()
    for name in AS_WRITTEN:
        topic, _, partition = name.rpartition("-")
        for level in ("read_uncommitted", "read_committed"):
            shown = run_kfs("cat", output, f"{topic}/{partition}", "--isolation", level)
            assert of_lines(shown.stdout.splitlines()) == values(replicas.after[level][name])
