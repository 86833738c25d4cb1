"""From ``kfs mount`` to ``kfs umount``: what may be mounted, what is refused and how, and how it all ends."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kfs.mount import is_mounted
from tests.mount.conftest import EACH_FRONT
from tests.mount.toy_mount import eventually, is_running
from tests.requirements import need_fuse
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KFS, KafkaMount, kfs, mapped_files, processes_of
from tests.system.shop import Shop
from tests.system.toy_broker import ToyPartition

pytestmark = pytest.mark.fuse

fronts: Final = pytest.mark.parametrize("front", EACH_FRONT)


@pytest.fixture
def log(tmp_path: Path) -> ToyPartition:
    partition = ToyPartition(tmp_path / "log-root", "orders")
    partition.append_messages(20)
    partition.roll()
    partition.append_messages(5)
    return partition


@pytest.fixture
def point(tmp_path: Path) -> Path:
    directory = tmp_path / "point"
    directory.mkdir()
    return directory


@fronts
def test_mounting_returns_when_the_mount_answers_and_unmounting_when_the_daemon_is_gone(
    front: str, shop: Shop, mount_kafka: MountKafka
) -> None:
    mounted = mount_kafka(shop.root, front=front)
    assert mounted.lines("orders/0") == shop.orders.lines()
    pid = mounted.pid
    mounted.stop()
    assert eventually(lambda: not is_running(pid), 1)
    assert not is_mounted(mounted.point)
    assert os.listdir(mounted.point) == []


def test_libfuse_means_a_front_that_uses_it(shop: Shop, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(shop.root, front="libfuse")
    assert "libfuse" in Path(f"/proc/{mounted.pid}/maps").read_text()
    assert os.listdir(mounted.path("orders/0"))


#: What Python runs at its start, as on a machine that has nothing of libfuse.
NO_LIBFUSE: Final = """
import ctypes, ctypes.util

class CDLL(ctypes.CDLL):
    def __init__(self, name, *arguments, **options):
        if name is not None and "fuse" in str(name):
            raise OSError(f"{name}: cannot open shared object file")
        super().__init__(name, *arguments, **options)

ctypes.CDLL = CDLL
find_library = ctypes.util.find_library
ctypes.util.find_library = lambda name: None if "fuse" in name else find_library(name)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="without its helper only root may mount")
def test_a_machine_without_anything_of_libfuse_mounts_and_unmounts(shop: Shop, point: Path, tmp_path: Path) -> None:
    need_fuse("kernel")
    (tmp_path / "sitecustomize.py").write_text(NO_LIBFUSE)
    bare = {"PYTHONPATH": str(tmp_path), "PATH": str(tmp_path)}  # no fusermount3, no fusermount, no umount
    refused = kfs("mount", "--front", "libfuse", shop.root, point, environment=bare)
    assert refused.returncode == 1
    assert b"libfuse 3 is not installed" in refused.stderr
    done = kfs("mount", shop.root, point, environment=bare)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    try:
        assert (point / "orders/0/records.jsonl").read_bytes() == b"".join(shop.orders.lines().values())
        assert len(os.listdir(point / "orders/0/offset")) == len(shop.orders.lines())
        assert not [name for name in mapped_files(processes_of(point)[0]) if name.startswith("libfuse")]
    finally:
        done = kfs("umount", point, environment=bare)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not is_mounted(point)


def test_mounting_again_at_the_same_place_works(shop: Shop, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(shop.root)
    for _ in range(2):
        mounted.stop()
        mounted.start()
        assert mounted.path("orders/0/offset/3.json").read_bytes() == shop.orders.line(3)


def test_two_mounts_of_one_source_live_side_by_side(log: ToyPartition, mount_kafka: MountKafka) -> None:
    one, other = mount_kafka(log.directory.parent), mount_kafka(log.directory.parent, front="mfusepy-fuse2")
    assert one.lines("orders/0") == other.lines("orders/0") == log.lines()
    log.append_messages(4)
    last = f"orders/0/offset/{log.next_offset - 1}.json"
    for mounted in (one, other):
        assert eventually(mounted.path(last).exists, 1.5)
    one.stop()
    assert other.lines("orders/0") == log.lines()
    other.stop()


def missing(directory: Path) -> str:
    return f"{directory}: No such file or directory"


def empty(directory: Path) -> str:
    directory.mkdir()
    return f"{directory}: neither a Kafka log directory nor a partition directory: no segments in it"


def unrelated(directory: Path) -> str:
    (directory / "photos").mkdir(parents=True)
    (directory / "letter.txt").write_text("Dear Kafka,")
    return f"{directory}: neither a Kafka log directory nor a partition directory: no segments in it"


def unrelated_file(directory: Path) -> str:
    directory.write_text("Dear Max,")
    return f"{directory}: not a directory, and not a .log file"


@pytest.mark.parametrize("make", [missing, empty, unrelated, unrelated_file])
def test_a_source_that_is_not_kafkas_is_refused_with_a_reason(
    make: Callable[[Path], str], tmp_path: Path, point: Path
) -> None:
    source = tmp_path / "source"
    reason = make(source)
    for options in ((), ("--foreground",)):
        done = kfs("mount", *options, source, point)
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.decode() == f"kfs: {reason}\n"
        assert not is_mounted(point)
    assert processes_of(point) == []


def test_one_bad_source_among_good_ones_is_refused(shop: Shop, tmp_path: Path, point: Path) -> None:
    done = kfs("mount", shop.root, tmp_path / "nowhere", point)
    assert done.returncode == 1
    assert f"{tmp_path}/nowhere: No such file or directory" in done.stderr.decode()
    assert not is_mounted(point)


def test_a_mount_point_that_will_not_do_is_refused_with_a_reason(shop: Shop, tmp_path: Path) -> None:
    done = kfs("mount", shop.root, tmp_path / "missing")
    assert done.returncode == 1
    assert f"kfs: {tmp_path}/missing: no such directory; make it first: mkdir -p" in done.stderr.decode()


def test_wrong_usage_is_exit_code_two(shop: Shop, point: Path) -> None:
    for arguments in (["mount"], ["mount", str(point)], ["mount", "--front", "nfs", str(shop.root), str(point)]):
        done = kfs(*arguments)
        assert done.returncode == 2
        assert b"Usage: kfs mount" in done.stderr


def test_a_log_root_shows_its_topics(shop: Shop, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(shop.root)
    assert mounted.partitions() == ["orders/0", "orders/1", "photos/0", "returns/0"]


def test_several_log_roots_are_shown_as_one(tmp_path: Path, mount_kafka: MountKafka) -> None:
    disks = [tmp_path / "disk1", tmp_path / "disk2"]
    partitions = [ToyPartition(disks[number % 2], "spread", number) for number in range(4)]
    partitions.append(ToyPartition(disks[1], "alone"))
    for partition in partitions:
        partition.append_messages(6)
    mounted = mount_kafka(*disks)
    assert mounted.partitions() == sorted(partition.name for partition in partitions)
    for partition in partitions:
        assert mounted.lines(partition.name) == partition.lines()


def test_a_partition_on_two_disks_is_shown_once_and_the_other_kept_aside(
    tmp_path: Path, mount_kafka: MountKafka
) -> None:
    short, long = (ToyPartition(tmp_path / disk, "moved") for disk in ("disk1", "disk2"))
    short.append_messages(5)
    long.append_messages(9)
    mounted = mount_kafka(tmp_path / "disk1", tmp_path / "disk2")
    assert mounted.lines("moved/0") == long.lines()
    assert mounted.lines(".kfs/replicas/moved/0@0") == short.lines()
    problems = mounted.path(".kfs/problems.jsonl").read_text()
    assert "moved-0 has several copies" in problems


def test_a_partition_directory_can_be_mounted_alone(log: ToyPartition, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(log.directory)
    assert mounted.partitions() == ["orders/0"]
    assert mounted.lines("orders/0") == log.lines()


def test_loose_log_files_can_be_mounted(log: ToyPartition, tmp_path: Path, mount_kafka: MountKafka) -> None:
    loose = tmp_path / "found"
    loose.mkdir()
    for base in log.bases:
        log.file(base).rename(loose / f"{base:020d}.log")
    mounted = mount_kafka(*sorted(loose.iterdir()))
    assert mounted.partitions() == ["found/0"]
    contents = [path.read_bytes() for path in sorted((mounted.point / "found/0/segment").iterdir())]
    named = [log.segment_text(base).replace(b'"topic":"orders"', b'"topic":"found"') for base in log.bases]
    assert contents == named


def test_one_loose_file_of_a_partition_has_the_partitions_name(log: ToyPartition, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(log.file(20))
    assert mounted.partitions() == ["orders/0"]
    assert mounted.lines("orders/0") == log.lines(range(20, 25))


def test_relative_paths_are_those_of_the_caller(log: ToyPartition, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    done = subprocess.run([KFS, "mount", "log-root", "here"], cwd=tmp_path, capture_output=True, check=False)
    try:
        assert (done.returncode, done.stderr) == (0, b"")
        assert (tmp_path / "here/orders/0/offset/3.json").read_bytes() == log.line(3)
    finally:
        done = subprocess.run([KFS, "umount", "here"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("patterns", "topics"),
    [(["orders"], ["orders"]), (["*s"], ["orders", "photos", "returns"]), (["ph*", "ret*"], ["photos", "returns"])],
)
def test_topics_can_be_chosen(patterns: list[str], topics: list[str], shop: Shop, mount_kafka: MountKafka) -> None:
    options = tuple(word for pattern in patterns for word in ("--topic", pattern))
    mounted = mount_kafka(shop.root, options=options)
    assert sorted(os.listdir(mounted.point)) == topics


def test_listings_can_end_at_the_high_watermark(log: ToyPartition, mount_kafka: MountKafka) -> None:
    (log.directory.parent / "replication-offset-checkpoint").write_text("0\n1\norders 0 22\n")
    whole, safe = mount_kafka(log.directory.parent), mount_kafka(log.directory.parent, options=("--until", "hw"))
    assert whole.offsets("orders/0") == list(range(25))
    assert safe.offsets("orders/0") == list(range(22))
    assert not safe.path("orders/0/offset/22.json").exists()
    assert safe.path("orders/0/segment/00000000000000000020.jsonl").read_bytes() == log.line(20) + log.line(21)


def test_a_batch_above_the_limit_is_an_error_that_names_it(log: ToyPartition, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(log.directory.parent, options=("--max-batch-bytes", "200"))
    with pytest.raises(OSError, match="Input/output error"):
        mounted.path("orders/0/offset/3.json").read_bytes()
    assert "200" in mounted.path("orders/0/meta/problems.jsonl").read_text()
    assert mounted.is_alive()


def in_foreground(*arguments: str | Path, front: str = "auto") -> subprocess.Popen[str]:
    """Start a mount in the foreground and wait for the line that says that it answers."""
    process = subprocess.Popen(
        [KFS, "mount", "--foreground", "--front", front, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == f"{arguments[-1]}: mounted\n", process.stderr and process.stderr.read()
    return process


@fronts
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_in_the_foreground_a_line_says_when_it_answers_and_a_signal_ends_it(
    front: str, number: signal.Signals, shop: Shop, point: Path
) -> None:
    need_fuse(front)
    process = in_foreground(shop.root, point, front=front)
    assert (point / "orders/0/offset/3.json").read_bytes() == shop.orders.line(3)
    process.send_signal(number)
    printed, logged = process.communicate(timeout=15)
    assert (process.returncode, printed) == (0, "")
    assert all(" INFO kfs.mount: " in line for line in logged.splitlines())
    assert not is_mounted(point)


def test_umount_ends_a_mount_in_the_foreground(shop: Shop, point: Path) -> None:
    process = in_foreground(shop.root, point)
    assert kfs("umount", point).returncode == 0
    printed, logged = process.communicate(timeout=15)
    assert (process.returncode, printed) == (0, "")
    assert all(" INFO kfs.mount: " in line for line in logged.splitlines())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_daemon_and_takes_the_mount_away(
    number: signal.Signals, shop: Shop, mount_kafka: MountKafka
) -> None:
    mounted = mount_kafka(shop.root)
    pid = mounted.pid
    assert mounted.path("orders/0/offset/3.json").read_bytes() == shop.orders.line(3)
    os.kill(pid, number)
    assert eventually(lambda: not is_running(pid))
    assert not is_mounted(mounted.point)
    assert "Traceback" not in mounted.log()


def test_the_daemon_outlives_the_terminal_that_started_it(shop: Shop, point: Path) -> None:
    terminal, other_end = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "-c", f"'{KFS}' mount '{shop.root}' '{point}'; echo mounted; read"],
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        start_new_session=True,
    )
    os.close(other_end)
    printed = b""
    while b"mounted" not in printed:
        printed += os.read(terminal, 1000)
    (pid,) = processes_of(point)
    try:
        assert os.getsid(pid) not in (os.getsid(0), os.getsid(shell.pid))
        os.close(terminal)  # which hangs up on everything that has it
        shell.wait(10)
        time.sleep(0.2)
        assert is_running(pid)
        assert (point / "orders/0/offset/3.json").read_bytes() == shop.orders.line(3)
        assert "/dev/pts" not in " ".join(os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd"))
    finally:
        assert kfs("umount", point).returncode == 0


def test_a_killed_daemon_is_cleared_away_by_umount(shop: Shop, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(shop.root)
    os.kill(mounted.pid, signal.SIGKILL)
    assert eventually(lambda: not is_running(mounted.pid))
    assert kfs("umount", mounted.point).returncode == 0
    assert os.listdir(mounted.point) == []


def test_a_killed_daemon_is_replaced_by_mounting_again(shop: Shop, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(shop.root)
    os.kill(mounted.pid, signal.SIGKILL)
    assert eventually(lambda: not is_running(mounted.pid))
    mounted.start()
    assert mounted.path("orders/0/offset/3.json").read_bytes() == shop.orders.line(3)
    mounted.stop()
    assert not is_mounted(mounted.point)


def test_what_is_not_mounted_cannot_be_unmounted(point: Path) -> None:
    done = kfs("umount", point)
    assert (done.returncode, done.stderr) == (1, f"kfs: {point}: not mounted\n".encode())


def test_a_busy_mount_is_named_and_stays_until_it_is_lazily_taken_away(shop: Shop, mount_kafka: MountKafka) -> None:
    mounted: KafkaMount = mount_kafka(shop.root)
    with subprocess.Popen(["sleep", "100"], cwd=mounted.path("orders")) as user:
        try:
            done = kfs("umount", mounted.point)
            assert done.returncode == 1
            assert f"in use by sleep ({user.pid})" in done.stderr.decode()
            assert mounted.path("orders/0/offset/3.json").read_bytes() == shop.orders.line(3)
            assert kfs("umount", "--lazy", mounted.point).returncode == 0
            assert not is_mounted(mounted.point)
        finally:
            user.kill()


def test_the_mount_table_names_the_source(shop: Shop, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(shop.root)
    lines = [line for line in Path("/proc/self/mounts").read_text().splitlines() if f" {mounted.point} " in line]
    assert len(lines) == 1
    source, _, kind, options, *_ = lines[0].split()
    assert (source, kind) == (str(shop.root), "fuse.kfs")
    assert "ro" in options.split(",")
