"""System calls that tools make in passing, on a mount: each answers as for any read-only file."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import random
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.mount.conftest import EACH_FRONT
from tests.mount.toy_mount import eventually
from tests.system.conftest import MountKafka, Mounts
from tests.system.kafka_mount import KafkaMount, content
from tests.system.shop import Shop
from tests.system.toy_broker import ToyPartition

pytestmark = pytest.mark.fuse

LARGE: Final = "photos/0/offset/1.json"
READERS: Final = 200


@pytest.fixture(params=EACH_FRONT)
def mounted(request: pytest.FixtureRequest, shop: Shop, shop_mounts: Mounts) -> KafkaMount:
    """The shop through each front."""
    return shop_mounts.get(shop.root, front=request.param)


@pytest.fixture
def line(shop: Shop) -> bytes:
    """What the large file holds."""
    return shop.photos.line(1)


def test_any_range_can_be_read_at_any_place(mounted: KafkaMount, line: bytes) -> None:
    choose = random.Random(7)
    descriptor = os.open(mounted.path(LARGE), os.O_RDONLY)
    try:
        for _ in range(200):
            offset, size = choose.randrange(len(line) + 100), choose.choice([0, 1, 7, 4095, 4097, 100_000])
            assert os.pread(descriptor, size, offset) == line[offset : offset + size]
        for offset in (len(line), len(line) + 1, 1 << 40):
            assert os.pread(descriptor, 100, offset) == b""
        assert os.pread(descriptor, 100, len(line) - 1) == b"\n"
    finally:
        os.close(descriptor)


def test_seeking_finds_the_end_and_no_holes(mounted: KafkaMount, line: bytes) -> None:
    descriptor = os.open(mounted.path(LARGE), os.O_RDONLY)
    try:
        assert os.lseek(descriptor, 0, os.SEEK_END) == len(line)
        assert os.lseek(descriptor, -5, os.SEEK_END) == len(line) - 5
        assert os.read(descriptor, 100) == line[-5:]
        assert os.lseek(descriptor, 10, os.SEEK_DATA) == 10
        assert os.lseek(descriptor, 10, os.SEEK_HOLE) == len(line)
        with pytest.raises(OSError) as caught:
            os.lseek(descriptor, len(line), os.SEEK_DATA)
        assert caught.value.errno == errno.ENXIO
    finally:
        os.close(descriptor)


def test_records_can_be_mapped(mounted: KafkaMount, line: bytes) -> None:
    with mounted.path(LARGE).open("rb") as file:
        for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            with mmap.mmap(file.fileno(), 0, flags, mmap.PROT_READ) as mapped:
                assert mapped[:] == line
        with pytest.raises(PermissionError):
            mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


def test_sendfile_sends_all_of_it(mounted: KafkaMount, line: bytes, tmp_path: Path) -> None:
    with mounted.path(LARGE).open("rb") as file, (tmp_path / "copy").open("w+b") as copy:
        sent = 0
        while count := os.sendfile(copy.fileno(), file.fileno(), sent, 1 << 20):
            sent += count
        copy.seek(0)
        assert copy.read() == line


def test_copy_file_range_copies_or_says_that_it_cannot(mounted: KafkaMount, line: bytes, tmp_path: Path) -> None:
    with mounted.path(LARGE).open("rb") as file, (tmp_path / "copy").open("w+b") as copy:
        number = 0
        try:
            while os.copy_file_range(file.fileno(), copy.fileno(), 1 << 20):
                pass
        except OSError as error:
            number = error.errno or -1
        copy.seek(0)
        # Most versions of Linux copy in this way only within one type of filesystem.
        assert (number, copy.read()) in ((0, line), (errno.EXDEV, b""))


def test_reading_past_the_page_cache_is_right_or_refused(mounted: KafkaMount, line: bytes) -> None:
    done = subprocess.run(
        ["dd", f"if={mounted.path(LARGE)}", "iflag=direct", "bs=64k", "status=none"], capture_output=True, check=False
    )
    if done.returncode == 0:
        assert done.stdout == line
    else:
        assert b"Invalid argument" in done.stderr
    assert mounted.path(LARGE).read_bytes() == line
    assert mounted.is_alive()


def test_what_is_open_stays_readable_after_it_is_listed_again(mounted: KafkaMount, shop: Shop) -> None:
    with mounted.path("orders/0/offset/3.json").open("rb") as file:
        os.listdir(mounted.path("orders/0/offset"))
        assert file.read() == shop.orders.line(3)


def test_inodes_are_stable_and_tell_records_apart(mounted: KafkaMount, shop: Shop) -> None:
    directory = mounted.path("orders/0/offset")
    inodes = [(directory / f"{offset}.json").stat().st_ino for offset in shop.orders.records]
    assert len(set(inodes)) == len(inodes)
    assert 0 not in inodes
    with os.scandir(directory) as listing:
        assert {item.name: item.inode() for item in listing} == dict(
            zip((f"{offset}.json" for offset in shop.orders.records), inodes, strict=True)
        )


def test_extended_attributes_are_none(mounted: KafkaMount) -> None:
    with pytest.raises(OSError) as caught:
        os.getxattr(mounted.path(LARGE), "user.comment")
    assert caught.value.errno in (errno.ENOTSUP, errno.ENODATA)


def test_locks_and_syncs_do_no_harm(mounted: KafkaMount, line: bytes) -> None:
    done = subprocess.run(
        ["flock", "-s", mounted.path(LARGE), "cat", mounted.path(LARGE)], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, line)
    subprocess.run(["sync", "-f", mounted.path(LARGE)], check=True)


def test_two_hundred_readers_at_once_get_the_right_bytes(mounted: KafkaMount, shop: Shop) -> None:
    choose = random.Random(3)
    files = {
        str(mounted.path(f"{partition.name}/offset/{offset}.json")): partition.line(offset)
        for partition in shop.partitions
        for offset in partition.records
    }
    plans = [choose.sample(sorted(files), 15) for _ in range(READERS)]
    processes = [
        subprocess.Popen(["sha256sum", *plan], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for plan in plans[: READERS // 2]
    ]
    try:
        with ThreadPoolExecutor(READERS // 2) as threads:
            for plan, contents in zip(plans[READERS // 2 :], threads.map(read_all, plans[READERS // 2 :]), strict=True):
                assert contents == [files[path] for path in plan]
        for plan, process in zip(plans, processes, strict=False):
            printed, _ = process.communicate(timeout=60)
            wanted = [f"{hashlib.sha256(files[path]).hexdigest()}  {path}" for path in plan]
            assert printed.splitlines() == wanted
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert mounted.is_alive()


def read_all(paths: list[str]) -> list[bytes]:
    return [Path(path).read_bytes() for path in paths]


def test_readers_that_are_killed_harm_nobody(mounted: KafkaMount, line: bytes) -> None:
    code = "import sys, pathlib\nwhile True: pathlib.Path(sys.argv[1]).read_bytes()"
    readers = [subprocess.Popen([sys.executable, "-S", "-c", code, mounted.path(LARGE)]) for _ in range(4)]
    for reader in readers:
        reader.kill()
        assert reader.wait(10) == -9
    assert mounted.path(LARGE).read_bytes() == line
    assert mounted.is_alive()


def test_without_a_descriptor_left_there_are_errors_and_no_wrong_answers(
    mount_kafka: MountKafka, tmp_path: Path
) -> None:
    log = ToyPartition(tmp_path / "log-root", "many")
    for _ in range(20):
        log.append_messages(10)
        log.roll()
    mounted = mount_kafka(log.directory.parent)
    assert mounted.path("many/0/offset/5.json").read_bytes() == log.line(5)
    open_now = len(os.listdir(f"/proc/{mounted.pid}/fd"))
    limits = resource.prlimit(mounted.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(mounted.pid, resource.RLIMIT_NOFILE, (open_now, limits[1]))
    log.append_messages(10)
    for _ in range(3):
        for offset in log.records:
            got = content(mounted.path(f"many/0/offset/{offset}.json"))
            assert got in (log.line(offset), errno.EIO, errno.ENOENT, errno.EMFILE)
        time.sleep(0.6)
    assert mounted.path("many/0/offset").is_dir()
    resource.prlimit(mounted.pid, resource.RLIMIT_NOFILE, limits)
    assert eventually(lambda: mounted.lines("many/0") == log.lines(), 5)
    mounted.stop()
