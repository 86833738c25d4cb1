"""The truth belongs to the inode: who holds a file open gets its old bytes, more at its end, or ESTALE, on every front.

Each test opens files and reads them halfway, changes what they are made of as a broker does, waits until another reader
sees the change by name, and reads on.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from kfs.format.record import Record
from kfs.read.isolation_level import IsolationLevel
from tests.mount.conftest import ONE_OF_EACH_KIND
from tests.mount.toy_mount import eventually
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KafkaMount, content
from tests.system.toy_broker import ToyPartition, message

pytestmark = pytest.mark.fuse

#: Within so many seconds the mount shows what is there.
PROMISE: Final = 5.0
SEGMENTS: Final = 4
RECORDS: Final = 40
#: The record that is larger than what is read at once, in the segment of each change.
LARGE: Final = 5
PIECE: Final = 4096

Change = Callable[["Held"], None]


def made(offset: int, generation: str) -> Record:
    """A small record, or one of many pages, whose key and value say where it comes from."""
    size = 60_000 if offset % RECORDS == LARGE else 100
    text = f"{generation}:{offset};".encode() * (size // 10)
    return message(offset, text, key=text)


class Held:
    """A mounted partition of several segments, and a file of it that is held open halfway."""

    def __init__(self, root: Path, mount_kafka: MountKafka, front: str, *options: str) -> None:
        self.root = root
        self.log = ToyPartition(root, "held")
        self.fill(self.log, "old", range(SEGMENTS))
        self.mounted: KafkaMount = mount_kafka(root, front=front, options=options)

    def fill(self, log: ToyPartition, generation: str, segments: range) -> None:
        """Write whole segments, each but the last rolled."""
        for number in segments:
            if number * RECORDS != log.bases[-1]:
                log.next_offset = number * RECORDS
                log.roll()
            self.append(log, generation, range(number * RECORDS, (number + 1) * RECORDS))

    def append(self, log: ToyPartition, generation: str, offsets: range) -> None:
        for offset in offsets:
            log.append([made(offset, generation)])

    def path(self, name: str) -> Path:
        return self.mounted.path(f"held/0/{name}")


def retention(held: Held) -> None:
    """As Kafka does: each file of the oldest segment gets another name."""
    for suffix in (".log", ".index", ".timeindex"):
        held.log.file(0, suffix).rename(held.log.file(0, suffix + ".deleted"))


def removal(held: Held) -> None:
    """Retention with nothing left of it."""
    held.log.delete_first_segment()


def delete_records(held: Held) -> None:
    beside = held.root / "tmp"
    beside.write_text(f"0\n1\nheld 0 {RECORDS // 2}\n")
    beside.rename(held.root / "log-start-offset-checkpoint")


def compaction(held: Held) -> None:
    """The first segment gets another ``.log``, with fewer records: those that remain are others as well."""
    other = ToyPartition(held.root.parent / "elsewhere", "held")
    for offset in range(0, RECORDS, 3):
        other.append([made(offset, "old")])
    other.append([made(LARGE, "old")] if LARGE % 3 else [])
    for suffix in (".log", ".index", ".timeindex"):
        other.file(0, suffix).rename(held.log.directory / f"{0:020d}{suffix}.swap")
    for suffix in (".log", ".index", ".timeindex"):
        held.log.file(0, suffix).rename(held.log.file(0, suffix + ".deleted"))
    for suffix in (".log", ".index", ".timeindex"):
        (held.log.directory / f"{0:020d}{suffix}.swap").rename(held.log.file(0, suffix))


def topic_made_again(held: Held) -> None:
    held.log.directory.rename(held.root / f"held-0.{'0a' * 16}-delete")
    held.log = ToyPartition(held.root, "held")
    held.fill(held.log, "new", range(SEGMENTS))


def topic_made_again_in_place(held: Held) -> None:
    shutil.rmtree(held.log.directory)
    held.log = ToyPartition(held.root, "held")
    held.fill(held.log, "new", range(SEGMENTS + 1))


def truncation(held: Held) -> None:
    """A follower whose leader changed: all but three records go, and others come in their place, more of them."""
    for base in held.log.bases[1:]:
        for suffix in (".log", ".index", ".timeindex"):
            held.log.file(base, suffix).rename(held.log.file(base, suffix + ".deleted"))
    kept = 3
    log = held.log.file(0)
    first = ToyPartition(held.root.parent / "measured", "held")
    held.append(first, "old", range(kept))
    os.truncate(log, first.active.stat().st_size)
    for suffix in (".index", ".timeindex"):
        os.truncate(held.log.file(0, suffix), 0)
    held.log.bases = [0]
    held.append(held.log, "new", range(kept, RECORDS))
    held.fill(held.log, "new", range(1, SEGMENTS + 1))


CHANGES: Final = (
    retention,
    removal,
    delete_records,
    compaction,
    topic_made_again,
    topic_made_again_in_place,
    truncation,
)
FILES: Final = (
    "records.jsonl",
    f"segment/{0:020d}.jsonl",
    "segment/0.jsonl",
    f"offset/{LARGE}.json",
    f"value/{LARGE}",
    f"key/{LARGE}",
    "meta/batches.jsonl",
    f"raw/{0:020d}.log",
)


@pytest.fixture(params=ONE_OF_EACH_KIND)
def held(request: pytest.FixtureRequest, tmp_path: Path, mount_kafka: MountKafka) -> Held:
    return Held(tmp_path / "log-root", mount_kafka, request.param)


def read_on(descriptor: int, position: int) -> tuple[bytes, int]:
    """Read to the end in pieces; return what came and the errno that ended it, 0 for the end of the file."""
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.pread(descriptor, PIECE, position)
        except OSError as error:
            return b"".join(pieces), error.errno or -1
        if not piece:
            return b"".join(pieces), 0
        pieces.append(piece)
        position += len(piece)


@pytest.mark.parametrize("front", ONE_OF_EACH_KIND)
@pytest.mark.parametrize("level", list(IsolationLevel))
@pytest.mark.parametrize("change", [retention, delete_records, compaction, truncation, topic_made_again])
def test_who_waits_at_the_end_gets_more_or_an_error(
    tmp_path: Path, mount_kafka: MountKafka, front: str, level: IsolationLevel, change: Change
) -> None:
    held = Held(tmp_path / "log-root", mount_kafka, front, "--isolation", level.value)
    path = held.path("records.jsonl")
    end = len(path.read_bytes())
    descriptor = os.open(path, os.O_RDONLY)
    try:
        change(held)
        held.append(held.log, "later", range(held.log.next_offset, held.log.next_offset + 5))
        assert eventually(lambda: is_told(descriptor, end), PROMISE)
    finally:
        os.close(descriptor)


def is_told(descriptor: int, end: int) -> bool:
    """Whether there is more at the end, or an error, as ``tail -f`` looks: at the size first."""
    try:
        return os.fstat(descriptor).st_size != end and os.pread(descriptor, PIECE, end) != b""
    except OSError as error:
        return error.errno == errno.ESTALE


@pytest.mark.parametrize(
    "names", [pytest.param(FILES, id="all"), *(pytest.param([name], id=name, marks=pytest.mark.long) for name in FILES)]
)
@pytest.mark.parametrize("change", CHANGES)
def test_who_holds_a_file_gets_what_it_was(held: Held, names: Sequence[str], change: Change) -> None:
    before = {name: held.path(name).read_bytes() for name in names}
    with ExitStack() as stack:
        seen: dict[str, tuple[int, bytes]] = {}
        for name, content_before in before.items():
            descriptor = os.open(held.path(name), os.O_RDONLY)
            stack.callback(os.close, descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            halfway = min(len(content_before) // 2, 3 * PIECE + 100)
            seen[name] = descriptor, os.pread(descriptor, halfway, 0)
        change(held)
        for name, (descriptor, start) in seen.items():
            at_once, why_at_once = read_on(descriptor, len(start))
            expect_old(before[name], start + at_once, why_at_once)
        for name in names:
            # Somebody else is there meanwhile, who leaves in the page cache what he read.
            # ESTALE, where the kernel hasn't heard yet that the name leads elsewhere, and what it led to can't be had.
            path, old = held.path(name), before[name]
            assert eventually(partial(is_same_or_other, name, change, path, old), PROMISE), name
            assert content(path) != errno.ESTALE, name
        for name, (descriptor, start) in seen.items():
            later, why = read_on(descriptor, len(start))
            expect_old(before[name], start + later, why)
            again, why = read_on(descriptor, 0)
            expect_old(before[name], again, why)
    assert held.mounted.is_alive()


def is_same_or_other(name: str, change: Change, path: Path, before: bytes) -> bool:
    """Whether the name leads to what it should, now that something changed."""
    return is_same(name, change) or content(path) not in (before, errno.ESTALE)


def is_same(name: str, change: Change) -> bool:
    """Whether the change leaves the content that the name leads to as it was."""
    if change is delete_records:
        return name.startswith(("meta/", "raw/"))
    return change is compaction and name.startswith(("offset/", "value/", "key/"))


def expect_old(before: bytes, got: bytes, why: int) -> None:
    assert why in (0, errno.ESTALE)
    common = min(len(before), len(got))
    assert got[:common] == before[:common], "bytes of something else"
    assert why or len(got) >= len(before), "an end before the end"
