"""A partition that grows and loses its oldest segments, as a broker's does: batch by batch, roll by roll."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Final

from kfs.broker_log.log_segment import LogSegment, segment_path
from kfs.format.record import Record
from kfs.format.writer import encode_batch

#: Records of a batch.
BATCH: Final = 10
_FIRST_TIMESTAMP: Final = 1_790_000_000_000
_VALUE: Final = b"v" * 150
#: The files of a segment, the ``.log`` last: it is what says that the segment is there.
_KINDS: Final = (".index", ".timeindex", ".log")


class GrowingLog:
    """A partition's directory, written by kfs's own writer; a segment is rolled after so many batches."""

    def __init__(self, directory: Path, batches_per_segment: int) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self._batches_per_segment = batches_per_segment
        self._batches = 0
        self._active: LogSegment | None = None
        self._bases: deque[int] = deque()

    def append(self) -> None:
        """Append a batch; on return it is in the file."""
        first = self._batches * BATCH
        if self._batches % self._batches_per_segment == 0:
            self._roll(first)
        assert self._active is not None
        self._active.append(_batch(first))
        self._active.flush()
        self._batches += 1

    def _roll(self, base_offset: int) -> None:
        if self._active is not None:
            self._active.close()
        self._active = LogSegment.create(os.fspath(self.directory), base_offset)
        self._bases.append(base_offset)

    def delete_oldest(self) -> None:
        """Delete the first segment as retention does: rename its files to ``.deleted``."""
        base = self._bases.popleft()
        for kind in _KINDS:
            path = segment_path(os.fspath(self.directory), base, kind)
            os.rename(path, f"{path}.deleted")

    def file_of(self, batch: int) -> tuple[Path, int]:
        """Return the ``.log`` that batch number ``batch`` goes into, and the file's size in bytes with it."""
        in_segment = batch % self._batches_per_segment
        first = batch - in_segment
        size = sum(len(_batch(number * BATCH)) for number in range(first, batch + 1))
        return Path(segment_path(os.fspath(self.directory), first * BATCH, ".log")), size

    def close(self) -> None:
        """Close the active segment."""
        if self._active is not None:
            self._active.close()


def _batch(first: int) -> bytes:
    return encode_batch(
        [Record(offset, _FIRST_TIMESTAMP + offset, b"k", _VALUE) for offset in range(first, first + BATCH)]
    )
