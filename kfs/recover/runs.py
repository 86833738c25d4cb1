"""Runs of intact batches, which a recovery moves or takes from another file as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT, read_header
from kfs.format.layout import BATCH_OVERHEAD
from kfs.log.block import Block
from kfs.log.segment import Segment
from kfs.log.window import Window
from kfs.storage.patched_file import Extent


class Run(NamedTuple):
    """Consecutive batches with ascending offsets: the bytes ``start`` to ``end`` of a file, first and last offset.

    ``inode`` is the file's inode number in the listing.
    """

    path: str
    inode: int
    start: int
    end: int
    first: int
    last: int

    @property
    def extent(self) -> Extent:
        """The run's byte range."""
        return Extent(self.path, self.inode, self.start, self.end - self.start)


def batches_between(segment: Segment, start: int, end: int) -> Iterator[Run]:
    """Yield the batches between two bytes of a segment, which must be intact, each as a run.

    Stop at a batch whose offsets can't be read.
    """
    log, file = segment.files.log, segment.file()
    window = Window(file, end)
    while start < end:
        buffer, at = window.at(start, min(BATCH_OVERHEAD, end - start))
        header = read_header(buffer, at, start)
        first, last = header.base_offset, header.last_offset
        if header.record_count == UNKNOWN_COUNT:
            block = Block(header, window.read(start, header.size), log.path)
            try:
                offsets = segment.storage.load(block, lambda problem: None).columns.offsets
            except CorruptData:
                return
            first, last = offsets[0], offsets[-1]
        yield Run(log.path, log.inode, start, start + header.size, first, last)
        start += header.size


def joined(runs: Iterable[Run]) -> Iterator[Run]:
    """Yield runs, with adjacent ones in the same file joined into one."""
    last: Run | None = None
    for run in runs:
        if last is not None and (last.path, last.end) == (run.path, run.start) and last.last < run.first:
            last = last._replace(end=run.end, last=run.last)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last
