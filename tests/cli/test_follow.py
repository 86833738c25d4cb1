"""``kfs cat --follow``: what it prints while a log grows, what it says, and how it ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kfs.format.codecs import Codec
from kfs.format.writer import encode_batch
from tests.cli.following import Following
from tests.cli.running import refused
from tests.internal.group_logs import InternalPartition, commit
from tests.logs import set_log_start
from tests.system.kafka_mount import kfs
from tests.system.shop import Shop
from tests.system.toy_broker import ToyPartition, message

Follow = Callable[..., Following]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return a shop of the test's own, which it may change."""
    (tmp_path / "data").mkdir()
    return Shop(tmp_path / "data")


@pytest.fixture
def follow() -> Iterator[Follow]:
    with ExitStack() as stack:

        def start(*arguments: str | Path) -> Following:
            following = Following(*arguments)
            stack.callback(following.discard)
            return following

        yield start


def test_it_prints_what_is_appended_and_new_partitions(shop: Shop, follow: Follow) -> None:
    following = follow(shop.root, "orders", "--last", "1", "--with-path")

    def lines(partition: ToyPartition, first: int) -> list[bytes]:
        return [
            b"%s/offset/%d.json\t%s" % (partition.name.encode(), offset, partition.line(offset))
            for offset in partition.records
            if offset >= first
        ]

    last = shop.orders.next_offset - 1
    assert following.lines(2) == lines(shop.orders, last) + lines(shop.more_orders, 11)
    shop.orders.append_messages(2, codec=Codec.GZIP)
    assert following.lines(2) == lines(shop.orders, last + 1)
    shop.orders.roll()
    shop.photos.append_messages(1)
    shop.orders.append_messages(25)
    assert following.lines(25) == lines(shop.orders, last + 3)
    new = ToyPartition(shop.root, "orders", 2)
    new.append_messages(3)
    assert following.lines(3) == lines(new, 0)
    assert following.interrupt() == (-signal.SIGINT, b"", b"")


def test_values_of_records_from_a_time_on_that_match(shop: Shop, follow: Follow) -> None:
    time = str(shop.more_orders.records[10].timestamp)
    following = follow(shop.root, "orders/1", "--since", time, "--grep", "[02468]$", "--format", "value")
    assert following.lines(1) == [b"value of 10\n"]
    shop.more_orders.append_messages(9)
    assert following.lines(4) == [b"value of %d\n" % offset for offset in (12, 14, 16, 18)]


def test_it_ends_with_the_last_one_that_is_wanted(shop: Shop, follow: Follow) -> None:
    first, range_of_offsets = (
        follow(shop.root, "orders/1", "--first", "3", "--offsets", "11:", "-f", "key"),
        follow(shop.root, "orders/1", "--offsets", "10:14", "-f", "value"),
    )
    shop.more_orders.append_messages(20)
    assert first.end() == (0, b"\n" * 3, b"")
    assert range_of_offsets.end() == (0, b"".join(b"value of %d\n" % offset for offset in range(10, 14)), b"")


def test_it_begins_where_a_group_stopped(shop: Shop, follow: Follow) -> None:
    offsets = InternalPartition(shop.root)
    offsets.append(commit("billing", "orders", 1, 9), commit("billing", "photos", 0, 1))
    set_log_start(shop.root, "photos", 0, 2)
    following = follow(shop.root, "--group", "billing", "--format", "value")
    assert following.lines(4) == [b"value of 9\n", b"value of 10\n", b"value of 11\n", b"after\n"]
    shop.photos.append_messages(1)
    assert following.lines(1) == [b"value of 3\n"]
    code, _, errors = following.interrupt()
    assert (code, errors.decode().splitlines()) == (
        -signal.SIGINT,
        [
            "kfs: orders-0: group 'billing' has no offset there: beginning at the end",
            "kfs: photos-0: offsets 1 to 1 were deleted before they were read",
        ],
    )
    assert "no group 'none'" in refused("cat", shop.root, "--follow", "--group", "none")


def test_damage_ends_it_unless_it_is_to_be_skipped(shop: Shop, follow: Follow) -> None:
    failing = follow(shop.root, "orders/1", "--last", "1", "-f", "value")
    skipping = follow(shop.root, "orders/1", "--offsets", "11:15", "--on-damage", "skip", "-f", "value")
    assert failing.lines(1) == skipping.lines(1) == [b"value of 11\n"]
    bad = bytearray(encode_batch([message(12), message(13)]))
    bad[-1] ^= 1
    with shop.more_orders.active.open("ab") as file:
        file.write(bad + encode_batch([message(14)]))
    code, out, errors = failing.end()
    assert (code, out) == (1, b"")
    code, out, skipped = skipping.end()
    assert (code, out) == (1, b"value of 14\n")
    assert errors == skipped
    assert errors.count(b"\n") == errors.count(b"CRC") == 1


def test_a_reader_that_goes_away_ends_it(shop: Shop, follow: Follow) -> None:
    following = follow(shop.root, "orders/1", "--last", "1")
    following.lines(1)
    following.out.close()
    assert following.errors.read() == b""
    assert following.process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--count",), "--count can't be used with --follow"),
        (("--deleted",), "--deleted can't be used with --follow"),
        (("--output", "/tmp/x"), "--output can't be used with --follow"),
        (("--jobs", "2"), "--jobs can't be used with --follow"),
        (("--format", "parquet"), "--format parquet can't be used with --follow"),
        (("--until", "now"), "--until now can't be used with --follow"),
        (("--before", "2020-11-27"), "--before is in the past"),
        (("--group", "g", "--last", "1"), "--group and --last exclude each other"),
        (("--group", "g", "--offsets", "1:"), "--group and --offsets exclude each other"),
        (("orders/0/first.json",), "orders/0/first.json is a file"),
    ],
)
def test_what_it_can_not_be_combined_with(shop: Shop, arguments: tuple[str, ...], reason: str) -> None:
    done = kfs("cat", shop.root, "--follow", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert reason in " ".join(done.stderr.decode().split())


def test_a_group_is_for_following(shop: Shop) -> None:
    done = kfs("cat", shop.root, "--group", "g")
    assert done.returncode == 2
    assert b"--group says where --follow begins" in done.stderr


def test_what_is_not_there_can_not_be_followed(shop: Shop) -> None:
    assert "no topic 'none'" in refused("cat", shop.root, "--follow", "none")
    assert "no partition 7 of 'orders'" in refused("cat", shop.root, "--follow", "orders/7")
