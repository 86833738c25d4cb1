"""The names of partition directories, in every form that Kafka gives them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.log.directory_name import DirectoryKind, DirectoryName, parse_directory_name

ID = "d76a33fa3c734388981af789ddeff3e6"
CURRENT, FUTURE, STRAY, DELETE = (
    DirectoryKind.CURRENT,
    DirectoryKind.FUTURE,
    DirectoryKind.STRAY,
    DirectoryKind.DELETE,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", DirectoryName("orders", 0)),
        ("orders-2147483647", DirectoryName("orders", 2**31 - 1)),
        ("weird.na-me_1-7-0", DirectoryName("weird.na-me_1-7", 0)),
        ("a-1-2", DirectoryName("a-1", 2)),
        ("--0", DirectoryName("-", 0)),
        ("a--0", DirectoryName("a-", 0)),
        ("..-0", DirectoryName("..", 0)),
        (".kfs-3", DirectoryName(".kfs", 3)),
        ("__consumer_offsets-49", DirectoryName("__consumer_offsets", 49)),
        ("odd name%-0", DirectoryName("odd name%", 0)),
        ("line\nbreak-0", DirectoryName("line\nbreak", 0)),
        (f"orders-0.{ID}-delete", DirectoryName("orders", 0, DELETE, ID)),
        (f"orders-0.{ID}-future", DirectoryName("orders", 0, FUTURE, ID)),
        (f"orders-0.{ID}-stray", DirectoryName("orders", 0, STRAY, ID)),
        (f"a.b-c.d-12.{ID}-delete", DirectoryName("a.b-c.d", 12, DELETE, ID)),
        # Topics may be called so: what counts is the end.
        ("my-delete-0", DirectoryName("my-delete", 0)),
        ("my-future-7", DirectoryName("my-future", 7)),
        (f"a-0.{ID}-delete-1", DirectoryName(f"a-0.{ID}-delete", 1)),
        (f"a-0.{ID}-delete-1.{ID}-stray", DirectoryName(f"a-0.{ID}-delete", 1, STRAY, ID)),
    ],
)
def test_names_of_partition_directories(name: str, expected: DirectoryName) -> None:
    assert parse_directory_name(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders",
        "-0",
        "orders-",
        "orders-x",
        "orders-0x1",
        "orders--",
        "orders-00",
        "orders-01",
        "orders-2147483648",
        "orders-99999999999",
        "orders-1 ",
        "orders-1\n",
        "orders-٣",
        "orders-+1",
        "orders_0",
        "remote-log-index-cache",
        f"orders.{ID}-delete",
        f"orders-0.{ID}-removed",
        f"orders-0.{ID[:-1]}-delete",
        f"orders-0.{ID.upper()}-delete",
        f"orders-0-{ID}-delete",
        f"-0.{ID}-delete",
        "lost+found",
        ".lock",
    ],
)
def test_other_names_are_not_those_of_partitions(name: str) -> None:
    assert parse_directory_name(name) is None


@given(
    topic=st.text("abcXYZ019._-", min_size=1, max_size=30),
    partition=st.integers(0, 2**31 - 1),
    kind=st.sampled_from(DirectoryKind),
    unique_id=st.text("0123456789abcdef", min_size=32, max_size=32),
)
def test_whatever_kafka_would_name_is_told_apart_again(
    topic: str, partition: int, kind: DirectoryKind, unique_id: str
) -> None:
    name = f"{topic}-{partition}"
    if kind is CURRENT:
        assert parse_directory_name(name) == DirectoryName(topic, partition)
    else:
        assert parse_directory_name(f"{name}.{unique_id}-{kind}") == DirectoryName(topic, partition, kind, unique_id)


@given(st.text(max_size=300))
def test_any_name_is_answered(name: str) -> None:
    parsed = parse_directory_name(name)
    if parsed is not None:
        assert parsed.topic in name
        assert 0 <= parsed.partition < 2**31
