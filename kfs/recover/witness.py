"""Records what a broker's recovery is about to remove, and what is lost with it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from kfs.broker_log.log_loader import LoadObserver
from kfs.broker_log.log_segment import LogSegment, Recovery
from kfs.broker_log.unified_log import UnifiedLog
from kfs.errors import CorruptData
from kfs.format.batch_header import BatchHeader
from kfs.format.layout import MAX_INT64
from kfs.log.block import Block
from kfs.log.offset_range import SegmentBounds
from kfs.log.resync import is_zero_to_end
from kfs.log.storage import DEFAULT_MAX_BATCH_BYTES
from kfs.log.walk import SegmentWalk
from kfs.recover.report import Change, Loss, PartitionReport
from kfs.storage.open_files import OpenFile

_CUT_OFF = "an incomplete batch"


class Witness(LoadObserver):
    """Reports what a :class:`~kfs.broker_log.log_loader.LogLoader` does; the report names files in ``source``."""

    def __init__(self, source: str, report: PartitionReport) -> None:
        self._source = source
        self._report = report

    def removes(self, path: str, reason: str) -> None:
        """See :meth:`LoadObserver.removes`."""
        self._change(path, f"removed: it {reason}")

    def rebuilds(self, segment: LogSegment, reason: str) -> None:
        """See :meth:`LoadObserver.rebuilds`."""
        self._change(segment.path(".log"), f"recovered and its indexes rebuilt: {reason}")

    def truncates(self, segment: LogSegment, recovery: Recovery) -> None:
        """See :meth:`LoadObserver.truncates`."""
        reason = recovery.reason.reason if recovery.reason is not None else _CUT_OFF
        self._lose(segment, recovery.valid_bytes, f"cut off: {reason}")

    def empties(self, segment: LogSegment, reason: str) -> None:
        """See :meth:`LoadObserver.empties`."""
        self._lose(segment, 0, f"the whole segment is cut off: {reason}")

    def deletes(self, segments: Iterable[LogSegment], reason: str) -> None:
        """See :meth:`LoadObserver.deletes`."""
        for segment in segments:
            if segment.size:
                self._lose(segment, 0, f"the whole segment is deleted: it {reason}")
            else:
                self._change(segment.path(".log"), f"removed, empty: it {reason}")

    def splits(self, segment: LogSegment) -> None:
        """See :meth:`LoadObserver.splits`."""
        self._change(segment.path(".log"), "split: its offsets span more than an int32")

    def loaded(self, log: UnifiedLog) -> None:
        """Report the log's start and end, unusable producer snapshots, and records past the log's end."""
        self._report.log_start_offset = log.log_start_offset
        self._report.log_end_offset = log.log_end_offset
        for error in log.producers.unreadable:
            self._change(error.file or "", f"removed, and rebuilt from the log: {error.reason}")
        self._find_hidden(log)

    def _find_hidden(self, log: UnifiedLog) -> None:
        """Report offsets in the log at or above its end, which a broker will assign to other records."""
        segment = log.segments.last
        hidden: list[BatchHeader] = []
        with suppress(CorruptData):  # damage despite a clean stop: a broker notices it only when it reads there
            headers = segment.records().headers()
            hidden.extend(header for header in headers if header.last_offset >= log.log_end_offset)
        if hidden:
            first = max(hidden[0].base_offset, log.log_end_offset)
            last = max(header.last_offset for header in hidden)
            reason = f"hidden: Kafka finds the log's end at offset {log.log_end_offset}"
            path = self._named(segment.path(".log"))
            end = hidden[-1].position + hidden[-1].size
            self._report.losses.append(Loss(path, hidden[0].position, end, first, last, reason))

    def _lose(self, segment: LogSegment, start: int, reason: str) -> None:
        path = segment.path(".log")
        file = OpenFile(path)
        if is_zero_to_end(file, start, segment.size):
            self._change(path, f"{segment.size - start} bytes of zeros cut off at byte {start}")
            return
        first, last = _offsets_in(file, segment, start)
        self._report.losses.append(Loss(self._named(path), start, segment.size, first, last, reason))

    def _change(self, path: str, what: str) -> None:
        self._report.changes.append(Change(self._named(path), what))

    def _named(self, path: str) -> str:
        return os.path.join(self._source, os.path.basename(path))


def _offsets_in(file: OpenFile, segment: LogSegment, start: int) -> tuple[int | None, int | None]:
    """Return the offsets lost from byte ``start`` on, up to the last one that a batch there has or claims.

    Both are None if no batch has any.
    """
    after = max((header.last_offset for header in segment.records(start).headers()), default=segment.base_offset - 1)
    bounds = SegmentBounds(segment.base_offset, MAX_INT64)
    walk = SegmentWalk(file, bounds, DEFAULT_MAX_BATCH_BYTES, lambda problem: None)
    last = after
    for item in walk.items(start, after):
        last = max(last, item.header.last_offset if isinstance(item, Block) else item.claimed_last)
    return (after + 1, last) if last > after else (None, None)
