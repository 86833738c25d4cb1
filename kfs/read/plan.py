"""Divides a partition into splits of about the same size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from kfs.errors import CorruptData
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.read.cutting import UNCUT, Cut, EvenSplits, SplitSizes, cuts_of
from kfs.read.wanted_offsets import WantedOffsets, lost_at_end

if TYPE_CHECKING:
    from kfs.format.uuid import Uuid
    from kfs.log.segment import Segment
    from kfs.log.span import Span

#: The default size of a split, in bytes of log.
SPLIT_BYTES: Final = 4 * 1024 * 1024


class FileVersion(NamedTuple):
    """What identifies the content of a segment's file; for a file that may grow, only the inode and the minimum size.

    It has the part of :class:`~kfs.storage.status.Version` that must match for the bytes to be the same. A rename or a
    mode change only changes the ctime, which isn't part of it.
    """

    inode: int
    size: int
    mtime_ns: int | None

    @classmethod
    def of(cls, segment: Segment) -> FileVersion:
        """Return the current version of a segment's file."""
        inode = segment.files.log.inode
        try:
            size, mtime_ns = segment.size_and_time()
        except CorruptData:  # the file is gone: no file matches this version
            return cls(inode, -1, -1)
        return cls(inode, size, None if segment.is_last else mtime_ns)

    def is_of(self, segment: Segment) -> bool:
        """Whether a segment's file is unchanged, or has only grown."""
        now = FileVersion.of(segment)
        if self.mtime_ns is None:
            return now.inode == self.inode and now.size >= self.size >= 0
        return now == self or (now.inode, now.size, now.mtime_ns) == (self.inode, self.size, None)


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Batches of one segment from ``position`` to ``end`` (None: the segment's end), both batch boundaries.

    ``after`` is the highest offset before them, or None if unknown. Position and end are valid as long as the segment's
    file is still this ``version``. Otherwise, the offsets not read yet, up to ``stop`` (exclusive; None: the end of all
    wanted offsets), are read from wherever they lie in the log, if its topic still has the id ``topic_id``. Without a
    version, the creator of the split must make sure that position and end are valid.
    """

    topic: str
    partition: int
    base_offset: int
    position: int
    end: int | None
    after: int | None
    stop: int | None = None
    version: FileVersion | None = None
    topic_id: Uuid | None = None

    def continues(self, other: BatchRange) -> bool:
        """Whether these are batches of the same segment."""
        return (self.topic, self.partition, self.base_offset) == (other.topic, other.partition, other.base_offset)


class Split(NamedTuple):
    """Batches, the wanted offsets among them, and the approximate number of bytes to read.

    Each wanted offset is in exactly one split. So is all damage: it belongs to the split whose bytes include it,
    whatever offsets it held.
    """

    batches: BatchRange
    offsets: WantedOffsets
    size: int


def splits_of(log: Log, offsets: WantedOffsets, sizes: SplitSizes | None = None) -> Iterator[Split]:
    """Yield the splits that together have all of ``offsets``, in log order, by default of 4 MiB each.

    ``sizes`` is evaluated again for each segment. :mod:`kfs.read.cutting` cuts the segments, at verified batch
    boundaries. If the log ends in damage that may hide requested offsets, that damage is a split of its own, unless
    another split includes it.
    """
    metadata = log.partition_metadata()  # before the segments: else they could get the id of a re-created topic
    topic_id = None if metadata is None else metadata.topic_id
    last: Split | None = None
    spans = log.spans
    for span in filter(partial(holds_some_of, offsets), spans):
        segment = span.segment
        whole = BatchRange(
            *(log.topic, log.partition, segment.base_offset, 0, None, None),
            *(span.end, FileVersion.of(segment), topic_id),
        )
        for last in _splits_of_segment(whole, segment, of_span(offsets, span), sizes or EvenSplits(SPLIT_BYTES)):
            yield last
    if offsets.asked_end > offsets.end and not (last is not None and _runs_to_end(last, spans[-1])):
        yield from _damaged_end(log, topic_id, offsets)


def holds_some_of(offsets: OffsetRange, span: Span) -> bool:
    """Whether the span of a segment includes some of the offsets."""
    return span.start < offsets.end and (span.end is None or span.end > offsets.start)


def of_span(offsets: WantedOffsets, span: Span) -> WantedOffsets:
    """Return the wanted offsets of a segment that may overlap others, as deleted segments do.

    Only the offsets of other segments bound them, not the base offset of the segment itself: its first batches may
    reveal that offsets before it are missing.
    """
    start, end, asked_end = offsets.start, offsets.end, offsets.asked_end
    if span.start > span.segment.base_offset:
        start = max(start, span.start)
    if span.end is not None:
        end = min(end, span.end)
        if span.end != span.segment.next_base_offset:
            asked_end = min(asked_end, span.end)
    return WantedOffsets(start, end, asked_end)


def _runs_to_end(split: Split, last: Span) -> bool:
    return split.batches.end is None and split.batches.base_offset == last.segment.base_offset


def _damaged_end(log: Log, topic_id: Uuid | None, offsets: WantedOffsets) -> Iterator[Split]:
    damage = lost_at_end(log)
    if damage is not None:
        segment, end = log.segments[-1], offsets.end
        batches = BatchRange(
            *(log.topic, log.partition, segment.base_offset, damage.position, None, damage.after),
            *(None, FileVersion.of(segment), topic_id),
        )
        yield Split(batches, WantedOffsets(end, end, offsets.asked_end), damage.end - damage.position)


def _splits_of_segment(
    whole: BatchRange, segment: Segment, offsets: WantedOffsets, sizes: SplitSizes
) -> Iterator[Split]:
    cuts = UNCUT
    with suppress(CorruptData):  # the segment vanished, or was cut: its reader gets the same error
        cuts = cuts_of(segment, offsets, sizes)
    begin: Cut | None = None
    for cut, following in pairwise(chain(cuts.cuts, (None,))):
        assert cut is not None
        start = offsets.start if cut.after is None else max(offsets.start, cut.after + 1)
        end = offsets.end if following is None or following.after is None else min(offsets.end, following.after + 1)
        begin = begin or cut
        if start >= end:
            begin = cut  # no wanted offsets here, but the next split includes it: damage here may have held some
            continue
        to = cuts.end if following is None else following.position
        stop = whole.stop if following is None else end
        batches = replace(whole, position=begin.position, end=to, after=begin.after, stop=stop)
        size = (cuts.stop if to is None else to) - begin.position
        begin = None
        yield Split(batches, WantedOffsets(start, end, offsets.asked_end), max(size, 0))
