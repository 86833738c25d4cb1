"""What the corpora should be read as: their ``expected.jsonl`` and ``batches.jsonl`` as objects.

Kafka's own ``FileRecords`` wrote these files, so they are an oracle independent of kfs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfs.format.record import Record, TimestampType

_TIMESTAMP_TYPES = {timestamp_type.label: timestamp_type for timestamp_type in TimestampType}


@dataclass(frozen=True, slots=True)
class ExpectedRecord:
    """One line of ``expected.jsonl``: ``file`` is relative to the log root, the rest are Kafka's terms."""

    file: str
    topic: str
    partition: int
    record: Record
    producer_id: int
    producer_epoch: int
    sequence: int
    is_transactional: bool
    is_control: bool
    compression: str
    magic: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ExpectedBatch:
    """One line of ``batches.jsonl``; ``count`` is None for v0 and v1, whose batches do not say it."""

    file: str
    position: int
    size: int
    base_offset: int
    last_offset: int
    count: int | None
    magic: int
    crc: int
    compression: str
    timestamp_type: TimestampType
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    leader_epoch: int
    has_delete_horizon: bool


def expected_records(corpus: Path, name: str = "expected.jsonl") -> Iterator[ExpectedRecord]:
    """Yield every record of every ``.log`` of a corpus, file by file, in log order."""
    with (corpus / name).open(encoding="utf-8") as lines:
        for line in lines:
            yield _record(json.loads(line))


def expected_by_partition(corpus: Path, name: str = "expected.jsonl") -> dict[tuple[str, int], list[ExpectedRecord]]:
    """Return the records of a corpus by topic and partition, in log order."""
    partitions: dict[tuple[str, int], list[ExpectedRecord]] = {}
    for expected in expected_records(corpus, name):
        partitions.setdefault((expected.topic, expected.partition), []).append(expected)
    return partitions


def expected_batches(corpus: Path, name: str = "batches.jsonl") -> Iterator[ExpectedBatch]:
    """Yield every batch that Kafka could read; lines about what it could not read (``g_damage``) are left out."""
    with (corpus / name).open(encoding="utf-8") as lines:
        for line in lines:
            fields = json.loads(line)
            if "position" in fields:
                fields["timestamp_type"] = _TIMESTAMP_TYPES[fields["timestamp_type"]]
                yield ExpectedBatch(**fields)


@dataclass(frozen=True, slots=True)
class UnreadLog:
    """A line of ``batches.jsonl`` about a ``.log`` that Kafka could not read to its end.

    Either it stopped with ``error``, or, without one, ignored what follows ``valid_bytes``.
    """

    file: str
    error: str | None
    file_size: int | None
    valid_bytes: int | None


def unread_logs(corpus: Path, name: str = "batches.jsonl") -> Iterator[UnreadLog]:
    """Yield the logs of a damaged corpus that Kafka did not read to their end."""
    with (corpus / name).open(encoding="utf-8") as lines:
        for line in lines:
            fields = json.loads(line)
            if "position" not in fields:
                yield UnreadLog(fields["file"], fields.get("error"), fields.get("file_size"), fields.get("valid_bytes"))


def _record(fields: dict[str, Any]) -> ExpectedRecord:
    record = Record(
        offset=fields.pop("offset"),
        timestamp=fields.pop("timestamp"),
        key=_decoded(fields.pop("key")),
        value=_decoded(fields.pop("value")),
        headers=tuple((key.encode(), _decoded(value)) for key, value in fields.pop("headers")),
        timestamp_type=_TIMESTAMP_TYPES[fields.pop("timestamp_type")],
    )
    return ExpectedRecord(record=record, **fields)


def _decoded(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
