"""A partition cut into splits that are about as large as each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final

from kfs.errors import CorruptData
from kfs.format.uuid import Uuid
from kfs.log.file_version import FileVersion
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.read.cutting import UNCUT, Cut, EvenSplits, SplitSizes, cuts_of
from kfs.read.wanted_offsets import WantedOffsets, lost_at_end

if TYPE_CHECKING:
    from kfs.log.segment import Segment
    from kfs.log.span import Span

#: Bytes of log in a split.
SPLIT_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Batches of one segment from ``position`` to ``end`` (None: the log's end), both batch boundaries.

    ``after`` is the highest offset before them, where it is known. Position and end hold as long as the segment's file
    is this ``version`` of it. Where it isn't, what is wanted are the offsets from those seen up to, not including,
    ``stop`` (None: the end of all that is wanted), wherever they lie then in the log of the topic of ``topic_id``.
    Without a version only the maker of the split knows whether they do.
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


@dataclass(frozen=True, slots=True)
class Split:
    """Batches, the offsets that are wanted of them, and about how many bytes are read for it.

    Each wanted offset is in one split, and so is all that is damaged: what lies in its bytes is asked for in a split,
    whatever offsets it held.
    """

    batches: BatchRange
    offsets: WantedOffsets
    size: int


def splits_of(log: Log, offsets: WantedOffsets, sizes: SplitSizes | None = None) -> Iterator[Split]:
    """Yield the splits that together hold all of ``offsets``, in log order; ``sizes`` are asked for each anew.

    By default they have 4 MiB.

    Segments are cut where their offset index says, at boundaries that were looked at. Where the log may go on behind
    the offsets, and ends in damage, that is a split, too, if no other has it.
    """
    metadata = log.partition_metadata()  # before the segments: those of another topic are no part of this one
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
    """Whether a segment answers for some of the offsets."""
    return span.start < offsets.end and (span.end is None or span.end > offsets.start)


def of_span(offsets: WantedOffsets, span: Span) -> WantedOffsets:
    """Return the offsets that are wanted of a segment which other segments may overlap, as deleted ones do.

    Its first batches may tell of offsets that are missing before it: only another segment's offsets bound it.
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
    with suppress(CorruptData):  # it vanished, or was cut: who reads it hears of that
        cuts = cuts_of(segment, offsets, sizes)
    begin: Cut | None = None
    for cut, following in pairwise(chain(cuts.cuts, (None,))):
        assert cut is not None
        start = offsets.start if cut.after is None else max(offsets.start, cut.after + 1)
        end = offsets.end if following is None or following.after is None else min(offsets.end, following.after + 1)
        begin = begin or cut
        if start >= end:
            begin = cut  # all of it lies before the offsets, but for damage that may have held some
            continue
        to = cuts.end if following is None else following.position
        stop = whole.stop if following is None else end
        batches = replace(whole, position=begin.position, end=to, after=begin.after, stop=stop)
        size = (cuts.stop if to is None else to) - begin.position
        begin = None
        yield Split(batches, WantedOffsets(start, end, offsets.asked_end), max(size, 0))
