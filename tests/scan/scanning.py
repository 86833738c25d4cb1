"""Scans, and what should come of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from kfs.format.java_text import java_text
from kfs.format.record import Record
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from tests.expected import ExpectedRecord, expected_records

Row = dict[str, Any]


def opened(*paths: Path, until_high_watermark: bool = False) -> DataDir:
    """Return the data directory over log directories."""
    return DataDir([str(path) for path in paths], Storage(), until_high_watermark=until_high_watermark)


def rows_of(batches: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema | None = None) -> list[Row]:
    """Return the rows of a table, or of batches, timestamps as microseconds."""
    table = batches if isinstance(batches, pa.Table) else pa.Table.from_batches(batches, schema)
    fields = [pa.field(field.name, pa.int64()) if field.name == "timestamp" else field for field in table.schema]
    rows: list[Row] = table.cast(pa.schema(fields)).to_pylist()
    return rows


def row_of(topic: str, partition: int, record: Record) -> Row:
    """Return a record as Spark's Kafka source has it, with headers."""
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": int(record.timestamp_type),
        "headers": [{"key": java_text(name), "value": value} for name, value in record.headers] or None,
    }


def expected_rows(corpus: Path, is_wanted: Callable[[ExpectedRecord], bool] = lambda _: True) -> list[Row]:
    """Return every message of a corpus, by topic and partition, in log order, deleted records left out."""
    starts: dict[tuple[str, int], int] = {}
    checkpoint = corpus / "data" / "log-start-offset-checkpoint"
    for line in checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []:
        topic, partition, offset = line.rsplit(" ", 2)
        starts[topic, int(partition)] = int(offset)
    found = [
        expected
        for expected in expected_records(corpus)
        if not expected.is_control
        and is_wanted(expected)
        and expected.record.offset >= starts.get((expected.topic, expected.partition), 0)
        and not expected.file.split("/")[0].endswith("-delete")
    ]
    found.sort(key=lambda expected: (expected.topic, expected.partition))
    return [row_of(expected.topic, expected.partition, expected.record) for expected in found]
