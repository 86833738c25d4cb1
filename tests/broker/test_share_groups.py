"""What ``kafka-share-groups`` says of how far share groups have got, and their lag, is what kfs says."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from tests.broker.real_broker import RealBroker
from tests.internal.group_logs import groups_of
from tests.requirements import need_kafka

SETTINGS = {
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.share.min.record.lock.duration.ms": 1000,
}
#: So many records are in each partition of the topic.
COUNTS = (50, 0, 7)


def produce(broker: RealBroker, counts: Sequence[int]) -> None:
    """Write so many records into each partition."""

    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{broker.port}")
        await producer.start()
        for partition, count in enumerate(counts):
            for number in range(count):
                await producer.send_and_wait("jobs", b"value %d" % number, partition=partition)
        await producer.stop()

    asyncio.run(send())


def ask(broker: RealBroker, *arguments: str) -> str:
    """Return what the tool prints."""
    done = subprocess.run(
        broker.tool("org.apache.kafka.tools.consumer.group.ShareGroupCommand", *arguments), capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    return done.stdout.decode()


def consume(broker: RealBroker, group: str, most: int, *options: str) -> None:
    """Have a member of the group take and acknowledge so many records, or all there are."""
    tool = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    command = broker.tool(tool, "--topic", "jobs", "--group", group, "--timeout-ms", "6000", *options)
    done = subprocess.run([*command, "--max-messages", str(most)], capture_output=True, timeout=60)
    assert b"Processed a total of" in done.stderr + done.stdout, done.stderr.decode()


Position = tuple[str, str]


def said_by_the_tool(broker: RealBroker, group: str) -> dict[int, Position]:
    """Return start offset and lag of each partition, as the tool prints them."""
    lines = [line.split() for line in ask(broker, "--describe", "--offsets", "--group", group).splitlines()]
    head = next(line for line in lines if line[:1] == ["GROUP"])
    rows = [dict(zip(head, line, strict=False)) for line in lines if line[:1] == [group]]
    return {int(row["PARTITION"]): (row["START-OFFSET"], row["LAG"]) for row in rows}


def said_by_kfs(broker: RealBroker, group: str) -> dict[int, Position]:
    """Return the same as kfs has it."""
    groups = groups_of(broker.data)
    found = groups.group(group)
    assert found is not None
    said = {}
    for partition in found.partitions:
        standing = groups.standing(partition)
        if standing.lag is not None:
            assert (standing.next_offset is None) == (standing.lag == 0), "whatever is done out of order"
        said[partition.partition] = _text(partition.offset), _text(standing.lag)
    return said


def _text(number: int | None) -> str:
    return "-" if number is None else str(number)


GROUPS = ("all", "some", "late")


@pytest.mark.long
def test_the_tool_that_asks_a_broker_says_the_same(tmp_path: Path) -> None:
    broker = RealBroker.make(tmp_path / "broker", need_kafka(), SETTINGS)
    earliest = ("--alter", "--entity-type", "groups", "--add-config", "share.auto.offset.reset=earliest")
    seen: list[tuple[dict[int, Position], dict[int, Position]]] = []

    def compare() -> None:
        for group in GROUPS:
            seen.append((said_by_kfs(broker, group), said_by_the_tool(broker, group)))

    with broker.running():
        broker.create_topics({"jobs": len(COUNTS)})
        for group in GROUPS[:2]:
            configure = broker.tool("kafka.admin.ConfigCommand", *earliest, "--entity-name", group)
            subprocess.run(configure, check=True, capture_output=True)
        produce(broker, COUNTS)
        consume(broker, "all", 1000)
        consume(broker, "some", 20)
        consume(broker, "late", 1000)  # which begins at the end
        compare()
        produce(broker, (3, 2, 0))
        compare()
    with broker.running():
        compare()
        consume(broker, "some", 1000)
        consume(broker, "late", 1000)
        compare()
    for by_kfs, by_the_tool in seen:
        assert by_kfs == by_the_tool
    assert len({str(each) for _, each in seen}) > 5, "there is something to compare"
