"""Recovery of what one copy of a partition has lost, from another copy that provably has the same history.

The proof is an intact batch above the lost offsets that both copies have. Nothing below that batch may contradict it:
no record at an offset in both copies differs (see :func:`~kfs.log.compare.compare`). Leader epochs limit the common
history, as they limit a follower under KIP-279: it ends at the smaller of the two end offsets of the largest common
epoch. Message formats v0 and v1 have no epochs, so they also need a common intact batch below the loss. The topic ids
must be equal, and a missing id doesn't match a present one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from kfs.errors import CorruptData
from kfs.format.batch_header import UNKNOWN_COUNT
from kfs.format.checkpoint import EpochEntry
from kfs.format.layout import LOG_OVERHEAD, LOG_OVERHEAD_STRUCT, MAGIC_V2, MAX_INT32, MAX_INT64
from kfs.log.block import Block, Damage
from kfs.log.compare import Comparison, LackCause, compare
from kfs.log.completion import Healed
from kfs.log.directory_name import NEVER_TIERED
from kfs.log.log import Log
from kfs.log.log_segments import gap_behind
from kfs.log.missing import missing_sentence
from kfs.log.offset_range import OffsetRange
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.problem import Problem, ProblemKind, Problems
from kfs.log.segment import Segment
from kfs.log.segment_files import SegmentKey
from kfs.log.storage import Storage
from kfs.storage.patched_file import Extent

#: The maximum number of batches to search for one that both copies have, after a loss or before it.
_MOST_TRIED: Final = 1000


class Found(NamedTuple):
    """A batch of another copy: its first and last offset, and where its bytes are."""

    first: int
    last: int
    extent: Extent


@dataclass(slots=True)
class _Loss:
    """Bytes of a segment that lose records, and the offsets that are still missing.

    The bytes are empty if the batches are gone without a trace. ``lost`` is the offset range between the neighboring
    batches.
    """

    lost: OffsetRange
    problems: list[Problem]
    position: int
    end: int
    missing: list[OffsetRange]
    found: list[Found]

    @classmethod
    def of(cls, lost: OffsetRange, problem: Problem, position: int, end: int) -> _Loss:
        return cls(lost, [problem], position, end, [lost], [])

    @property
    def has_no_trace(self) -> bool:
        return self.position == self.end

    def take(self, batches: Sequence[Found]) -> None:
        """Add batches that another copy has."""
        self.found += batches
        for one in batches:
            self.missing = without(self.missing, one.first, one.last)


def without(ranges: Iterable[OffsetRange], first: int, last: int) -> list[OffsetRange]:
    """Return ranges of offsets minus the offsets from ``first`` to ``last``, both inclusive."""
    rest: list[OffsetRange] = []
    for each in ranges:
        rest += (OffsetRange(each.start, min(first, each.end)), OffsetRange(max(last + 1, each.start), each.end))
    return [each for each in rest if each.start < each.end]


class Healer:
    """Finds what ``others``, the other copies of a partition, have of the records that one copy lost.

    It reads nothing until :meth:`healed` is called.
    """

    __slots__ = ("_directory", "_healing", "others")

    def __init__(self, directory: PartitionDirectory, others: Callable[[], Sequence[PartitionDirectory]]) -> None:
        self._directory = directory
        #: Returns the current directories of the other copies.
        self.others = others
        self._healing = threading.Lock()

    def healed(self, storage: Storage) -> dict[SegmentKey, Healed]:
        """Return what can be restored, by segment (base offset and inode of the ``.log``).

        Raises:
            FileChanged: a copy changed while it was read.
        """
        with self._healing:
            quiet = Problems(logging.DEBUG)  # the log itself reports what remains lost
            copies = [Log(other, storage, problems=quiet) for other in self.others()]
            others = [copy for copy in copies if copy.can_be_listed]
            if not others:
                return {}
            log = Log(self._directory, storage, problems=quiet)
            histories = [
                CommonHistory(log, other) for other in sorted(others, key=partial(_preference, log), reverse=True)
            ]
            made = {}
            for segment in log.segments:
                healed = _healed(segment, histories)
                if healed is not None:
                    made[segment.files.key] = healed
            return made


def _preference(log: Log, other: Log) -> tuple[bool, tuple[int, int, int]]:
    """Return a key that ranks the other copies; the highest comes first.

    A compacted copy may lack what an uncompacted one has lost, so copies that match in compaction come first.
    """
    return (other.first_dirty_offset is None) == (log.first_dirty_offset is None), other.standing()


def _healed(segment: Segment, histories: Sequence[CommonHistory]) -> Healed | None:
    losses = list(_losses(segment))
    for loss in losses:
        _complete(loss, histories)
    if not any(loss.found for loss in losses):
        return None
    return Healed(tuple(_extents(segment, losses)), tuple(_notes(losses)))


def _complete(loss: _Loss, histories: Sequence[CommonHistory]) -> None:
    """Take what any copy has of a loss.

    Every copy is searched, even if an earlier one seems complete: a batch may be missing from that one without a trace.
    Batches that extend beyond the loss are rejected, because they would restore neighboring records that compaction
    removed.
    """
    settled = []
    for history in histories:
        for missing in list(loss.missing):
            offsets = history.reached(missing)
            if offsets.start >= offsets.end:
                continue
            if history.is_proven(offsets) and not (loss.has_no_trace and history.may_be_compacted(offsets)):
                batches = history.batches(offsets)
                fitting = [one for one in batches if loss.lost.start <= one.first and one.last < loss.lost.end]
                loss.take(fitting)
                if len(fitting) == len(batches) and history.has_all_of(offsets):
                    settled.append(offsets)
    for offsets in settled:
        loss.missing = without(loss.missing, offsets.start, offsets.end - 1)


def _losses(segment: Segment) -> Iterator[_Loss]:
    item: Block | Damage | None = None
    loss: _Loss | None = None
    for item in segment.walk(tells_missing=False):
        lost = item.lost if isinstance(item, Damage) else None
        if not isinstance(item, Damage) or lost is None or lost.end == MAX_INT64:
            continue
        if loss is not None and loss.lost == lost:  # no intact batch between them, so they lose the same offsets
            loss.end = item.end
            loss.problems.append(item.problem)
            continue
        if loss is not None:
            yield loss
        loss = _Loss.of(lost, item.problem, item.position, item.end)
    if loss is not None:
        yield loss
    gap = None if isinstance(item, Damage) else gap_behind(segment)
    if gap is not None and gap.end - segment.base_offset <= MAX_INT32:
        position = segment.tail()[0]
        problem = Problem(segment.files.log.path, position, 0, missing_sentence(gap), ProblemKind.OFFSET_GAP)
        yield _Loss.of(gap, problem, position, position)


def batches_in(log: Log, offsets: OffsetRange) -> Iterator[Found]:
    """Yield the batches of a log that overlap some offsets, with the location of their bytes."""
    for segment, item in log.walk(offsets):
        if isinstance(item, Block):
            yield from (one for one in _batches_of(item, segment) if _touches(one, offsets))


def _notes(losses: Sequence[_Loss]) -> Iterator[Problem]:
    for loss in losses:
        if loss.found:
            copies = ", ".join(sorted({one.extent.path for one in loss.found}))
            taken = f"what is lost between offsets {loss.lost.start - 1} and {loss.lost.end} is read from {copies}"
            yield from (replace(problem, reason=f"{problem.reason}; {taken}") for problem in loss.problems)


def _extents(segment: Segment, losses: Sequence[_Loss]) -> Iterator[Extent]:
    log, position = (segment.files.log.path, segment.files.log.inode), 0
    for loss in losses:
        if not loss.found:
            continue
        yield Extent(*log, position, loss.position - position)
        pieces = [(one.first, one.extent) for one in loss.found]
        if not loss.has_no_trace:
            broken = Extent(*log, loss.position, loss.end - loss.position)
            pieces += [(rest.start, broken) for rest in loss.missing]  # the walk still reports damage there
        yield from (extent for _, extent in sorted(pieces, key=lambda piece: piece[0]))
        position = loss.end
    yield Extent(*log, position, None)


class CommonHistory:
    """The common history of two copies of a partition; they are compared at the first query."""

    def __init__(self, log: Log, other: Log) -> None:
        self._log = log
        self._other = other
        self._comparison: Comparison | None = None
        #: Batches that both copies have, among those searched so far.
        self._in_common: list[Block] = []

    def batches(self, offsets: OffsetRange) -> list[Found]:
        """Return the batches of the other copy that overlap some offsets."""
        return list(batches_in(self._other, offsets))

    def reached(self, offsets: OffsetRange) -> OffsetRange:
        """Return the part of some offsets that the other copy reaches back to; its first segments may be deleted."""
        return OffsetRange(max(offsets.start, self._other.log_start_offset), offsets.end)

    def has_all_of(self, offsets: OffsetRange) -> bool:
        """Whether the other copy has everything that was ever at some offsets: no damage and no compaction."""
        if self._is_compacted or offsets.start < (self._other.first_dirty_offset or 0):
            return False
        gaps = (gap_behind(segment) for segment in self._other.segments)
        if any(gap is not None and gap.start < offsets.end and offsets.start < gap.end for gap in gaps):
            return False
        return not any(isinstance(item, Damage) and item.lost is not None for _, item in self._other.walk(offsets))

    @property
    def _compared(self) -> Comparison:
        if self._comparison is None:
            self._comparison = compare(self._log, self._other)
        return self._comparison

    @property
    def _is_compacted(self) -> bool:
        return LackCause.COMPACTED in self._compared.second_lacks or LackCause.MISSING in self._compared.second_lacks

    def is_proven(self, offsets: OffsetRange) -> bool:
        """Whether the other copy's records at some offsets provably belong there."""
        metadata = [each.partition_metadata() for each in (self._log, self._other)]
        if len({None if each is None else each.topic_id for each in metadata}) > 1:
            return False
        if offsets.end > self._end_in_common():
            return False
        differ_from = self._compared.divergence.offset if self._compared.divergence is not None else MAX_INT64
        if self._keeps_the_newest and not self._is_as_written(offsets):
            return False
        anchor = self._anchor(OffsetRange(offsets.end, differ_from))
        if anchor is None:
            return False
        if anchor.header.magic >= MAGIC_V2:
            return True
        return self._anchor(OffsetRange(self._log.log_start_offset, offsets.start)) is not None

    def may_be_compacted(self, offsets: OffsetRange) -> bool:
        """Whether the log may lack some offsets merely because of compaction."""
        cleaned = self._log.first_dirty_offset or 0
        return offsets.start < cleaned or LackCause.COMPACTED in self._compared.first_lacks

    @property
    def _keeps_the_newest(self) -> bool:
        """Whether the topic is an internal topic of Kafka, where only the newest record of each key counts."""
        return self._log.topic in NEVER_TIERED

    def _is_as_written(self, offsets: OffsetRange) -> bool:
        """Whether neither copy is compacted at some offsets; otherwise a removed key would come back."""
        cleaned = max(each.first_dirty_offset or 0 for each in (self._log, self._other))
        lacks = (self._compared.first_lacks, self._compared.second_lacks)
        is_compacted = any(cause is not LackCause.DAMAGED for lack in lacks for cause in lack)
        return cleaned <= offsets.start and not is_compacted

    def _end_in_common(self) -> int:
        """Return where the leader epochs stop agreeing: the smaller end of the largest epoch that both copies have."""
        epochs = [each.leader_epochs() for each in (self._log, self._other)]
        if not all(epochs):
            return MAX_INT64  # without epochs the batch headers must suffice
        common = {entry.leader_epoch for entry in epochs[0]} & {entry.leader_epoch for entry in epochs[1]}
        return min(_end_of(max(common), each) for each in epochs) if common else 0

    def _anchor(self, offsets: OffsetRange) -> Block | None:
        """Return a batch within some offsets that both copies have, intact and identical; None if none is found."""
        for known in self._in_common:
            if offsets.start <= known.header.base_offset and known.header.last_offset < offsets.end:
                return known
        tried = 0
        for _, item in self._log.walk(offsets):
            if not isinstance(item, Block) or item.header.base_offset < offsets.start:
                continue
            if item.header.last_offset >= offsets.end or tried >= _MOST_TRIED:
                return None
            tried += 1
            if self._has_record_of(item):
                self._in_common.append(item)
                return item
        return None

    def _has_record_of(self, block: Block) -> bool:
        """Whether the other copy has the same batch, or one with some of its records left after compaction."""
        header = block.header
        wanted = OffsetRange(header.base_offset, header.last_offset + 1)
        for segment, item in self._other.walk(wanted):
            if isinstance(item, Block):
                if item.data == block.data:
                    return True
                with suppress(CorruptData):
                    limit, decoder = segment.storage.max_batch_bytes, segment.storage.decoder
                    offsets = {*block.decode(decoder, limit).offsets}  # the comparison covers records that both have
                    if not offsets.isdisjoint(item.decode(decoder, limit).offsets):
                        return True
        return False


def _end_of(epoch: int, entries: Sequence[EpochEntry]) -> int:
    """Return the end offset of an epoch: the start offset of the next one, or :data:`MAX_INT64`."""
    return next((entry.start_offset for entry in entries if entry.leader_epoch > epoch), MAX_INT64)


def _touches(found: Found, offsets: OffsetRange) -> bool:
    return found.first < offsets.end and found.last >= offsets.start


def _batches_of(block: Block, segment: Segment) -> Iterator[Found]:
    """Yield the batches in a block: one, or each message of a run."""
    log, header, position = (segment.files.log.path, segment.files.log.inode), block.header, block.position
    if header.magic >= MAGIC_V2:
        yield Found(header.base_offset, header.last_offset, Extent(*log, position, header.size))
        return
    if header.record_count == UNKNOWN_COUNT:  # only a wrapper's content tells its offsets
        with suppress(CorruptData):
            offsets = block.decode(segment.storage.decoder, segment.storage.max_batch_bytes).offsets
            yield Found(offsets[0], offsets[-1], Extent(*log, position, header.size))
        return
    at = 0
    while at < len(block.data):
        offset, size = LOG_OVERHEAD_STRUCT.unpack_from(block.data, at)
        yield Found(offset, offset, Extent(*log, position + at, size + LOG_OVERHEAD))
        at += size + LOG_OVERHEAD
