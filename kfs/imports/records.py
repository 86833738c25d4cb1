"""All that is imported: lines of any topics and partitions, mixed as they may be, into one or several log directories.

Partitions get their names when everything is written and on the disk; until then, and for ever if that moment does not
come, they look like those of deleted topics, which a broker removes when it starts.
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

#: Partitions whose files are held open.
_MOST_OPEN: Final = 256


@dataclass(frozen=True, slots=True)
class Imported:
    """A partition that was made: where, of what topic id, how many records, and the offsets from the first on."""

    partition: TopicPartition
    directory: str
    topic_id: Uuid
    records: int
    start_offset: int
    end_offset: int


class Import:
    """Makes partitions of lines; nothing is there until :meth:`finish`, and nothing stays if the block is left before.

    ``on_bad_line`` is given each line that can't be imported, which is then left out; it raises it to stop.
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
        """Look at each log directory, which must be there.

        Raises:
            UnusableSource: there is none, or one can't be listed.
        """
        # Only the size decides: how old the records are says nothing about when a segment was begun.
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
        """Take the lines of an input.

        Raises:
            BadLine: where ``on_bad_line`` does.
            KfsError: a partition is there already, or its topic has another id.
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
        """Note that a partition is in use, and have the one used longest ago close its files."""
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
        """Whether no line was a record that a partition could be begun with."""
        return not self._partitions

    def finish(self) -> list[Imported]:
        """Write what isn't yet written and give the partitions their names; return them in the order they were begun.

        Raises:
            BadLine: where ``on_bad_line`` does.
            CorruptData: a checkpoint that is there already can't be read.
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
