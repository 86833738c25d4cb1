"""The log of one partition as Python sees it."""

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
    """A segment of a log: its base offset, the path of its ``.log``, and the bytes in it.

    ``is_active`` tells the last one, which a broker appends to.
    """

    base_offset: int
    path: str
    size: int
    is_active: bool


class PartitionLog(Scannable):
    """One partition's log: records by offset, in a row, and what Kafka knows about it.

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

    It follows the files as they change. Threads may share it; an iterator over records is for one thread at a time.
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
        """The directory that holds it."""
        return self._log.directory.path

    @property
    def segments(self) -> tuple[SegmentFile, ...]:
        """Its segments, by base offset."""
        return tuple(
            SegmentFile(segment.base_offset, segment.files.log.path, segment.size(), segment.is_last)
            for segment in self._log.segments
        )

    @property
    def size(self) -> int:
        """The bytes of all its segments."""
        return self._log.size()

    @property
    def log_start_offset(self) -> int:
        """The offset that it begins at here: of the first segment, or higher where records were deleted.

        Of a tiered topic older segments may be in remote storage: :attr:`problems` says which offsets.
        """
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record, the one that the next record gets."""
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int | None:
        """What the high watermark checkpoint says; None where it says nothing of this log."""
        return self._log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is over: a ``read_committed`` reader sees nothing from there on."""
        return self._committed_reader(self._log).last_stable_offset()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was found wrong in its files so far: file, byte position, size in bytes, and the reason.

        Offsets that aren't on the disk because tiered storage has moved them away are among it.
        """
        _ = self._log.remote
        return tuple(self._log.problems)

    def offset_at(self, time: Moment) -> int | None:
        """Return the lowest offset whose record has that timestamp or a later one; None where none has.

        >>> log.offset_at("2020-11-27T03")
        368776
        """
        return self._reader().first_at_or_after(milliseconds_of(time))

    # -- records

    def __getitem__(self, offset: int) -> Record:
        """Return the record at ``offset``, which need not be there in a compacted log.

        Raises:
            NotFound: there is none, or it isn't one that a reader at the isolation level sees. It is a ``KeyError``.
            CorruptData: it lies in bytes that can't be read.
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
        """Whether there is a record at ``offset``; raise :class:`CorruptData` where that can't be read."""
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
        """Iterate over the records in offset order, many batches at a time; memory doesn't grow with the log.

        ``start`` and ``until`` are offsets, of which the second is not included; ``since`` and ``before`` are times:
        only records from the one up to, not including, the other are yielded. What is appended after the call is not.
        ``isolation`` and ``on_damage`` are those of :func:`kfs.open` unless given.

        >>> [record.offset for record in log.read(since="2020-11-27T03", before="2020-11-27T04")]
        [368776, 368777, 368778]

        Raises:
            CorruptData: bytes can't be read, and ``on_damage`` is ``"fail"``; all records before them were yielded.
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
        """Return the last ``count`` records, in offset order, without reading what is before them.

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
    """Return the index of the first record that is broken although its batch is intact."""
    return min((index for index in columns.faults if columns.offsets[index] in offsets), default=len(columns))
