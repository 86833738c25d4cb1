"""Reading one piece of work: which records of a segment are wanted, and what of it could not be read."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.log.bulk import Records
from kfs.log.log import MOST_LOOKS, Log
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem, faulty_records
from kfs.log.segment import Segment
from kfs.read.aborted_transactions import AbortedTransactions
from kfs.read.isolation import IsolationLevel
from kfs.read.plan import Work, pieces_of
from kfs.read.selection import Selection
from kfs.read.sight import Sight
from kfs.read.wanted_offsets import WantedOffsets
from kfs.storage.open_files import FileChanged, FileGone
from kfs.storage.patched_file import Patched

_LOG: Final = logging.getLogger("kfs")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Records of some blocks that are wanted, by index, and what of the blocks could not be read."""

    records: Records | None = None
    indexes: Sequence[int] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class PieceReader:
    """Reads pieces of work, in any order: each has its own offsets."""

    selection: Selection
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    _aborted: AbortedTransactions | None = None
    #: The highest offset that was read up to.
    _seen: int = -1

    def choose(self, log: Log | None, work: Work, offsets: WantedOffsets) -> Iterator[Chosen]:
        """Yield the records of a piece that are wanted, block by block; those outside of ``offsets`` are not.

        Damage is among them where it may hide offsets that were asked for (:class:`~kfs.read.sight.Sight`).
        ``log`` is that of the piece, None where it is gone.

        Where the segment's file is no more what it was when the piece was planned, the offsets of the piece are read
        from what is there now, each once. Those that are gone are no problem if nobody asked for them by number.

        Raises:
            FileChanged: the segment is gone, or was cut under our hands, and what the piece then is isn't known; or
                that goes on and on.
            CorruptData: a device fails.
        """
        self._seen = work.base_offset - 1 if work.seen is None else work.seen
        try:
            if log is None:
                raise FileGone("is gone", 0, f"{work.topic}-{work.partition}")
            segment = log.segment_for(work.base_offset)
            if segment is None or not _is_planned(work, segment):
                raise FileGone("is gone, or another file", work.position, _path_of(work, log))
            self._isolate(log)
            yield from self._chosen_in(segment, work, offsets)
        except FileChanged as error:
            # Where nothing but positions bounds a piece, nobody knows what of it is left.
            is_bounded = work.version is not None or (isinstance(error, Patched) and offsets.end < MAX_INT64)
            if log is None or not is_bounded:
                raise
            yield from self._choose_elsewhere(log, work, offsets)

    def _chosen_in(self, segment: Segment, work: Work, offsets: WantedOffsets) -> Iterator[Chosen]:
        """Yield what is wanted of batches of a segment, and keep in mind up to where."""
        sight = Sight(offsets, offsets.asked_end, None if self._aborted is None else self._aborted.is_aborted)
        for item in segment.bulk(work.position, work.seen, work.end):
            if isinstance(item, Records):
                first, last = _offsets_of(item)
                chosen = self._of_records(sight, segment, item) if first < offsets.end else None
                if chosen is not None:
                    yield chosen
                is_behind = first >= offsets.end or last + 1 >= offsets.asked_end
            else:
                last, is_behind = item.last_seen, False
                if sight.misses(segment, item):
                    yield Chosen(problems=(item.problem,))
            self._seen = max(self._seen, last)
            if is_behind:
                return

    def _choose_elsewhere(self, log: Log, work: Work, offsets: WantedOffsets) -> Iterator[Chosen]:
        """Yield what is wanted of a piece, behind what was given out of it, from the segments that there are now."""
        end = offsets.end if work.stop is None else min(offsets.end, work.stop)
        asked_end = offsets.asked_end if work.stop is None else end
        start, looks = max(offsets.start, self._seen + 1), 0
        while start < end:
            log.look_again()
            segment = log.first_from(start)
            if segment is None or not _is_of_topic(log, work):
                yield self._lost(work, log, OffsetRange(start, end), "the log is gone")
                return
            here = min(max(start, segment.base_offset), end)
            if start < here:
                yield self._lost(work, log, OffsetRange(start, here), f"the log start moved to {segment.base_offset}")
                start = here
                continue
            stop = segment.next_base_offset
            self._seen = start - 1
            self._aborted = None  # it may have read what is gone
            try:
                self._isolate(log)
                position, seen = segment.position_before(start)
                where = Work(work.topic, work.partition, segment.base_offset, position, None, seen)
                yield from self._chosen_in(segment, where, WantedOffsets(start, end, asked_end))
            except FileChanged:
                looks += 1
                if looks >= MOST_LOOKS:
                    raise
                start = self._seen + 1
            else:
                looks = 0
                start = end if stop is None else stop

    def _lost(self, work: Work, log: Log, lost: OffsetRange, why: str) -> Chosen:
        """Return what is to be said of offsets that are gone since the piece was planned."""
        told = f"offsets {lost.start} to {lost.end - 1} are gone: {why} while it was read"
        if log.segments and _is_of_topic(log, work) and not self.selection.start:
            _LOG.info("%s: %s", log.directory.path, told)
            return Chosen()
        problem = Problem(_path_of(work, log), 0, 0, told)
        log.problems.add(problem)
        return Chosen(problems=(problem,))

    def _isolate(self, log: Log) -> None:
        if self.isolation is IsolationLevel.READ_COMMITTED and (self._aborted is None or self._aborted.log is not log):
            self._aborted = AbortedTransactions(log)

    def _of_records(self, sight: Sight, segment: Segment, item: Records) -> Chosen | None:
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
        return Chosen(item, indexes, problems) if indexes or problems else None


def _path_of(work: Work, log: Log) -> str:
    """Return where the segment was that a piece of work was planned for."""
    return os.path.join(log.directory.path, f"{work.base_offset:020d}.log")


def _is_planned(work: Work, segment: Segment) -> bool:
    """Whether a piece of work was planned for this very file."""
    return segment.base_offset == work.base_offset and (work.version is None or work.version.is_of(segment))


def _is_of_topic(log: Log, work: Work) -> bool:
    """Whether the topic wasn't deleted and made anew since; that is asked when its segments are known."""
    if work.topic_id is None:
        return True
    metadata = log.partition_metadata()
    return metadata is not None and metadata.topic_id == work.topic_id


def chosen_in(
    reader: PieceReader, log: Log, offsets: WantedOffsets, gone: Callable[[CorruptData], None] | None = None
) -> Iterator[tuple[Work, Chosen]]:
    """Yield the records of a log that are wanted, block by block, with the work they belong to.

    ``gone`` is told of segments that vanished meanwhile, and reading goes on behind them.

    Raises:
        CorruptData: a segment vanished, and nobody is to be told.
    """
    for piece in pieces_of(log, offsets):
        try:
            for chosen in reader.choose(log, piece.work, piece.offsets):
                yield piece.work, chosen
        except CorruptData as error:
            if gone is None:
                raise
            gone(error)


def last_in(
    reader: PieceReader, log: Log, offsets: WantedOffsets, count: int, gone: Callable[[CorruptData], None] | None = None
) -> Iterator[tuple[Work, Chosen]]:
    """Yield the last ``count`` of the records that :func:`chosen_in` yields; no more of the log is read than it takes.

    That is looked for further and further back: compaction, markers and filters leave out what they will.
    """
    span, end, asked_end, missing = max(count, 1), offsets.end, offsets.asked_end, count
    found: deque[tuple[Work, Chosen]] = deque()
    told: set[Problem] = set()
    while missing > 0 and offsets.start < end:
        start = max(offsets.start, end - span)
        earlier = list(chosen_in(reader, log, WantedOffsets(start, end, max(end, asked_end)), gone))
        asked_end = 0  # what is behind these was looked at
        for work, chosen in reversed(earlier):
            problems = tuple(problem for problem in chosen.problems if problem not in told)  # one may reach across
            told.update(problems)
            kept = replace(chosen, indexes=chosen.indexes[max(len(chosen.indexes) - missing, 0) :], problems=problems)
            missing -= len(kept.indexes)
            found.appendleft((work, kept))
            if missing <= 0:
                break
        end, span = start, span * 2
    yield from found


def _offsets_of(records: Records) -> tuple[int, int]:
    """Return the first offset that decoded batches answer for, and the last."""
    offsets = records.columns.offsets
    if not offsets:
        return records.base_offset, records.last_offset
    return offsets[0], max(offsets[-1], records.last_offset)
