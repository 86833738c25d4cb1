"""Imports lines of any topics and partitions, in any mix, into one or several log directories.

A partition gets its final name only when everything is written and synced. Until then it has the name of a deleted
topic's partition. So if the import fails, a broker removes it at the next start.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from kfs.broker_log.log_config import SEGMENT_BYTES, LogConfig
from kfs.broker_log.log_manager import LogManager
from kfs.errors import BadLine, KfsError
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT64
from kfs.format.uuid import Uuid
from kfs.imports.layout import BatchLayout
from kfs.imports.lines import ImportedRecord
from kfs.imports.partition import PartitionImport
from kfs.imports.topic_ids import ImportTopicIds

#: The maximum number of partitions with open files.
_MOST_OPEN: Final = 256


@dataclass(frozen=True, slots=True)
class Imported:
    """A new partition: its directory, its topic id, its number of records, and its start and end offset."""

    partition: TopicPartition
    directory: str
    topic_id: Uuid
    records: int
    start_offset: int
    end_offset: int


class Import:
    """Creates partitions from lines. They appear with :meth:`finish`; leaving the block earlier discards them.

    ``on_bad_line`` is called with each line that can't be imported, which is then skipped; it may raise the error to
    stop the import.
    """

    def __init__(
        self,
        log_dirs: Sequence[str],
        layout: BatchLayout,
        *,
        on_bad_line: Callable[[BadLine], None],
        topic_id: Uuid | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        new_offsets: bool = False,
    ) -> None:
        """Prepare the log directories, which must exist.

        Raises:
            UnusableSource: a log directory doesn't exist, or can't be listed.
        """
        # Segments roll only by size: the records' timestamps don't tell when a segment was created.
        config = LogConfig(segment_bytes=segment_bytes, segment_ms=MAX_INT64)
        self._logs = LogManager(log_dirs, config)
        self._topic_ids = ImportTopicIds(self._logs.log_dirs, topic_id)
        self._layout = layout
        self._segment_bytes = segment_bytes
        self._new_offsets = new_offsets
        self._on_bad_line = on_bad_line
        self._partitions: dict[TopicPartition, PartitionImport] = {}
        self._open: OrderedDict[TopicPartition, None] = OrderedDict()
        self._current: TopicPartition | None = None
        self._is_finished = False

    def __enter__(self) -> Import:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_finished:
            self._logs.discard()

    def add(self, lines: Iterable[ImportedRecord | BadLine]) -> None:
        """Import the lines of an input.

        Raises:
            BadLine: raised by ``on_bad_line``.
            KfsError: a partition exists already, or its topic has another id.
        """
        for line in lines:
            if isinstance(line, BadLine):
                self._on_bad_line(line)
            elif (reason := self._layout.refusal(line.record)) is not None:
                self._on_bad_line(line.bad(reason))
            else:
                self._report(self._partition_of(line).add(line))

    def _partition_of(self, line: ImportedRecord) -> PartitionImport:
        partition = line.partition
        found = self._partitions.get(partition)
        if found is None:
            found = self._partitions[partition] = self._begin(line)
        if partition is not self._current:
            self._current = partition
            self._keep_open(partition)
        return found

    def _begin(self, line: ImportedRecord) -> PartitionImport:
        first_offset = 0 if self._new_offsets else line.record.offset
        try:
            topic_id = self._topic_ids.of(line.partition.topic)
            log = self._logs.create(line.partition, topic_id, first_offset)
        except FileExistsError as error:
            raise KfsError(f"{line.where}: {error}, and existing ones are never touched") from None
        return PartitionImport(log, self._layout, self._segment_bytes, self._new_offsets)

    def _keep_open(self, partition: TopicPartition) -> None:
        """Mark a partition as in use; if too many are open, close the files of the least recently used one."""
        self._open[partition] = None
        self._open.move_to_end(partition)
        if len(self._open) > _MOST_OPEN:
            oldest, _ = self._open.popitem(last=False)
            self._partitions[oldest].log.segments.last.park()

    def _report(self, bad: Iterator[BadLine]) -> None:
        for line in bad:
            self._on_bad_line(line)

    @property
    def is_empty(self) -> bool:
        """Whether no partition was begun, because no line was a valid record."""
        return not self._partitions

    def finish(self) -> list[Imported]:
        """Write the remaining records and rename the partitions; return these in the order in which they were begun.

        Raises:
            BadLine: raised by ``on_bad_line``.
            CorruptData: an existing checkpoint can't be read.
        """
        for partition, each in self._partitions.items():
            self._keep_open(partition)
            self._report(each.flush())
        self._logs.close()
        self._is_finished = True
        return [
            Imported(
                partition,
                self._logs.directory_of(partition),
                self._topic_ids.of(partition.topic),
                each.records,
                each.end_offset if each.first_offset is None else each.first_offset,
                each.end_offset,
            )
            for partition, each in self._partitions.items()
        ]
