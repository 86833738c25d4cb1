"""What older jobs left in Redis, one value an application: read, whoever wrote it, and never run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptStore
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT64
from kfs.log.offset_range import OffsetRange
from kfs.spark.offsets import (
    ConsumedRange,
    OffsetReset,
    WritableStore,
    open_writable_store,
    parse_offset_reset,
    starting_positions,
)
from kfs.spark.offsets.document import range_fields
from kfs.spark.offsets.old_ranges import MAX_OLD_VALUE_BYTES, parse_old_ranges
from tests.servers.redis_server import RedisServer

ORDERS = TopicPartition("orders", 0)
RANGES = (ConsumedRange("orders", 0, 3, 10), ConsumedRange("orders", 1, 0, 0))
FIELDS = [range_fields(each) for each in RANGES]
APPLICATION = "wordcount"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(FIELDS),
        json.dumps(FIELDS, indent=2),
        repr(FIELDS),
        repr(tuple(FIELDS)),
        "[{u'topic': u'orders', u'partition': 0, u'fromOffset': 3L, u'untilOffset': 10L},"
        " {u'topic': u'orders', u'partition': 1, u'fromOffset': 0L, u'untilOffset': 0L}]",
        '[{"topic":"orders","partition":"0","fromOffset":"3","untilOffset":"10"},'
        '{"topic":"orders","partition":"1","fromOffset":"0","untilOffset":"0"}]',
        json.dumps([{**each, "leader": "10.0.0.1", "count": None} for each in FIELDS]),
        repr([{**each, "leader": None} for each in FIELDS]) + "\n",
        repr(FIELDS + FIELDS),
    ],
)
def test_ranges_are_read_as_json_and_as_python_wrote_them(text: str) -> None:
    assert parse_old_ranges(text.encode(), "there") == RANGES


def test_no_ranges_are_none() -> None:
    assert parse_old_ranges(b"[]", "there") == ()


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch {made}')",
        "[__import__('os').system('touch {made}')]",
        "[{{'topic': open('{made}', 'w')}}]",
        "[{{'topic': 'orders', 'partition': [x for x in [open('{made}','w')]]}}]",
        'f\'{{open("{made}", "w")}}\'',
        "[{{'topic': f'{{open(1)}}'}}]",
        "(lambda: open('{made}', 'w'))()",
        "10**10**10",
        "[1]*1000000000",
        "'a'*10000000000",
        "cos\nsystem\n(S'touch {made}'\ntR.",
    ],
)
def test_nothing_in_a_value_is_run(text: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    with pytest.raises(CorruptStore, match="there: not a list of ranges, as JSON or as Python writes it"):
        parse_old_ranges(text.format(made=made).encode(), "there")
    assert not made.exists()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(b"\0" * 100, id="zeros"),
        pytest.param(b"[" * 100_000, id="nested lists"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="nested lists that end"),
        pytest.param(b'{"a":' * 100_000, id="nested objects"),
        pytest.param(b"{'a':" * 50_000 + b"1" + b"}" * 50_000, id="nested dictionaries"),
        pytest.param(b"(" * 100_000 + b")" * 100_000, id="nested parentheses"),
        pytest.param(b"-" * 100_000 + b"1", id="nested signs"),
        pytest.param(b"9" * 100_000, id="a long number"),
        pytest.param(b"[" + b"9" * 100_000 + b"]", id="a long number in a list"),
        pytest.param(b"['a' 'b'", id="torn"),
        pytest.param(json.dumps(FIELDS).encode()[:-5], id="torn JSON"),
        pytest.param(b"[" + b" " * MAX_OLD_VALUE_BYTES + b"]", id="huge"),
        pytest.param(b"[" + b"{'a':1}," * 100_000 + b"]", id="many of something else"),
        pytest.param(b"[{[]: 1}]", id="a key that is a list"),
        pytest.param(b"[{{}}]", id="a set of a dictionary"),
        *[
            pytest.param(text.encode(), id=text)
            for text in (
                "null",
                "None",
                "1",
                '"orders"',
                '{"orders":{"0":10}}',
                "[1]",
                "[null]",
                "[[]]",
                "[{}]",
                "NaN",
                "[Infinity]",
                '[{"topic":"orders","partition":0,"fromOffset":0}]',
                '[{"topic":7,"partition":0,"fromOffset":0,"untilOffset":1}]',
                '[{"topic":"","partition":0,"fromOffset":0,"untilOffset":1}]',
                '[{"topic":"../x","partition":0,"fromOffset":0,"untilOffset":1}]',
                '[{"topic":"orders","partition":-1,"fromOffset":0,"untilOffset":1}]',
                '[{"topic":"orders","partition":2147483648,"fromOffset":0,"untilOffset":1}]',
                '[{"topic":"orders","partition":0,"fromOffset":-1,"untilOffset":1}]',
                '[{"topic":"orders","partition":0,"fromOffset":2,"untilOffset":1}]',
                '[{"topic":"orders","partition":0,"fromOffset":0,"untilOffset":9223372036854775808}]',
                '[{"topic":"orders","partition":0,"fromOffset":0,"untilOffset":1.5}]',
                '[{"topic":"orders","partition":0,"fromOffset":0,"untilOffset":true}]',
                '[{"topic":"orders","partition":0,"fromOffset":0,"untilOffset":1e3}]',
                '[{"topic":"orders","partition":0,"fromOffset":0,"untilOffset":"0x10"}]',
                '[{"topic":"orders","partition":0,"fromOffset":0,"untilOffset":"\u0661"}]',
            )
        ],
    ],
)
def test_what_is_no_list_of_ranges_is_said_to_be(content: bytes) -> None:
    with pytest.raises(CorruptStore, match=r"^there: ") as raised:
        parse_old_ranges(content, "there")
    assert len(str(raised.value)) < 600


def test_the_range_that_is_wrong_is_numbered() -> None:
    with pytest.raises(CorruptStore, match=r"there: range 3 of 3: 'topic' has to be of type str, and nothing is there"):
        parse_old_ranges(json.dumps([*FIELDS, {}]).encode(), "there")


def test_two_ranges_of_one_partition_are_one_too_many() -> None:
    fields = [*FIELDS, range_fields(ConsumedRange("orders", 0, 10, 20))]
    with pytest.raises(CorruptStore, match="two ranges of orders-0: can't tell which of them counts"):
        parse_old_ranges(json.dumps(fields).encode(), "there")


_TEXT = st.text("[]{}(),:'\"uL0123456789None topic-\\\n", max_size=60).map(str.encode)


@given(st.one_of(st.binary(max_size=200), _TEXT))
def test_any_bytes_are_ranges_or_are_refused(content: bytes) -> None:
    try:
        found = parse_old_ranges(content, "there")
    except CorruptStore:
        return
    assert isinstance(found, tuple)


_RANGES = st.builds(
    lambda topic, partition, offsets: ConsumedRange(topic, partition, *sorted(offsets)),
    st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.tuples(st.integers(0, MAX_INT64), st.integers(0, MAX_INT64)),
)


@given(st.lists(_RANGES, unique_by=lambda each: each.topic_partition))
def test_all_that_a_job_can_have_written_is_read(ranges: list[ConsumedRange]) -> None:
    fields = [range_fields(each) for each in ranges]
    for text in (json.dumps(fields), repr(fields), str(tuple(fields))):
        assert parse_old_ranges(text.encode(), "there") == tuple(ranges)


# --- in Redis ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(redis_server: RedisServer) -> redis.Redis:
    """A client of the server, whose second database is empty."""
    found = redis.Redis("127.0.0.1", redis_server.port, db=1)
    found.flushdb()
    return found


@pytest.fixture
def store(redis_server: RedisServer, open_one: Callable[[str], WritableStore]) -> WritableStore:
    return open_one(f"redis://127.0.0.1:{redis_server.port}/1")


def test_a_job_goes_on_where_the_older_one_stopped(store: WritableStore, client: redis.Redis) -> None:
    old = repr(FIELDS)
    client.set(APPLICATION, old)
    found = store.load(APPLICATION)
    assert found.positions == {each.topic_partition: each.until_offset for each in RANGES}
    assert found.note == "an older job has left them under the key wordcount"
    fence, progress = store.acquire(APPLICATION)
    assert progress.positions == found.positions
    store.save(fence, [ConsumedRange("orders", 0, 10, 20)])
    assert store.load(APPLICATION).positions == {ORDERS: 20, TopicPartition("orders", 1): 0}
    assert client.get(APPLICATION) == old.encode()  # the older job can be gone back to


def test_the_key_of_older_jobs_can_be_named(
    redis_server: RedisServer, client: redis.Redis, open_one: Callable[[str], WritableStore]
) -> None:
    client.set("offsets/wordcount/last", json.dumps(FIELDS))
    base = f"redis://127.0.0.1:{redis_server.port}/1"
    assert open_one(base).load(APPLICATION).is_empty
    assert open_one(f"{base}?old_key=offsets/%7Bgroup%7D/last").load(APPLICATION).positions[ORDERS] == 10
    client.set(APPLICATION, json.dumps(FIELDS))
    assert open_one(f"{base}?old_key=").load(APPLICATION).is_empty


def test_where_nothing_is_stored_the_reset_decides(store: WritableStore, client: redis.Redis) -> None:
    client.set(APPLICATION, json.dumps(FIELDS[:1]))
    there = {ORDERS: OffsetRange(5, 50), TopicPartition("orders", 1): OffsetRange(7, 70)}
    stored = store.load(APPLICATION).positions
    for value, expected in (("smallest", 7), ("earliest", 7), ("largest", 70), ("latest", 70), (" Largest ", 70)):
        found = starting_positions(stored, there, parse_offset_reset(value))
        assert found == {ORDERS: 10, TopicPartition("orders", 1): expected}


def test_what_is_stored_is_begun_at_even_where_it_is_gone() -> None:
    there = {ORDERS: OffsetRange(5, 50)}
    for stored in (3, 70):
        assert starting_positions({ORDERS: stored}, there, OffsetReset.LATEST) == {ORDERS: stored}


@pytest.mark.parametrize("content", [b"", b"\xff", b"[{}]", b"[" * 100_000, b"x" * (MAX_OLD_VALUE_BYTES + 1)])
def test_a_value_that_is_none_is_an_error_and_stays(store: WritableStore, client: redis.Redis, content: bytes) -> None:
    client.set(APPLICATION, content)
    for ask in (store.load, store.acquire, lambda group: store.set_positions(group, {ORDERS: 1})):
        with pytest.raises(CorruptStore, match=rf"^redis://127\.0\.0\.1:\d+/1: key {APPLICATION}: "):
            ask(APPLICATION)
    assert client.get(APPLICATION) == content
    assert client.keys() == [APPLICATION.encode()]


def test_a_value_of_another_type_is_an_error(store: WritableStore, client: redis.Redis) -> None:
    client.rpush(APPLICATION, "x")
    with pytest.raises(CorruptStore, match=f"key {APPLICATION}: holds a value of another type than a string"):
        store.load(APPLICATION)


def test_what_older_jobs_left_is_shown_by_no_list(redis_server: RedisServer, client: redis.Redis) -> None:
    client.set(APPLICATION, json.dumps(FIELDS))
    with open_writable_store(f"redis://127.0.0.1:{redis_server.port}/1") as store:
        assert store.groups() == []
