"""``kfs cat`` of topics and partitions: what comes out, what is refused, and what the exit code says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.format.codecs import Codec
from tests.cli.running import found, leave_early, printed, refused
from tests.system.kafka_mount import KFS, kfs
from tests.system.shop import Shop
from tests.system.toy_broker import ToyPartition, message


def lines(partition: ToyPartition, start: int = 0, end: int = 1 << 62) -> bytes:
    """Return the lines of the records from one offset up to another."""
    return b"".join(partition.line(offset) for offset in partition.records if start <= offset < end)


def test_a_topic_a_partition_and_a_file_together(shop: Shop) -> None:
    every = lines(shop.orders) + lines(shop.more_orders)
    assert printed("cat", shop.root, "orders") == every
    assert printed("cat", shop.root, "/orders/") == every
    assert printed("cat", shop.root, "orders/1") == lines(shop.more_orders)
    assert printed("cat", shop.root, "returns") == b""
    assert printed("cat", shop.root, "orders/0/offset/3.json", "orders/1", "orders/0/first.json") == (
        shop.orders.line(3) + lines(shop.more_orders) + shop.orders.line(0)
    )


def test_the_number_of_processes_changes_nothing(shop: Shop) -> None:
    for jobs in ("1", "2", "5"):
        assert printed("cat", shop.root, "orders", "photos", "-j", jobs) == (
            lines(shop.orders) + lines(shop.more_orders) + lines(shop.photos)
        )


@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        (("--offsets", "10:20"), 10, 20),
        (("--offsets", "250:"), 250, 1 << 62),
        (("--offsets", ":7"), 0, 7),
        (("--offsets", "9"), 9, 10),
        (("--first", "4"), 0, 4),
        (("--offsets", "5:", "--first", "4"), 5, 9),
        (("--last", "3"), 271, 1 << 62),
        (("--last", "3", "--offsets", ":9"), 6, 9),
    ],
)
def test_a_range_of_offsets(shop: Shop, options: tuple[str, ...], start: int, end: int) -> None:
    assert printed("cat", shop.root, "orders/0", *options) == lines(shop.orders, start, end)


def test_a_range_of_times(shop: Shop) -> None:
    times = {offset: record.timestamp for offset, record in shop.orders.records.items()}
    since, before = times[12], times[31]
    expected = lines(shop.orders, 12, 31)
    assert printed("cat", shop.root, "orders/0", "--since", str(since), "--before", str(before)) == expected


def test_filters(shop: Shop) -> None:
    def wanted(offset: int) -> bytes:
        return shop.orders.line(offset)

    assert found("cat", shop.root, "orders", "--key", "order-15") == wanted(15)
    assert found("cat", shop.root, "orders/0", "--grep", '"item":1[23],.*café') == wanted(12) + wanted(13)
    assert found("cat", shop.root, "orders/0", "--header", "trace=c") == wanted(12)
    assert found("cat", shop.root, "orders/0", "--header", "trace=c", "--key", "other") == b""


def test_raw_fields(shop: Shop) -> None:
    content = [record.value for record in shop.orders.records.values()]
    assert printed("cat", shop.root, "orders/0", "-f", "value") == b"".join((one or b"") + b"\n" for one in content)
    keys = [record.key for record in shop.orders.records.values()]
    assert printed("cat", shop.root, "orders/0", "--format", "key", "--delimiter", "\\0") == b"".join(
        (one or b"") + b"\0" for one in keys
    )
    prefixed = b"".join(
        (-1 if one is None else len(one)).to_bytes(4, "big", signed=True) + (one or b"") for one in content
    )
    assert printed("cat", shop.root, "orders/0", "-f", "value", "--length-prefix") == prefixed


@pytest.mark.parametrize(
    "arguments",
    [
        ("--first", "1", "--last", "1"),
        ("--offsets", "x"),
        ("--offsets", ":"),
        ("--offsets", "-1:"),
        ("--since", "yesterday"),
        ("--header", "name"),
        ("--grep", "("),
        ("--jobs", "0"),
        ("--format", "headers"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(shop: Shop, arguments: tuple[str, ...]) -> None:
    done = kfs("cat", shop.root, "orders", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr


@pytest.mark.parametrize("options", [(), ("--offsets", "20:40"), ("--first", "7"), ("--last", "7")])
def test_at_read_committed_aborted_and_open_transactions_are_left_out(
    options: tuple[str, ...], corpus: Callable[[str], Path]
) -> None:
    consumed = json.loads((corpus("b_txn") / "consumed.json").read_text())["read_committed"]["payments-0"]
    last = consumed[-1][1]
    source = corpus("b_txn") / "data"
    whole = printed("cat", source, "payments/0", "--offsets", f":{last + 1}").splitlines(keepends=True)
    kept = [line for line in whole if any(first <= json.loads(line)["offset"] <= end for first, end in consumed)]
    expected = {
        (): kept,
        ("--offsets", "20:40"): [line for line in kept if 20 <= json.loads(line)["offset"] < 40],
        ("--first", "7"): kept[:7],
        ("--last", "7"): kept[-7:],
    }
    assert printed("cat", source, "payments/0", *options, "--isolation", "read_committed") == b"".join(
        expected[options]
    )


def test_a_file_of_the_tree_is_at_the_isolation_level(corpus: Callable[[str], Path]) -> None:
    root = corpus("b_txn") / "data"
    consumed = json.loads((corpus("b_txn") / "consumed.json").read_text())
    for level in ("read_uncommitted", "read_committed"):
        ranges = consumed[level]["payments-0"]
        lines = printed("cat", root, "payments/0/records.jsonl", "--isolation", level).splitlines()
        expected = [offset for first, last in ranges for offset in range(first, last + 1)]
        assert [json.loads(line)["offset"] for line in lines] == expected


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> tuple[ToyPartition, int]:
    """Return a partition whose third batch, at that position, has a wrong CRC."""
    partition = ToyPartition(tmp_path_factory.mktemp("torn"), "torn")
    for number in range(6):
        if number == 2:
            position = partition.active.stat().st_size
        partition.append([message(offset) for offset in range(number * 10, number * 10 + 10)], Codec.LZ4)
    data = bytearray(partition.active.read_bytes())
    data[position + 70] ^= 0xFF
    partition.active.write_bytes(data)
    return partition, position


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_damage_is_said_once_the_rest_is_printed_and_the_exit_code_tells(
    torn: tuple[ToyPartition, int], jobs: str
) -> None:
    partition, position = torn
    done = kfs("cat", partition.directory, "torn", "--jobs", jobs)
    assert (done.returncode, done.stdout) == (1, lines(partition, 0, 20) + lines(partition, 30))
    said = done.stderr.decode().splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"kfs: {partition.active}: position {position}: record batch with stored CRC ")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_damage_outside_of_what_is_asked_for_is_no_failure(torn: tuple[ToyPartition, int], jobs: str) -> None:
    partition, _ = torn
    done = kfs("cat", partition.directory, "torn", "--offsets", "30:40", "--jobs", jobs)
    assert (done.returncode, done.stdout) == (0, lines(partition, 30, 40))


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_reader_that_has_enough_is_left_quietly(tmp_path: Path, jobs: str) -> None:
    partition = ToyPartition(tmp_path, "large")
    for number in range(40):
        partition.append([message(number, b"x" * 300_000)])
    leave_early("cat", tmp_path, "large", "-j", jobs)


@pytest.mark.parametrize("path", ["orders", "orders/0/records.jsonl"])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_output_that_is_full_is_a_failure(shop: Shop, path: str, jobs: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [KFS, "cat", shop.root, path, "-j", jobs], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"kfs: can't write: No space left on device\n")


def test_what_is_not_there(shop: Shop) -> None:
    assert refused("cat", shop.root, "nothing") == "kfs: no topic 'nothing'\n"
    assert refused("cat", shop.root, "orders/9") == "kfs: no partition 9 of 'orders'\n"
