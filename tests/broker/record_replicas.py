"""Records ``tests/read/replicas.tar.zst``: ``python -m tests.broker.record_replicas ARCHIVE``.

Three brokers have a copy each of every partition. The third is killed, then the second; the first goes on alone and is
killed with records that no other has. The third comes back without them and is elected, though it wasn't in sync; the
second follows it. What a consumer got before the election and after it is recorded beside the disks.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import zstandard
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tests.broker.real_broker import RealBroker
from tests.ports import free_ports
from tests.requirements import need_kafka

NAME: Final = "replicas"
CONTROLLER: Final = 100
BROKERS: Final = (1, 2, 3)
#: Topics and how many partitions they have.
TOPICS: Final = {"orders": 2, "payments": 1, "stock": 1}
_SMALL: Final = {"internal.segment.bytes": "16384", "index.interval.bytes": "1024"}
_COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1000"}
_QUIET: Final = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "unclean.leader.election.enable": "true",
    "default.replication.factor": 3,
    "min.insync.replicas": 1,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.segment.bytes": 1048576,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 1,
    "replica.lag.time.max.ms": 2000,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    "log.flush.offset.checkpoint.interval.ms": 1000,
    "replica.high.watermark.checkpoint.interval.ms": 1000,
}


class Node:
    """A broker, or the controller, that can be killed and started again."""

    def __init__(self, broker: RealBroker) -> None:
        self.broker = broker
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def start(self) -> None:
        self._starts += 1
        log = self.broker.directory / f"run-{self._starts}.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                self.broker.command("kafka.Kafka", str(self.broker.directory / "server.properties")),
                stdout=output,
                stderr=output,
            )
        until = time.monotonic() + 90
        while "Kafka Server started" not in log.read_text():
            assert self._process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.2)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(90)
            self._process = None


def make_nodes(directory: Path, java: str) -> dict[int, Node]:
    ports = dict(zip((CONTROLLER, *BROKERS), free_ports(1 + len(BROKERS)), strict=True))
    nodes = {}
    for node_id, port in ports.items():
        is_controller = node_id == CONTROLLER
        listener = "CONTROLLER" if is_controller else "PLAINTEXT"
        settings: dict[str, object] = {
            **_QUIET,
            "node.id": node_id,
            "process.roles": "controller" if is_controller else "broker",
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{ports[CONTROLLER]}",
            "listeners": f"{listener}://127.0.0.1:{port}",
            "advertised.listeners": f"{listener}://127.0.0.1:{port}",
        }
        broker = RealBroker.make(directory / f"node-{node_id}", java, settings)
        nodes[node_id] = Node(replace(broker, port=port))
    return nodes


class Recording:
    """What is done to the cluster, and what its clients see."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self._nodes = nodes
        servers = [f"127.0.0.1:{nodes[each].broker.port}" for each in BROKERS]
        self._at: dict[str, Any] = {"bootstrap_servers": servers}
        self._random = random.Random(19)
        self._sent = 0
        self.result: dict[str, Any] = {}

    async def run(self) -> None:
        await self._create()
        await self._produce(40)
        await self._transact("transfers", commit=True)
        await self._transact("transfers", commit=False)
        await self._commit("readers")
        await asyncio.sleep(4)  # so that followers have everything, and the cleaner has been there
        self._nodes[3].kill()
        await self._leaders_among({1, 2})
        await self._produce(25)
        await self._transact("transfers", commit=True)
        self._nodes[2].kill()
        await self._leaders_among({1})
        await self._produce(15)
        await self._transact("transfers", commit=True)
        await self._commit("readers")
        self.result["before"] = await self._consumed()
        self._nodes[1].kill()
        await asyncio.sleep(4)
        self._nodes[3].start()
        self._elect_unclean(3)
        await self._leaders_among({3})
        await self._produce(20)
        await self._transact("transfers", commit=True)
        self._nodes[2].start()
        await asyncio.sleep(6)
        await self._produce(10)
        await self._transact("transfers", commit=False)
        await self._commit("late-readers")
        await asyncio.sleep(4)
        self.result["after"] = await self._consumed()
        self.result["committed"] = await self._group_offsets("readers", "late-readers")

    def _elect_unclean(self, node: int) -> None:
        """Have a leader elected wherever there is none: of transaction states none is that isn't in sync."""
        options = ("--election-type", "UNCLEAN", "--all-topic-partitions")
        command = self._nodes[node].broker.tool("org.apache.kafka.tools.LeaderElectionCommand", *options)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    async def _create(self) -> None:
        admin = await self._started(partial(AIOKafkaAdminClient, **self._at))
        wanted = [
            NewTopic(name, count, 3, topic_configs={**_SMALL, **(_COMPACTED if name == "stock" else {})})
            for name, count in TOPICS.items()
        ]
        answer = await admin.create_topics(wanted)
        assert all(error[1] == 0 for error in answer.topic_errors), answer
        await admin.close()

    async def _started(self, make: Callable[[], Any]) -> Any:
        until = time.monotonic() + 60
        while True:
            client = make()
            try:
                await client.start()
                return client
            except KafkaError:
                if time.monotonic() > until:
                    raise
                await (client.close() if hasattr(client, "close") else client.stop())
                await asyncio.sleep(0.5)

    async def _leaders_among(self, ids: set[int]) -> None:
        """Wait until clients can reach a leader of every partition, all of them among ``ids``."""
        until = time.monotonic() + 90
        while time.monotonic() < until:
            admin = await self._started(partial(AIOKafkaAdminClient, **self._at))
            try:
                found = await admin.describe_topics([*TOPICS, "__consumer_offsets", "__transaction_state"])
                leaders = {part["leader"] for topic in found for part in topic["partitions"]}
                if leaders and leaders <= ids:
                    return
            except KafkaError:
                pass
            finally:
                await admin.close()
            await asyncio.sleep(0.5)
        raise AssertionError(f"leaders are not among {ids}: {leaders}")

    async def _produce(self, bursts: int) -> None:
        for codec in (None, "gzip", "lz4", "zstd"):
            options = {"compression_type": codec, "enable_idempotence": codec is None}
            producer = await self._started(partial(AIOKafkaProducer, acks="all", **self._at, **options))
            for _ in range(bursts):
                topic = self._random.choice(list(TOPICS))
                partition = self._random.randrange(TOPICS[topic])
                futures = []
                for _ in range(self._random.randint(1, 8)):
                    self._sent += 1
                    key = b"item %d" % self._random.randrange(25) if topic == "stock" else b"%d" % self._sent
                    value = b"record %d " % self._sent + b"." * self._random.randrange(300)
                    is_tombstone = topic == "stock" and self._random.randrange(10) == 0
                    futures.append(await producer.send(topic, None if is_tombstone else value, key, partition))
                for future in futures:
                    await future
            await producer.stop()

    async def _transact(self, name: str, *, commit: bool) -> None:
        producer = await self._started(partial(AIOKafkaProducer, **self._at, transactional_id=name, acks="all"))
        await producer.begin_transaction()
        for _ in range(12):
            self._sent += 1
            value = b"%s %d" % (b"committed" if commit else b"aborted", self._sent)
            await producer.send_and_wait("payments", value, b"%d" % self._sent, 0)
        await (producer.commit_transaction() if commit else producer.abort_transaction())
        await producer.stop()

    async def _commit(self, group: str) -> None:
        consumer = await self._started(partial(AIOKafkaConsumer, **self._at, group_id=group, enable_auto_commit=False))
        parts = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0)]
        consumer.assign(parts)
        ends = await consumer.end_offsets(parts)
        await consumer.commit({part: max(ends[part] - 7, 0) for part in parts})
        await consumer.stop()

    async def _group_offsets(self, *groups: str) -> dict[str, dict[str, int]]:
        admin = await self._started(partial(AIOKafkaAdminClient, **self._at))
        found = {}
        for group in groups:
            offsets = await admin.list_consumer_group_offsets(group)
            found[group] = {f"{part.topic}-{part.partition}": each.offset for part, each in sorted(offsets.items())}
        await admin.close()
        return found

    async def _consumed(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        found: dict[str, dict[str, list[dict[str, Any]]]] = {}
        parts = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
        for level in ("read_uncommitted", "read_committed"):
            consumer = await self._started(partial(AIOKafkaConsumer, isolation_level=level, **self._at))
            consumer.assign(parts)
            await consumer.seek_to_beginning()
            ends = await consumer.end_offsets(parts)
            found[level] = {f"{part.topic}-{part.partition}": [] for part in parts}
            while [part for part in parts if await consumer.position(part) < ends[part]]:
                for part, records in (await consumer.getmany(timeout_ms=3000)).items():
                    found[level][f"{part.topic}-{part.partition}"] += [
                        {
                            "offset": each.offset,
                            "timestamp": each.timestamp,
                            "key": None if each.key is None else each.key.decode(),
                            "value": None if each.value is None else each.value.decode(),
                        }
                        for each in records
                    ]
            await consumer.stop()
        return found


def record(archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="kfs-replicas-") as name:
        directory = Path(name)
        nodes = make_nodes(directory, need_kafka())
        recording = Recording(nodes)
        try:
            for node in nodes.values():
                node.start()
            asyncio.run(recording.run())
            for each in (3, 2):
                nodes[each].stop()
        finally:
            for node in nodes.values():
                node.kill()
        root = directory / NAME
        root.mkdir()
        for each in BROKERS:
            shutil.copytree(nodes[each].broker.data, root / "data" / f"broker-{each}")
        for what, found in recording.result.items():
            (root / f"{what}.json").write_text(json.dumps(found, indent=1))
        with (
            archive.open("wb") as file,
            zstandard.ZstdCompressor(19).stream_writer(file) as packed,
            tarfile.open(fileobj=packed, mode="w|") as tar,
        ):
            tar.add(root, NAME)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
