"""One segment open for writing: the ``.log`` and its three indexes (``LogSegment.java`` of 4.3.1).

Views read through :class:`kfs.log.segment.Segment`, which trusts nothing and never writes. This class trusts its own
indexes, as a broker does; :meth:`LogSegment.recover` makes them trustworthy.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Final

from kfs.broker_log.file_records import FileRecords, LogOffsetPosition
from kfs.broker_log.index_builder import IndexBuilder
from kfs.broker_log.log_config import Clock, LogConfig, wall_clock
from kfs.broker_log.transaction_index import TransactionIndex
from kfs.errors import CorruptData, InvalidOffset, OffsetOverflow
from kfs.format.batch_header import BatchHeader, read_header
from kfs.format.layout import BATCH_OVERHEAD, LEGACY_HEADER, MAGIC_OFFSET, MAGIC_V2, MAX_INT32, NO_TIMESTAMP
from kfs.log.leader_epochs import LeaderEpochs
from kfs.log.producer_state import CompletedTxn, ProducerState
from kfs.storage.open_files import OpenFile

_DEFAULTS: Final = LogConfig()


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """Return the path of a segment's file (``LogFileUtils.filenamePrefixFromOffset``): 20 digits and ``suffix``."""
    return os.path.join(directory, f"{base_offset:020d}{suffix}")


@dataclass(frozen=True, slots=True)
class FetchData:
    """The result of a read (``FetchDataInfo.java``): bytes from a batch boundary on; the last batch may be incomplete.

    ``offset`` is the first batch's base offset. ``is_first_entry_incomplete`` says that even that batch is incomplete.
    """

    offset: int
    position: int
    data: bytes
    is_first_entry_incomplete: bool = False


@dataclass(frozen=True, slots=True)
class RollParams:
    """The pending append: its latest timestamp and the current time (milliseconds), its last offset and its size."""

    latest_timestamp: int
    last_offset: int
    size: int
    now: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of a segment's recovery: the number of valid bytes, of truncated bytes, and the reason."""

    valid_bytes: int
    truncated_bytes: int
    reason: CorruptData | None


def fetch_size(start: int, end: int, max_position: int, max_size: int) -> int:
    """Return the number of bytes of a read that begins at byte ``start``.

    It ends at the first of ``end`` (the end of the log or of the request), ``max_position`` (the end of visible data),
    and ``max_size`` bytes after ``start``.

    Raises:
        ValueError: the result would be negative.
    """
    size = min(min(max_position, end) - start, max_size)
    if size < 0:
        raise ValueError(f"a read of {size} bytes: it begins at {start} and ends at {min(max_position, end)}")
    return size


class LogSegment:
    """A segment in a directory, open for reading and appending; not thread-safe.

    After a flush or close, its files have exactly the size of their content: nothing is preallocated.
    """

    def __init__(
        self,
        directory: str,
        base_offset: int,
        config: LogConfig = _DEFAULTS,
        *,
        suffix: str = "",
        clock: Clock = wall_clock,
        roll_jitter_ms: int = 0,
    ) -> None:
        """Open the segment, or create it if there is no ``.log``; the indexes are read on demand."""
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self._config = config
        self._clock = clock
        self._roll_jitter_ms = roll_jitter_ms
        with open(self.path(".log"), "ab") as log:
            self.size = os.fstat(log.fileno()).st_size
        self._opened_to_write: BinaryIO | None = None
        self._opened_to_read: OpenFile | None = None
        self._created = clock()
        self._first_timestamp: int | None = None
        self._loaded_indexes: IndexBuilder | None = None
        self._written_indexes: dict[str, bytes] = {}
        self.transactions = TransactionIndex(self.path(".txnindex"), base_offset)

    @classmethod
    def create(
        cls,
        directory: str,
        base_offset: int,
        config: LogConfig = _DEFAULTS,
        *,
        clock: Clock = wall_clock,
        roll_jitter_ms: int = 0,
    ) -> LogSegment:
        """Create a segment; raise :class:`FileExistsError` if it exists."""
        with open(segment_path(directory, base_offset, ".log"), "xb"):
            segment = cls(directory, base_offset, config, clock=clock, roll_jitter_ms=roll_jitter_ms)
        segment.open_indexes()
        return segment

    def path(self, kind: str) -> str:
        """Return the path of the segment's file with a suffix, such as ``.timeindex``."""
        return segment_path(self.directory, self.base_offset, kind + self.suffix)

    def open_indexes(self) -> None:
        """Load both indexes, so that they are written again, even if unchanged, with complete entries only."""
        self.indexes.lookup(self.base_offset)

    @property
    def indexes(self) -> IndexBuilder:
        """The offset and the time index; the first access loads the files, and takes all their bytes for entries."""
        if self._loaded_indexes is None:
            self._loaded_indexes = self._new_indexes()
            for kind in (".index", ".timeindex"):
                with suppress(FileNotFoundError), open(self.path(kind), "rb") as file:
                    self._written_indexes[kind] = file.read()
            read = self._written_indexes
            self._loaded_indexes.resume(read.get(".index", b""), read.get(".timeindex", b""))
        return self._loaded_indexes

    def _new_indexes(self) -> IndexBuilder:
        interval, largest = self._config.index_interval_bytes, self._config.segment_index_bytes
        return IndexBuilder(self.base_offset, interval_bytes=interval, max_index_bytes=largest)

    def records(self, end: int | None = None) -> FileRecords:
        """Return a reader of the batches, up to byte ``end`` or all of them."""
        return FileRecords(self._reader(), self.size if end is None else min(end, self.size))

    def _writer(self) -> BinaryIO:
        if self._opened_to_write is None:
            self._opened_to_write = open(self.path(".log"), "ab")  # noqa: SIM115  closed by park()
        return self._opened_to_write

    def _reader(self) -> OpenFile:
        if self._opened_to_write is not None:
            self._opened_to_write.flush()
        if self._opened_to_read is None:
            self._opened_to_read = OpenFile(self.path(".log"))
        return self._opened_to_read

    def park(self) -> None:
        """Write pending data, and release descriptors and indexes until the next use.

        A log may have more segments than a process may have open files. The interval to the next index entry then
        starts over.
        """
        self._write_indexes()
        self.transactions.write()
        self._loaded_indexes = None
        if self._opened_to_write is not None:
            self._opened_to_write.close()
        self._opened_to_write = self._opened_to_read = None

    # --- appending

    def append(self, batches: bytes) -> None:
        """Append complete batches of any message format, with offsets that follow the existing ones.

        Raises:
            CorruptData: the bytes don't begin with a batch.
            ValueError: they end within a batch, or the ``.log`` would become larger than int32 positions allow.
            OffsetOverflow: an offset is too far from the base offset; nothing is appended.
            InvalidOffset: an offset goes back where an index entry is due.
            IndexFull: an index entry is due, but there is no room: the segment should have been rolled.
        """
        headers = list(batch_headers(batches))
        if self.size + len(batches) > MAX_INT32:
            raise ValueError(f"segment {self.base_offset} would be larger than {MAX_INT32} bytes")
        for header in headers:
            if not self.indexes.accepts(header.last_offset):
                raise OffsetOverflow(f"offset {header.last_offset} is out of the range of segment {self.base_offset}")
        self._writer().write(batches)
        for header in headers:
            self.indexes.add(header.last_offset, header.max_timestamp, self.size + header.position, header.size)
        self.size += len(batches)

    def note_completed(self, completed: CompletedTxn) -> None:
        """Add a transaction that a marker in this segment completed to the transaction index, if it was aborted."""
        if completed.is_aborted:
            self.transactions.append(completed.aborted())

    def should_roll(self, params: RollParams) -> bool:
        """Whether the pending append requires a new segment.

        The reasons are: this one would become too large; the timestamps of its first batch and of the append are too
        far apart (or, without timestamps, it was opened too long ago); an index is full; or an offset would not fit.
        """
        waited_ms = self._time_waited_for_roll(params.now, params.latest_timestamp)
        return (
            self.size > self._config.segment_bytes - params.size
            or (self.size > 0 and waited_ms > self._config.segment_ms - self._roll_jitter_ms)
            or self.indexes.is_full
            or not self.indexes.accepts(params.last_offset)
        )

    def _time_waited_for_roll(self, now: int, latest_timestamp: int) -> int:
        if self._first_timestamp is None:
            first = next(self.records().headers(), None)
            self._first_timestamp = None if first is None else first.max_timestamp
        if self._first_timestamp is not None and self._first_timestamp >= 0:
            return latest_timestamp - self._first_timestamp
        return now - self._created

    # --- reading

    def translate_offset(self, offset: int, starting_position: int = 0) -> LogOffsetPosition | None:
        """Return the batch that holds ``offset``, or else the first above it; None if all are below.

        The search begins at the last index entry at or below the offset, or at ``starting_position`` if that is later.
        """
        position = max(self.indexes.lookup(offset).position, starting_position)
        return self.records().search_for_offset(offset, position)

    def read(
        self,
        start_offset: int,
        max_size: int,
        max_position: int | None = None,
        *,
        min_one_message: bool = False,
        max_offset: int | None = None,
    ) -> FetchData | None:
        """Read from the first batch that reaches ``start_offset`` or a higher one; return None if there is none.

        The result has at most ``max_size`` bytes, or one complete batch if the first is larger and ``min_one_message``
        is set. It has nothing at or after byte ``max_position``. It also has nothing from the batch of ``max_offset``
        on; only brokers before 2.0 have that limit.

        Raises:
            ValueError: ``max_size`` is negative, or the read would end before it begins.
        """
        if max_size < 0:
            raise ValueError(f"a read of at most {max_size} bytes")
        start = self.translate_offset(start_offset)
        if start is None:
            return None
        most = max(max_size, start.size) if min_one_message else max_size
        if most == 0 or (max_offset is not None and max_offset < start_offset):
            return FetchData(start.offset, start.position, b"")
        end = self.size
        if max_offset is not None:
            last = self.translate_offset(max_offset, start.position)
            end = self.size if last is None else last.position
        size = fetch_size(start.position, end, self.size if max_position is None else max_position, most)
        data = self._reader().read(start.position, size)
        return FetchData(start.offset, start.position, data, most < start.size)

    def read_next_offset(self) -> int:
        """Return the offset after the last batch; the search starts at the last entry of the offset index.

        As in Kafka, the result is the base offset if the index leads past the end of the ``.log``.

        Raises:
            CorruptData: there is no batch at that position, or after one of the following batches.
        """
        start = self.translate_offset(self.indexes.last_offset)
        if start is None:
            return self.base_offset
        last = deque(self.records().headers(start.position), maxlen=1)
        return last[0].last_offset + 1 if last else self.base_offset

    # --- recovering

    def recover(
        self,
        producers: ProducerState,
        epochs: LeaderEpochs,
        before_cut: Callable[[Recovery], None] = lambda recovery: None,
    ) -> Recovery:
        """Rebuild all three indexes from the batches, and cut off the first invalid batch and everything after it.

        A batch is valid if its CRC matches; its records aren't decoded. ``producers`` must be the state as of the base
        offset, and becomes the state as of the end of the segment. ``epochs`` gets epochs that are later than all that
        it has. ``before_cut`` is called before anything is cut off.

        Raises:
            OffsetOverflow: a valid batch has an offset that doesn't fit the segment.
            InvalidOffset: a valid batch has an offset that goes back, where an index entry is due.
            IndexFull: there are more entries than an index may have.
            InvalidTransaction: a valid batch doesn't fit its producer's open transaction.
        """
        indexes = self._loaded_indexes = self._new_indexes()
        self.transactions.reset()
        valid_bytes, reason = 0, None
        records = self.records()
        try:
            for header in records.headers():
                records.verified(header)
                indexes.add(header.last_offset, header.max_timestamp, header.position, header.size)
                valid_bytes += header.size
                if header.magic >= MAGIC_V2:
                    epochs.assign_from_batch(header.leader_epoch, header.base_offset)
                    self._replay(producers, header, records)
        except CorruptData as error:
            reason = error
        recovery = Recovery(valid_bytes, self.size - valid_bytes, reason)
        if recovery.truncated_bytes:
            before_cut(recovery)
            self._truncate_log(valid_bytes)
        indexes.finish()
        return recovery

    def _replay(self, producers: ProducerState, header: BatchHeader, records: FileRecords) -> None:
        completed = replay(producers, header, records)
        if completed is not None:
            self.note_completed(completed)

    def truncate_to(self, offset: int) -> int:
        """Cut off the batch that holds ``offset`` and everything after it; return the number of bytes cut off."""
        start = self.translate_offset(offset)
        indexes = self.indexes
        indexes.truncate_to(offset)
        self.transactions.truncate_to(offset)
        truncated = 0
        if start is not None:
            truncated = self.size - start.position
            self._truncate_log(start.position)
        if not self.size:
            self._created = self._clock()
            self._first_timestamp = None
        if indexes.largest.timestamp != NO_TIMESTAMP:
            position = indexes.lookup(indexes.last_time_entry.offset).position
            after = self.records().largest_timestamp_after(position)
            last = indexes.last_time_entry
            indexes.largest = after if after.timestamp > last.timestamp else last
        return truncated

    def _truncate_log(self, size: int) -> None:
        if size < self.size:
            self._writer().flush()
            os.ftruncate(self._writer().fileno(), size)
            self.size = size

    def has_overflow(self) -> bool:
        """Whether the last batch is too far from the base offset, so that Kafka splits the segment (KAFKA-6264)."""
        next_offset = self.read_next_offset()
        return next_offset > self.base_offset and not self.indexes.accepts(next_offset - 1)

    # --- files

    def become_inactive(self) -> None:
        """Append the latest timestamp to the time index because the segment is rolled (``onBecomeInactiveSegment``)."""
        self.indexes.finish()

    def flush(self) -> None:
        """Write and sync the ``.log`` and the indexes."""
        if self._opened_to_write is not None:
            self._opened_to_write.flush()
        self._write_indexes()
        self.transactions.write()
        for kind in (".log", ".index", ".timeindex", ".txnindex"):
            with suppress(FileNotFoundError), open(self.path(kind), "rb") as file:
                os.fsync(file.fileno())

    def _write_indexes(self) -> None:
        if self._loaded_indexes is None:
            return
        contents = {".index": self._loaded_indexes.offset_index, ".timeindex": self._loaded_indexes.time_index}
        for kind, content in contents.items():
            now = bytes(content)
            if self._written_indexes.get(kind) != now:
                with open(self.path(kind), "wb") as file:
                    file.write(now)
                self._written_indexes[kind] = now

    def close(self) -> None:
        """Complete the time index, write pending data, and close the files; only :meth:`flush` syncs."""
        if self._loaded_indexes is not None:
            with suppress(InvalidOffset):  # offsets of the log go back; the entry is left out
                self._loaded_indexes.finish()
        self.park()

    def delete(self) -> None:
        """Close the segment and remove its files."""
        self._loaded_indexes = None
        self.park()
        for kind in (".log", ".index", ".timeindex"):
            with suppress(FileNotFoundError):
                os.unlink(self.path(kind))
        self.transactions.delete()


def replay(producers: ProducerState, header: BatchHeader, records: FileRecords) -> CompletedTxn | None:
    """Apply a batch of a file to the producer state; see :meth:`ProducerState.append`."""
    return producers.append(header, records.first_record(header) if header.is_transaction_marker else None)


def batch_headers(batches: bytes) -> Iterator[BatchHeader]:
    """Yield the headers of complete batches; positions count from the first.

    Raises:
        CorruptData: the bytes at a batch's position are no batch.
        ValueError: the last batch is incomplete.
    """
    at = 0
    while at < len(batches):
        left = len(batches) - at
        is_v2 = left > MAGIC_OFFSET and batches[at + MAGIC_OFFSET] == MAGIC_V2
        if left < (BATCH_OVERHEAD if is_v2 else LEGACY_HEADER.size):
            raise ValueError(f"the batch at {at} is cut off in its header")
        header = read_header(batches, at, at)
        at += header.size
        if at > len(batches):
            raise ValueError(f"the batch at {header.position} is cut off by {at - len(batches)} bytes")
        yield header
