"""A broker's disk without its remote storage: what is here is shown, and every view says what isn't."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kfs
from kfs.errors import DataLoss, NotFound
from kfs.internal.broker_state import BrokerState
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.spark.options import parse_batch_options
from kfs.spark.ranges import ranges_of
from tests.cli.running import printed, refused
from tests.corpus import TIERED
from tests.internal.group_logs import InternalPartition, commit
from tests.logs import content_of, directory_at, names, object_at, open_tree
from tests.system.kafka_mount import kfs as run_kfs

Corpus = Callable[[str], Path]

#: The first offset that is on the disk, of each tiered partition; all begin at 0.
LOCAL_START = {"click-stream-2-0": 165, "click-stream-2-1": 169, "shop.orders-0": 596}
ORDERS = "offsets 0 to 595 are not on this disk, but in remote storage (remote.storage.enable is set)"
UNSURE = "offsets 0 to 595 are not on this disk, but in remote storage, or they were deleted"
BROKER = "offsets 0 to 595 are not on this disk, but in remote storage, which this broker uses, or they were deleted"


@pytest.fixture
def data(corpus: Corpus) -> Path:
    """The log directory as the broker left it."""
    return corpus(TIERED) / "data"


@pytest.fixture
def copy(data: Path, tmp_path: Path) -> Path:
    return shutil.copytree(data, tmp_path / "data")


def local_offsets(corpus: Corpus) -> dict[str, list[int]]:
    """Return the offsets of messages that Kafka itself reads in the ``.log`` files on the disk, by partition."""
    found: dict[str, list[int]] = {}
    for line in (corpus(TIERED) / "expected.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["file"].startswith("data/") and not record["is_control"]:
            found.setdefault(f"{record['topic']}-{record['partition']}", []).append(record["offset"])
    return found


def reasons(lines: bytes) -> list[str]:
    return [json.loads(line)["reason"] for line in lines.splitlines()]


# --- the mount ------------------------------------------------------------------------------------------------------


def test_what_is_on_the_disk_is_listed(data: Path, corpus: Corpus) -> None:
    tree, expected = open_tree(data), local_offsets(corpus)
    for partition in LOCAL_START:
        topic, _, number = partition.rpartition("-")
        listed = [int(name[:-5]) for name in names(directory_at(tree, f"{topic}/{number}/offset"))]
        assert listed == expected[partition]


def test_the_mount_says_what_is_not(data: Path) -> None:
    tree = open_tree(data)
    for partition, start in LOCAL_START.items():
        topic, _, number = partition.rpartition("-")
        said = f"offsets 0 to {start - 1} are not on this disk, but in remote storage (remote.storage.enable is set)"
        assert object_at(tree, f"{topic}/{number}/meta/log.json")["missing"] == {"from": 0, "to": start, "reason": said}
        assert reasons(content_of(tree, f"{topic}/{number}/meta/problems.jsonl")) == [said]
    assert object_at(tree, "local_only/0/meta/log.json")["missing"] is None
    assert content_of(tree, "local_only/0/meta/problems.jsonl") == b""
    with pytest.raises(NotFound, match=r"no record at offset 5: offsets 0 to 595 are not on this disk"):
        tree.resolve("shop.orders/0/offset/5.json")
    with pytest.raises(NotFound, match=r"no record at offset 604\Z"):
        tree.resolve("shop.orders/0/offset/604.json")


# --- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "exit_code", "count"),
    [
        ([], 1, 6),
        (["--offsets", "595:"], 1, 6),
        (["--offsets", "5"], 1, 0),
        (["--offsets", "596:600"], 0, 3),
        (["--offsets", "596:"], 0, 6),
        (["--last", "2"], 0, 2),
        (["--last", "6"], 0, 6),
        (["--last", "7"], 1, 6),
        (["--first", "2"], 1, 2),
        (["--offsets", "597:", "--first", "2"], 0, 2),
        (["--since", "2001-01-01"], 1, 6),
    ],
)
def test_cat_fails_where_what_was_asked_for_is_remote(
    options: list[str], exit_code: int, count: int, data: Path, tmp_path: Path
) -> None:
    done = run_kfs("cat", data, "shop.orders", *options)
    assert (done.returncode, len(done.stdout.splitlines())) == (exit_code, count)
    assert done.stderr.decode().splitlines() == [f"kfs: {data}/shop.orders-0: position 0: {ORDERS}"]
    done = run_kfs("cat", data, "shop.orders", *options, "--format", "arrow", "--output", tmp_path / "x.arrow")
    assert done.returncode == exit_code
    assert ORDERS in done.stderr.decode()


def test_cat_of_a_file_says_so_too(data: Path) -> None:
    done = run_kfs("cat", data, "shop.orders/0/records.jsonl")
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 6)
    assert ORDERS in done.stderr.decode()
    assert ORDERS in refused("cat", data, "shop.orders/0/offset/5.json")
    assert len(printed("cat", data, "local_only").splitlines()) == 12
    assert run_kfs("cat", data, "shop.orders/0/last.json").returncode == 0


def test_a_listing_says_so(data: Path) -> None:
    done = run_kfs("ls", data, "shop.orders/0/offset")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 6)
    assert ORDERS in done.stderr.decode()


def test_verify_knows_what_is_in_the_tier(data: Path) -> None:
    found = [json.loads(line) for line in printed("verify", "--json", data).splitlines()]
    kinds = [(each["kind"], each["severity"], each["sentence"]) for each in found if "kind" in each]
    assert ("remote-offsets", "info", ORDERS) in kinds
    assert {kind for kind, _, _ in kinds} == {"remote-offsets"}
    assert len(kinds) == 3


def test_recover_says_what_no_copy_can_have(data: Path, tmp_path: Path) -> None:
    for mode in ("salvage", "kafka"):
        done = run_kfs("recover", "--mode", mode, data, "--output", tmp_path / mode)
        assert done.returncode == 0
        assert f"{data}/shop.orders-0: {UNSURE}: the log begins at 596 here" in done.stdout.decode()


def test_copies_that_keep_less_on_their_disk_are_told_as_such(copy: Path, data: Path) -> None:
    for path in (copy / "click-stream-2-0").glob("00000000000000000165.[ilt]*"):
        path.unlink()
    found = run_kfs("diff", data, copy, "--topic", "click-stream-2").stdout.decode()
    assert "not on the disk of this copy, which keeps older segments in remote storage" in found


def test_a_group_that_has_not_read_what_is_remote_is_not_told_that_it_is_deleted(copy: Path) -> None:
    shutil.rmtree(copy / "__consumer_offsets-0")
    shutil.rmtree(copy / "__consumer_offsets-1")
    for partition in range(2):
        group = ("b", "a")[partition]  # by their hashes
        InternalPartition(copy, partition=partition).append(commit(group, "shop.orders", 0, 100))
    with kfs.open(copy) as opened:
        (offset,) = opened.groups()["a"].offsets
    assert (offset.lag, offset.next_offset) == (504, None)
    assert offset.note == "below the first offset on this disk, 596: the next record to read is in remote storage"


# --- Python and Spark -----------------------------------------------------------------------------------------------


def test_python_says_so_among_the_problems(data: Path) -> None:
    with kfs.open(data) as opened:
        log = opened["shop.orders"][0]
        assert [problem.reason for problem in log.problems] == [ORDERS]
        assert [problem.reason for problem in opened["local_only"].problems] == []
        with pytest.raises(NotFound, match="no record at offset 5: offsets 0 to 595"):
            log[5]
        scan = log.scan()
        assert (scan.to_table().num_rows, [problem.reason for problem in scan.problems]) == (6, [ORDERS])
        scan = log.scan(offsets=(596, None))
        assert (scan.to_table().num_rows, scan.problems) == (6, ())


@pytest.fixture
def opened(data: Path) -> Iterator[DataDir]:
    data_dir = DataDir([str(data)], Storage())
    BrokerState(data_dir)
    yield data_dir
    data_dir.close()


def batch(opened: DataDir, **options: str) -> list[tuple[int, int]]:
    """Return the offsets that a batch in Spark reads of ``shop.orders``."""
    parsed = parse_batch_options({"path": opened.paths[0], "subscribe": "shop.orders", **options})
    return [(each.offsets.start, each.offsets.end) for each in ranges_of(opened, parsed)]


def test_to_spark_what_is_remote_is_lost_unless_that_is_accepted(opened: DataDir) -> None:
    with pytest.raises(DataLoss, match=r"the log has 596 to 603: offsets 0 to 595 are not on this disk"):
        batch(opened)
    assert batch(opened, failondataloss="false") == [(596, 604)]
    assert batch(opened, startingoffsets='{"shop.orders":{"0":596}}') == [(596, 604)]
    with pytest.raises(DataLoss, match=r"offsets 0 to 595 are not on this disk"):
        batch(opened, startingoffsets='{"shop.orders":{"0":500}}')


# --- evidence -------------------------------------------------------------------------------------------------------


def said_of(root: Path, partition: str = "shop.orders/0") -> Any:
    missing = object_at(open_tree(root), f"{partition}/meta/log.json")["missing"]
    return missing and missing["reason"]


def test_without_the_metadata_the_brokers_cache_is_a_sign(copy: Path) -> None:
    shutil.rmtree(copy / "__cluster_metadata-0")
    assert said_of(copy) == BROKER
    shutil.rmtree(copy / "remote-log-index-cache")
    assert said_of(copy) == UNSURE
    assert run_kfs("cat", copy, "shop.orders").returncode == 1


def test_a_lone_directory_has_its_leader_epochs(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "shop.orders-0", tmp_path / "shop.orders-0")
    done = run_kfs("cat", tmp_path / "shop.orders-0", "shop.orders")
    assert done.returncode == 1
    assert UNSURE in done.stderr.decode()


def test_a_checkpoint_that_deletion_has_overtaken_is_no_tier(data: Path, copy: Path) -> None:
    """A topic that isn't tiered begins below its first segment when the broker hasn't written the checkpoint since."""
    for name in ("00000000000000000100.log", "00000000000000000100.index", "00000000000000000100.timeindex"):
        shutil.copy(data / "local_only-0" / f"{0:020d}{name[20:]}", copy / "local_only-0" / name)
    for path in (copy / "local_only-0").glob("00000000000000000000.*"):
        path.unlink()
    for path in (copy / "local_only-0").glob("*.snapshot"):
        path.unlink()
    log = copy / "local_only-0" / "00000000000000000100.log"
    log.write_bytes(b"")
    (copy / "log-start-offset-checkpoint").write_text("0\n1\nlocal_only 0 40\n")
    assert said_of(copy, "local_only/0") == "below the first local segment: deleted"
    assert run_kfs("cat", copy, "local_only").returncode == 0
