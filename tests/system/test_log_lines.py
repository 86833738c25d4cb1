"""What a mount logs, at which level, and in which form."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kfs.mount import unmount
from tests.logs import dense, log_name, write_partition
from tests.mount.toy_mount import eventually
from tests.requirements import need_fuse
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KFS, KafkaMount, content


def lines(mounted: KafkaMount) -> list[dict[str, Any]]:
    return [json.loads(line) for line in mounted.log().splitlines()]


def test_json_tells_damage_and_change_apart(damaged: Path, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(damaged, options=("--log-format", "json"))
    assert content(mounted.path("t/0/offset/49.json")) == errno.EIO
    (damage,) = [line for line in lines(mounted) if line["level"] != "INFO"]
    path = damaged / "t-0" / log_name(0)
    assert damage.pop("time").endswith("Z")
    assert damage.pop("message") == f"{path}: position {damage['position']}: {damage['reason']}"
    assert damage.pop("reason").startswith("record batch with stored CRC")
    assert damage == {
        "level": "WARNING",
        "logger": "kfs",
        "topic": "t",
        "partition": 0,
        "file": str(path),
        "position": path.stat().st_size - len(dense(45, 49)[0].data),
        "size": len(dense(45, 49)[0].data),
        "kind": "batch-crc",
    }
    write_partition(damaged / "t-0", {100: dense(100, 104)})
    assert eventually(lambda: any(line.get("change") == "rolled" for line in lines(mounted)))
    for name in (damaged / "t-0").glob(f"{0:020d}.*"):
        name.rename(f"{name}.deleted")
    assert eventually(lambda: any(line.get("change") == "deleted" for line in lines(mounted)))
    for change in [line for line in lines(mounted) if "change" in line]:
        assert (change["level"], change["topic"], change["partition"]) == ("INFO", "t", 0)
        assert change["file"].startswith(str(damaged / "t-0"))


@pytest.mark.parametrize("is_journal", [True, False])
def test_under_systemd_lines_begin_with_their_priority(damaged: Path, is_journal: bool, tmp_path: Path) -> None:
    need_fuse()
    point = tmp_path / "mnt"
    point.mkdir()
    reading, writing = os.pipe()
    status = os.fstat(writing)
    stream = f"{status.st_dev}:{status.st_ino if is_journal else 1}"
    process = subprocess.Popen(
        [KFS, "mount", "--foreground", "--no-index", str(damaged), str(point)],
        stdout=subprocess.PIPE,
        stderr=writing,
        text=True,
        env={**os.environ, "JOURNAL_STREAM": stream},
    )
    os.close(writing)
    with os.fdopen(reading) as log:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{point}: mounted\n"
        assert content(point / "t/0/offset/49.json") == errno.EIO
        unmount(point)
        process.communicate(timeout=10)
        first, damage, last = log.read().splitlines()
    if is_journal:
        assert first == f"<6>kfs.mount: {point}: mounting with kernel"
        assert damage.startswith(f"<4>kfs: {damaged}/t-0/{log_name(0)}: position ")
        assert last == f"<6>kfs.mount: {point}: unmounted"
    else:
        assert first.endswith(f" INFO kfs.mount: {point}: mounting with kernel")
        assert f" WARNING kfs: {damaged}/t-0/{log_name(0)}: position " in damage
