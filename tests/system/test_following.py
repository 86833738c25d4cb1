"""A log that is written to while it is mounted: what is new appears within a second, what was there stays right."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from kfs.format.codecs import Codec
from tests.mount.conftest import ONE_OF_EACH_KIND
from tests.mount.toy_mount import eventually
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KafkaMount
from tests.system.toy_broker import ToyPartition, message

pytestmark = pytest.mark.fuse

#: What is promised, in seconds, and what a busy machine may add to it.
PROMISE: Final = 1.0
DELAY: Final = 0.5


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log-root"


@pytest.fixture
def log(root: Path) -> ToyPartition:
    """A partition with a closed and an active segment."""
    partition = ToyPartition(root, "live")
    partition.append_messages(50)
    partition.roll()
    partition.append_messages(20)
    return partition


through_each_kind_of_front: Final = pytest.mark.parametrize("front", ONE_OF_EACH_KIND)


def soon(condition: Callable[[], bool]) -> bool:
    return eventually(condition, PROMISE + DELAY)


@contextmanager
def tail(*arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["tail", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def received(process: subprocess.Popen[bytes], size: int, seconds: float = 10) -> bytes:
    """Return what the process prints until it is ``size`` bytes or time is over."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    data, deadline = b"", time.monotonic() + seconds
    while len(data) < size and time.monotonic() < deadline:
        data += process.stdout.read() or b""
        time.sleep(0.02)
    return data


@through_each_kind_of_front
def test_a_new_record_appears_within_a_second(
    front: str, log: ToyPartition, root: Path, mount_kafka: MountKafka
) -> None:
    mounted = mount_kafka(root, front=front)
    directory = mounted.path("live/0/offset")
    assert mounted.lines("live/0") == log.lines()
    for codec in (Codec.NONE, Codec.ZSTD):
        new = log.next_offset
        assert not (directory / f"{new}.json").exists()
        log.append_messages(3, codec=codec)
        assert soon((directory / f"{new + 2}.json").exists)
        assert (directory / f"{new}.json").read_bytes() == log.line(new)
        assert soon(lambda: mounted.offsets("live/0") == list(log.records))
        assert soon(lambda: os.readlink(mounted.path("live/0/last.json")) == f"offset/{log.next_offset - 1}.json")
    assert mounted.lines("live/0") == log.lines()


@through_each_kind_of_front
def test_tail_follows_the_active_segment(front: str, log: ToyPartition, root: Path, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(root, front=front)
    path = mounted.path(f"live/0/segment/{log.bases[-1]:020d}.jsonl")
    with tail("-n", "+1", "-f", "-s", "0.1", path) as process:
        seen = b""
        for count in (0, 1, 30, 7):
            log.append_messages(count, batch=4)
            wanted = log.segment_text(log.bases[-1])
            seen += received(process, len(wanted) - len(seen))
            assert seen == wanted


def test_tail_from_the_end_shows_only_what_is_new(log: ToyPartition, root: Path, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(root)
    path = mounted.path(f"live/0/segment/{log.bases[-1]:020d}.jsonl")
    before = list(log.records)[-2:]
    with tail("-n", "2", "-f", "-s", "0.1", path) as process:
        wanted = b"".join(map(log.line, before))
        assert received(process, len(wanted)) == wanted
        log.append_messages(5)
        wanted = b"".join(map(log.line, range(log.next_offset - 5, log.next_offset)))
        assert received(process, len(wanted)) == wanted


def test_the_size_of_the_active_segment_grows_with_it(log: ToyPartition, root: Path, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(root)
    names = (f"live/0/segment/{log.bases[-1]:020d}.jsonl", "live/0/records.jsonl")
    for count in (1, 40, 9):
        log.append_messages(count)
        texts = (log.segment_text(log.bases[-1]), b"".join(log.lines().values()))
        for name, text in zip(names, texts, strict=True):
            assert soon(partial(has_size, mounted.path(name), len(text)))
            assert mounted.path(name).read_bytes() == text


def has_size(path: Path, size: int) -> bool:
    return path.stat().st_size == size


def test_half_a_batch_is_not_yet_there(log: ToyPartition, root: Path, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(root)
    before = list(log.records)
    new = log.next_offset
    path = mounted.path(f"live/0/offset/{new}.json")

    def look() -> None:
        for _ in range(10):
            assert not path.exists()
            assert mounted.offsets("live/0") == before
            time.sleep(0.05)

    log.append([message(offset) for offset in range(new, new + 50)], halfway=look)
    assert soon(path.exists)
    assert soon(lambda: mounted.offsets("live/0") == list(log.records))
    assert mounted.path("live/0/meta/problems.jsonl").read_bytes() == b""


def test_a_segment_that_is_rolled_appears_and_the_one_before_stays(
    log: ToyPartition, root: Path, mount_kafka: MountKafka
) -> None:
    mounted = mount_kafka(root)
    assert mounted.lines("live/0") == log.lines()
    for _ in range(3):
        log.roll()
        log.append_messages(15)
        assert soon(lambda: mounted.offsets("live/0") == list(log.records))
        for base in log.bases:
            path = mounted.path(f"live/0/segment/{base:020d}.jsonl")
            assert soon(partial(has_size, path, len(log.segment_text(base))))
            assert path.read_bytes() == log.segment_text(base)
    assert mounted.lines("live/0") == log.lines()


def test_partitions_and_topics_appear_within_a_second(log: ToyPartition, root: Path, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(root)
    assert mounted.partitions() == ["live/0"]
    for topic, number in (("live", 1), ("other", 0)):
        new = ToyPartition(root, topic, number)
        new.append_messages(5)
        path = mounted.path(f"{new.name}/offset/4.json")
        assert soon(path.exists)
        assert mounted.lines(new.name) == new.lines()
    assert soon(lambda: mounted.partitions() == ["live/0", "live/1", "other/0"])
    assert mounted.lines("live/0") == log.lines()


def test_readers_and_a_writer_at_once_see_whole_records_only(
    log: ToyPartition, root: Path, mount_kafka: MountKafka
) -> None:
    mounted = mount_kafka(root)
    path = mounted.path("live/0/records.jsonl")
    seen = 0
    for round_ in range(60):
        log.append_messages(7, batch=3, codec=Codec(round_ % 5))
        text = path.read_bytes()
        whole = b"".join(log.lines().values())
        assert whole.startswith(text)
        assert len(text) >= seen
        seen = len(text)
        listed = mounted.offsets("live/0")
        assert listed == list(range(len(listed)))
        last = listed[-1]
        assert mounted.path(f"live/0/offset/{last}.json").read_bytes() == log.line(last)
    assert seen > 70 * len(log.line(0))


def test_preallocated_indexes_and_zeros_at_the_end_hide_nothing(
    log: ToyPartition, root: Path, mount_kafka: MountKafka
) -> None:
    for suffix, size in ((".index", 10 * 1024 * 1024), (".timeindex", 10 * 1024 * 1024 - 4)):
        os.truncate(log.file(log.bases[-1], suffix), size)
    size = log.active.stat().st_size
    os.truncate(log.active, size + 64 * 1024)
    mounted: KafkaMount = mount_kafka(root)
    assert mounted.lines("live/0") == log.lines()
    assert mounted.path("live/0/meta/problems.jsonl").read_bytes() == b""
