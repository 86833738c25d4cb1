"""A partition cut into pieces of work that are about as large as each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.format.uuid import Uuid
from kfs.log.block import Damage
from kfs.log.file_version import FileVersion
from kfs.log.log import MOST_LOOKS, Log
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem
from kfs.read.isolation import IsolationLevel, visible_at
from kfs.read.selection import Selection
from kfs.storage.open_files import FileChanged

if TYPE_CHECKING:
    from kfs.log.segment import Segment

#: Bytes of log in a piece.
PIECE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Work:
    """Batches of one segment from ``position`` to ``end`` (None: the log's end), both batch boundaries.

    ``seen`` is the highest offset before them, where it is known. Position and end hold as long as the segment's file
    is this ``version`` of it. Where it isn't, what is wanted are the offsets from those seen up to, not including,
    ``stop`` (None: the end of all that is wanted), wherever they lie then in the log of the topic of ``topic_id``.
    Without a version it is for whoever made the piece to know all that.
    """

    topic: str
    partition: int
    base_offset: int
    position: int
    end: int | None
    seen: int | None
    stop: int | None = None
    version: FileVersion | None = None
    topic_id: Uuid | None = None

    def continues(self, other: Work) -> bool:
        """Whether this is work on the same segment."""
        return (self.topic, self.partition, self.base_offset) == (other.topic, other.partition, other.base_offset)


@dataclass(frozen=True, slots=True)
class WantedOffsets(OffsetRange):
    """Offsets of a log, and the end that was asked for: there are none between ``end`` and ``asked_end`` to be read.

    What is damaged there may have held some: the log may end where it does because of that.
    """

    asked_end: int


def wanted_offsets(log: Log, selection: Selection, isolation: IsolationLevel) -> WantedOffsets:
    """Return the offsets of a log that can be wanted; a lower bound of time begins where the log first reaches it.

    It begins an offset before: where that can't be read, it may be of that time as well.

    Raises:
        FileChanged: segments go each time that they are looked at.
    """
    for _ in range(MOST_LOOKS - 1):
        with suppress(FileChanged):
            return _wanted_now(log, selection, isolation)
        log.look_again()
    return _wanted_now(log, selection, isolation)


def _wanted_now(log: Log, selection: Selection, isolation: IsolationLevel) -> WantedOffsets:
    asked_end = selection.end
    if log.until_high_watermark and log.high_watermark is not None:
        asked_end = min(asked_end, log.high_watermark)
    listed = log.visible()
    visible = visible_at(log, isolation)
    if visible.end < listed.end:  # a transaction is open
        asked_end = min(asked_end, visible.end)
    start, end = max(visible.start, selection.start), min(visible.end, selection.end)
    if selection.since is not None and start < end:
        reached = log.offset_for_time(selection.since, OffsetRange(start, end))
        start = max(start, (end if reached is None else reached) - 1)
    return WantedOffsets(start, max(start, end), asked_end)


def lost_at_end(log: Log) -> Damage | None:
    """Return where the damage begins that a log ends with, and which hides how far it goes; None: there is none."""
    if not log.segments:
        return None
    try:
        items = log.segments[-1].walk_from(log.log_end_offset)
        damage = (item for item in items if isinstance(item, Damage))
        return next((item for item in damage if item.lost is not None and item.lost.end == MAX_INT64), None)
    except CorruptData:  # it vanished, or was cut just now
        return None


def remote_problem(log: Log, selection: Selection) -> Problem | None:
    """Return the problem of a log of which offsets are wanted that tiered storage has moved away, None: of none."""
    remote = log.remote
    return None if remote is None or not remote.overlaps(selection.start, selection.end) else remote.problem()


def pieces_of(log: Log, offsets: OffsetRange) -> Iterator[Work]:
    """Yield the work that holds all of ``offsets``, in log order.

    Segments are cut where their offset index says, at boundaries that were looked at; one whose index is
    of no use is a single piece. An active segment that begins where the offsets end is a piece, too: the log may
    end there because of damage.
    """
    metadata = log.partition_metadata()  # before the segments: those of another topic are no part of this one
    topic_id = None if metadata is None else metadata.topic_id
    for segment in log.segments:
        if segment.base_offset > offsets.end or (segment.base_offset == offsets.end and not segment.is_last):
            return
        if segment.next_base_offset is not None and segment.next_base_offset <= offsets.start:
            continue
        whole = Work(
            *(log.topic, log.partition, segment.base_offset, 0, None, None),
            *(segment.next_base_offset, FileVersion.of(segment), topic_id),
        )
        yield from _pieces_of_segment(whole, segment, offsets)


def _pieces_of_segment(whole: Work, segment: Segment, offsets: OffsetRange) -> Iterator[Work]:
    rest = whole
    with suppress(CorruptData):  # the index, or the segment, vanished meanwhile: what is left is one piece
        position, seen = segment.position_before(max(offsets.start, segment.base_offset))
        rest = replace(whole, position=position, seen=seen)
        for boundary, before in segment.boundaries(position + PIECE_BYTES, PIECE_BYTES):
            yield replace(rest, end=boundary, stop=before + 1)
            rest = replace(whole, position=boundary, seen=before)
            if before + 1 >= offsets.end:
                return
    yield rest
