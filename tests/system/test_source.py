"""The source: read and never written, whatever it lies on, whoever owns it, and whoever mounts it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.corpus import compare, take_manifest
from tests.mount.toy_mount import eventually, output
from tests.other_users import NOBODY, in_own_namespace_as_nobody, without_roots_rights
from tests.requirements import need_setuid_helper
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KFS, KafkaMount, kfs
from tests.system.shop import Shop
from tests.system.toy_broker import ToyPartition, message

pytestmark = pytest.mark.fuse

needs_root: Final = pytest.mark.skipif(os.geteuid() != 0, reason="only root can")


@pytest.fixture
def log(tmp_path: Path) -> ToyPartition:
    partition = ToyPartition(tmp_path / "log-root", "owned")
    partition.append_messages(20)
    partition.roll()
    partition.append_messages(5)
    return partition


def read_everything(mounted: KafkaMount) -> None:
    """Every listed file, and by name everything else of each partition."""
    for directory, _, files in os.walk(mounted.point):
        for file in files:
            Path(directory, file).read_bytes()
    for partition in mounted.partitions():
        for view in ("value", "key", "raw", "time"):
            for directory, _, files in os.walk(mounted.path(partition) / view, followlinks=True):
                for file in files:
                    Path(directory, file).read_bytes()
        mounted.path(f"{partition}/records.jsonl").read_bytes()
    for directory, _, files in os.walk(mounted.path(".kfs")):
        for file in files:
            Path(directory, file).read_bytes()


def test_reading_everything_leaves_the_source_as_it_was(shop: Shop, tmp_path: Path, mount_kafka: MountKafka) -> None:
    source = tmp_path / "copy"
    shutil.copytree(shop.root, source)
    before = take_manifest(source)
    mounted = mount_kafka(source)
    read_everything(mounted)
    mounted.stop()
    assert compare(before, take_manifest(source)) == []


def test_the_daemon_has_no_file_of_the_source_open_to_write(log: ToyPartition, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(log.directory.parent)
    read_everything(mounted)
    descriptors = Path(f"/proc/{mounted.pid}/fd")
    flags = {}
    for descriptor in descriptors.iterdir():
        path = os.readlink(descriptor)
        if path.startswith(str(log.directory)):
            lines = Path(f"/proc/{mounted.pid}/fdinfo/{descriptor.name}").read_text().splitlines()
            flags[path] = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
    assert len(flags) >= 2
    assert {value & os.O_ACCMODE for value in flags.values()} == {os.O_RDONLY}
    writable = [
        line
        for line in Path(f"/proc/{mounted.pid}/maps").read_text().splitlines()
        if str(log.directory) in line and "w" in line.split()[1]
    ]
    assert writable == []


@pytest.fixture
def read_only_source(log: ToyPartition, tmp_path: Path) -> Iterator[Path]:
    """The log root once more, at a place where nobody can write."""
    point = tmp_path / "read-only"
    point.mkdir()
    done = subprocess.run(["mount", "--bind", log.directory.parent, point], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no bind mounts here: {done.stderr.strip()}")
    try:
        output(["mount", "-o", "remount,bind,ro", str(point)])
        with pytest.raises(OSError, match="Read-only"):
            (point / "x").touch()
        yield point
    finally:
        output(["umount", str(point)])


@needs_root
def test_a_read_only_source_can_be_mounted(log: ToyPartition, read_only_source: Path, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(read_only_source)
    read_everything(mounted)
    assert mounted.lines("owned/0") == log.lines()
    log.append_messages(3)
    assert eventually(lambda: mounted.offsets("owned/0") == list(log.records), 1.5)
    assert mounted.lines("owned/0") == log.lines()
    mounted.stop()


@needs_root
def test_owner_and_mode_are_those_of_the_source_without_write(log: ToyPartition, mount_kafka: MountKafka) -> None:
    first, second = (log.file(base) for base in log.bases)
    os.chown(first, 12345, 23456)
    first.chmod(0o600)
    os.chown(second, 1, 2)
    second.chmod(0o764)
    os.chown(log.directory, 7, 8)
    log.directory.chmod(0o750)
    mounted = mount_kafka(log.directory.parent)
    shown = {
        "offset/3.json": (12345, 23456, 0o400),
        "segment/00000000000000000000.jsonl": (12345, 23456, 0o400),
        "value/3": (12345, 23456, 0o400),
        "raw/00000000000000000000.log": (12345, 23456, 0o400),
        "offset/21.json": (1, 2, 0o444),
        "segment/00000000000000000020.jsonl": (1, 2, 0o444),
        "": (7, 8, 0o550),
        "offset": (7, 8, 0o550),
        "meta": (7, 8, 0o550),
        "meta/log.json": (7, 8, 0o440),
    }
    for name, wanted in shown.items():
        status = mounted.path(f"owned/0/{name}").stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == wanted, name


@needs_root
def test_others_read_only_what_the_source_lets_them_read(
    log: ToyPartition, tmp_path: Path, mount_kafka: MountKafka
) -> None:
    log.file(0).chmod(0o600)
    log.file(20).chmod(0o644)
    let_everybody_in(tmp_path)
    mounted = mount_kafka(log.directory.parent, options=("--allow-other",))
    assert "Permission denied" in as_nobody("cat", mounted.path("owned/0/offset/3.json")).stderr
    assert as_nobody("cat", mounted.path("owned/0/offset/21.json")).stdout.encode() == log.line(21)


@needs_root
@pytest.mark.parametrize("closed", [".", "..", "../.."], ids=["partition", "log directory", "above it"])
def test_others_get_into_no_directory_that_is_closed_to_them(
    closed: str, log: ToyPartition, tmp_path: Path, mount_kafka: MountKafka
) -> None:
    let_everybody_in(tmp_path)
    log.directory.parent.chmod(0o755)
    log.directory.chmod(0o755)
    (log.directory / closed).chmod(0o750)
    mounted = mount_kafka(log.directory.parent, options=("--allow-other",))
    for name in ("offset/21.json", "raw/00000000000000000020.log", "meta/log.json"):
        assert "Permission denied" in as_nobody("cat", mounted.path(f"owned/0/{name}")).stderr


@needs_root
def test_in_a_user_namespace_nobody_else_is_needed_to_mount(log: ToyPartition, tmp_path: Path) -> None:
    """As in a rootless container: root of the namespace has no rights outside, and there is no setuid helper."""
    point = tmp_path / "mnt"
    point.mkdir()
    script = (
        '"$1" mount --no-index --allow-other "$2" "$3" && cat "$3/owned/0/offset/3.json" && '
        'findmnt -no FSTYPE "$3" && "$1" umount "$3"'
    )
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"]
    command = [*unshare, "sh", "-c", script, "sh", KFS, str(log.directory.parent), str(point)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == log.line(3) + b"fuse.kfs\n"
    assert os.listdir(point) == []


def let_everybody_in(directory: Path) -> None:
    """Let any user reach a directory below pytest's own."""
    for above in (directory, *directory.parents):
        if above.name.startswith(("pytest-", "popen-")) or above == directory:
            above.chmod(0o755)


def as_nobody(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command], user=NOBODY, group=NOBODY, capture_output=True, text=True, check=False
    )


@needs_root
def test_somebody_who_is_not_root_mounts_reads_and_unmounts(log: ToyPartition, tmp_path: Path) -> None:
    let_everybody_in(tmp_path)
    need_setuid_helper()
    point = tmp_path / "mnt"
    point.mkdir()
    os.chown(point, NOBODY, NOBODY)
    script = (
        '"$1" mount "$2" "$3" && cat "$3/owned/0/offset/3.json" && findmnt -no FSTYPE,OPTIONS "$3" >&2; '
        'status=$?; "$1" umount "$3" && exit $status'
    )
    done = in_own_namespace_as_nobody(["sh", "-c", script, "sh", KFS, str(log.directory.parent), str(point)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.encode() == log.line(3)
    assert "fuse.kfs" in done.stderr
    assert f"user_id={NOBODY}" in done.stderr


@needs_root
def test_a_source_that_the_user_may_not_read_is_refused(log: ToyPartition) -> None:
    log_root = log.directory.parent
    os.chown(log_root, NOBODY, NOBODY)
    log_root.chmod(0o700)
    done = without_roots_rights([KFS, "ls", str(log_root)])
    assert done.returncode == 1
    assert done.stderr == f"kfs: {log_root}: Permission denied\n"


def test_a_named_pipe_for_a_segment_blocks_nothing(log: ToyPartition, mount_kafka: MountKafka) -> None:
    os.mkfifo(log.file(99))
    os.mkfifo(log.directory / "leader-epoch-checkpoint")
    mounted = mount_kafka(log.directory.parent)
    assert mounted.path("owned/0/offset/3.json").read_bytes() == log.line(3)
    mounted.path("owned/0/meta/problems.jsonl").read_bytes()
    assert mounted.is_alive()


def test_links_out_of_the_source_are_not_followed_into_raw(
    log: ToyPartition, tmp_path: Path, mount_kafka: MountKafka
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (log.directory / "link").symlink_to(secret)
    mounted = mount_kafka(log.directory.parent)
    assert "link" not in os.listdir(mounted.path("owned/0/raw"))
    assert not mounted.path("owned/0/raw/link").exists()
    assert not mounted.path("owned/0/raw/../link").exists()


def test_what_is_kept_between_mounts_is_kept_in_the_cache_directory_or_not_at_all(tmp_path: Path) -> None:
    log = ToyPartition(tmp_path / "log-root", "kept")
    log.append([message(offset, b"x" * 1000) for offset in range(500)])
    log.roll()
    cache, file = tmp_path / "cache", tmp_path / "file"
    file.write_text("")
    for directory in (cache, cache, file):
        environment = {"XDG_CACHE_HOME": str(directory)}
        done = kfs("ls", "-l", log.directory.parent, "kept/0/segment", environment=environment)
        assert (done.returncode, done.stderr) == (0, b"")
        assert str(len(log.segment_text(0))) in done.stdout.decode().splitlines()[0].split()
    assert list(cache.rglob("*.index"))
