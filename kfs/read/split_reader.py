"""Reads splits: selects the wanted records, and reports losses."""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.log.bulk import DecodedBatches, ScannedBatches, WholeBatches
from kfs.log.log import Log
from kfs.log.log_segments import MOST_LOOKS
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem, faulty_records
from kfs.log.segment import Segment
from kfs.read.isolation_level import IsolationLevel
from kfs.read.plan import BatchRange, of_span, splits_of
from kfs.read.selection import Selection
from kfs.read.sight import Sight, Unreadable
from kfs.read.wanted_offsets import WantedOffsets
from kfs.storage.open_files import FileChanged, FileGone, Patched

if TYPE_CHECKING:
    from kfs.read.aborted_transactions import AbortedTransactions

_LOG: Final = logging.getLogger("kfs")


@dataclass(frozen=True, slots=True)
class SelectedRecords:
    """The indexes of the wanted records in some blocks, and the problems in the blocks.

    A :class:`SplitReader` with ``by_header`` may return ``whole`` batches instead, whose records are all wanted.
    """

    records: DecodedBatches | None = None
    indexes: Sequence[int] = ()
    problems: tuple[Problem, ...] = ()
    whole: WholeBatches | None = None

    @property
    def count(self) -> int:
        """The number of wanted records."""
        return len(self.indexes) if self.whole is None else self.whole.count


@dataclass(slots=True)
class SplitReader:
    """Reads splits, in any order, as each comes with its own offsets.

    With ``by_header``, batches aren't decoded if their headers say how many of their records are wanted
    (:mod:`kfs.read.by_header`). With ``tells_what_is_gone``, offsets that were deleted since the split was planned are
    a problem even if they weren't requested by number.
    """

    selection: Selection
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    by_header: bool = False
    tells_what_is_gone: bool = False
    _aborted: AbortedTransactions | None = None
    #: The highest offset read so far.
    _after: int = -1

    def select(self, log: Log | None, batches: BatchRange, offsets: WantedOffsets) -> Iterator[SelectedRecords]:
        """Yield the wanted records of a split in ``offsets``, block by block.

        Damage is yielded as a problem if it may hide requested offsets (:class:`~kfs.read.sight.Sight`). ``log`` is the
        split's log, or None if that is gone.

        If the segment's file has changed since the split was planned, the offsets of the split are read from the log's
        current segments, each once. Deleted offsets are a problem if they were requested by number, with
        ``tells_what_is_gone``, or if the log is empty or belongs to another topic now.

        Raises:
            FileChanged: the log is gone; the segment is gone or was cut, and the split's offsets aren't known; or the
                log's segments keep changing.
            CorruptData: a device fails.
        """
        self._after = batches.base_offset - 1 if batches.after is None else batches.after
        try:
            if log is None:
                raise FileGone("is gone", 0, f"{batches.topic}-{batches.partition}")
            segment = log.segment_at(batches.base_offset)
            if segment is None or not _is_planned(batches, segment):
                raise FileGone("was deleted or replaced", batches.position, _path_of(batches, log))
            yield from self.select_in(log, segment, batches, offsets)
        except FileChanged as error:
            # If only byte positions bound a split, its remaining offsets are unknown.
            is_bounded = batches.version is not None or (isinstance(error, Patched) and offsets.end < MAX_INT64)
            if log is None or not is_bounded:
                raise
            yield from self._select_elsewhere(log, batches, offsets)

    @property
    def read_up_to(self) -> int:
        """The offset after all batches that were read of the last split."""
        return self._after + 1

    def select_in(
        self, log: Log, segment: Segment, batches: BatchRange, offsets: WantedOffsets
    ) -> Iterator[SelectedRecords]:
        """Yield the wanted records of a split like :meth:`select`, but only from this segment of the log.

        Raises:
            FileChanged: the segment is gone or was cut; what was read before is in :attr:`read_up_to`.
            CorruptData: a device fails.
        """
        self._after = max(offsets.start - 1, batches.base_offset - 1 if batches.after is None else batches.after)
        self._isolate(log)
        is_aborted = None if self._aborted is None else self._aborted.is_aborted
        sight = Sight(offsets, offsets.asked_end, is_aborted)
        for item in self._read(segment, batches, offsets):
            if isinstance(item, ScannedBatches):
                if isinstance(item, WholeBatches):  # other batches that aren't decoded have no wanted records
                    from kfs.read.by_header import visible  # only here, and below: records that are printed need none

                    for part in visible(segment, item, is_aborted):
                        yield SelectedRecords(whole=part)
                first, last = item.base_offset, item.last_offset
                is_behind = first >= offsets.end or last + 1 >= offsets.asked_end
            elif isinstance(item, DecodedBatches):
                first, last = _offsets_of(item)
                selected = self._of_records(sight, segment, item) if first < offsets.end else None
                if selected is not None:
                    yield selected
                is_behind = first >= offsets.end or last + 1 >= offsets.asked_end
            else:
                last, is_behind = item.last_offset, False
                if sight.misses(segment, item):
                    yield SelectedRecords(problems=(item.problem,))
            self._after = max(self._after, last)
            if is_behind:
                return

    def _read(
        self, segment: Segment, batches: BatchRange, offsets: WantedOffsets
    ) -> Iterator[ScannedBatches | DecodedBatches | Unreadable]:
        """Read batches of a segment; decode only those that can have wanted records according to their headers.

        Batches that begin late are decoded only if they have an earlier record after all.
        """
        reader = segment.bulk_reader()
        if self.by_header:
            from kfs.read.by_header import divided
        for item in reader.batches(batches.position, batches.after, batches.end):
            if isinstance(item, ScannedBatches):
                for part, may_hold in self._parts(item, offsets):
                    if not may_hold:
                        yield part
                    elif self.selection.begins_late(part.table.base_timestamps[part.first]):
                        assert self.selection.before is not None
                        yield from reader.decoded_before(part, self.selection.before)
                    elif self.by_header:
                        for some in divided(part, offsets, self.selection):
                            yield from (some,) if isinstance(some, WholeBatches) else reader.decoded(some)
                    else:
                        yield from reader.decoded(part)
            else:
                yield item

    def _parts(self, scanned: ScannedBatches, offsets: WantedOffsets) -> Iterator[tuple[ScannedBatches, bool]]:
        """Divide batches into parts that can have wanted records, and parts that can't.

        With times, those that begin late (:meth:`Selection.begins_late`) are parts of their own.
        """
        table, selection = scanned.table, self.selection
        if not selection.has_times:
            start = min(bisect_left(table.last_offsets, offsets.start, scanned.first, scanned.stop), scanned.stop)
            stop = bisect_left(table.base_offsets, offsets.end, start, scanned.stop)
            rows = ((scanned.first, start, False), (start, stop, True), (stop, scanned.stop, False))
            yield from ((scanned.of_rows(first, end), is_wanted) for first, end, is_wanted in rows if first < end)
            return
        begin = scanned.first
        for (may_hold, _), group in groupby(
            range(scanned.first, scanned.stop),
            lambda row: (
                table.base_offsets[row] < offsets.end
                and table.last_offsets[row] >= offsets.start
                and selection.may_hold(table.attributes[row], table.max_timestamps[row]),
                selection.begins_late(table.base_timestamps[row]),
            ),
        ):
            stop = begin + sum(1 for _ in group)
            yield scanned.of_rows(begin, stop), may_hold
            begin = stop

    def _select_elsewhere(self, log: Log, batches: BatchRange, offsets: WantedOffsets) -> Iterator[SelectedRecords]:
        """Yield the wanted records of a split that weren't yielded yet, from the log's current segments."""
        end = offsets.end if batches.stop is None else min(offsets.end, batches.stop)
        asked_end = offsets.asked_end if batches.stop is None else end
        start, looks = max(offsets.start, self._after + 1), 0
        while start < end:
            log.look_again()
            span = log.span_from(start)
            if span is None or not _is_of_topic(log, batches):
                yield self._lost(batches, log, OffsetRange(start, end), "the log is gone")
                return
            here = min(max(start, span.start), end)
            if start < here:
                yield self._lost(batches, log, OffsetRange(start, here), f"the log start moved to {span.start}")
                start = here
                continue
            segment, wanted = span.segment, of_span(WantedOffsets(start, end, asked_end), span)
            self.forget()
            try:
                position, after = segment.position_before(start)
                where = BatchRange(batches.topic, batches.partition, segment.base_offset, position, None, after)
                yield from self.select_in(log, segment, where, wanted)
            except FileChanged:
                looks += 1
                if looks >= MOST_LOOKS:
                    raise
                start = self._after + 1
            else:
                looks = 0
                start = wanted.end

    def _lost(self, batches: BatchRange, log: Log, lost: OffsetRange, why: str) -> SelectedRecords:
        """Report offsets that were deleted since the split was planned, as a problem or only in kfs's log output."""
        told = f"offsets {lost.start} to {lost.end - 1} are gone: {why} while it was read"
        was_asked_for = self.selection.start or self.tells_what_is_gone
        if log.segments and _is_of_topic(log, batches) and not was_asked_for:
            _LOG.info("%s: %s", log.directory.path, told)
            return SelectedRecords()
        problem = Problem(_path_of(batches, log), 0, 0, told)
        log.problems.add(problem)
        return SelectedRecords(problems=(problem,))

    def forget(self) -> None:
        """Forget what is known of transactions, because some of the segments that they were read in are gone."""
        self._aborted = None

    def _isolate(self, log: Log) -> None:
        if self.isolation is IsolationLevel.READ_COMMITTED and (self._aborted is None or self._aborted.log is not log):
            from kfs.read.aborted_transactions import AbortedTransactions  # only here: rarely needed

            self._aborted = AbortedTransactions(log)

    def _of_records(self, sight: Sight, segment: Segment, item: DecodedBatches) -> SelectedRecords | None:
        columns = item.columns
        ranges = sight.rows(segment, item)
        indexes: Sequence[int] = ranges[0] if len(ranges) == 1 else [index for some in ranges for index in some]
        if self.selection.looks_inside:
            indexes = self.selection.indexes(columns, indexes)
        problems: tuple[Problem, ...] = ()
        if columns.faults:
            indexes = [index for index in indexes if index not in columns.faults]
            if any(index in some for index in columns.faults for some in ranges):
                problems = (faulty_records(columns, item.file, item.position, item.end - item.position),)
        return SelectedRecords(item, indexes, problems) if indexes or problems else None


def _path_of(batches: BatchRange, log: Log) -> str:
    """Return the path of the segment that a split was planned for."""
    return os.path.join(log.directory.path, f"{batches.base_offset:020d}.log")


def _is_planned(batches: BatchRange, segment: Segment) -> bool:
    """Whether a segment is the same file as when the split was planned."""
    return segment.base_offset == batches.base_offset and (batches.version is None or batches.version.is_of(segment))


def _is_of_topic(log: Log, batches: BatchRange) -> bool:
    """Whether the log is still of the split's topic, not of a re-created one; call it after listing the segments."""
    if batches.topic_id is None:
        return True
    metadata = log.partition_metadata()
    return metadata is not None and metadata.topic_id == batches.topic_id


def selected_in(
    reader: SplitReader, log: Log, offsets: WantedOffsets, gone: Callable[[CorruptData], None] | None = None
) -> Iterator[tuple[BatchRange, SelectedRecords]]:
    """Yield the wanted records of a log, block by block, with the batches of their split.

    If a segment vanishes meanwhile, ``gone`` is called with the error, and reading continues after that segment.

    Raises:
        CorruptData: a segment vanished, and ``gone`` is None.
    """
    for split in splits_of(log, offsets):
        try:
            for selected in reader.select(log, split.batches, split.offsets):
                yield split.batches, selected
        except CorruptData as error:
            if gone is None:
                raise
            gone(error)


def last_in(
    reader: SplitReader, log: Log, offsets: WantedOffsets, count: int, gone: Callable[[CorruptData], None] | None = None
) -> Iterator[tuple[BatchRange, SelectedRecords]]:
    """Yield the last ``count`` records of :func:`selected_in`, without reading much more of the log than needed.

    It searches back from the end in ranges that double in size, since compaction, markers and filters leave gaps.
    """
    span, end, asked_end, missing = max(count, 1), offsets.end, offsets.asked_end, count
    found: deque[tuple[BatchRange, SelectedRecords]] = deque()
    told: set[Problem] = set()
    while missing > 0 and offsets.start < end:
        start = max(offsets.start, end - span)
        earlier = list(selected_in(reader, log, WantedOffsets(start, end, max(end, asked_end)), gone))
        asked_end = 0  # the offsets after these have been read already
        for batches, selected in reversed(earlier):
            # A problem may span several ranges, but is reported once.
            problems = tuple(problem for problem in selected.problems if problem not in told)
            told.update(problems)
            kept = replace(
                selected, indexes=selected.indexes[max(len(selected.indexes) - missing, 0) :], problems=problems
            )
            missing -= len(kept.indexes)
            found.appendleft((batches, kept))
            if missing <= 0:
                break
        end, span = start, span * 2
    yield from found


def _offsets_of(records: DecodedBatches) -> tuple[int, int]:
    """Return the first and the last offset that decoded batches cover."""
    offsets = records.columns.offsets
    if not offsets:
        return records.base_offset, records.last_offset
    return offsets[0], max(offsets[-1], records.last_offset)
