"""A Kafka 4.3.1 broker of our own: starting it on a log directory, topics, partition directories put into it."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from benchmarks.kafka_jars import kafka_jars
from kfs.format.layout import NO_TIMESTAMP
from kfs.format.partition_metadata import PartitionMetadata, encode_partition_metadata, parse_partition_metadata
from kfs.format.record import Record, TimestampType
from kfs.format.uuid import Uuid
from tests.ports import free_ports
from tests.servers.kept_classes import QUICK_START, kafka_options

_SECONDS_TO_START: Final = 60
_SECONDS_TO_STOP: Final = 60
_LOGGING: Final = """
status = error
rootLogger.level = info
rootLogger.appenderRef.c.ref = C
appender.c.type = Console
appender.c.name = C
appender.c.target = SYSTEM_OUT
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = [%d] %p %m (%c)%n
"""
_MEMORY: Final = "-Xmx512m"
#: An error of the broker's, but for its controller's that was asked a moment before it knew that it is the active one.
_ERROR: Final = re.compile(r"^\[[^]]*\] (?:ERROR|FATAL) .*$(?!\n.*\bNotControllerException\b)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RealBroker:
    """A broker that keeps everything below ``directory``: ``data`` is its log directory."""

    directory: Path
    java: str
    port: int
    java_options: Sequence[str] = QUICK_START

    @classmethod
    def make(
        cls,
        directory: Path,
        java: str,
        settings: Mapping[str, object],
        java_options: Sequence[str] | None = None,
    ) -> RealBroker:
        """Configure a broker (and controller) and format its log directory."""
        directory.mkdir()
        port, controller_port = free_ports(2)
        if java_options is None:
            java_options = kafka_options(java)
        broker = cls(directory, java, port, java_options)
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": broker.data,
            "log.retention.ms": -1,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            **settings,
        }
        lines = (f"{name}={value}\n" for name, value in properties.items())
        (directory / "server.properties").write_text("".join(lines))
        (directory / "log4j2.properties").write_text(_LOGGING)
        tool = broker.command("kafka.tools.StorageTool", "format", "-t", "kfsTestClusterIdAAAAAA")
        subprocess.run([*tool, "-c", str(directory / "server.properties")], check=True, stdout=subprocess.DEVNULL)
        return broker

    @property
    def data(self) -> Path:
        """The log directory."""
        return self.directory / "data"

    def command(self, main_class: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        return [self.java, _MEMORY, *self.java_options, logging, "-cp", f"{kafka_jars()}/*", main_class, *arguments]

    def tool(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command that asks the running broker with one of Kafka's tools."""
        return self.command(main_class, "--bootstrap-server", f"127.0.0.1:{self.port}", *arguments)

    @contextmanager
    def running(self) -> Iterator[Path]:
        """Run the broker for the length of a block and stop it cleanly; yield the file that it logs to."""
        log = self.directory / f"server-{len(list(self.directory.glob('server-*.log')))}.log"
        command = self.command("kafka.Kafka", str(self.directory / "server.properties"))
        with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
            try:
                self._wait_until_started(log, process)
                yield log
                process.terminate()
                assert process.wait(_SECONDS_TO_STOP) in (0, 143)
            finally:
                process.kill()

    def _wait_until_started(self, log: Path, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _SECONDS_TO_START
        while "Kafka Server started" not in log.read_text():
            assert process.poll() is None, f"the broker did not start:\n{log.read_text()[-4000:]}"
            assert time.monotonic() < until, f"the broker is not up yet:\n{log.read_text()[-4000:]}"
            time.sleep(0.1)

    def create_topics(self, partitions: Mapping[str, int]) -> None:
        """Have the running broker create topics with so many partitions."""
        asyncio.run(self._create_topics(partitions))

    async def _create_topics(self, partitions: Mapping[str, int]) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{self.port}")
        await admin.start()
        try:
            topics = [NewTopic(topic, count, 1) for topic, count in partitions.items()]
            answer = await admin.create_topics(topics)
            assert all(error[1] == 0 for error in answer.topic_errors), answer
        finally:
            await admin.close()

    def consumed(self, isolation_level: str, partitions: Iterable[str]) -> dict[str, list[ConsumerRecord]]:
        """Return all records of partitions (``topic-0``) of the running broker, in the order they are consumed."""
        return asyncio.run(self._consumed(isolation_level, [_partition(name) for name in partitions]))

    async def _consumed(
        self, isolation_level: str, partitions: list[TopicPartition]
    ) -> dict[str, list[ConsumerRecord]]:
        consumer = AIOKafkaConsumer(bootstrap_servers=f"127.0.0.1:{self.port}", isolation_level=isolation_level)
        await consumer.start()
        try:
            consumer.assign(partitions)
            await consumer.seek_to_beginning()
            ends = await consumer.end_offsets(partitions)
            found: dict[str, list[ConsumerRecord]] = defaultdict(list)
            while [each for each in partitions if await consumer.position(each) < ends[each]]:
                for each, records in (await consumer.getmany(timeout_ms=5000)).items():
                    found[f"{each.topic}-{each.partition}"] += records
            return found
        finally:
            await consumer.stop()

    def take_over(self, directories: Sequence[Path], topics: Mapping[str, int] | None = None) -> None:
        """Run once to create the topics of partition directories, and ``topics``; then put the directories in."""
        with self.running():
            self.create_topics({**partition_counts(each.name for each in directories), **(topics or {})})
        for each in directories:
            self.put_in(each)

    def put_in(self, directory: Path) -> None:
        """Put a partition directory in the place of the one that the stopped broker has, with that topic's id."""
        own = self.data / directory.name
        topic_id = parse_partition_metadata((own / "partition.metadata").read_bytes()).topic_id
        shutil.rmtree(own)
        shutil.copytree(directory, own)
        self._set_topic_id(own, topic_id)

    @staticmethod
    def _set_topic_id(partition: Path, topic_id: Uuid) -> None:
        (partition / "partition.metadata").write_bytes(encode_partition_metadata(PartitionMetadata(topic_id)))


def errors_in(log: Path) -> list[str]:
    """Return what a broker has logged as an error."""
    return _ERROR.findall(log.read_text())


def partition_counts(names: Iterable[str]) -> dict[str, int]:
    """Return how many partitions each topic must have, for those named (``topic-0``) to be among them."""
    counts: dict[str, int] = {}
    for name in names:
        topic, _, number = name.rpartition("-")
        counts[topic] = max(counts.get(topic, 0), int(number) + 1)
    return counts


def as_read(record: ConsumerRecord) -> Record:
    """Return what a consumer got as one of our records."""
    has_timestamp = record.timestamp_type is not None
    return Record(
        record.offset,
        record.timestamp if has_timestamp else NO_TIMESTAMP,
        record.key,
        record.value,
        tuple((key.encode(), value) for key, value in record.headers),
        TimestampType(record.timestamp_type) if has_timestamp else TimestampType.NO_TIMESTAMP,
    )


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))
