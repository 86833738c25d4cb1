"""A streaming query without Spark: the stream reader asked in the order in which Spark asks it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from kfs.spark.options import parse_stream_options
from kfs.spark.streaming import KfsStreamReader
from tests.scan.scanning import Row, rows_of

SCHEMA = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
    .add("headers", ArrayType(StructType().add("key", StringType()).add("value", BinaryType())))
)


class Query:
    """One run of a query after another on the same checkpoint: the ends of its micro-batches."""

    def __init__(self, path: Path, **options: object) -> None:
        given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
        if not {"subscribe", "subscribePattern", "assign"} & given.keys():
            given["subscribePattern"] = "."
        self.options = parse_stream_options(given)
        self.checkpoint: list[str] = []
        self.restart()

    def restart(self, *, is_available_now: bool = False) -> None:
        """Start the query again, in another process."""
        self._reader = pickle.loads(pickle.dumps(KfsStreamReader(self.options, SCHEMA)))
        if is_available_now:
            self._reader.prepareForTriggerAvailableNow()
        self._limit: ReadLimit = self._reader.getDefaultReadLimit()

    @property
    def offsets(self) -> Any:
        """What the last micro-batch read up to."""
        return json.loads(self.checkpoint[-1])

    def _start(self, batch: int) -> str:
        return self.checkpoint[batch - 1] if batch else json.dumps(self._reader.initialOffset())

    def begin(self) -> bool:
        """Write down the next micro-batch, if there is something to do."""
        start = self._start(len(self.checkpoint))
        end = json.dumps(self._reader.latestOffset(json.loads(start), self._limit))
        if self.checkpoint and end == start:
            return False
        self.checkpoint.append(end)
        return True

    def do(self) -> list[Row]:
        """Return the rows of the last micro-batch."""
        start, end = self._start(len(self.checkpoint) - 1), self.checkpoint[-1]
        return list(self._rows(self._reader.partitions(json.loads(start), json.loads(end))))

    def _rows(self, partitions: Sequence[Any]) -> Iterator[Row]:
        worker = KfsStreamReader(self.options, SCHEMA)
        for partition in pickle.loads(pickle.dumps(partitions)):
            for batch in worker.read(partition):
                yield from rows_of(pa.Table.from_batches([batch]))

    def next(self) -> list[Row]:
        """Do one micro-batch, if there is something to do, and return its rows."""
        return self.do() if self.begin() else []

    def rest(self) -> list[Row]:
        """Do micro-batches until nothing is left to do, and return their rows."""
        rows = []
        while self.begin():
            rows += self.do()
        return rows


def offsets_in(rows: Sequence[Row], partition: int = 0) -> list[int]:
    """Return the offsets of the rows of a partition."""
    return [row["offset"] for row in rows if row["partition"] == partition]
