"""Whatever somebody else has put in a store is refused by a message that names the store and the place in it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient

from kfs.errors import CorruptStore, KfsError, OffsetStoreError, StoreUnreachable
from kfs.format.checkpoint import TopicPartition
from kfs.format.uuid import Uuid
from kfs.log.identity import Identity
from kfs.spark.offsets import (
    ConsumedRange,
    PendingBatch,
    Progress,
    StagedFile,
    WritableStore,
    WriterName,
    open_writable_store,
)
from kfs.spark.offsets.document import MAX_DOCUMENT_BYTES, decode_document, encode_document
from kfs.spark.offsets.sqlite_store import SqliteStore
from kfs.spark.offsets.store import Stored

GROUP = "export"
ORDERS = TopicPartition("orders", 0)
WRITER = {"host": "h", "pid": 1, "since": 0, "token": "t"}
FULL = Progress(
    {ORDERS: 7, TopicPartition("orders", 10): 1, TopicPartition("a", 2): 3},
    5,
    WriterName("host", 77, 1_700_000_000_000, "token"),
    PendingBatch((ConsumedRange("orders", 0, 3, 7),), (StagedFile("0000000005-token/x", "orders/x"),)),
    "change",
    identities={
        ORDERS: Identity(Uuid(b"A" * 16), 3),
        TopicPartition("orders", 10): Identity(Uuid(b"B" * 16)),
        TopicPartition("a", 2): Identity(None, 0),
    },
)


def document(**fields: Any) -> bytes:
    """Return what a store keeps, with other fields."""
    return json.dumps({"format": 1, "change": "c", "epoch": 1, "positions": {}, **fields}).encode()


def batch(**fields: Any) -> dict[str, Any]:
    return {"ranges": [], "files": [], **fields}


def batch_of(staged: object, final: object = "f") -> dict[str, Any]:
    return batch(files=[{"staged": staged, "final": final}])


def identity(**fields: Any) -> dict[str, Any]:
    return {"topic": "orders", "offsets": {"0": 7}, "leaderEpochs": {}, **fields}


#: Of every store: what is not positions.
HOSTILE = {
    "nothing": b"",
    "no UTF-8": b"\xff\xfe{}",
    "no JSON": b"{'format': 1}",
    "torn": document()[:-1],
    "nested": b'{"a":' * 100_000,
    "nested lists": b"[" * 100_000,
    "a long number": b'{"format":' + b"9" * 100_000 + b"}",
    "a list": b"[]",
    "null": b"null",
    "no format": b"{}",
    "another format": document(format=2),
    "a format of another type": document(format=[1]),
    "no epoch": b'{"format":1,"change":"","positions":{}}',
    "an epoch as text": document(epoch="1"),
    "an epoch below 0": document(epoch=-1),
    "an epoch that is a fraction": document(epoch=1.5),
    "an epoch that is none": document(epoch=None),
    "an epoch that is true": document(epoch=True),
    "a change that is a number": document(change=1),
    "a long change": document(change="x" * 5000),
    "a writer that is a list": document(writer=[]),
    "a writer that is null": document(writer=None),
    "a writer without a token": document(writer={"host": "h", "pid": 1, "since": 0}),
    "a writer with a process of text": document(writer={**WRITER, "pid": "1"}),
    "a batch that is a list": document(batch=[]),
    "a batch without ranges": document(batch={"files": []}),
    "ranges that are an object": document(batch=batch(ranges={})),
    "a range that is a number": document(batch=batch(ranges=[1])),
    "a range of no topic": document(
        batch=batch(ranges=[{"topic": "../x", "partition": 0, "fromOffset": 0, "untilOffset": 1}])
    ),
    "a range that ends before it begins": document(
        batch=batch(ranges=[{"topic": "t", "partition": 0, "fromOffset": 2, "untilOffset": 1}])
    ),
    "a file that is text": document(batch=batch(files=["x"])),
    "a file that is elsewhere": document(batch=batch_of("../../etc/passwd")),
    "a file whose name is elsewhere": document(batch=batch_of("s", "/etc/passwd")),
    "a file whose name is a number": document(batch=batch_of("s", 1)),
    "a file with a NUL": document(batch=batch_of("a\0b")),
}
#: Of every store: which logs positions are of.
HOSTILE_IDENTITIES = {
    "identities that are an object": document(identities={}),
    "an identity that is text": document(identities=["x"]),
    "an identity of no topic": document(identities=[identity(topic="a/b")]),
    "an identity without a topic": document(identities=[{"offsets": {}, "leaderEpochs": {}}]),
    "an identity without offsets": document(identities=[{"topic": "t", "leaderEpochs": {}}]),
    "a topic id that is none": document(identities=[identity(topicId="x")]),
    "a topic id with a lone surrogate": document(identities=[identity(topicId="\ud800")]),
    "a topic id that is null": document(identities=[identity(topicId=None)]),
    "a leader epoch below 0": document(identities=[identity(leaderEpochs={"0": -1})]),
    "a leader epoch as text": document(identities=[identity(leaderEpochs={"0": "1"})]),
    "a leader epoch of no partition": document(identities=[identity(leaderEpochs={"x": 1})]),
}
HOSTILE |= HOSTILE_IDENTITIES
#: Where the positions are in the same document.
HOSTILE_POSITIONS = {
    "no positions": b'{"format":1,"change":"","epoch":1}',
    "positions that are a list": document(positions=[]),
    "partitions that are a list": document(positions={"orders": []}),
    "no topic": document(positions={"a/b": {"0": 1}}),
    "an empty topic": document(positions={"": {"0": 1}}),
    "no partition": document(positions={"orders": {"x": 1}}),
    "a partition below 0": document(positions={"orders": {"-1": 1}}),
    "a partition above all": document(positions={"orders": {"2147483648": 1}}),
    "a partition with other digits": document(positions={"orders": {"\u0661": 1}}),
    "a position as text": document(positions={"orders": {"0": "1"}}),
    "a position below 0": document(positions={"orders": {"0": -1}}),
    "a position above all": document(positions={"orders": {"0": 2**63}}),
    "a position that is a fraction": document(positions={"orders": {"0": 1.0}}),
    "a position that is NaN": document(positions={"orders": {"0": float("nan")}}),
}


def put_in_sqlite(url: str, content: bytes, kind: str = "TEXT") -> str:
    with open_writable_store(url) as store:
        store.set_positions(GROUP, {})
    with closing(sqlite3.connect(url.removeprefix("sqlite://"))) as connection, connection:
        connection.execute(f"UPDATE kfs_groups SET state = CAST(? AS {kind})", (content,))
    return f"{url}: group {GROUP}: "


def put_in_redis(url: str, content: bytes) -> str:
    address, _, prefix = url.partition("?prefix=")
    with redis.Redis.from_url(address) as client:
        client.set(f"{prefix}{GROUP}", content)
    return f"{address}: key {prefix}{GROUP}: "


def put_in_zookeeper(url: str, content: bytes, below: str = "kfs") -> str:
    with kazoo(url) as (client, root):
        node = f"{root}/consumers/{GROUP}/{below}"
        client.create(node, content, makepath=True)
    return f"{url}: node {node}: "


@contextmanager
def kazoo(url: str) -> Iterator[tuple[KazooClient, str]]:
    """Yield a client of the server, and the path that its URL ends with."""
    hosts, slash, path = url.removeprefix("zookeeper://").partition("/")
    client = KazooClient(hosts)
    client.start(60)
    try:
        yield client, slash + path
    finally:
        client.stop()
        client.close()


PUT: dict[str, Callable[[str, Any], str]] = {
    "sqlite": put_in_sqlite,
    "redis": put_in_redis,
    "zookeeper": put_in_zookeeper,
}


def check_refused(url: str, place: str) -> None:
    """Nothing that is asked of the group succeeds, and each time the place is named."""
    with open_writable_store(url) as store:
        writer = WriterName.of_this_process()
        for ask in (
            lambda: store.load(GROUP),
            lambda: store.acquire(GROUP, writer),
            lambda: store.set_positions(GROUP, {ORDERS: 1}),
        ):
            with pytest.raises(CorruptStore) as raised:
                ask()
            assert str(raised.value).startswith(place)
            assert len(str(raised.value)) < len(place) + 400
        # The others can be used all the same.
        store.set_positions("another", {ORDERS: 1})
        assert store.load("another").positions == {ORDERS: 1}
        assert "another" in store.groups()


def check_replaced(url: str) -> None:
    """What is refused is replaced by who says so, and then the group can be used as any other."""
    with open_writable_store(url) as store:
        store.set_positions(GROUP, {ORDERS: 1}, force=True)
        assert store.load(GROUP).positions == {ORDERS: 1}
        store.acquire(GROUP, WriterName.of_this_process())


@pytest.mark.parametrize("kind", PUT)
def test_a_document_that_is_none_is_refused_everywhere(kind: str, url_of: Callable[[str], str]) -> None:
    for content in (*HOSTILE.values(), *(HOSTILE_POSITIONS.values() if kind == "redis" else ())):
        url = url_of(kind)
        check_refused(url, PUT[kind](url, content))
        check_replaced(url)


@pytest.mark.parametrize("name", [*HOSTILE, *HOSTILE_POSITIONS])
def test_a_document_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(CorruptStore, match=r"^there: "):
        decode_document({**HOSTILE, **HOSTILE_POSITIONS}[name], "there")


def test_documents_are_read_as_they_were_written() -> None:
    assert decode_document(encode_document(FULL), "there") == FULL
    apart = encode_document(FULL, with_positions=False)
    assert b"positions" not in apart
    assert decode_document(apart, "there", FULL.positions) == FULL


def test_what_is_said_of_another_position_than_the_one_that_is_there_is_passed_over() -> None:
    apart = encode_document(FULL, with_positions=False)
    found = decode_document(apart, "there", {**FULL.positions, ORDERS: 8})  # set by a tool of another time
    assert found.identities == {each: identity for each, identity in FULL.identities.items() if each != ORDERS}
    assert ORDERS not in decode_document(apart, "there", {}).identities


def test_a_document_of_an_earlier_version_says_nothing_of_logs() -> None:
    older = {name: value for name, value in json.loads(encode_document(FULL)).items() if name != "identities"}
    assert decode_document(json.dumps(older).encode(), "there") == replace(FULL, identities={})


def test_positions_are_written_as_spark_writes_those_of_its_kafka_source() -> None:
    assert json.loads(encode_document(FULL))["positions"] == {"a": {"2": 3}, "orders": {"0": 7, "10": 1}}


@given(st.binary(max_size=100))
def test_any_bytes_are_a_document_or_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptStore):
        decode_document(content, "there")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_NAMES = ["format", "change", "epoch", "positions", "writer", "batch", "identities"]


@given(st.dictionaries(st.sampled_from(_NAMES), _JSON))
def test_fields_of_any_kind_are_a_document_or_are_refused(fields: dict[str, Any]) -> None:
    try:
        found = decode_document(document(**fields), "there")
    except CorruptStore:
        return
    assert decode_document(encode_document(found), "there") == found


# --- SQLite -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        ("orders", 0, "12"),
        ("orders", 0, "x"),
        ("orders", 0, 1.5),
        ("orders", 0, b"\0"),
        ("orders", 0, -1),
        ("orders", "x", 1),
        ("orders", 2**31, 1),
        ("orders", -1, 1),
        (b"orders", 0, 1),
        ("or/ders", 0, 1),
        ("", 0, 1),
        ("x" * 250, 0, 1),
    ],
)
def test_a_row_of_positions_that_is_none_is_refused(row: tuple[object, ...], tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/x.db"
    with open_writable_store(url) as store:
        store.set_positions(GROUP, {ORDERS: 1})
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        # Without what SQLite makes of a value by the type of its column.
        connection.execute("DROP TABLE kfs_positions")
        connection.execute("CREATE TABLE kfs_positions (group_name, topic, partition, position)")
        connection.execute("INSERT INTO kfs_positions VALUES (?, ?, ?, ?)", (GROUP, *row))
    with open_writable_store(url) as store, pytest.raises(CorruptStore) as raised:
        store.load(GROUP)
    assert str(raised.value).startswith(f"{url}: group {GROUP}: a row of kfs_positions")
    check_replaced(url)


@pytest.mark.parametrize(
    ("content", "kind", "reason"),
    [
        (document(), "BLOB", "its state in kfs_groups is not text"),
        (b"\xff", "TEXT", "not UTF-8 at byte 0"),
        (b" " * (MAX_DOCUMENT_BYTES + 1), "TEXT", f"a value of more than {MAX_DOCUMENT_BYTES:,} bytes"),
    ],
    ids=["a blob", "no UTF-8", "huge"],
)
def test_a_state_that_is_no_text_is_refused(content: bytes, kind: str, reason: str, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/x.db"
    check_refused(url, put_in_sqlite(url, content, kind) + reason)
    check_replaced(url)


def test_a_name_of_a_group_that_is_no_text_hides_no_other(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/x.db"
    with open_writable_store(url) as store:
        store.set_positions(GROUP, {ORDERS: 1})
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute("INSERT INTO kfs_groups VALUES (CAST(? AS TEXT), '')", (b"\xff\xfe",))
    with open_writable_store(url) as store:
        names = store.groups()
        assert [name for name in names if name.isprintable()] == [GROUP]
        for name in names:
            if name != GROUP:
                with pytest.raises(OffsetStoreError, match="is not a group name"):
                    store.inspect(name)


def test_positions_that_can_be_read_stay_beside_one_that_cannot(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/x.db"
    others = {TopicPartition("orders", 1): 5, TopicPartition("returns", 0): 6}
    with open_writable_store(url) as store:
        store.set_positions(GROUP, {ORDERS: 1, **others})
        with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
            connection.execute("UPDATE kfs_positions SET position = 'x' WHERE topic = 'orders' AND partition = 0")
        progress, (unreadable,) = store.inspect(GROUP)
        assert (progress.positions, unreadable.partition) == (others, ORDERS)
        with pytest.raises(CorruptStore, match="set the position of orders-0, too"):
            store.set_positions(GROUP, {TopicPartition("orders", 1): 8}, force=True)
        store.set_positions(GROUP, {ORDERS: 2}, force=True)
        assert store.load(GROUP).positions == {ORDERS: 2, **others}


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4080, b"\0" * 4096])
def test_a_file_that_is_no_database_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(content)
    url = f"sqlite://{tmp_path}/x.db"
    with open_writable_store(url) as store:
        for ask in (lambda: store.load(GROUP), store.groups, lambda: store.acquire(GROUP)):
            with pytest.raises(OffsetStoreError) as raised:
                ask()
            assert str(raised.value).startswith(f"{url}: ")
    assert (tmp_path / "x.db").read_bytes() == content


def test_every_byte_of_a_database_that_is_damaged_does_no_worse_than_an_error(tmp_path: Path) -> None:
    """What SQLite doesn't notice may be other positions, but nothing else than positions or an error comes out."""
    path = tmp_path / "x.db"
    with open_writable_store(f"sqlite://{path}") as store:
        fence, _ = store.acquire(GROUP)
        store.save(fence, [ConsumedRange("orders", 0, 0, 7)])
    intact = path.read_bytes()
    for place in range(0, len(intact), 61):
        damaged = tmp_path / "damaged.db"
        damaged.write_bytes(intact[:place] + bytes([intact[place] ^ 0xFF]) + intact[place + 1 :])
        url = f"sqlite://{damaged}"
        with open_writable_store(url, patience=0) as store:
            reason = url
            try:
                assert isinstance(store.load(GROUP), Progress)
                store.set_positions(GROUP, {ORDERS: 1}, force=True)
            except KfsError as error:
                reason = str(error)
            assert reason.startswith(url)
        for left in tmp_path.glob("damaged.db*"):
            left.unlink()


def test_a_file_that_another_process_has_locked_is_said_to_be(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/x.db"
    with open_writable_store(url, patience=0) as store, closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        store.set_positions(GROUP, {ORDERS: 1})
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnreachable, match="another process has it locked"):
            store.set_positions(GROUP, {ORDERS: 2})
        connection.rollback()
        store.set_positions(GROUP, {ORDERS: 3})


@pytest.mark.parametrize(
    ("path", "reason"), [("", "is a directory"), ("nowhere/x.db", "there is no directory {}/nowhere")]
)
def test_a_path_where_no_file_can_be_is_said_to_be_none(path: str, reason: str, tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path / path)) as store, pytest.raises(OffsetStoreError) as raised:
        store.set_positions(GROUP, {ORDERS: 1})
    assert str(raised.value) == f"sqlite://{tmp_path / path}: {reason.format(tmp_path)}"


# --- Redis ------------------------------------------------------------------------------------------------------------


def test_a_value_of_another_type_is_refused(url_of: Callable[[str], str]) -> None:
    url = url_of("redis")
    address, _, prefix = url.partition("?prefix=")
    with redis.Redis.from_url(address) as client:
        client.hset(f"{prefix}{GROUP}", "a", "b")
    check_refused(url, f"{address}: key {prefix}{GROUP}: holds a value of another type than a string")
    check_replaced(url)


def test_a_huge_value_is_refused_and_not_fetched(url_of: Callable[[str], str]) -> None:
    url = url_of("redis")
    address, _, prefix = url.partition("?prefix=")
    with redis.Redis.from_url(address) as client:
        client.setrange(f"{prefix}{GROUP}", 400 * 1024 * 1024, b"x")
        try:
            check_refused(url, f"{address}: key {prefix}{GROUP}: more than {MAX_DOCUMENT_BYTES:,} bytes")
            check_replaced(url)
        finally:
            client.delete(f"{prefix}{GROUP}")


def test_what_was_understood_meanwhile_is_not_replaced(
    url_of: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reading and replacing, somebody else may have repaired it."""
    url = url_of("redis")
    address, _, prefix = url.partition("?prefix=")
    with redis.Redis.from_url(address) as client, open_writable_store(url) as store:
        client.hset(f"{prefix}{GROUP}", "a", "b")
        read = store._read

        def read_and_repaired(group: str) -> Stored:
            found = read(group)
            monkeypatch.undo()
            client.delete(f"{prefix}{GROUP}")
            with open_writable_store(url) as other:
                other.set_positions(GROUP, {TopicPartition("orders", 1): 7})
            return found

        monkeypatch.setattr(store, "_read", read_and_repaired)
        store.set_positions(GROUP, {ORDERS: 1}, force=True)
        assert store.load(GROUP).positions == {ORDERS: 1, TopicPartition("orders", 1): 7}


def test_names_of_groups_that_are_no_text_are_listed_and_refused(
    url_of: Callable[[str], str], open_one: Callable[[str], WritableStore]
) -> None:
    url = url_of("redis")
    address, _, prefix = url.partition("?prefix=")
    with redis.Redis.from_url(address) as client:
        client.set(prefix.encode() + b"\xff\xfe", b"")
    store = open_one(url)
    assert store.groups() == ["\udcff\udcfe"]
    with pytest.raises(OffsetStoreError, match="is not a group name"):
        store.inspect(store.groups()[0])


# --- ZooKeeper --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "partition", "content", "reason"),
    [
        ("orders", "0", b"", "an offset as decimal text was expected, and b'' is there"),
        ("orders", "0", b"x", "an offset as decimal text was expected"),
        ("orders", "0", b"-2", "an offset as decimal text was expected"),
        ("orders", "0", b"1.0", "an offset as decimal text was expected"),
        ("orders", "0", b"\xff" * 100, "an offset as decimal text was expected"),
        ("orders", "0", "\u0661".encode(), "an offset as decimal text was expected"),
        ("orders", "0", b"9" * 100_000, "an offset as decimal text was expected"),
        ("orders", "0", b"9223372036854775808", "orders-0: 9223372036854775808 is not an offset"),
        ("orders", "x", b"1", "its name is not a partition number"),
        ("orders", "00", b"1", "its name is not a partition number"),
        ("orders", "-1", b"1", "its name is not a partition number"),
        ("orders", "2147483648", b"1", "2147483648 is not a partition number"),
        ("or ders", "0", b"1", "'or ders' is not a topic name"),
        ("x" * 250, "0", b"1", "is not a topic name"),
    ],
)
def test_a_node_that_is_no_position_is_refused(
    topic: str, partition: str, content: bytes, reason: str, url_of: Callable[[str], str]
) -> None:
    url = url_of("zookeeper")
    place = put_in_zookeeper(url, content, f"offsets/{topic}/{partition}")
    check_refused(url, place)
    with open_writable_store(url) as store, pytest.raises(CorruptStore) as raised:
        store.load(GROUP)
    assert reason in str(raised.value)
    check_replaced(url)


def test_nodes_that_can_be_read_stay_beside_one_that_cannot(url_of: Callable[[str], str]) -> None:
    url = url_of("zookeeper")
    put_in_zookeeper(url, b"5", "offsets/orders/1")
    put_in_zookeeper(url, b"x", "offsets/orders/0")
    with open_writable_store(url) as store:
        progress, (unreadable,) = store.inspect(GROUP)
        assert (progress.positions, unreadable.partition) == ({TopicPartition("orders", 1): 5}, ORDERS)
        with pytest.raises(CorruptStore, match="set the position of orders-0, too"):
            store.set_positions(GROUP, {TopicPartition("orders", 1): 8}, force=True)
        store.set_positions(GROUP, {ORDERS: 2}, force=True)
        assert store.load(GROUP).positions == {ORDERS: 2, TopicPartition("orders", 1): 5}


@pytest.mark.parametrize(("content", "position"), [(b"12", 12), (b" 12\n", 12), (b"0", 0), (b"-1", None)])
def test_nodes_that_consumers_of_those_days_left_are_positions(
    content: bytes, position: int | None, url_of: Callable[[str], str], open_one: Callable[[str], WritableStore]
) -> None:
    url = url_of("zookeeper")
    put_in_zookeeper(url, content, "offsets/orders/0")
    store = open_one(url)
    assert store.load(GROUP).positions == ({} if position is None else {ORDERS: position})
    fence, _ = store.acquire(GROUP)
    store.save(fence, [ConsumedRange("orders", 0, position or 0, 20)])
    with kazoo(url) as (client, root):
        assert client.get(f"{root}/consumers/{GROUP}/offsets/orders/0")[0] == b"20"


def test_who_writes_a_position_past_the_store_is_noticed(
    url_of: Callable[[str], str], open_one: Callable[[str], WritableStore]
) -> None:
    url = url_of("zookeeper")
    store = open_one(url)
    fence, _ = store.acquire(GROUP)
    store.save(fence, [ConsumedRange("orders", 0, 0, 10)])
    stored = store._read(GROUP)
    with kazoo(url) as (client, root):
        client.set(f"{root}/consumers/{GROUP}/offsets/orders/0", b"5")
    assert not store._write(GROUP, stored, Progress({ORDERS: 11}, 1, change="x"))
    assert store.load(GROUP).positions == {ORDERS: 5}
