"""Writing a segment: the ``.log``, and the two indexes beside it as ``LogSegment.append`` of Kafka 4.x does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct
from typing import Final

from kfs.format.batch_header import BatchHeader, read_header
from kfs.format.layout import MAX_INT32, NO_TIMESTAMP
from kfs.log.time_index import TimestampOffset

#: The default of ``index.interval.bytes``.
INDEX_INTERVAL_BYTES: Final = 4096

_OFFSET_ENTRY: Final = Struct(">ii")  # OffsetIndex.java: relative offset, position
_TIME_ENTRY: Final = Struct(">qi")  # TimeIndex.java: timestamp, relative offset


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """Return the path of a segment's file (``LogFileUtils.filenamePrefixFromOffset``): 20 digits and ``suffix``."""
    return os.path.join(directory, f"{base_offset:020d}{suffix}")


class SegmentWriter:
    """A segment while it is written, its offset index sparse: an entry for each interval, of a batch's last offset.

    The indexes are written by :meth:`close`, as large as they need to be, which is what a broker's are once the
    segment is rolled or the broker stopped.
    """

    def __init__(self, directory: str, base_offset: int, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        """Create the ``.log`` in ``directory``; raise :class:`FileExistsError` where there is one."""
        self.base_offset = base_offset
        self._directory = directory
        self._index_interval_bytes = index_interval_bytes
        self._log = open(segment_path(directory, base_offset, ".log"), "xb")  # noqa: SIM115  closed by close()
        self._size = 0
        self._bytes_since_last_entry = 0
        self._largest = TimestampOffset(NO_TIMESTAMP, base_offset)
        self._offset_index = bytearray()
        self._time_index = bytearray()
        self._last_time_entry = NO_TIMESTAMP

    @property
    def size(self) -> int:
        """The size of the ``.log`` in bytes."""
        return self._size

    def append(self, batches: bytes) -> None:
        """Append whole batches, of any message format, whose offsets follow those already there.

        Raises:
            CorruptData: the bytes begin with something else than a batch, or end within one.
            ValueError: a last offset or a position doesn't fit an index entry.
        """
        headers = list(_headers(batches))
        for header in headers:
            self._check_range(header)
        self._log.write(batches)
        for header in headers:
            self._index(header)

    def _check_range(self, header: BatchHeader) -> None:
        """``LogSegment.ensureOffsetInRange``."""
        if not 0 <= header.last_offset - self.base_offset <= MAX_INT32:
            raise ValueError(f"offset {header.last_offset} is out of the range of segment {self.base_offset}")
        if self._size + header.position + header.size > MAX_INT32:
            raise ValueError(f"segment {self.base_offset} would be larger than {MAX_INT32} bytes")

    def _index(self, header: BatchHeader) -> None:
        if header.max_timestamp > self._largest.timestamp:
            self._largest = TimestampOffset(header.max_timestamp, header.last_offset)
        if self._bytes_since_last_entry > self._index_interval_bytes:
            self._offset_index += _OFFSET_ENTRY.pack(header.last_offset - self.base_offset, self._size)
            self._append_time_entry()
            self._bytes_since_last_entry = 0
        self._size += header.size
        self._bytes_since_last_entry += header.size

    def _append_time_entry(self) -> None:
        """``TimeIndex.maybeAppend``: only what is later than all before."""
        if self._largest.timestamp > self._last_time_entry:
            self._last_time_entry = self._largest.timestamp
            self._time_index += _TIME_ENTRY.pack(self._largest.timestamp, self._largest.offset - self.base_offset)

    def close(self) -> None:
        """Close the log and write the indexes; the time index ends with the latest (``onBecomeInactiveSegment``)."""
        self._log.close()
        self._append_time_entry()
        for suffix, content in ((".index", self._offset_index), (".timeindex", self._time_index)):
            with open(segment_path(self._directory, self.base_offset, suffix), "xb") as file:
                file.write(content)


def _headers(batches: bytes) -> Iterator[BatchHeader]:
    at = 0
    while at < len(batches):
        header = read_header(batches, at, at)
        at += header.size
        if at > len(batches):
            raise ValueError(f"the batch at {header.position} is cut off by {at - len(batches)} bytes")
        yield header
