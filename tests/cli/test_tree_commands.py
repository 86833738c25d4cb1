"""``kfs ls``, ``kfs cat`` and ``kfs stat``: the tree without a mount, and the same as on one."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kfs.format.record import Record
from kfs.format.writer import encode_batch
from tests.cli.running import leave_early, printed, refused
from tests.requirements import need_fuse
from tests.system.kafka_mount import KFS, KafkaMount, kfs
from tests.system.shop import BIG, Shop
from tests.system.toy_broker import ToyPartition, message

FILES = (
    *("orders/0/offset/0.json", "orders/0/offset/57.json", "orders/0/offset/273.json", "photos/0/offset/1.json"),
    *("orders/0/segment/00000000000000000000.jsonl", "orders/0/segment/97.jsonl", "orders/0/records.jsonl"),
    *("orders/0/value/1", "orders/0/key/1", "orders/0/raw/00000000000000000000.log", "orders/0/first.json"),
    *("orders/0/last.json", "orders/0/time/2024-03-02/05/29.json", "orders/0/at/2024-03-02.json", ".kfs/README"),
    *("orders/0/meta/log.json", "orders/0/meta/segments.jsonl", "orders/0/meta/batches.jsonl"),
)
DIRECTORIES = (
    *("/", "orders", "/orders/0/", "orders/0/offset", "orders/0/segment", "orders/0/meta", "orders/0/value"),
    *(
        "orders/0/key",
        "orders/0/time",
        "orders/0/time/2024-03-02",
        "orders/0/raw",
        ".kfs",
        "returns/0",
        "returns/0/offset",
    ),
)


@pytest.fixture(scope="module")
def mounted(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaMount]:
    need_fuse()
    mount = KafkaMount(tmp_path_factory.mktemp("cli") / "mnt", shop.root)
    try:
        mount.start()
        yield mount
        mount.stop()
    finally:
        mount.discard()


@pytest.mark.fuse
def test_cat_prints_the_bytes_that_the_mount_has(mounted: KafkaMount, shop: Shop) -> None:
    assert printed("cat", shop.root, *FILES) == b"".join(mounted.path(name).read_bytes() for name in FILES)


@pytest.mark.fuse
def test_ls_lists_the_names_that_the_mount_has(mounted: KafkaMount, shop: Shop) -> None:
    for name in DIRECTORIES:
        listed = printed("ls", shop.root, name).decode().splitlines()
        assert listed == os.listdir(mounted.path(name.strip("/"))), name


@pytest.mark.fuse
def test_stat_shows_what_the_mount_shows(mounted: KafkaMount, shop: Shop) -> None:
    for name in (
        "orders/0/offset/57.json",
        "orders/0/segment/97.jsonl",
        "orders/0/last.json",
        "orders/0",
        "photos/0/value/1",
    ):
        shown = json.loads(printed("stat", shop.root, name))
        status = mounted.path(name).lstat()
        assert shown.pop("inode") > 0
        assert shown == {
            "path": name,
            "mode": stat.filemode(status.st_mode),
            "size": status.st_size,
            "mtime": iso(status.st_mtime_ns),
            "uid": status.st_uid,
            "gid": status.st_gid,
        }


def iso(nanoseconds: int) -> str:
    moment = datetime.fromtimestamp(nanoseconds // 1_000_000 / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.fuse
def test_ls_long_shows_sizes_and_dates(mounted: KafkaMount, shop: Shop) -> None:
    lines = printed("ls", "-l", shop.root, "orders/0/offset").decode().splitlines()
    assert len(lines) == len(shop.orders.records)
    for line, (offset, record) in zip(lines, shop.orders.records.items(), strict=True):
        mode, uid, gid, size, time, name = line.split()
        status = mounted.path(f"orders/0/offset/{offset}.json").stat()
        assert (mode, int(uid), int(gid)) == ("-r--r--r--", status.st_uid, status.st_gid)
        assert (int(size), time, name) == (
            len(shop.orders.line(offset)),
            iso(record.timestamp * 1_000_000),
            f"{offset}.json",
        )
    links = printed("ls", "--long", shop.root, "orders/0").decode().splitlines()
    assert [line.split(maxsplit=5)[5] for line in links if line.startswith("l")] == [
        "first.json -> offset/0.json",
        "last.json -> offset/273.json",
    ]


def test_ls_of_a_file_is_its_name(shop: Shop) -> None:
    assert printed("ls", shop.root, "orders/0/offset/3.json") == b"orders/0/offset/3.json\n"
    assert printed("ls", "-l", shop.root, "orders/0/offset/3.json").endswith(b"Z orders/0/offset/3.json\n")


def test_ls_without_a_path_lists_the_topics(shop: Shop) -> None:
    assert printed("ls", shop.root) == b"orders\nphotos\nreturns\n"
    assert printed("ls", "--views", shop.root) == b"orders\nphotos\nreturns\n.kfs\n"
    assert printed("ls", "--topic", "*o*", shop.root) == b"orders\nphotos\n"


def test_cat_follows_links_and_prints_several_files_in_order(shop: Shop) -> None:
    found = printed("cat", shop.root, "orders/0/last.json", "orders/0/offset/3.json", "orders/0/last.json")
    assert found == shop.orders.line(273) + shop.orders.line(3) + shop.orders.line(273)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere", "no topic 'nowhere'"),
        ("orders/7", "no partition 7 of 'orders'"),
        ("orders/x", "no 'x' here"),
        ("orders/0/offset/40.json", "orders/0: no record at offset 40"),
        ("orders/0/offset/007.json", "'007.json' is not the name of an offset"),
        ("orders/0/value/5", "the value of offset 5 is null"),
        ("orders/0/offset/1.json/x", "orders/0/offset/1.json/x: the parent of 'x' is not a directory"),
        ("orders/0/at/2099-01-01.json", "no record at or after 2099-01-01"),
    ],
)
def test_what_is_not_there_is_refused_with_a_reason(shop: Shop, path: str, reason: str) -> None:
    assert refused("cat", shop.root, path) == f"kfs: {reason}\n"


@pytest.mark.parametrize("command", ["ls", "stat"])
def test_every_command_refuses_what_is_not_there(shop: Shop, command: str) -> None:
    assert refused(command, shop.root, "orders/0/offset/40.json") == "kfs: orders/0: no record at offset 40\n"


def test_a_directory_cannot_be_printed(shop: Shop) -> None:
    for path in ("orders/0/offset", "orders/0/offset/", "/orders/0/segment", ".kfs", "/"):
        assert refused("cat", shop.root, path) == f"kfs: {path} is a directory\n"


def test_what_comes_before_a_missing_file_is_printed(shop: Shop) -> None:
    done = kfs("cat", shop.root, "orders/0/offset/3.json", "nowhere")
    assert (done.returncode, done.stdout, done.stderr) == (1, shop.orders.line(3), b"kfs: no topic 'nowhere'\n")


@pytest.mark.parametrize("command", ["ls", "cat", "stat"])
def test_a_source_that_is_not_kafkas_is_refused_with_a_reason(command: str, tmp_path: Path) -> None:
    assert refused(command, tmp_path / "missing", "x") == f"kfs: {tmp_path}/missing: No such file or directory\n"
    reason = "neither a Kafka log directory nor a partition directory: no segments in it"
    assert refused(command, tmp_path, "x") == f"kfs: {tmp_path}: {reason}\n"


def test_every_form_of_source_can_be_read(shop: Shop) -> None:
    line = shop.orders.line(3)
    for source in (shop.root, shop.orders.directory, shop.orders.file(0)):
        assert printed("cat", source, "orders/0/offset/3.json") == line
    relative = subprocess.run(
        [KFS, "cat", "orders-0", "orders/0/offset/3.json"], cwd=shop.root, capture_output=True, check=True
    )
    assert relative.stdout == line


@pytest.mark.parametrize(
    "arguments",
    [
        ["cat", "photos/0/records.jsonl", "orders/0/records.jsonl", "photos/0/records.jsonl"],
        ["ls", "-l", "orders/0/offset"],
        ["ls", "orders/0/offset"],
    ],
)
def test_a_reader_that_has_enough_is_left_quietly(shop: Shop, arguments: list[str]) -> None:
    command, *rest = arguments
    leave_early(command, shop.root, *rest)


def test_head_gets_its_line(shop: Shop) -> None:
    script = f"'{KFS}' cat '{shop.root}' photos/0/offset/1.json orders/0/records.jsonl photos/0/offset/1.json | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, shop.photos.line(1), b"")
    assert len(done.stdout) > BIG


class Damaged:
    """Sixty batches: one with a wrong CRC, one that is intact and lies about its records."""

    def __init__(self, root: Path) -> None:
        self.log = ToyPartition(root, "torn")
        for number in range(60):
            offsets = range(number * 10, number * 10 + 10)
            if number == 30:
                self.torn = self.log.active.stat().st_size
            self.log.append([message(offset) for offset in offsets])
        data = bytearray(self.log.active.read_bytes())
        data[self.torn + 70] ^= 0xFF
        self.log.active.write_bytes(data)

    def text(self, start: int, end: int) -> bytes:
        return b"".join(self.log.line(offset) for offset in range(start, end))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    return Damaged(tmp_path_factory.mktemp("damaged"))


def test_cat_prints_what_comes_before_the_page_with_the_damage(damaged: Damaged) -> None:
    before = damaged.text(0, 300)
    for path in ("torn/0/segment/0.jsonl", "torn/0/records.jsonl"):
        done = kfs("cat", damaged.log.directory, path)
        assert done.returncode == 1
        assert done.stdout == before[: len(before) // 4096 * 4096]
        lines = done.stderr.decode().splitlines()
        assert len(lines) == 1
        assert lines[0].startswith(f"kfs: {damaged.log.active}: position {damaged.torn}: record batch with stored CRC ")


def test_cat_skips_the_damage_where_asked_to(damaged: Damaged) -> None:
    done = kfs("cat", "--on-damage", "skip", damaged.log.directory, "torn/0/records.jsonl")
    assert (done.returncode, done.stdout) == (0, damaged.text(0, 300) + damaged.text(310, 600))


def test_a_lost_record_is_refused_with_file_and_position(damaged: Damaged) -> None:
    reason = refused("cat", damaged.log.directory, "torn/0/offset/305.json")
    assert f"{damaged.log.active}: position {damaged.torn}: " in reason


def partition_with_a_lying_batch(root: Path) -> ToyPartition:
    log = ToyPartition(root, "liar")
    log.append([message(offset) for offset in range(3)])
    lying = bytearray(encode_batch([Record(offset, 0, None, b"abc") for offset in range(3, 6)]))
    lying[61] = 0x7E  # the length of its first record
    log.active.write_bytes(log.active.read_bytes() + with_right_crc(lying))
    return log


def test_ls_long_lists_what_cannot_be_read_with_question_marks(tmp_path: Path) -> None:
    log = partition_with_a_lying_batch(tmp_path)
    done = kfs("ls", "-l", log.directory, "liar/0/offset")
    names = [line.split()[-1] for line in done.stdout.decode().splitlines()]
    assert names == kfs("ls", log.directory, "liar/0/offset").stdout.decode().split()
    assert names == [f"{offset}.json" for offset in range(6)]
    assert [line.startswith("?") for line in done.stdout.decode().splitlines()] == [False] * 3 + [True] * 3
    assert done.returncode == 1
    assert done.stderr.startswith(f"kfs: {log.active}: position ".encode())


def test_ls_long_of_topics_shows_the_offsets_times_and_sizes_of_their_partitions(shop: Shop) -> None:
    lines = printed("ls", "-l", shop.root).decode().splitlines()
    assert lines[0].split("\t")[2:6] == ["LOG-START-OFFSET", "LAST-STABLE-OFFSET", "HIGH-WATERMARK", "LOG-END-OFFSET"]
    assert {line.split("\t")[0] for line in lines[1:]} == {"orders", "photos", "returns"}
    [_, *orders] = printed("ls", "-l", shop.root, "/orders/").decode().splitlines()
    assert orders == [line for line in lines if line.startswith("orders\t")]
    topic, partition, start, stable, _, end, first, last, size = orders[0].split("\t")
    assert (topic, partition, start, stable, end) == ("orders", "0", "0", "274", "274")
    times = [iso(shop.orders.records[offset].timestamp * 1_000_000) for offset in (0, 273)]
    assert [first, last] == times
    assert int(size) == sum(path.stat().st_size for path in (shop.root / "orders-0").glob("*.log"))
    assert printed("ls", "-l", shop.root, "--topic", "photos").decode().splitlines()[1].startswith("photos\t0\t")


def test_ls_long_of_topics_says_what_it_could_not_read(tmp_path: Path) -> None:
    log = partition_with_a_lying_batch(tmp_path)
    done = kfs("ls", "-l", log.directory)
    [_, line] = done.stdout.decode().splitlines()
    assert line.split("\t")[:6] == ["liar", "0", "0", "6", "-", "6"]
    assert line.split("\t")[7] == iso(message(2).timestamp * 1_000_000)  # of the last record that can be read
    assert done.stderr.startswith(f"kfs: {log.active}: position ".encode())


def with_right_crc(batch: bytearray) -> bytes:
    from crc32c import crc32c

    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)
