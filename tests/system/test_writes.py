"""Whatever writes to a mount of Kafka's files is refused, whoever tries, and nothing changes."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.corpus import compare, take_manifest
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KafkaMount
from tests.system.toy_broker import ToyPartition

pytestmark = pytest.mark.fuse

RECORD = "orders/0/offset/3.json"
SEGMENT = "orders/0/segment/00000000000000000000.jsonl"


def opening(flags: int, name: str = RECORD) -> Callable[[Path], object]:
    return lambda point: os.close(os.open(point / name, flags, 0o644))


WRITES: dict[str, Callable[[Path], object]] = {
    "create a record": opening(os.O_WRONLY | os.O_CREAT | os.O_EXCL, "orders/0/offset/9999.json"),
    "create a topic's file": opening(os.O_WRONLY | os.O_CREAT, "notes.txt"),
    "create beside meta": opening(os.O_WRONLY | os.O_CREAT, "orders/0/meta/new.json"),
    "open a record to write": opening(os.O_WRONLY),
    "open a record to read and write": opening(os.O_RDWR),
    "append to a segment": opening(os.O_WRONLY | os.O_APPEND, SEGMENT),
    "truncate at opening": opening(os.O_WRONLY | os.O_TRUNC),
    "open Kafka's own file to write": opening(os.O_RDWR, "orders/0/raw/00000000000000000000.log"),
    "open without a name": opening(os.O_TMPFILE | os.O_RDWR, "orders/0/offset"),
    "truncate": lambda point: os.truncate(point / RECORD, 0),
    "unlink a record": lambda point: os.unlink(point / RECORD),
    "unlink a link": lambda point: os.unlink(point / "orders/0/last.json"),
    "unlink Kafka's own file": lambda point: os.unlink(point / "orders/0/raw/00000000000000000000.log"),
    "make a topic": lambda point: os.mkdir(point / "new-topic"),
    "make a directory": lambda point: os.mkdir(point / "orders/0/new"),
    "remove a topic": lambda point: os.rmdir(point / "orders"),
    "remove a directory": lambda point: os.rmdir(point / "orders/0/offset"),
    "rename a record": lambda point: os.rename(point / RECORD, point / "orders/0/offset/4.json"),
    "rename a topic": lambda point: os.rename(point / "orders", point / "sales"),
    "chmod": lambda point: os.chmod(point / RECORD, 0o600),
    "chmod a directory": lambda point: os.chmod(point / "orders", 0o700),
    "chown": lambda point: os.chown(point / RECORD, 1, 1),
    "set times": lambda point: os.utime(point / RECORD, (0, 0)),
    "link": lambda point: os.link(point / RECORD, point / "orders/0/offset/x.json"),
    "symlink": lambda point: os.symlink("3.json", point / "orders/0/offset/x.json"),
    "make a pipe": lambda point: os.mkfifo(point / "orders/0/pipe"),
    "make a device": lambda point: os.mknod(point / "orders/0/device"),
    "set an extended attribute": lambda point: os.setxattr(point / RECORD, "user.x", b"1"),
    "remove an extended attribute": lambda point: os.removexattr(point / RECORD, "user.x"),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_kind_of_write_is_refused(open_shop: KafkaMount, write: str) -> None:
    with pytest.raises(OSError) as caught:
        WRITES[write](open_shop.point)
    assert caught.value.errno == errno.EROFS


@pytest.mark.parametrize(
    "command",
    [
        "echo x > offset/3.json",
        "echo x >> offset/3.json",
        "touch offset/3.json",
        "rm -rf offset",
        "mv offset/3.json offset/4.json",
        "cp offset/3.json offset/x.json",
        "sed -i s/a/b/ offset/3.json",
        "truncate -s 0 offset/3.json",
        "ln -sf 3.json last.json",
        "dd if=/dev/zero of=offset/3.json count=1",
        "chmod +w offset/3.json",
    ],
)
def test_a_shell_says_that_the_filesystem_is_read_only(open_shop: KafkaMount, command: str) -> None:
    done = subprocess.run(
        ["bash", "-c", command], cwd=open_shop.path("orders/0"), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "Read-only file system" in done.stderr


def test_nothing_of_all_this_reaches_the_source(mount_kafka: MountKafka, tmp_path: Path) -> None:
    partition = ToyPartition(tmp_path / "log-root", "orders")
    partition.append_messages(10)
    before = take_manifest(tmp_path / "log-root")
    mounted = mount_kafka(tmp_path / "log-root")
    for write in WRITES.values():
        with pytest.raises(OSError, match="Read-only file system"):
            write(mounted.point)
    assert mounted.lines("orders/0") == partition.lines()
    mounted.stop()
    assert compare(before, take_manifest(tmp_path / "log-root")) == []
