"""A log in one line: its offsets, the times of its first and last record, and its size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kfs.errors import CorruptData
from kfs.log.log import Log
from kfs.read.isolation import CommittedReader
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_reader import LogReader


@dataclass(frozen=True, slots=True)
class LogSummary:
    """Offsets, the timestamps of the first and the last visible record in milliseconds, and the size in bytes.

    A timestamp is None if no record is visible, or if that record can't be read: then ``errors`` say why. The high
    watermark is that of the checkpoint, None without one.
    """

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int | None
    log_end_offset: int
    first_timestamp: int | None
    last_timestamp: int | None
    size: int
    errors: tuple[CorruptData, ...] = ()

    @classmethod
    def of(cls, log: Log, level: IsolationLevel) -> LogSummary:
        """Summarize a log; ``level`` says which records are visible.

        Raises:
            SourceLost: the directory can't be listed.
            Shortage: no descriptor is available.
        """
        committed = CommittedReader(log)
        reader = LogReader(log, committed if level is IsolationLevel.READ_COMMITTED else None)
        errors: list[CorruptData] = []
        return cls(
            log.log_start_offset,
            committed.last_stable_offset(),
            log.high_watermark,
            log.log_end_offset,
            _timestamp_at(reader, reader.first_offset, errors),
            _timestamp_at(reader, reader.last_offset, errors),
            log.size(),
            tuple(errors),
        )


def _timestamp_at(reader: LogReader, offset_of: Callable[[], int | None], errors: list[CorruptData]) -> int | None:
    try:
        offset = offset_of()
        found = None if offset is None else reader.find(offset)
    except CorruptData as error:
        errors.append(error)
        return None
    return None if found is None else found.loaded.columns.timestamps[found.record_index]
