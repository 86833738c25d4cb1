"""``kfs mount --until now``: what archives and copies a mount, twice, while the log goes on."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.system.kafka_mount import KafkaMount, content, kfs
from tests.system.shop import Shop
from tests.system.toy_broker import ToyPartition

pytestmark = pytest.mark.fuse


def archived(point: Path) -> str:
    """Return a digest of the archive of all that is listed."""
    done = subprocess.run(["tar", "--create", "--directory", point, "."], capture_output=True, check=True)
    assert done.stderr == b""
    return hashlib.sha256(done.stdout).hexdigest()


def test_two_archives_of_a_log_that_goes_on_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    shop = Shop(tmp_path / "data")
    mount = KafkaMount(tmp_path / "mnt", shop.root, options=["--until", "now", "--no-index"])
    mount.start()
    try:
        end = shop.orders.next_offset
        first = archived(mount.point)
        shop.orders.append_messages(5)
        shop.orders.roll()
        shop.orders.append_messages(5)
        shop.returns.append_messages(1)
        ToyPartition(shop.root, "orders", 2).append_messages(1)
        assert archived(mount.point) == first
        assert mount.offsets("orders/0")[-1] == end - 1
        with pytest.raises(FileNotFoundError):
            (mount.point / f"orders/0/offset/{end}.json").read_bytes()
    finally:
        mount.discard()


def test_what_retention_takes_fails_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    shop = Shop(tmp_path / "data")
    mount = KafkaMount(tmp_path / "mnt", shop.root, options=["--until", "now", "--no-index"])
    mount.start()
    try:
        bases, texts = list(shop.orders.bases), {base: shop.orders.segment_text(base) for base in shop.orders.bases}
        shop.orders.delete_first_segment()
        paths = {base: mount.point / f"orders/0/segment/{base:020d}.jsonl" for base in bases}
        assert sorted((mount.point / "orders/0/segment").iterdir()) == sorted(paths.values())
        assert [content(paths[base]) == texts[base] for base in bases] == [False, *[True] * (len(bases) - 1)]
        done = subprocess.run(["tar", "--create", "--directory", mount.point, "."], capture_output=True)
        assert done.returncode == 2
        assert b"Stale file handle" in done.stderr
    finally:
        mount.discard()


def test_the_commands_take_it_too(shop: Shop) -> None:
    for command in (("ls",), ("cat", "orders/1"), ("stat", "orders")):
        name, *path = command
        assert kfs(name, shop.root, *path, "--until", "now").returncode == 0
