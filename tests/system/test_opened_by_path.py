"""Who opens a record by its path gets the whole of one record, on every front: of what was there, or of what is there.

What the kernel keeps of a path (a name, a size, pages) is of what was there when it asked. A topic that is deleted and
made again has other records at the same paths.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.mount.conftest import ONE_OF_EACH_KIND
from tests.mount.toy_mount import eventually
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KafkaMount
from tests.system.toy_broker import ToyPartition, message

pytestmark = pytest.mark.fuse

RECORDS: Final = 30
PROMISE: Final = 5.0
LINUX: Final = tuple(map(int, os.uname().release.split(".")[:2]))

Read = Callable[[int], bytes]


def in_pieces(descriptor: int) -> bytes:
    return b"".join(iter(lambda: os.read(descriptor, 4096), b""))


def as_sized(descriptor: int) -> bytes:
    """As one reads who goes by the size that the file is said to have."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def sent(descriptor: int) -> bytes:
    """As ``shutil.copyfile`` reads: out of the page cache, whatever the file was opened as."""
    target = os.memfd_create("copy")
    try:
        while os.sendfile(target, descriptor, None, 1 << 20):
            pass
        return os.pread(target, 1 << 20, 0)
    finally:
        os.close(target)


READS: Final[tuple[Read, ...]] = (in_pieces, as_sized, sent)


class Topic:
    """A topic that is made again and again, each time with other values, and all that was ever in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.past: dict[str, set[bytes]] = {}
        self.log = self.make("old")

    def make(self, value: str) -> ToyPartition:
        self.log = ToyPartition(self.root, "again")
        for offset in range(RECORDS):
            self.log.append([message(offset, f"{value}:{offset}".encode())])
            if offset % 10 == 9:
                self.log.roll()
        for name, content in self.present().items():
            self.past.setdefault(name, set()).add(content)
        return self.log

    def make_again(self, value: str) -> None:
        shutil.rmtree(self.log.directory)
        self.make(value)

    def present(self) -> dict[str, bytes]:
        """What is there by path: each record, its value, and links to it."""
        found: dict[str, bytes] = {}
        for offset, line in self.log.lines().items():
            time = f"2024-03-{1 + offset // 24:02d}T{offset % 24:02d}"
            found[f"offset/{offset}.json"] = line
            found[f"value/{offset}"] = self.log.records[offset].value or b""
            found[f"at/{time}:00:00.000Z.json"] = line
            found[f"time/{time.replace('T', '/')}/{offset}.json"] = line
        return found


#: Has the kernel know names: returns what is held open of them, and what was read of that.
GetToKnow = Callable[[KafkaMount, list[str]], dict[int, bytes]]


def look_at(mounted: KafkaMount, names: list[str]) -> dict[int, bytes]:
    for name in names:
        os.stat(mounted.path(f"again/0/{name}"))
    return {}


def list_all(mounted: KafkaMount, _names: list[str]) -> dict[int, bytes]:
    for directory in ("offset", "value"):
        for entry in os.scandir(mounted.path(f"again/0/{directory}")):
            entry.stat()
    return {}


def hold(mounted: KafkaMount, names: list[str]) -> dict[int, bytes]:
    held = {}
    for name in names:
        descriptor = os.open(mounted.path(f"again/0/{name}"), os.O_RDONLY)
        held[descriptor] = in_pieces(descriptor)
    return held


@pytest.mark.parametrize("get_to_know", [look_at, list_all, hold])
@pytest.mark.parametrize("values", [("a longer one", "x" * 5000, "short"), ("new", "abc", "xyz")])
@pytest.mark.parametrize("front", ONE_OF_EACH_KIND)
def test_a_record_of_a_topic_made_again_is_whole(
    tmp_path: Path,
    mount_kafka: MountKafka,
    front: str,
    values: tuple[str, ...],
    get_to_know: GetToKnow,
) -> None:
    topic = Topic(tmp_path / "log-root")
    mounted = mount_kafka(tmp_path / "log-root", front=front)
    names = list(topic.present())
    wrong: list[str] = []

    def all_is_new() -> bool:
        present, old = topic.present(), 0
        for number, name in enumerate(names):
            read = READS[number % len(READS)]
            try:
                descriptor = os.open(mounted.path(f"again/0/{name}"), os.O_RDONLY)
            except FileNotFoundError:
                old += 1
                continue
            try:
                content = read(descriptor)
            except OSError as error:
                if error.errno != errno.ESTALE:  # what the kernel had of the name can't be read any more
                    raise
                old += 1
                continue
            finally:
                os.close(descriptor)
            old += content != present[name]
            if content not in topic.past[name]:
                wrong.append(f"{read.__name__} {name}: {content[:120]!r}, {len(content)} for {len(present[name])}")
        names.append(names.pop(0))  # so that each is read in each way
        return not old

    def look_at_what_is_held(held: dict[int, bytes]) -> None:
        for descriptor, before in held.items():
            try:
                content = os.pread(descriptor, len(before) + 10_000, 0)
                if content != before:
                    wrong.append(f"held: {content[:120]!r}, {len(content)} for {before[:120]!r}")
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
            finally:
                os.close(descriptor)

    for value in values:
        held = get_to_know(mounted, names)
        topic.make_again(value)
        # Before Linux 6.16 who holds a record open keeps its name; with libfuse its path is asked for at each open.
        assert eventually(all_is_new, PROMISE) or (held and front == "kernel" and LINUX < (6, 16))
        look_at_what_is_held(held)
        assert eventually(all_is_new, PROMISE)
    assert not wrong[:3], f"{len(wrong)} times"
