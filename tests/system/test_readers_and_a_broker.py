"""A broker appends, rolls, deletes and compacts, while readers of every kind go on: nothing wrong, and no damage."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kfs.format.record import Record
from tests.mount.conftest import ONE_OF_EACH_KIND
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KafkaMount
from tests.system.toy_broker import ToyPartition, message

pytestmark = pytest.mark.fuse

STEPS: Final = 120
#: Segments, the oldest of which is deleted.
KEPT: Final = 60
#: What the broker waits in seconds after each step: nobody reads a log of which a segment goes every other millisecond.
PAUSE: Final = 0.01
PER_SEGMENT: Final = 20
SUFFIXES: Final = (".log", ".index", ".timeindex")


def numbered(offset: int) -> Record:
    """A record of which each line says whether it is whole."""
    return message(offset, f"<{offset}:{'x' * (offset % 700)}:{offset}>".encode())


class Broker:
    """Writes segments, and renames and removes them as a broker does."""

    def __init__(self, root: Path) -> None:
        self.log = ToyPartition(root, "busy")
        self.beside = root.parent / "beside"
        for _ in range(KEPT):
            self.fill()

    def fill(self) -> None:
        for offset in range(self.log.next_offset, self.log.next_offset + PER_SEGMENT):
            self.log.append([numbered(offset)])
        self.log.roll()

    def work(self) -> None:
        for step in range(STEPS):
            self.fill()
            if step % 3 == 2:
                self.compact(self.log.bases[2])
            while len(self.log.bases) > KEPT:
                self.delete(self.log.bases.pop(0))
            time.sleep(PAUSE)

    def delete(self, base: int) -> None:
        for suffix in SUFFIXES:
            self.log.file(base, suffix).rename(self.log.file(base, suffix + ".deleted"))
        for suffix in SUFFIXES:
            self.log.file(base, suffix + ".deleted").unlink()

    def compact(self, base: int) -> None:
        shutil.rmtree(self.beside, ignore_errors=True)
        cleaned = ToyPartition(self.beside, "busy", first_offset=base)
        for offset in range(base, base + PER_SEGMENT, 3):
            cleaned.append([numbered(offset)])
        for state in (".cleaned", ".swap"):
            for suffix in SUFFIXES:
                source = cleaned.file(base, suffix) if state == ".cleaned" else self.log.file(base, suffix + ".cleaned")
                source.rename(self.log.file(base, suffix + state))
        for suffix in SUFFIXES:
            self.log.file(base, suffix).rename(self.log.file(base, suffix + ".deleted"))
        for suffix in SUFFIXES:
            self.log.file(base, suffix + ".swap").rename(self.log.file(base, suffix))
        for suffix in SUFFIXES:
            self.log.file(base, suffix + ".deleted").unlink()


class Readers:
    """Read as long as the broker works; what is wrong is kept with how often."""

    def __init__(self, mounted: KafkaMount, log: ToyPartition, broker: threading.Thread) -> None:
        self.path = mounted.path("busy/0")
        self.log = log
        self.broker = broker
        self.wrong: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()

    def check(self, kind: str, text: bytes) -> None:
        """Look at each line; one offset comes after another, and some may have been compacted away."""
        lines = [json.loads(line) for line in text.splitlines()]
        for line in lines:
            if line["value"] != numbered(line["offset"]).value.decode():  # type: ignore[union-attr]
                self.wrong[f"{kind}: {line}"] += 1
        for one, other in itertools.pairwise(line["offset"] for line in lines):
            if not one < other <= one + 3:
                self.wrong[f"{kind}: {one} before {other}"] += 1

    def go_through(self, kind: str, allowed: tuple[int, ...], read: Callable[[], bytes]) -> None:
        while self.broker.is_alive():
            try:
                text = read()
                self.reads[kind] += 1
                self.check(kind, text)
            except OSError as error:
                if error.errno not in allowed:
                    self.wrong[f"{kind}: {errno.errorcode[error.errno or 0]}"] += 1
            except ValueError as error:
                self.wrong[f"{kind}: {error}"] += 1

    def a_segment(self, number: int) -> bytes:
        """One of those that are listed, which may be gone then."""
        names = sorted(os.listdir(self.path / "segment"))
        return (self.path / "segment" / names[number % len(names)]).read_bytes()

    def the_last(self) -> bytes:
        """What the link leads to, which is gone only if its segment was deleted before that was opened."""
        target = os.readlink(self.path / "last.json")
        try:
            return (self.path / target).read_bytes()
        except FileNotFoundError:
            if int(Path(target).stem) >= self.log.bases[0]:
                raise
            return b""


@pytest.mark.parametrize("front", ONE_OF_EACH_KIND)
def test_readers_while_a_broker_works(front: str, tmp_path: Path, mount_kafka: MountKafka) -> None:
    broker = Broker(tmp_path / "log-root")
    mounted = mount_kafka(tmp_path / "log-root", front=front)
    working = threading.Thread(target=broker.work)
    readers = Readers(mounted, broker.log, working)
    numbers = itertools.count()
    threads = [
        threading.Thread(target=readers.go_through, args=arguments)
        for arguments in (
            ("records", (errno.ESTALE,), (readers.path / "records.jsonl").read_bytes),
            ("segment", (errno.ESTALE, errno.ENOENT), lambda: readers.a_segment(next(numbers))),
            ("last", (), readers.the_last),
            ("problems", (errno.ESTALE,), (readers.path / "meta/problems.jsonl").read_bytes),
        )
    ]
    working.start()
    for thread in threads:
        thread.start()
    for thread in (working, *threads):
        thread.join()
    assert dict(readers.wrong) == {}
    assert set(readers.reads) == {"records", "segment", "last", "problems"}
    assert "WARNING" not in mounted.log()
    assert "ERROR" not in mounted.log()
