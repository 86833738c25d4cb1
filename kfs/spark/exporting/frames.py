"""Batches through DataFrames of the source ``kfs``, for the session's other formats: files or tables."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kfs.errors import KfsError
from kfs.format.checkpoint import TopicPartition
from kfs.log.problem import Problem
from kfs.spark.exporting.batches import PlannedBatch
from kfs.spark.exporting.files import DAY, FIRST_DAY, LAST_DAY, NO_TIMESTAMP, NO_VALUE, directory_of
from kfs.spark.exporting.jobs import Advance, reason_of
from kfs.spark.exporting.options import ExportOptions
from kfs.spark.exporting.sinks import WrittenBatch
from kfs.spark.offsets.document import range_fields
from kfs.spark.offsets.progress import ConsumedRange, StagedFile
from kfs.spark.offsets.staged_output import Staging
from kfs.spark.registration import register_format
from kfs.spark.stream_offsets import Offsets, as_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITIONED_BY: Final = ("topic", "date")
#: As :func:`~kfs.spark.exporting.files.by_day` has it, whatever the session's time zone.
_MICROS: Final = "unix_micros(timestamp)"
_DATE: Final = (
    f"CASE WHEN {_MICROS} <> {NO_TIMESTAMP} AND {_MICROS} BETWEEN {FIRST_DAY * DAY} AND {(LAST_DAY + 1) * DAY - 1} "
    f"THEN date_from_unix_date(CAST(({_MICROS} - pmod({_MICROS}, {DAY})) DIV {DAY} AS INT)) END"
)
#: A session's error conditions for a missing table, in any catalog.
_NOT_THERE: Final = ("NOT_FOUND", "DOES_NOT_EXIST")


class _FrameSink:
    """The common part of both kinds: the DataFrame of a batch, and what is counted while it is written."""

    def __init__(self, spark: SparkSession, options: ExportOptions) -> None:
        register_format(spark)
        self._spark = spark
        self._options = options

    def _write(self, frame: DataFrame, staging: Staging) -> None:
        """Write the records of a batch."""
        raise NotImplementedError

    def _files(self, batch: PlannedBatch, staging: Staging) -> Iterator[tuple[StagedFile, int]]:
        """Yield what was staged, with its size."""
        yield from ()

    def write(self, batch: PlannedBatch, staging: Staging, advance: Advance) -> WrittenBatch:
        """See :meth:`Sink.write`; the bytes are counted at the end."""
        from pyspark.sql import Observation, functions

        skipped = os.path.join(staging.root, staging.directory, f"skipped-{uuid.uuid4().hex}")
        count = Observation()
        frame = self._frame(batch, skipped).withColumn("date", functions.expr(_DATE))
        try:
            self._write(frame.observe(count, functions.count("*").alias("records")), staging)
        except KfsError:
            raise
        except Exception as error:
            raise reason_of(error) from error
        advance(batch.size)
        files = list(self._files(batch, staging))
        return WrittenBatch(
            int(count.get["records"]),
            Counter(),
            tuple(_skipped_in(skipped)),
            tuple(file for file, _ in files),
            sum(size for _, size in files),
        )

    def _frame(self, batch: PlannedBatch, skipped: str) -> DataFrame:
        read = self._options.read
        partitions: dict[str, list[int]] = {}
        for each in batch.ranges:
            partitions.setdefault(each.topic, []).append(each.partition)
        ends = {each.topic_partition: each.until_offset for each in batch.ranges}
        options = {
            "assign": json.dumps(partitions),
            "startingOffsets": json.dumps(as_json({each.topic_partition: each.from_offset for each in batch.ranges})),
            "endingOffsets": json.dumps(as_json(ends, batch.after.identities)),
            "path": json.dumps(list(self._options.paths)),
            "includeHeaders": "true",
            "failOnDataLoss": str(read.fail_on_data_loss).lower(),
            "isolation.level": read.isolation.value,
            "onDamage": read.on_damage.value,
            "skippedPath": skipped,
            "maxBatchBytes": str(read.max_batch_bytes),
            "maxPartitionBytes": str(max((task.size for task in batch.tasks), default=1) or 1),
        }
        return self._spark.read.format("kfs").options(**options).load()


class FileSink(_FrameSink):
    """Files of a format of Spark's, staged by Spark and renamed as Parquet files are."""

    def reached(self, _positions: Offsets) -> Offsets:
        """See :meth:`Sink.reached`: files and positions are one step."""
        return {}

    def _write(self, frame: DataFrame, staging: Staging) -> None:
        self._target = os.path.join(staging.root, staging.directory, uuid.uuid4().hex)
        writer = frame.write.format(self._options.format).partitionBy(*_PARTITIONED_BY)
        if self._options.compression is not None:
            writer = writer.option("compression", self._options.compression)
        writer.save(f"file://{self._target}")

    def _files(self, batch: PlannedBatch, staging: Staging) -> Iterator[tuple[StagedFile, int]]:
        name = _name_of(batch.ranges)
        for directory, _, files in os.walk(self._target):
            for number, file in enumerate(sorted(file for file in files if not file.startswith((".", "_")))):
                path = os.path.join(directory, file)
                final = os.path.relpath(directory, self._target).replace(
                    f"topic={NO_VALUE}/", directory_of(NO_VALUE, None).partition("/")[0] + "/"
                )
                suffix = file[file.index(".") :].removeprefix(".c000")
                yield staging.keep(path, f"{final}/{name}-{number:05d}{suffix}"), os.path.getsize(path)


class TableSink(_FrameSink):
    """A table with atomic commits: it has all of a batch or nothing.

    The table itself is queried for the last offsets, so a batch that was committed but not yet stored as such isn't
    written again. Concurrent exports into one table can't be told apart that way.
    """

    def reached(self, positions: Offsets) -> Offsets:
        """See :meth:`Sink.reached`."""
        from pyspark.sql import functions

        table = self._table() if positions else None
        if table is None:
            return {}
        columns = ["topic", "partition", "offset"]
        stored = [(each.topic, each.partition, offset) for each, offset in positions.items()]
        wanted = self._spark.createDataFrame(stored, "topic string, partition int, position bigint")
        lowest = min(positions.values())
        try:
            found = (
                table.select(*columns)
                .where(functions.col("offset") >= lowest)
                .join(functions.broadcast(wanted), ["topic", "partition"])
                .where("offset >= position")
                .groupBy("topic", "partition")
                .agg(functions.max("offset"))
                .collect()
            )
        except Exception as error:
            raise reason_of(error) from error
        return {TopicPartition(topic, partition): last + 1 for topic, partition, last in found}

    def _table(self) -> DataFrame | None:
        """Return the table, None if it doesn't exist yet."""
        from pyspark.errors import PySparkException

        try:
            if self._options.table is not None:
                found = self._spark.table(self._options.table)
            else:
                found = self._spark.read.format(self._options.format).load(self._location)
            found.schema  # noqa: B018 (which is when it is resolved)
        except PySparkException as error:
            if any(reason in (error.getCondition() or "") for reason in _NOT_THERE):
                return None
            raise reason_of(error) from error
        except Exception as error:
            raise reason_of(error) from error
        return found

    @property
    def _location(self) -> str:
        return f"file://{os.path.abspath(self._options.dataset)}"

    def _write(self, frame: DataFrame, staging: Staging) -> None:
        table, name = self._table(), self._options.table
        if table is not None and name is not None:
            frame.select(*table.columns).write.insertInto(name)  # whatever its columns and partitions are
            return
        writer = frame.write.format(self._options.format).mode("append")
        if table is None:
            writer = writer.partitionBy(*_PARTITIONED_BY)
        if name is not None:
            writer.saveAsTable(name)
        else:
            writer.save(self._location)


def _name_of(ranges: Iterable[ConsumedRange]) -> str:
    """Return a name for the files of a batch, the same for the same ranges."""
    text = json.dumps([range_fields(each) for each in ranges], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _skipped_in(directory: str) -> Iterator[Problem]:
    """Yield the skipped ranges recorded by the tasks of a batch, and remove the records."""
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        with open(os.path.join(directory, name), encoding="utf-8", errors="surrogateescape") as lines:
            for fields in map(json.loads, lines):
                yield Problem(fields["file"], fields["position"], fields["size"], fields["reason"])
    shutil.rmtree(directory, ignore_errors=True)
