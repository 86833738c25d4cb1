"""Reading in a task: its ranges of bytes as Arrow record batches. Nothing here needs Spark."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfs.errors import UnusableSource
from kfs.log.identity import Identity, other_log
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import DamagePolicy, Problem
from kfs.read.cutting import end_of
from kfs.read.log_source import LogSource
from kfs.read.plan import BatchRange
from kfs.render.arrow_batches import record_batch, schema_of
from kfs.render.arrow_builder import ArrowBuffers
from kfs.scan.arrow_reader import ArrowReader
from kfs.scan.request import Request
from kfs.spark.options import ReadOptions
from kfs.spark.planning import SourceSplit, Task
from kfs.spark.ranges import lose
from kfs.spark.skipped import SkippedRanges
from kfs.storage.listing import check_listable
from kfs.storage.status import PathKind, kind_at, status_if_there

if TYPE_CHECKING:
    import pyarrow as pa


def read_task(
    task: Task, request: Request, options: ReadOptions, skipped: SkippedRanges | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the requested parts of a task's records, in the order of its splits.

    ``skipped`` gets the skipped ranges of bytes, if given.

    Raises:
        UnusableSource: the path doesn't exist on this machine.
        DataLoss: offsets that existed at planning are gone, and that isn't accepted.
        CorruptData: a batch can't be read, and that isn't to be skipped.
        UnusableSession: the record of skipped ranges can't be written.
    """
    skipped = skipped or SkippedRanges(task, options.skipped_path)
    reader = _TaskReader(request, options, skipped)
    try:
        for split in task.splits:
            yield from reader.read(split)
    finally:
        reader.close()
    skipped.save()


class _TaskReader:
    """Reads splits of any number of logs; a log stays open until a split of another log comes."""

    def __init__(self, request: Request, options: ReadOptions, skipped: SkippedRanges) -> None:
        self._request = request
        self._options = options
        self._skipped = skipped
        self._source: LogSource | None = None
        self._log: Log | None = None
        self._arrow = ArrowReader(request)
        self._schema = schema_of(request.columns)

    def read(self, split: SourceSplit) -> Iterator[pa.RecordBatch]:
        """Yield the records of a split."""
        log = self._open(split.source)
        if log is None or self._is_other_topic(log, split):
            return
        for batches in self._works(log, split):
            for portion in self._arrow.read(log, batches, split.offsets):
                if isinstance(portion, ArrowBuffers):
                    yield record_batch(self._schema, self._request.columns, portion)
                else:
                    self._meet(portion, split)
        self._is_other_topic(log, split)  # it may have been replaced before the last file was opened

    def _is_other_topic(self, log: Log, split: SourceSplit) -> bool:
        """Return whether the topic was replaced by another of that name: then all planned data is gone."""
        other = other_log(log, split.offsets.start, Identity(split.topic_id))
        if other is not None:
            self._lose(split, other.reason)
        return other is not None

    def _open(self, source: LogSource) -> Log | None:
        """Return the log, None if it is gone and that is accepted."""
        if source != self._source or self._log is None:
            self.close()
            if not self._is_there(source):
                return None
            self._source, self._log = source, source.open()
        return self._log

    def _is_there(self, source: LogSource) -> bool:
        path, host = source.path, socket.gethostname()
        try:
            check_listable(path)
        except FileNotFoundError:
            if kind_at(os.path.dirname(path)) is not PathKind.DIRECTORY:
                raise UnusableSource(
                    f"{path} is not there on {host}: every executor has to see the log directories under the same path"
                ) from None
            lose(f"{path} is not there on {host} (any more)", fail=self._options.fail_on_data_loss)
            return False
        except OSError as error:
            raise UnusableSource(f"{path} can't be read on {host}: {error.strerror}") from None
        return True

    def _works(self, log: Log, split: SourceSplit) -> Iterator[BatchRange]:
        """Yield the split as planned, or, if the segment's file was replaced, the present place of its offsets."""
        segment = log.segment_for(split.batches.base_offset)
        if segment is not None and segment.base_offset == split.batches.base_offset and split.version.is_of(segment):
            yield split.batches
            return
        self._check_for_loss(log, split)
        offsets = split.offsets
        for segment in log.segments:
            if segment.base_offset >= offsets.end:
                return
            if segment.next_base_offset is None or segment.next_base_offset > offsets.start:
                position, after = segment.position_before(max(offsets.start, segment.base_offset))
                end = None if split.batches.end is None else end_of(segment, offsets.end)
                yield BatchRange(log.topic, log.partition, segment.base_offset, position, end, after)

    def _check_for_loss(self, log: Log, split: SourceSplit) -> None:
        wanted, segments = split.offsets, log.segments
        there = OffsetRange(segments[0].base_offset, log.log_end_offset) if segments else OffsetRange(0, 0)
        if wanted.start < there.start or wanted.end > there.end:
            self._lose(split, f"the log has {there.start} to {there.end - 1} by now" if segments else "the log is gone")

    def _lose(self, split: SourceSplit, reason: str) -> None:
        wanted = split.offsets
        lose(
            f"offsets {wanted.start} to {wanted.end - 1} of {split.batches.topic}-{split.batches.partition} "
            f"were there when the query was planned, and {reason} ({split.source.path} on {socket.gethostname()})",
            fail=self._options.fail_on_data_loss,
        )

    def _meet(self, problem: Problem, split: SourceSplit) -> None:
        """Handle unreadable bytes: as lost data, or by the damage policy."""
        if self._is_gone(problem, split):
            self._lose(split, problem.reason)
        elif self._options.on_damage is DamagePolicy.FAIL:
            raise problem.error()
        else:
            self._skipped.add(problem)

    @staticmethod
    def _is_gone(problem: Problem, split: SourceSplit) -> bool:
        """Return whether the problem is that a file was removed or truncated."""
        try:
            status = status_if_there(problem.file)
        except OSError:  # its status is unknown, so it counts as damaged rather than gone
            return False
        return status is None or status.size < (
            split.batches.position if split.batches.end is None else split.batches.end
        )

    def close(self) -> None:
        """Release resources."""
        if self._log is not None:
            self._log.storage.close()
        self._source = self._log = None
