"""Damaged logs: what is intact is served, what is not says so, and nothing else suffers."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.mount.conftest import EACH_FRONT
from tests.system.conftest import MountKafka
from tests.system.expectation import Expectation, LostBatch
from tests.system.kafka_mount import KafkaMount, content
from tests.system.toy_broker import ToyPartition

pytestmark = pytest.mark.fuse

PAGE: Final = 4096

MountedCorpus = Callable[..., KafkaMount]

_END: Final = "00000000000000000110.snapshot"
#: Which files of a partition in ``g_damage`` are reported, where that isn't a ``.log``: to blame, or left without one
#: of the batches that they tell of.
SIDE_FILES: Final = {
    "broken/3": [_END],
    "broken/5": ["00000000000000000078.index", "00000000000000000078.timeindex", _END],
    "broken/6": ["00000000000000000083.index", "00000000000000000083.timeindex", _END],
    "broken/12": [_END],
    "broken/13": ["00000000000000000076.timeindex", _END],
    "broken/14": [_END],
    "broken/15": [_END],
    "broken/16": ["00000000000000000000.index"],
    "broken/17": ["00000000000000000000.index"],
    "broken/18": ["00000000000000000000.index", "00000000000000000103.index"],
    "broken/19": ["00000000000000000000.timeindex"],
    "broken/20": ["00000000000000000000.index"],
    "broken/21": ["00000000000000000000.index"],
    "broken/22": ["00000000000000000000.index"],
    "broken/24": ["00000000000000000000.timeindex"],
    "broken/25": ["00000000000000000000.timeindex"],
    "broken/26": ["00000000000000000000.timeindex"],
    "broken/27": [_END],
    "broken/28": ["00000000000000000105.snapshot"],
    "broken/29": ["leader-epoch-checkpoint"],
    "broken/30": ["leader-epoch-checkpoint"],
    "broken/32": ["00000000000000999999.index"],
    "broken/33": [f"00000000000000000000{suffix}.cleaned" for suffix in (".index", ".log", ".timeindex")],
    "broken/34": [f"00000000000000000000{suffix}.swap" for suffix in (".index", ".log", ".timeindex")],
    "broken/36": ["00000000000000000093.index", "00000000000000000093.timeindex", _END],
    "broken/37": ["00000000000000000007.txnindex"],
    "broken/38": ["00000000000000000007.txnindex", "00000000000000000063.txnindex"],
}
#: Where something is wrong that costs no batch of the segment: bytes after the last one.
TAILS: Final = {
    "broken/9": ("00000000000000000092.log", 4753),
    "broken/11": ("00000000000000000087.log", 3753),
}


@pytest.fixture
def expected(expectation: Callable[[str], Expectation]) -> Expectation:
    return expectation("g_damage")


def problems(mounted: KafkaMount, partition: str) -> list[dict[str, Any]]:
    lines = (mounted.path(partition) / "meta/problems.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("front", EACH_FRONT)
def test_a_lost_record_is_an_error_or_lies_behind_the_end(
    front: str, mounted_corpus: MountedCorpus, expected: Expectation
) -> None:
    mounted = mounted_corpus("g_damage", front=front)
    errors = expected.errors()
    assert len(errors) == 13
    for partition, offsets in errors.items():
        directory = mounted.path(partition) / "offset"
        assert {offset: content(directory / f"{offset}.json") for offset in offsets} == offsets, partition
    assert mounted.is_alive()


def test_every_damaged_batch_is_a_problem_with_file_and_position(
    mounted_corpus: MountedCorpus, expected: Expectation
) -> None:
    mounted = mounted_corpus("g_damage")
    places = {
        partition: {(str(expected.root / place(partition, file)), position)}
        for partition, (file, position) in TAILS.items()
    }
    for batch in expected.lost:
        if batch.error == errno.EIO:
            places.setdefault(batch.partition, set()).add((str(expected.root / batch.told_in), batch.told_at))
    for partition in expected.partitions:
        reported = {(problem["file"], problem["position"]) for problem in problems(mounted, partition)}
        reported = {(file, position) for file, position in reported if file.endswith(".log")}
        assert reported == places.get(partition, set()), partition


def place(partition: str, file: str) -> str:
    return f"{partition.replace('/', '-')}/{file}"


def test_every_damaged_side_file_is_a_problem(mounted_corpus: MountedCorpus, expected: Expectation) -> None:
    mounted = mounted_corpus("g_damage")
    for partition in expected.partitions:
        reported = [problem["file"] for problem in problems(mounted, partition)]
        own = [str(expected.root / place(partition, file)) for file in SIDE_FILES.get(partition, [])]
        assert list(dict.fromkeys(file for file in reported if not file.endswith(".log"))) == own, partition


def test_every_problem_says_what_is_wrong(mounted_corpus: MountedCorpus, expected: Expectation) -> None:
    mounted = mounted_corpus("g_damage")
    found = [problem for partition in expected.partitions for problem in problems(mounted, partition)]
    assert len(found) > 20
    for problem in found:
        assert set(problem) == {"file", "position", "size", "reason", "kind"}
        assert len(problem["reason"]) > 10


def test_a_damaged_batch_is_one_line_in_the_log_of_the_daemon(
    mount_kafka: MountKafka, corpus: Callable[[str], Path]
) -> None:
    mounted = mount_kafka(corpus("g_damage") / "data")
    for offset in (99, 100, 99):
        assert content(mounted.path(f"broken/1/offset/{offset}.json")) == errno.EIO
    lines = [line for line in mounted.log().splitlines() if "broken-1/00000000000000000092.log: position 989: " in line]
    assert len(lines) == 1
    assert "CRC" in lines[0]


class DamagedPartition:
    """A partition of one large segment with two broken batches, and what a mount must show of it."""

    BATCHES: Final = 200
    BROKEN: Final = (40, 41, 120)

    def __init__(self, log_root: Path) -> None:
        self.partition = ToyPartition(log_root, "torn")
        positions = []
        for _ in range(self.BATCHES):
            positions.append(self.partition.active.stat().st_size)
            self.partition.append_messages(10)
        data = bytearray(self.partition.active.read_bytes())
        for number in self.BROKEN:
            data[positions[number] + 70] ^= 0xFF
        self.partition.active.write_bytes(data)
        self.lost = LostBatch("", 0, range(0), errno.EIO)

    def is_lost(self, offset: int) -> bool:
        return offset // 10 in self.BROKEN

    def text(self, stand_in: bytes) -> tuple[bytes, set[int]]:
        """Return the segment's text, and the pages that hold a ``stand_in`` for what is lost."""
        text, pages = b"", set()
        for batch in range(self.BATCHES):
            if batch in self.BROKEN:
                pages.add(len(text) // PAGE)
                text += stand_in
            else:
                text += b"".join(self.partition.line(offset) for offset in range(batch * 10, batch * 10 + 10))
        return text, pages


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> DamagedPartition:
    return DamagedPartition(tmp_path_factory.mktemp("torn"))


@pytest.fixture
def torn(request: pytest.FixtureRequest, damaged: DamagedPartition, mount_kafka: MountKafka) -> Path:
    """The torn segment's text on a fresh mount, through the default front or the one that the test says."""
    mounted = mount_kafka(damaged.partition.directory, front=getattr(request, "param", "auto"))
    return mounted.path("torn/0/segment/00000000000000000000.jsonl")


def read_pages(path: Path) -> dict[int, bytes | int]:
    """Return each page by number: its bytes, or the errno with which it can't be read."""
    pages: dict[int, bytes | int] = {}
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for number in range(-(-os.fstat(descriptor).st_size // PAGE)):
            try:
                pages[number] = os.pread(descriptor, PAGE, number * PAGE)
            except OSError as error:
                pages[number] = error.errno or -1
    finally:
        os.close(descriptor)
    return pages


@pytest.mark.parametrize("torn", EACH_FRONT, indirect=True)
def test_only_the_pages_that_stand_for_damage_cannot_be_read(torn: Path, damaged: DamagedPartition) -> None:
    text, lost = damaged.text(b"\n")
    assert torn.stat().st_size == len(text)
    assert len(lost) in (2, 3)
    wanted = {
        number: errno.EIO if number in lost else text[number * PAGE : (number + 1) * PAGE]
        for number in range(-(-len(text) // PAGE))
    }
    assert read_pages(torn) == wanted
    assert read_pages(torn) == wanted  # nor does a failure stay behind in the cache


def test_cat_gives_all_that_comes_before_the_damage(torn: Path, damaged: DamagedPartition) -> None:
    text, lost = damaged.text(b"\n")
    done = subprocess.run(["cat", torn], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"Input/output error" in done.stderr
    assert done.stdout == text[: min(lost) * PAGE]


def test_dd_saves_everything_around_the_damage(torn: Path, damaged: DamagedPartition, tmp_path: Path) -> None:
    text, lost = damaged.text(b"\n")
    saved = tmp_path / "saved"
    done = subprocess.run(
        ["dd", f"if={torn}", f"of={saved}", f"bs={PAGE}", "conv=noerror,sync"], capture_output=True, check=False
    )
    assert done.stderr.count(b"Input/output error") == len(lost)
    content = saved.read_bytes()
    for number in range(-(-len(text) // PAGE)):
        page = text[number * PAGE : (number + 1) * PAGE]
        assert content[number * PAGE : number * PAGE + len(page)] == (bytes(len(page)) if number in lost else page)


def test_grep_finds_what_lies_behind_the_damage_among_the_offsets(torn: Path, damaged: DamagedPartition) -> None:
    directory = torn.parents[1] / "offset"
    done = subprocess.run(
        ["grep", "-rlE", "value of (399|410|1199|1210)\\b", directory], capture_output=True, text=True, check=False
    )
    assert sorted(done.stdout.splitlines()) == [str(directory / f"{offset}.json") for offset in (1199, 1210, 399)]
    assert (done.returncode, done.stderr) == (0, "")


def test_lost_records_are_not_listed_and_fail_by_name(torn: Path, damaged: DamagedPartition) -> None:
    directory = torn.parents[1] / "offset"
    listed = {int(name.removesuffix(".json")) for name in os.listdir(directory)}
    assert listed == {offset for offset in damaged.partition.records if not damaged.is_lost(offset)}
    lost = [offset for offset in damaged.partition.records if damaged.is_lost(offset)]
    assert {content(directory / f"{offset}.json") for offset in lost} == {errno.EIO}


def test_damage_can_be_skipped(damaged: DamagedPartition, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(damaged.partition.directory, options=("--on-damage", "skip"))
    text, _ = damaged.text(b"")
    segment = mounted.path("torn/0/segment/00000000000000000000.jsonl")
    assert segment.stat().st_size == len(text)
    assert segment.read_bytes() == text
    assert mounted.path("torn/0/records.jsonl").read_bytes() == text
    assert content(mounted.path("torn/0/offset/405.json")) == errno.EIO
    assert len(problems(mounted, "torn/0")) == len(damaged.BROKEN)
