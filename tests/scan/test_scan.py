"""Every record of every recorded directory as Arrow, whatever it is cut into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from kfs.export import plan
from kfs.format.java_text import java_text
from kfs.format.record import Record
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.scan import Scan
from tests.corpus import corpus_names
from tests.expected import expected_records
from tests.recorded_damage import DAMAGED, CorpusPath

EVERY_SOUND_CORPUS = pytest.mark.parametrize("name", [name for name in corpus_names() if name != DAMAGED])
Row = dict[str, Any]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut wherever the offset index allows it."""
    monkeypatch.setattr(plan, "PIECE_BYTES", 1)


def opened(*paths: Path) -> DataDir:
    return DataDir([str(path) for path in paths], Storage())


def rows_of(table: Any) -> list[Row]:
    """Return the rows of a table, timestamps as microseconds."""
    fields = [pa.field(field.name, pa.int64()) if field.name == "timestamp" else field for field in table.schema]
    rows: list[Row] = table.cast(pa.schema(fields)).to_pylist()
    return rows


def row_of(topic: str, partition: int, record: Record) -> Row:
    """Return a record as Spark's Kafka source has it."""
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


def expected_rows(corpus: Path) -> list[Row]:
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
        and expected.record.offset >= starts.get((expected.topic, expected.partition), 0)
        and "-delete" not in expected.file.split("/")[0]
    ]
    found.sort(key=lambda expected: (expected.topic, expected.partition))
    return [row_of(expected.topic, expected.partition, expected.record) for expected in found]


@EVERY_SOUND_CORPUS
@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_the_table_is_what_kafka_itself_reads(name: str, batch_size: int, corpus: CorpusPath) -> None:
    scan = Scan(opened(corpus(name) / "data").logs, include_headers=True, batch_size=batch_size, jobs=1)
    batches = list(scan)
    assert all(0 < batch.num_rows <= batch_size for batch in batches)
    assert rows_of(pa.Table.from_batches(batches, scan.schema)) == expected_rows(corpus(name))
