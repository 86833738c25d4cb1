"""``kfs cat --follow`` prints what a consumer gets of a broker that rolls segments, and of a re-created topic."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from tests.broker.real_broker import RealBroker
from tests.cli.following import Following
from tests.requirements import need_kafka

SETTINGS = {
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "log.segment.bytes": 1024 * 1024,  # the least that brokers of 4.x take
    "file.delete.delay.ms": 100,
    "log.segment.delete.delay.ms": 100,
}
PARTITIONS = ("t-0", "t-1")


def produce(broker: RealBroker, transactions: int, records: int, size: int) -> None:
    """Write transactions, every third of them aborted, and after each a record outside of any."""

    async def send() -> None:
        address = f"127.0.0.1:{broker.port}"
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="writer")
        plain = AIOKafkaProducer(bootstrap_servers=address)
        await producer.start()
        await plain.start()
        for number in range(transactions):
            await producer.begin_transaction()
            for at in range(records):
                value = b"%d %d " % (number, at) + b"x" * size
                await producer.send("t", value, partition=(number + at) % len(PARTITIONS))
            await plain.send_and_wait("t", b"plain %d" % number, partition=number % len(PARTITIONS))
            await (producer.abort_transaction() if number % 3 == 2 else producer.commit_transaction())
        await producer.stop()
        await plain.stop()

    asyncio.run(send())


def delete_topic(broker: RealBroker) -> None:
    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{broker.port}")
        await admin.start()
        await admin.delete_topics(["t"])
        await admin.close()

    asyncio.run(delete())


def taken(following: Following, count: int) -> dict[str, list[tuple[int, str]]]:
    """Return offsets and values of the next records, by partition."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for line in following.lines(count):
        record = json.loads(line)
        found[f"t-{record['partition']}"].append((record["offset"], record["value"]))
    return found


def consumed(broker: RealBroker, level: str) -> dict[str, list[tuple[int, str]]]:
    """Return the same of what a consumer gets."""
    records = broker.consumed(level, PARTITIONS)
    return {name: [(one.offset, one.value.decode()) for one in records[name]] for name in PARTITIONS}


@contextmanager
def followers(broker: RealBroker, levels: Sequence[str]) -> Iterator[list[Following]]:
    started = [Following(broker.data, "t", "--offsets", "0:", "--isolation", level) for level in levels]
    try:
        yield started
    finally:
        for following in started:
            following.discard()


@pytest.mark.long
def test_it_prints_what_a_consumer_gets(tmp_path: Path) -> None:
    broker = RealBroker.make(tmp_path / "broker", need_kafka(), SETTINGS)
    levels = ("read_committed", "read_uncommitted")
    with broker.running():
        broker.create_topics({"t": len(PARTITIONS)})
        with followers(broker, levels) as started:
            produce(broker, 60, 100, 1000)
            assert len(list((broker.data / "t-0").glob("*.log"))) > 2
            for following, level in zip(started, levels, strict=True):
                expected = consumed(broker, level)
                assert taken(following, sum(map(len, expected.values()))) == expected
            delete_topic(broker)
            broker.create_topics({"t": len(PARTITIONS)})
            produce(broker, 1, 2, 10)
            for following in started:
                assert {offset for found in taken(following, 3).values() for offset, _ in found} <= {0, 1, 2}
                code, out, errors = following.interrupt()
                assert (code, out) == (-2, b"")
                assert b"was deleted and re-created" in errors
