"""The log of a partition in Python."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kfs.api.opened import Opened
from kfs.api.record import Record, records_of
from kfs.api.scannable import Damage, Isolation, Scannable
from kfs.errors import NotFound
from kfs.format.columns import RecordColumns
from kfs.format.layout import MAX_INT64
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import DamagePolicy, Problem
from kfs.read.isolation import CommittedReader
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_reader import LogReader
from kfs.read.selection import Selection
from kfs.read.split_reader import SelectedRecords, SplitReader, last_in, selected_in
from kfs.read.wanted_offsets import WantedOffsets, wanted_offsets
from kfs.render.timestamps import Moment, milliseconds_of


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment of a log: its base offset, the path of its ``.log`` file, and that file's size in bytes.

    ``is_active`` marks the last segment, to which a broker appends.
    """

    base_offset: int
    path: str
    size: int
    is_active: bool


class PartitionLog(Scannable):
    """A partition's log: its records, by offset or as a stream, and what Kafka knows about it.

    >>> log = data["launch_info"][0]
    >>> log
    <kfs.PartitionLog launch_info-0>
    >>> log.log_start_offset, log.log_end_offset
    (368601, 369105)
    >>> log[368776].value
    b'4567890'
    >>> 5 in log
    False
    >>> for record in log.read(368776, 368778):
    ...     print(record.offset, record.value)
    368776 b'4567890'
    368777 b'4567892'

    It follows the files as they change. Threads may share it, but each iterator must be used by one thread at a time.
    """

    def __init__(self, opened: Opened, topic: str, partition: int) -> None:
        super().__init__(opened.isolation, opened.on_damage)
        self.topic: Final = topic
        self.partition: Final = partition
        self._opened = opened
        self._lock = threading.Lock()
        self._committed: CommittedReader | None = None

    def __repr__(self) -> str:
        return f"<kfs.PartitionLog {self.topic}-{self.partition}>"

    @property
    def _log(self) -> Log:
        log = self._opened.source.log(self.topic, self.partition)
        if log is None:
            raise NotFound(f"no partition {self.partition} of {self.topic!r}")
        return log

    def _logs(self) -> tuple[Log]:
        return (self._log,)

    # -- what it is

    @property
    def path(self) -> str:
        """The partition's directory."""
        return self._log.directory.path

    @property
    def segments(self) -> tuple[SegmentFile, ...]:
        """The segments by base offset."""
        return tuple(
            SegmentFile(segment.base_offset, segment.files.log.path, segment.size(), segment.is_last)
            for segment in self._log.segments
        )

    @property
    def size(self) -> int:
        """The size of all segments in bytes."""
        return self._log.size()

    @property
    def log_start_offset(self) -> int:
        """The first segment's base offset, or a higher offset if the records below that were deleted.

        In a tiered topic, older segments may be in remote storage: :attr:`problems` has their offsets.
        """
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int | None:
        """The high watermark in the checkpoint, None if the checkpoint doesn't have this log."""
        return self._log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: every transaction below it has ended, and a ``read_committed`` reader stops there."""
        return self._committed_reader(self._log).last_stable_offset()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems found in its files so far: file, byte position, size in bytes, reason.

        They include offsets that tiered storage has moved away from the disk.
        """
        _ = self._log.remote
        return tuple(self._log.problems)

    def offset_at(self, time: Moment) -> int | None:
        """Return the lowest offset whose record has the given timestamp or a later one, or None.

        >>> log.offset_at("2020-11-27T03")
        368776
        """
        return self._reader().first_at_or_after(milliseconds_of(time))

    # -- records

    def __getitem__(self, offset: int) -> Record:
        """Return the record at ``offset``; a compacted log doesn't have all offsets.

        Raises:
            NotFound: there is no record, or the isolation level hides it. It is a ``KeyError``.
            CorruptData: the record is in unreadable bytes.
        """
        if isinstance(offset, slice):
            raise TypeError("a log has no slices: log.read(start, until) yields the records of a range of offsets")
        found = self._reader().find(operator.index(offset))
        if found is None:
            remote = self._log.remote
            why = f": {remote.sentence}" if remote is not None and offset in remote else ""
            raise NotFound(f"{self.topic}-{self.partition}: no record at offset {offset}{why}")
        return next(records_of(self.topic, self.partition, found.loaded.columns, (found.record_index,)))

    def __contains__(self, offset: object) -> bool:
        """Whether there is a record at ``offset``; raise :class:`CorruptData` if that can't be read."""
        return isinstance(offset, int) and self._reader().find(offset) is not None

    def __iter__(self) -> Iterator[Record]:
        """Iterate over all records, as :meth:`read` does."""
        return self.read()

    def read(
        self,
        start: int | None = None,
        until: int | None = None,
        *,
        since: Moment | None = None,
        before: Moment | None = None,
        isolation: Isolation | None = None,
        on_damage: Damage | None = None,
    ) -> Iterator[Record]:
        """Iterate over the records in offset order. Memory use doesn't grow with the log.

        ``start`` and ``until`` are offsets, ``since`` and ``before`` are times: only records from the first up to, not
        including, the second are yielded. Records appended after the call aren't. ``isolation`` and ``on_damage``
        default to those of :func:`kfs.open`.

        >>> [record.offset for record in log.read(since="2020-11-27T03", before="2020-11-27T04")]
        [368776, 368777, 368778]

        Raises:
            CorruptData: bytes can't be read, and ``on_damage`` is ``"fail"``; raised after all records before them.
        """
        reader, offsets = self._asked(start, until, since, before, isolation)
        log, damage = self._log, self._damage(on_damage)
        gone = log.problems.add_error if damage is DamagePolicy.SKIP else None
        return self._records(selected_in(reader, log, offsets, gone), offsets, damage)

    def tail(
        self,
        count: int = 10,
        *,
        isolation: Isolation | None = None,
        on_damage: Damage | None = None,
    ) -> list[Record]:
        """Return the last ``count`` records in offset order, without reading earlier ones.

        >>> [record.offset for record in log.tail(2)]
        [369103, 369104]
        """
        reader, offsets = self._asked(None, None, None, None, isolation)
        log, damage = self._log, self._damage(on_damage)
        gone = log.problems.add_error if damage is DamagePolicy.SKIP else None
        return list(self._records(last_in(reader, log, offsets, count, gone), offsets, damage))

    def _asked(
        self,
        start: int | None,
        until: int | None,
        since: Moment | None,
        before: Moment | None,
        isolation: Isolation | None,
    ) -> tuple[SplitReader, WantedOffsets]:
        selection = Selection(
            0 if start is None else operator.index(start),
            MAX_INT64 if until is None else operator.index(until),
            None if since is None else milliseconds_of(since),
            None if before is None else milliseconds_of(before),
        )
        level = self.isolation if isolation is None else IsolationLevel(isolation)
        offsets = wanted_offsets(self._log, selection, level)
        return SplitReader(selection, level), offsets

    def _damage(self, on_damage: Damage | None) -> DamagePolicy:
        return self.on_damage if on_damage is None else DamagePolicy(on_damage)

    def _records(
        self, found: Iterator[tuple[object, SelectedRecords]], offsets: OffsetRange, damage: DamagePolicy
    ) -> Iterator[Record]:
        for _, selected in found:
            indexes = selected.indexes
            is_failure = bool(selected.problems) and damage is DamagePolicy.FAIL
            if selected.records is not None:
                columns = selected.records.columns
                if is_failure:
                    broken = _first_broken(columns, offsets)
                    indexes = [index for index in indexes if index < broken]
                yield from records_of(self.topic, self.partition, columns, indexes)
            if is_failure:
                raise selected.problems[0].error()
            self._opened.check_open()

    def _reader(self) -> LogReader:
        log = self._log
        is_committed = self.isolation is IsolationLevel.READ_COMMITTED
        return LogReader(log, self._committed_reader(log) if is_committed else None)

    def _committed_reader(self, log: Log) -> CommittedReader:
        with self._lock:
            if self._committed is None or self._committed.log is not log:
                self._committed = CommittedReader(log)
            return self._committed


def _first_broken(columns: RecordColumns, offsets: OffsetRange) -> int:
    """Return the index of the first record that is broken although its batch's CRC is right."""
    return min((index for index in columns.faults if columns.offsets[index] in offsets), default=len(columns))
