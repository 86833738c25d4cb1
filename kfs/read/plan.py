"""A partition cut into pieces of work that are about as large as each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, Protocol

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.format.uuid import Uuid
from kfs.log.block import Damage
from kfs.log.file_version import FileVersion
from kfs.log.log import MOST_LOOKS, Log
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem
from kfs.read.cutting import UNCUT, Cut, cuts_of
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
    """Return the offsets of a log that can be wanted; a lower bound of time begins as :func:`reaching` says.

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
        start = reaching(log, selection.since, OffsetRange(start, end)).start
    return WantedOffsets(start, max(start, end), asked_end)


def reaching(log: Log, timestamp: int, offsets: OffsetRange) -> OffsetRange:
    """Return those of some offsets from where the log first reaches a timestamp (milliseconds), and the one before.

    Where that can't be read, it may be of that time as well.
    """
    reached = log.offset_for_time(timestamp, offsets)
    return OffsetRange(max(offsets.start, (offsets.end if reached is None else reached) - 1), offsets.end)


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


class PieceSizes(Protocol):
    """How large pieces are to be."""

    @property
    def target(self) -> int:
        """Bytes of a piece, about."""
        ...

    @property
    def room(self) -> int:
        """Bytes of the next piece, at most or so."""
        ...

    @property
    def are_limits(self) -> bool:
        """Whether headers are walked for cuts where indexes don't say where to cut; else such pieces are larger."""
        ...


@dataclass(frozen=True, slots=True)
class EvenPieces:
    """Pieces of about the same size, cut where that costs next to nothing."""

    target: int
    are_limits: bool = False

    @property
    def room(self) -> int:
        """See :class:`PieceSizes`."""
        return self.target


@dataclass(frozen=True, slots=True)
class Piece:
    """Work, the offsets that are wanted of it, and about how many bytes are read for it.

    Each wanted offset is in one piece, and so is all that is damaged: what lies in its bytes is asked for in a piece,
    whatever offsets it held.
    """

    work: Work
    offsets: WantedOffsets
    size: int


def pieces_of(log: Log, offsets: WantedOffsets, sizes: PieceSizes | None = None) -> Iterator[Piece]:
    """Yield the pieces that together hold all of ``offsets``, in log order; ``sizes`` are asked for each anew.

    By default they have 4 MiB.

    Segments are cut where their offset index says, at boundaries that were looked at. Where the log may go on behind
    the offsets, and ends in damage, that is a piece, too, if no other has it.
    """
    metadata = log.partition_metadata()  # before the segments: those of another topic are no part of this one
    topic_id = None if metadata is None else metadata.topic_id
    last: Piece | None = None
    segments = log.segments
    for segment in filter(partial(holds_some_of, offsets), segments):
        whole = Work(
            *(log.topic, log.partition, segment.base_offset, 0, None, None),
            *(segment.next_base_offset, FileVersion.of(segment), topic_id),
        )
        for last in _pieces_of_segment(whole, segment, offsets, sizes or EvenPieces(PIECE_BYTES)):
            yield last
    runs_to_end = last is not None and last.work.end is None and last.work.base_offset == segments[-1].base_offset
    if offsets.asked_end > offsets.end and not runs_to_end:
        yield from _damaged_end(log, topic_id, offsets)


def holds_some_of(offsets: OffsetRange, segment: Segment) -> bool:
    """Whether a segment has some of the offsets in its range."""
    return segment.base_offset < offsets.end and (
        segment.next_base_offset is None or segment.next_base_offset > offsets.start
    )


def _damaged_end(log: Log, topic_id: Uuid | None, offsets: WantedOffsets) -> Iterator[Piece]:
    damage = lost_at_end(log)
    if damage is not None:
        segment, end = log.segments[-1], offsets.end
        work = Work(
            *(log.topic, log.partition, segment.base_offset, damage.position, None, damage.after),
            *(None, FileVersion.of(segment), topic_id),
        )
        yield Piece(work, WantedOffsets(end, end, offsets.asked_end), damage.end - damage.position)


def _pieces_of_segment(whole: Work, segment: Segment, offsets: WantedOffsets, sizes: PieceSizes) -> Iterator[Piece]:
    end_of_all = offsets.end if segment.next_base_offset is None else min(offsets.end, segment.next_base_offset)
    cuts = UNCUT
    with suppress(CorruptData):  # it vanished, or was cut: who reads it hears of that
        cuts = cuts_of(segment, offsets, sizes)
    begin: Cut | None = None
    for cut, following in pairwise(chain(cuts.cuts, (None,))):
        assert cut is not None
        start = offsets.start if cut.seen is None else max(offsets.start, cut.seen + 1)
        end = end_of_all if following is None or following.seen is None else min(end_of_all, following.seen + 1)
        begin = begin or cut
        if start >= end:
            begin = cut  # all of it lies before the offsets, but for damage that may have held some
            continue
        to = cuts.end if following is None else following.position
        stop = whole.stop if following is None else end
        work = replace(whole, position=begin.position, end=to, seen=begin.seen, stop=stop)
        size = (cuts.stop if to is None else to) - begin.position
        begin = None
        yield Piece(work, WantedOffsets(start, end, offsets.asked_end), max(size, 0))
