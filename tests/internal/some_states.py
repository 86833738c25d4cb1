"""Partitions of ``__transaction_state``, and transactions that hang, written as a broker writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.unified_log import UnifiedLog
from kfs.format.java_text import java_hash
from kfs.format.layout import MAX_INT64
from kfs.format.record import Record
from kfs.format.writer import encode_batch
from kfs.internal.transaction_records import TRANSACTION_LOG_KEY, TRANSACTION_LOG_VALUE
from tests.internal.encoding import encode
from tests.logs import START

STATE_TOPIC = "__transaction_state"
Entry = tuple[bytes | None, bytes | None]


def key_of(name: str) -> bytes:
    """Return the key of a transactional id's records."""
    return bytes(2) + encode(TRANSACTION_LOG_KEY, 0, {"transactionalId": name})


def value_of(version: int = 1, **fields: Any) -> bytes:
    """Return what a record says of a transactional id."""
    said: Mapping[str, Any] = {
        **{field.name: field.default for field in TRANSACTION_LOG_VALUE.fields},
        "producerId": 7,
        "producerEpoch": 3,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": 1,
        "transactionPartitions": (),
        "transactionLastUpdateTimestampMs": START + 5,
        "transactionStartTimestampMs": START,
        **fields,
    }
    return version.to_bytes(2, "big") + encode(TRANSACTION_LOG_VALUE, version, said)


def in_partitions(*places: tuple[str, Sequence[int]]) -> tuple[Mapping[str, Any], ...]:
    """Return the partitions of a transaction as its coordinator writes them."""
    return tuple({"topic": topic, "partitionIds": tuple(partitions)} for topic, partitions in places)


def write_state(root: Path, partition: int, entries: Iterable[Entry], segment_bytes: int = 1 << 20) -> Path:
    """Write a partition of the topic, each entry as a batch of its own."""
    directory = root / f"{STATE_TOPIC}-{partition}"
    root.mkdir(exist_ok=True)
    config = LogConfig(segment_bytes=segment_bytes, segment_ms=MAX_INT64)
    log = UnifiedLog.create(str(directory), config, clock=lambda: START)
    for offset, (key, value) in enumerate(entries):
        log.append(encode_batch([Record(offset, START + offset, key, value, ())]))
    log.close()
    return directory


def write_states(root: Path, count: int, values: Mapping[str, bytes]) -> None:
    """Write all partitions of the topic, each transactional id in the one that it belongs in."""
    for partition in range(count):
        mine = [name for name in values if java_hash(name) % count == partition]
        write_state(root, partition, [(key_of(name), values[name]) for name in mine])


def write_open(directory: Path, producers: Sequence[tuple[int, int]]) -> None:
    """Write a partition with a transaction of each producer (id and epoch) that nobody has ended."""
    log = UnifiedLog.create(str(directory), LogConfig(segment_ms=MAX_INT64), clock=lambda: START)
    for number, (producer_id, epoch) in enumerate(producers):
        content = [Record(2 * number + at, START + number, b"key", b"value", ()) for at in range(2)]
        log.append(
            encode_batch(content, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
        )
    log.close()
