"""Opening of a partition directory for writing, with recovery if needed (``LogLoader.java`` of 4.3.1).

This changes the files, and loses what Kafka loses. Before each step that loses something, it notifies a
:class:`LoadObserver`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from kfs.broker_log.log_config import Clock, LogConfig
from kfs.broker_log.log_segment import LogSegment, Recovery
from kfs.broker_log.log_segments import LogSegments, rebuild_producer_state
from kfs.broker_log.producer_state_manager import ProducerStateManager
from kfs.broker_log.transaction_index import UnknownVersion
from kfs.errors import CorruptData, InvalidOffset, KfsError, OffsetOverflow, RecoveryRefused, Shortage
from kfs.format.layout import MAX_INT64
from kfs.log.leader_epochs import LeaderEpochs
from kfs.storage.listing import list_directory
from kfs.storage.status import PathKind

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
_KRAFT_SNAPSHOT_DELETED: Final = ".checkpoint.deleted"
_INDEX_SUFFIXES: Final = (".index", ".timeindex", ".txnindex")
Result = TypeVar("Result")


class LoadObserver:
    """Receives a call before loading changes a file; this class does nothing.

    Paths are those in the loaded directory.
    """

    def removes(self, path: str, reason: str) -> None:
        """Called before removal of a file that belongs to no segment, or is superseded."""

    def rebuilds(self, segment: LogSegment, reason: str) -> None:
        """Called before the indexes of a segment are rebuilt."""

    def truncates(self, segment: LogSegment, recovery: Recovery) -> None:
        """Called before the end of a segment is cut off."""

    def empties(self, segment: LogSegment, reason: str) -> None:
        """Called before a whole segment is truncated."""

    def deletes(self, segments: Iterable[LogSegment], reason: str) -> None:
        """Called before whole segments are deleted."""

    def splits(self, segment: LogSegment) -> None:
        """Called before a segment is split because its offsets span more than an int32."""


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """A loaded log (``LoadedLogOffsets.java``)."""

    segments: LogSegments
    epochs: LeaderEpochs
    producers: ProducerStateManager
    log_start_offset: int
    recovery_point: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadParameters:
    """What a broker knows of a partition before loading it, from checkpoints and the clean shutdown marker."""

    had_clean_shutdown: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0


class LogLoader:
    """Loads one partition directory."""

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        clock: Clock,
        parameters: LoadParameters,
        epochs: LeaderEpochs,
        observer: LoadObserver | None = None,
    ) -> None:
        self._directory = directory
        self._config = config
        self._clock = clock
        self._parameters = parameters
        self._epochs = epochs
        self._observer = observer or LoadObserver()
        self._segments = LogSegments()
        self._producers = ProducerStateManager(directory, config, clock)

    def load(self) -> LoadedLog:
        """Load the log; its files are then in the state of a broker that has just started.

        Raises:
            RecoveryRefused: Kafka would not start; the message has the reason.
            Shortage: no descriptor is available for a file.
            OSError: a file can't be read or written.
        """
        try:
            return self._load()
        except (RecoveryRefused, Shortage):
            raise
        except KfsError as error:
            is_located = isinstance(error, CorruptData) and error.file is not None
            raise RecoveryRefused(str(error) if is_located else f"{self._directory}: {error}") from error

    def _load(self) -> LoadedLog:
        self._remove_leftovers()
        self._apply_swaps()
        self._retry_on_overflow(self._load_segments)
        log_end_offset = self._retry_on_overflow(self._recover_log)
        self._segments.last.open_indexes()
        self._epochs.truncate_from_end(log_end_offset)
        checkpoint = self._parameters.log_start_offset
        log_start_offset = max(checkpoint, self._segments.first.base_offset)
        self._epochs.truncate_from_start(checkpoint)
        self._producers.remove_stray_snapshots(self._segments.base_offsets)
        clean = self._parameters.had_clean_shutdown
        rebuild_producer_state(
            self._producers, self._segments, log_start_offset, log_end_offset, had_clean_shutdown=clean
        )
        recovery_point = log_end_offset if clean else min(self._parameters.recovery_point, log_end_offset)
        return LoadedLog(
            self._segments, self._epochs, self._producers, log_start_offset, recovery_point, log_end_offset
        )

    # --- leftovers of a crash

    def _names(self) -> list[str]:
        return sorted(found.name for found in list_directory(self._directory) if found.kind is PathKind.FILE)

    def _remove(self, name: str, reason: str) -> None:
        path = os.path.join(self._directory, name)
        self._observer.removes(path, reason)
        os.unlink(path)

    def _remove_leftovers(self) -> None:
        """Remove temporary files (``removeTempFilesAndCollectSwapFiles``)."""
        names = self._names()
        for name in names:
            if name.endswith(DELETED) and not name.endswith(_KRAFT_SNAPSHOT_DELETED):
                self._remove(name, "was waiting for deletion")
        cleaned = [name for name in names if name.endswith(CLEANED)]
        least = min(map(_offset_of, cleaned), default=MAX_INT64)
        for name in names:
            if name.endswith(SWAP) and _offset_of(name) >= least:
                self._remove(name, "is left from an unfinished compaction")
        for name in cleaned:
            self._remove(name, "is left from an unfinished compaction")

    def _apply_swaps(self) -> None:
        """Complete a compaction or split that reached its ``.swap`` files: these replace the files that they cover."""
        low, high = MAX_INT64, -1
        for name in self._names():
            if name.endswith(".log" + SWAP):
                segment = LogSegment(self._directory, _offset_of(name), self._config, suffix=SWAP, clock=self._clock)
                low, high = min(low, segment.base_offset), max(high, segment.read_next_offset())
                segment.park()
        for name in self._names():
            offset = _offset_of(name, others=-1)
            if not name.endswith(SWAP) and low <= offset < high:
                self._remove(name, "is superseded by a .swap file")
        for name in self._names():
            if name.endswith(SWAP):
                path = os.path.join(self._directory, name)
                os.rename(path, path.removesuffix(SWAP))

    def _retry_on_overflow(self, step: Callable[[], Result]) -> Result:
        while True:
            try:
                return step()
            except _Overflow as overflow:
                self._split(overflow.segment)

    # --- loading

    def _load_segments(self) -> None:
        """Load all segments (``loadSegmentFiles``)."""
        for segment in self._segments:
            segment.close()
        self._segments.clear()
        names = self._names()
        known = set(names)
        for name in names:
            if name.endswith(_INDEX_SUFFIXES) and f"{_offset_of(name):020d}.log" not in known:
                self._remove(name, "has no .log")
            elif name.endswith(".log"):
                self._load_segment(_offset_of(name), known)

    def _load_segment(self, base_offset: int, known: set[str]) -> None:
        segment = LogSegment(self._directory, base_offset, self._config, clock=self._clock)
        reason = None
        if f"{base_offset:020d}.index" not in known:
            reason = "its offset index is missing"
        else:
            if f"{base_offset:020d}.timeindex" not in known:
                segment.open_indexes()
            try:
                segment.transactions.check()
            except UnknownVersion as error:
                raise RecoveryRefused(str(error)) from error
            except CorruptData as error:
                reason = str(error)
        if reason is not None:
            self._observer.rebuilds(segment, reason)
            self._recover_segment(segment)
        self._segments.add(segment)

    # --- recovering

    def _recover_segment(self, segment: LogSegment) -> Recovery:
        producers = ProducerStateManager(self._directory, self._config, self._clock)
        start = self._parameters.log_start_offset
        rebuild_producer_state(producers, self._segments, start, segment.base_offset)
        try:
            recovery = segment.recover(
                producers.state, self._epochs, lambda cut: self._observer.truncates(segment, cut)
            )
        except OffsetOverflow as error:
            raise _Overflow(segment, error) from error
        segment.park()
        producers.take_snapshot()
        return recovery

    def _recover_log(self) -> int:
        """Recover the segments that may not be flushed, and return the offset after the last remaining record."""
        if not self._parameters.had_clean_shutdown:
            unflushed = self._segments.values(self._parameters.recovery_point)
            for number, segment in enumerate(unflushed):
                if self._recover_unflushed(segment):
                    self._delete(unflushed[number + 1 :], f"follows the truncated {segment.base_offset:020d}.log")
                    break
        log_end_offset = self._end_of_segments()
        if not len(self._segments):
            start = self._parameters.log_start_offset
            self._segments.add(LogSegment.create(self._directory, start, self._config, clock=self._clock))
        return self._segments.last.read_next_offset() if log_end_offset is None else log_end_offset

    def _recover_unflushed(self, segment: LogSegment) -> int:
        try:
            return self._recover_segment(segment).truncated_bytes
        except InvalidOffset as error:
            self._observer.empties(segment, str(error))
            return segment.truncate_to(segment.base_offset)

    def _end_of_segments(self) -> int | None:
        """Return the end of the log; if it is below the log start offset, delete all segments and return None."""
        if not len(self._segments):
            return None
        log_end_offset = self._segments.last.read_next_offset()
        start = self._parameters.log_start_offset
        if log_end_offset >= start:
            return log_end_offset
        self._delete(list(self._segments), f"ends at {log_end_offset}, below the log start offset {start}")
        self._epochs.clear()
        self._producers.truncate_fully_and_start_at(start)
        return None

    def _delete(self, segments: list[LogSegment], reason: str) -> None:
        if segments:
            self._observer.deletes(segments, reason)
        for segment in segments:
            self._segments.remove(segment)
            segment.delete()
            self._producers.remove_snapshot(segment.base_offset)

    def _split(self, segment: LogSegment) -> None:
        """Split a segment (``LocalLog.splitOverflowedSegment``), but only if its last batch is out of range."""
        if not segment.has_overflow():
            reason = "an offset is out of the range of the segment, but the last one isn't"
            raise RecoveryRefused(f"{segment.path('.log')}: {reason}")
        self._observer.splits(segment)
        made: list[LogSegment] = []
        records = segment.records()
        for header in records.headers():
            if not made or not made[-1].indexes.accepts(header.last_offset):
                made.append(self._new_cleaned(header.base_offset))
            made[-1].append(records.data(header))
        segment.delete()
        for new in made:
            new.close()
            for kind in (".log", ".index", ".timeindex"):
                os.rename(new.path(kind), new.path(kind).removesuffix(CLEANED))
        if made[0].base_offset != segment.base_offset:
            self._producers.remove_snapshot(segment.base_offset)
        self._load_segments()

    def _new_cleaned(self, base_offset: int) -> LogSegment:
        segment = LogSegment(self._directory, base_offset, self._config, suffix=CLEANED, clock=self._clock)
        segment.open_indexes()
        return segment


class _Overflow(Exception):
    """The segment that an offset doesn't fit (``LogSegmentOffsetOverflowException``)."""

    def __init__(self, segment: LogSegment, error: OffsetOverflow) -> None:
        super().__init__(str(error))
        self.segment = segment


def _offset_of(name: str, others: int | None = None) -> int:
    """Return the offset at the start of a file name (``LogFileUtils.offsetFromFile``), or else ``others``.

    Raises:
        RecoveryRefused: there is no offset, and ``others`` is None.
    """
    digits = name.split(".", 1)[0]
    if "." in name and digits.isascii() and digits.lstrip("-").isdigit() and int(digits) <= MAX_INT64:
        return int(digits)
    if others is None:
        raise RecoveryRefused(f"{name}: the name does not begin with an offset")
    return others
