"""Logs that a broker has written for a real producer: librdkafka's or Java's, with the batches that those make."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.kafka_tools import KafkaTools
from kfs.format.codecs import Codec
from kfs.format.layout import MAX_INT64
from kfs.format.record import Header, Record

if TYPE_CHECKING:
    from tests.broker.real_broker import RealBroker

_TOPIC: Final = "events"
#: How much longer than its value a record is in a batch, and its value: what Java counts in batches in bytes.
_RECORD_BYTES: Final = 210
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class Producer(StrEnum):
    """What writes the batches of a log."""

    KFS = "kfs"  # its own writer, without a broker
    LIBRDKAFKA = "librdkafka"  # confluent-kafka
    JAVA = "java"

    @classmethod
    def at_hand(cls) -> Producer:
        """Return the one for the logs of benchmarks: librdkafka, if it and Java are there."""
        return cls.LIBRDKAFKA if find_spec("confluent_kafka") and shutil.which("java") else cls.KFS


def write_partition(
    directory: Path,
    producer: Producer,
    codec: Codec,
    content: Iterable[Record],
    records_in_batch: int,
    segment_bytes: int,
) -> None:
    """Have a broker of its own write a partition, and move it to ``directory``, which doesn't exist yet.

    Raises:
        RuntimeError: there is no Java, or the producer failed.
    """
    settings = {"log.segment.bytes": segment_bytes, "log.message.timestamp.after.max.ms": MAX_INT64}
    with tempfile.TemporaryDirectory(prefix="kfs-benchmark.", dir=directory.parent) as scratch:
        broker = _broker(Path(scratch), settings)
        with broker.running():
            broker.create_topics({_TOPIC: 1})
            _SEND[producer](f"127.0.0.1:{broker.port}", codec, content, records_in_batch, directory.parent)
        (broker.data / f"{_TOPIC}-0").rename(directory)


@contextmanager
def broker_over(partition: Path) -> Iterator[str]:
    """Run a broker over a copy of a topic's only partition, for the length of a block; yield its address.

    Raises:
        RuntimeError: there is no Java.
    """
    with tempfile.TemporaryDirectory(prefix="kfs-benchmark.", dir=partition.parent) as scratch:
        broker = _broker(Path(scratch), {})
        broker.take_over([partition])
        with broker.running():
            yield f"127.0.0.1:{broker.port}"


def _broker(scratch: Path, settings: Mapping[str, object]) -> RealBroker:
    from tests.broker.real_broker import RealBroker  # only here: it needs a client

    java = shutil.which("java")
    if java is None:
        raise RuntimeError("a broker needs Java; without one, logs are written by --producer kfs")
    return RealBroker.make(scratch / "broker", java, settings)


def _send_by_librdkafka(
    servers: str, codec: Codec, content: Iterable[Record], records_in_batch: int, cache: Path
) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka import Producer as Librdkafka

    failed: list[object] = []
    sending = Librdkafka(
        {
            "bootstrap.servers": servers,
            "compression.codec": codec.label,
            "batch.num.messages": records_in_batch,
            "batch.size": 1_000_000,
            "linger.ms": 1000,
            "enable.idempotence": True,
            "log_level": 3,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
        }
    )
    try:
        for record in content:
            headers: list[tuple[str, str | bytes | None]] = [(name.decode(), value) for name, value in record.headers]
            while True:
                try:
                    sending.produce(_TOPIC, record.value, record.key, 0, timestamp=record.timestamp, headers=headers)
                    break
                except BufferError:
                    sending.poll(0.1)
            sending.poll(0)
        left = sending.flush(60)
    except KafkaException as error:
        raise RuntimeError(f"librdkafka: {error}") from None
    if failed or left:
        raise RuntimeError(f"librdkafka: {failed[0] if failed else f'{left} records were not sent'}")


def _send_by_java(servers: str, codec: Codec, content: Iterable[Record], records_in_batch: int, cache: Path) -> None:
    settings = {
        "bootstrap.servers": servers,
        "compression.type": codec.label,
        "batch.size": 0 if records_in_batch == 1 else records_in_batch * _RECORD_BYTES,
        "linger.ms": 100,
    }
    arguments = [f"{name}={value}" for name, value in settings.items()]
    command = KafkaTools(cache).command("WriteEvents", _TOPIC, *arguments)
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for record in content:
            process.stdin.write(b"".join(_for_java(record)))
        process.stdin.close()
        if process.wait():
            raise RuntimeError(f"the producer in Java ended with status {process.returncode}")


def _for_java(record: Record) -> Iterator[bytes]:
    yield _INT64.pack(record.timestamp)
    yield from _sized(record.key)
    yield from _sized(record.value)
    yield _INT32.pack(len(record.headers))
    for header in record.headers:
        yield from _sized_header(header)


def _sized(field: bytes | None) -> Iterator[bytes]:
    yield _INT32.pack(-1 if field is None else len(field))
    yield field or b""


def _sized_header(header: Header) -> Iterator[bytes]:
    for field in header:
        yield from _sized(field)


_SEND: Final[dict[Producer, Callable[[str, Codec, Iterable[Record], int, Path], None]]] = {
    Producer.LIBRDKAFKA: _send_by_librdkafka,
    Producer.JAVA: _send_by_java,
}
