"""The files of a dataset: Parquet, each with records of one partition and one day, named by its offsets.

``topic=orders/date=2020-11-27/0-<from>-<until>.parquet``: partition 0, the first offset, and the one after the last. So
files of one partition and day never overlap, unless something was exported twice.
"""

from __future__ import annotations

import os
import re
import socket
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, BinaryIO, Final

from kfs.cat.output import TableFormat
from kfs.cat.table_file import TableWriter
from kfs.errors import Fenced, KfsError, UnusableSession
from kfs.format.checkpoint import TopicPartition
from kfs.render.arrow_columns import SPARK_COLUMNS_WITH_HEADERS, Column
from kfs.spark.offsets.progress import StagedFile
from kfs.spark.offsets.staged_output import Staging

if TYPE_CHECKING:
    import pyarrow as pa

#: The columns of Spark's Kafka source except the topic, which is in the name of a directory.
COLUMNS: Final = tuple(column for column in SPARK_COLUMNS_WITH_HEADERS if column is not Column.TOPIC)
#: Hive's name for null, which all others follow.
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
#: The most open files of a task: timestamps may jump from day to day.
_MOST_OPEN: Final = 16
#: The most memory for their unfinished row groups, altogether.
_MOST_WAITING_BYTES: Final = 128 * 1024 * 1024
DAY: Final = 86_400_000_000  # microseconds
NO_TIMESTAMP: Final = -1_000  # microseconds: Kafka's -1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Years 1 to 9999, the range of dates, in days since 1970.
FIRST_DAY: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH).days
LAST_DAY: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH).days
_NAME: Final = re.compile(r"(?P<partition>[0-9]{1,10})-(?P<start>[0-9]{20})-(?P<end>[0-9]{20})\.parquet\Z")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A written and staged file: its partition, and the records and bytes in it."""

    file: StagedFile
    partition: TopicPartition
    records: int
    size: int


def directory_of(topic: str, day: int | None) -> str:
    """Return the directory of a topic's records of a day since 1970, below the dataset."""
    # A topic may have Hive's name for null; Hive encodes special characters in values as %xx.
    value = topic.replace("_", "%5F", 1) if topic == NO_VALUE else topic
    date = NO_VALUE if day is None else (_EPOCH + timedelta(days=day)).date().isoformat()
    return f"topic={value}/date={date}"


def file_name(partition: int, start: int, end: int) -> str:
    """Return the name of the file with the records of a partition whose offsets are ``start`` up to below ``end``."""
    return f"{partition}-{start:020d}-{end:020d}.parquet"


def check_for_doubles(dataset: str, files: Iterable[StagedFile]) -> None:
    """Raise :class:`KfsError` if the dataset has a file with offsets of one of the new files."""
    known: dict[str, list[tuple[int, int, int, str]]] = {}
    for file in files:
        directory, _, name = file.final.rpartition("/")
        if directory not in known:
            known[directory] = list(_ranges_in(os.path.join(dataset, directory)))
        match = _NAME.match(name)
        if match is None:
            continue
        partition, start, end = int(match["partition"]), int(match["start"]), int(match["end"])
        for other_partition, other_start, other_end, other in known[directory]:
            if other_partition == partition and other_start < end and start < other_end:
                raise KfsError(
                    f"{os.path.join(dataset, directory, other)}: has offsets of {start} to {end - 1}, which were about "
                    "to be written: remove their records from the dataset, or set the positions after them"
                )


def _ranges_in(directory: str) -> Iterator[tuple[int, int, int, str]]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        match = _NAME.match(name)
        if match is not None:
            yield int(match["partition"]), int(match["start"]), int(match["end"]), name


class DailyFileWriter:
    """Writes the records of one partition, in offset order, to a file for each day; few are open at any time."""

    def __init__(self, staging: Staging, topic: str, partition: int, compression: str) -> None:
        self._staging = staging
        self._topic = topic
        self._partition = partition
        self._compression = compression
        self._open: OrderedDict[int | None, _OpenFile] = OrderedDict()  # most recently used last
        self._done: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch with :data:`COLUMNS`."""
        for day, part in by_day(batch):
            self._file_of(day, batch.schema).write(part)
            while sum(file.waiting_bytes for file in self._open.values()) > _MOST_WAITING_BYTES:
                max(self._open.values(), key=lambda file: file.waiting_bytes).flush()

    def finish(self) -> list[WrittenFile]:
        """Complete the files, and return them all."""
        while self._open:
            self._close_oldest()
        return self._done

    def abandon(self) -> None:
        """Remove what was written."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()
        for written in self._done:
            _remove(os.path.join(self._staging.root, written.file.staged))

    def _file_of(self, day: int | None, schema: pa.Schema) -> _OpenFile:
        file = self._open.get(day)
        if file is None:
            if len(self._open) >= _MOST_OPEN:
                self._close_oldest()
            path = self._staging.path(f"{self._partition}.staged")  # no pattern for Parquet files matches it
            file = self._open[day] = _OpenFile(path, self._staging.root, schema, self._compression)
        self._open.move_to_end(day)
        return file

    def _close_oldest(self) -> None:
        day, file = next(iter(self._open.items()))
        size = file.close()
        del self._open[day]
        name = file_name(self._partition, file.start, file.end)
        staged = self._staging.keep(file.path, f"{directory_of(self._topic, day)}/{name}")
        self._done.append(WrittenFile(staged, TopicPartition(self._topic, self._partition), file.records, size))


class _OpenFile:
    """A file being written."""

    def __init__(self, path: str, root: str, schema: pa.Schema, compression: str) -> None:
        self.path = path
        self.records = 0
        self.start = self.end = -1
        self._out = _created(path, root)
        self._writer = TableWriter(
            schema, TableFormat.PARQUET, self._out, is_file=True, metadata={}, compression=compression
        )

    @property
    def waiting_bytes(self) -> int:
        return self._writer.waiting_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        offsets = batch.column(batch.schema.get_field_index(Column.OFFSET.label))
        if self.records == 0:
            self.start = offsets[0].as_py()
        self.end = offsets[-1].as_py() + 1
        self.records += batch.num_rows
        self._writer.write(batch)

    def flush(self) -> None:
        self._writer.write_row_group()

    def close(self) -> int:
        """Complete it, and return its size."""
        self._writer.close()
        size = self._out.tell()
        self._out.close()
        return size

    def abandon(self) -> None:
        self._writer.abandon()
        self._out.close()
        _remove(self.path)


def _created(path: str, root: str) -> BinaryIO:
    try:
        return open(path, "xb")
    except FileNotFoundError:
        if not os.path.isdir(root):
            raise UnusableSession(
                f"{root} is not there on {socket.gethostname()}: every executor has to see the dataset under the same "
                "path as the driver"
            ) from None
        raise Fenced(f"{path}: is gone: another export took over the group: this process must stop") from None


def _remove(path: str) -> None:
    with suppress(OSError):  # the directory is removed in the end
        os.unlink(path)


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Yield the records of each day since 1970 (UTC), in order; None for those without a timestamp that is a date."""
    import pyarrow as pa
    from pyarrow import compute

    times = batch.column(batch.schema.get_field_index(Column.TIMESTAMP.label)).cast(pa.int64())
    day = _only_day(times)
    if day is not None:
        yield day, batch
        return
    days = pa.array([None if time is None else _day_of(time) for time in times.to_pylist()], pa.int64())
    order = compute.sort_indices(days)  # a stable sort
    start = 0
    for run in days.take(order).value_counts():
        count = run["counts"].as_py()
        # Copied: a few records waiting for others of their day must not keep the whole batch in memory.
        yield run["values"].as_py(), batch.take(order.slice(start, count))
        start += count


def _only_day(times: pa.Array) -> int | None:
    """Return the day that all of these times have, None if they differ or one has none."""
    from pyarrow import compute

    ends = compute.min_max(times)
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first is None or times.null_count or first <= NO_TIMESTAMP <= last:
        return None
    return _day_of(first) if _day_of(first) == _day_of(last) else None


def _day_of(time: int) -> int | None:
    """Return the day of a time in microseconds, None if it has none, or is out of the range of dates."""
    day = time // DAY
    return day if time != NO_TIMESTAMP and FIRST_DAY <= day <= LAST_DAY else None
