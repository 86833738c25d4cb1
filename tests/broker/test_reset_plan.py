"""A group goes on in another cluster where it stopped: its positions are copied from the dead broker's disk."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from tests.broker.real_broker import RealBroker
from tests.requirements import need_kafka
from tests.system.kafka_mount import kfs

ORDERS = TopicPartition("orders", 0)
GROUP = "billing"
_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


async def send_and_commit(address: str, count: int, position: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for number in range(count):
            await producer.send_and_wait(ORDERS.topic, b"%d" % number, partition=ORDERS.partition)
    async with AIOKafkaConsumer(bootstrap_servers=address, group_id=GROUP, enable_auto_commit=False) as consumer:
        consumer.assign([ORDERS])
        await consumer.commit({ORDERS: position})


async def next_of_group(address: str) -> ConsumerRecord:
    async with AIOKafkaConsumer(bootstrap_servers=address, group_id=GROUP, auto_offset_reset="none") as consumer:
        consumer.assign([ORDERS])
        return await consumer.getone()


@pytest.mark.long
def test_a_group_goes_on_in_another_cluster(tmp_path: Path) -> None:
    java = need_kafka()
    old, new = (RealBroker.make(tmp_path / name, java, {}) for name in ("old", "new"))
    with old.running():
        old.create_topics({ORDERS.topic: 1})
        asyncio.run(send_and_commit(f"127.0.0.1:{old.port}", 20, 7))
    plan = tmp_path / "billing.csv"
    assert kfs("offsets", "copy", f"group:{GROUP}", plan, old.data).returncode == 0
    new.take_over([old.data / "orders-0"])
    with new.running():
        options = ("--reset-offsets", "--group", GROUP, "--from-file", str(plan), "--execute")
        subprocess.run(new.tool(_TOOL, *options), check=True, stdout=subprocess.DEVNULL)
        record = asyncio.run(next_of_group(f"127.0.0.1:{new.port}"))
    assert (record.offset, record.value) == (7, b"7")
