"""Deleted segments that overlap, through mounts, while a broker removes them."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from tests.compactions import Compacted, compacted_thrice
from tests.logs import log_name
from tests.mount.conftest import ONE_OF_EACH_KIND
from tests.mount.toy_mount import eventually
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KafkaMount, content
from tests.system.test_incarnations import PROMISE, expect_old, read_on

pytestmark = pytest.mark.fuse

#: What there is only as long as the segment of base offset 20.
OF_THE_SEGMENT = (
    f"segment/{log_name(20, '.jsonl')}",
    "offset/21.json",
    "value/21",
    f"raw/{log_name(20, '.log.deleted')}",
)
FILES = ("records.jsonl", "meta/batches.jsonl", *OF_THE_SEGMENT)


@pytest.fixture(params=ONE_OF_EACH_KIND)
def mounted(request: pytest.FixtureRequest, tmp_path: Path, mount_kafka: MountKafka) -> tuple[Compacted, KafkaMount]:
    log = compacted_thrice(tmp_path / "root")
    return log, mount_kafka(log.root, front=request.param)


def path_of(mount: KafkaMount, name: str) -> Path:
    return mount.path(f".kfs/deleted/t/0.deleted/{name}")


def listed(mount: KafkaMount) -> list[int]:
    return sorted(int(name.removesuffix(".json")) for name in os.listdir(path_of(mount, "offset")))


def is_gone(path: Path) -> bool:
    return content(path) == errno.ENOENT


def test_what_is_removed_under_a_reader_is_stale_and_then_not_there(mounted: tuple[Compacted, KafkaMount]) -> None:
    log, mount = mounted
    assert listed(mount) == log.union
    before = {name: path_of(mount, name).read_bytes() for name in FILES}
    held = {name: os.open(path_of(mount, name), os.O_RDONLY) for name in FILES}
    try:
        log.remove(20)
        for name, descriptor in held.items():
            expect_old(before[name], *read_on(descriptor, 0))
        for name in OF_THE_SEGMENT:
            assert eventually(partial(is_gone, path_of(mount, name)), PROMISE)
        assert eventually(lambda: listed(mount) == log.union, PROMISE)
        for name, descriptor in held.items():
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            expect_old(before[name], *read_on(descriptor, 0))
    finally:
        for descriptor in held.values():
            os.close(descriptor)
    for base in list(log.deleted):
        log.remove(base)
    assert eventually(partial(is_gone, path_of(mount, "records.jsonl")), PROMISE)
    assert "WARNING" not in mount.log()
    assert "ERROR" not in mount.log()
