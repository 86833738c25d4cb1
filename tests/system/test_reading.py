"""The everyday tools, on a mount: each gets exactly the bytes, names, sizes and dates that the records have."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mount.conftest import EACH_FRONT
from tests.mount.toy_mount import output
from tests.system.conftest import Mounts
from tests.system.kafka_mount import KafkaMount
from tests.system.shop import BIG, Shop
from tests.system.toy_broker import FIRST_TIMESTAMP

pytestmark = pytest.mark.fuse

HOUR = 3600


@pytest.fixture(params=EACH_FRONT)
def mounted(request: pytest.FixtureRequest, shop: Shop, shop_mounts: Mounts) -> KafkaMount:
    """The shop through each front."""
    return shop_mounts.get(shop.root, front=request.param)


def run(*command: str | Path) -> str:
    """Run a tool in UTC that must succeed and say nothing on standard error; return what it prints."""
    return output([str(word) for word in command], TZ="UTC", LC_ALL="C")


def names(offsets: Sequence[int]) -> set[str]:
    return {f"{offset}.json" for offset in offsets}


def test_cat_prints_the_record(mounted: KafkaMount, shop: Shop) -> None:
    for offset in (0, 39, 57, 80, 273):
        assert run("cat", mounted.path(f"orders/0/offset/{offset}.json")).encode() == shop.orders.line(offset)


@pytest.mark.parametrize(
    "name",
    [
        *("40.json", "56.json", "274.json", "9223372036854775807.json", "9223372036854775808.json"),
        *(
            "007.json",
            "+7.json",
            "-1.json",
            "7",
            "7.JSON",
            " 7.json",
            "7.json.json",
            "07",
            "0x7.json",
            "\u0667.json",
            ".json",
        ),
    ],
)
def test_what_is_no_record_is_not_there(mounted: KafkaMount, name: str) -> None:
    path = mounted.path("orders/0/offset") / name
    with pytest.raises(FileNotFoundError):
        path.read_bytes()
    with pytest.raises(FileNotFoundError):
        path.stat()


@pytest.mark.parametrize("name", ["orders/00", "orders/2", "orders/-1", "order/0", "orders/0/offsets", "ORDERS/0"])
def test_what_is_no_partition_is_not_there(mounted: KafkaMount, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        os.listdir(mounted.path(name))


def test_a_directory_cannot_be_read_nor_a_record_entered(mounted: KafkaMount) -> None:
    for name in ("", "orders", "orders/0", "orders/0/offset", "orders/0/segment", "orders/0/meta"):
        done = subprocess.run(["cat", mounted.path(name)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Is a directory" in done.stderr
    with pytest.raises(NotADirectoryError):
        os.listdir(mounted.path("orders/0/offset/1.json"))
    with pytest.raises(NotADirectoryError):
        os.stat(mounted.path("orders/0/offset/1.json/x"))


def test_every_record_and_segment_is_right(mounted: KafkaMount, shop: Shop) -> None:
    assert mounted.partitions() == sorted(partition.name for partition in shop.partitions)
    for partition in shop.partitions:
        assert mounted.lines(partition.name) == partition.lines()
        for base in partition.bases:
            path = mounted.path(partition.name) / f"segment/{base:020d}.jsonl"
            assert path.read_bytes() == partition.segment_text(base)


def test_a_segment_resolves_by_its_bare_number_too(open_shop: KafkaMount, shop: Shop) -> None:
    base = shop.orders.bases[1]
    assert open_shop.path(f"orders/0/segment/{base}.jsonl").read_bytes() == shop.orders.segment_text(base)
    assert not open_shop.path(f"orders/0/segment/0{base}.jsonl").exists()


def test_ls_shows_sizes_dates_and_modes(mounted: KafkaMount, shop: Shop) -> None:
    listed = run("ls", "-l", "--time-style=+%s", mounted.path("orders/0/offset")).splitlines()[1:]
    owner = "root" if os.geteuid() == 0 else str(os.geteuid())
    shown = {}
    for line in listed:
        mode, links, user, _, size, seconds, name = line.split()
        assert (mode, links, user) == ("-r--r--r--", "1", owner)
        shown[name] = int(size), int(seconds)
    assert shown == {
        f"{offset}.json": (len(shop.orders.line(offset)), record.timestamp // 1000)
        for offset, record in shop.orders.records.items()
    }


def test_ls_shows_the_partition_as_its_reader_expects_it(mounted: KafkaMount) -> None:
    lines = run("ls", "-l", mounted.path("orders/0")).splitlines()[1:]
    assert [line.split(maxsplit=8)[8] for line in lines] == [
        "first.json -> offset/0.json",
        "last.json -> offset/273.json",
        "meta",
        "offset",
        "segment",
    ]
    assert [line[0] for line in lines] == ["l", "l", "d", "d", "d"]


def test_find_selects_records_by_their_dates(mounted: KafkaMount, shop: Shop) -> None:
    second = FIRST_TIMESTAMP // 1000
    found = run(
        *("find", mounted.path("orders/0/offset"), "-newermt", f"@{second + 99 * HOUR}"),
        *("!", "-newermt", f"@{second + 120 * HOUR}", "-printf", "%f\n"),
    )
    assert set(found.split()) == names([offset for offset in shop.orders.records if 99 < offset <= 120])


def test_find_understands_a_date_as_written(open_shop: KafkaMount, shop: Shop) -> None:
    found = run(
        "find", open_shop.path("orders/0/offset"), "-type", "f", "-newermt", "2024-03-11 12:00", "-printf", "%f\n"
    )
    assert set(found.split()) == names([offset for offset in shop.orders.records if offset > 10 * 24 + 12])


def test_find_selects_by_size_and_type(mounted: KafkaMount) -> None:
    found = run("find", mounted.path("photos"), "-type", "f", "-size", f"+{BIG - 1}c", "-printf", "%P\n")
    assert set(found.split()) == {"0/offset/1.json", "0/segment/00000000000000000000.jsonl"}
    links = run("find", mounted.point, "-type", "l", "-printf", "%P\n")
    assert set(links.split()) == {
        f"{partition}/{name}"
        for partition in ("orders/0", "orders/1", "photos/0")
        for name in ("first.json", "last.json")
    }


def test_grep_finds_every_match_and_no_other(mounted: KafkaMount, shop: Shop) -> None:
    directory = mounted.path("orders/0/offset")
    pattern = '\\\\"customer\\\\":\\\\"café 3'
    found = run("grep", "-r", pattern, directory).splitlines()
    wanted = [
        f"{directory}/{offset}.json:{shop.orders.line(offset).decode().rstrip()}"
        for offset, record in shop.orders.records.items()
        if "café 3".encode() in (record.value or b"")
    ]
    assert len(wanted) > 20
    assert sorted(found) == sorted(wanted)
    listed = run("grep", "-rl", pattern, directory).splitlines()
    assert sorted(listed) == sorted(line.partition(":")[0] for line in wanted)


def test_grep_over_the_whole_mount_reads_all_of_it(mounted: KafkaMount, shop: Shop) -> None:
    counted = run("grep", "-rc", "", mounted.path("")).splitlines()
    lines = {
        str(Path(path).relative_to(mounted.point)): int(count)
        for path, count in (one.rsplit(":", 1) for one in counted)
    }
    for partition in shop.partitions:
        for offset in partition.records:
            assert lines.pop(f"{partition.name}/offset/{offset}.json") == 1
        for base in partition.bases:
            assert lines.pop(f"{partition.name}/segment/{base:020d}.jsonl") == len(partition.segment_offsets(base))
    assert {name.split("/")[2] for name in lines} == {"meta"}


def test_cp_copies_everything(mounted: KafkaMount, shop: Shop, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    run("cp", "-r", mounted.path("orders"), copy)
    for partition in (shop.orders, shop.more_orders):
        directory = copy / str(partition.partition)
        assert {path.name for path in (directory / "offset").iterdir()} == names(list(partition.records))
        for offset in partition.records:
            assert (directory / f"offset/{offset}.json").read_bytes() == partition.line(offset)
        assert os.readlink(directory / "first.json") == "offset/0.json"
        for base in partition.bases:
            assert (directory / f"segment/{base:020d}.jsonl").read_bytes() == partition.segment_text(base)
    assert run("diff", "-r", mounted.path("orders"), copy) == ""


def test_rsync_copies_once_and_then_nothing(mounted: KafkaMount, tmp_path: Path) -> None:
    source, copy = f"{mounted.point}/", tmp_path / "copy"
    planned = run("rsync", "-an", "--itemize-changes", source, copy).splitlines()
    assert sum(line.startswith(">f") for line in planned) > 250
    assert not copy.exists()
    run("rsync", "-a", source, copy)
    assert run("diff", "-r", "--no-dereference", mounted.point, copy) == ""
    assert run("rsync", "-a", "--itemize-changes", source, copy) == ""
    assert run("rsync", "-an", "--itemize-changes", "--checksum", source, copy) == ""


def test_head_and_tail_print_lines(mounted: KafkaMount, shop: Shop) -> None:
    offsets = list(shop.orders.records)
    assert run("head", "-1", mounted.path("orders/0/last.json")).encode() == shop.orders.line(offsets[-1])
    assert run("head", "-1", mounted.path("orders/0/first.json")).encode() == shop.orders.line(0)
    last = mounted.path(f"orders/0/segment/{shop.orders.bases[-1]:020d}.jsonl")
    assert run("tail", "-n", "3", last).encode() == b"".join(shop.orders.line(offset) for offset in offsets[-3:])
    assert run("tail", "-c", "+1", last).encode() == shop.orders.segment_text(shop.orders.bases[-1])


def test_wc_counts_the_bytes_that_stat_promises(mounted: KafkaMount) -> None:
    files = [Path(directory, name) for directory, _, names_ in os.walk(mounted.path("orders/0")) for name in names_]
    counted = run("wc", "-c", *files).splitlines()[:-1]
    assert {path: int(count) for count, path in (line.split() for line in counted)} == {
        str(path): path.stat().st_size for path in files
    }
    assert len(files) > 250


@pytest.mark.skipif(not Path("/usr/bin/jq").exists(), reason="there is no jq")
def test_jq_reads_records_and_segments(open_shop: KafkaMount, shop: Shop) -> None:
    path = open_shop.path("orders/0/segment/00000000000000000000.jsonl")
    selected = run("jq", "-r", 'select(.headers[]?.key == "trace") | .offset', path).split()
    assert [int(offset) for offset in selected] == [at for at in shop.orders.segment_offsets(0) if at % 3 == 0]
    inner = run("jq", "-r", ".value | fromjson | .item", open_shop.path("orders/0/offset/57.json"))
    assert inner == "57\n"


def test_a_large_record_is_whole(mounted: KafkaMount, shop: Shop) -> None:
    path = mounted.path("photos/0/offset/1.json")
    line = shop.photos.line(1)
    assert len(line) > BIG
    assert path.stat().st_size == len(line)
    assert path.read_bytes() == line
    assert mounted.path("photos/0/value/1").read_bytes() == shop.photos.records[1].value


def test_du_and_df_count(mounted: KafkaMount, shop: Shop) -> None:
    sizes = sum(len(line) for line in shop.orders.lines().values())
    assert int(run("du", "-sb", mounted.path("orders/0/offset")).split()[0]) == sizes
    *_, total, used, free, share, point = run("df", "-B1", mounted.point).splitlines()[1].split()
    assert (total, used, free, share) == ("0", "0", "0", "-")
    assert point == str(mounted.point)


def test_modes_are_read_only_everywhere(mounted: KafkaMount) -> None:
    for directory, directories, files in os.walk(mounted.point):
        for name in (*directories, *files):
            mode = os.lstat(Path(directory, name)).st_mode
            assert stat.S_ISLNK(mode) or not mode & 0o222


def test_raw_keys_values_and_kafkas_own_files_can_be_read(open_shop: KafkaMount, shop: Shop) -> None:
    directory = open_shop.path("orders/0")
    for offset in (1, 2, 5):
        record = shop.orders.records[offset]
        for name, field in (("value", record.value), ("key", record.key)):
            path = directory / name / str(offset)
            assert path.exists() == (field is not None)
            if field is not None:
                assert path.read_bytes() == field
    for file in shop.orders.directory.iterdir():
        assert (directory / "raw" / file.name).read_bytes() == file.read_bytes()
        assert (directory / "raw" / file.name).stat().st_mtime_ns == file.stat().st_mtime_ns


def test_records_are_found_by_time(open_shop: KafkaMount, shop: Shop) -> None:
    directory = open_shop.path("orders/0")
    days = sorted({_day(offset) for offset in shop.orders.records})
    assert sorted(os.listdir(directory / "time")) == days
    assert os.listdir(directory / "time/2024-03-02/05") == ["29.json"]
    assert (directory / "time/2024-03-02/05/29.json").read_bytes() == shop.orders.line(29)
    assert os.readlink(directory / "at/2024-03-02T05:00:00Z.json") == "../offset/29.json"
    assert os.readlink(directory / "at/2024-03-02T05:00:00.001Z.json") == "../offset/30.json"
    assert os.readlink(directory / "at/1970-01-01.json") == "../offset/0.json"
    with pytest.raises(OSError) as caught:
        os.readlink(directory / "at/2030-01-01.json")
    assert caught.value.errno == errno.ENOENT


def _day(offset: int) -> str:
    return f"2024-03-{1 + offset // 24:02d}"


def test_meta_tells_about_the_log(open_shop: KafkaMount, shop: Shop) -> None:
    meta = open_shop.path("orders/0/meta")
    log = json.loads((meta / "log.json").read_text())
    assert (log["topic"], log["partition"], log["segments"]) == ("orders", 0, 3)
    assert (log["logStartOffset"], log["logEndOffset"]) == (0, 274)
    segments = [json.loads(line) for line in (meta / "segments.jsonl").read_text().splitlines()]
    assert [segment["baseOffset"] for segment in segments] == shop.orders.bases
    assert [segment["active"] for segment in segments] == [False, False, True]
    batches = [json.loads(line) for line in (meta / "batches.jsonl").read_text().splitlines()]
    assert [batch["count"] for batch in batches] == [10] * 24
    assert {batch["codec"] for batch in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert (meta / "problems.jsonl").read_bytes() == b""


def test_views_are_listed_only_where_asked_for(shop: Shop, open_shop: KafkaMount, shop_mounts: Mounts) -> None:
    listed = set(os.listdir(open_shop.path("orders/0")))
    assert listed == {"offset", "segment", "meta", "first.json", "last.json"}
    assert ".kfs" not in os.listdir(open_shop.point)
    with_views = shop_mounts.get(shop.root, options=("--views",))
    assert set(os.listdir(with_views.path("orders/0"))) == listed | {
        "value",
        "key",
        "records.jsonl",
        "time",
        "at",
        "raw",
    }
    assert ".kfs" in os.listdir(with_views.point)


def test_the_readme_in_the_mount_names_every_view(open_shop: KafkaMount) -> None:
    readme = open_shop.path(".kfs/README").read_text()
    for name in ("offset/", "segment/", "first.json", "last.json", "meta/", "value/", "key/", "time/", "at/", "raw/"):
        assert name in readme
