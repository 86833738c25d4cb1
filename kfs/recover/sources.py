"""Other sources of a log's lost records: copies, deleted segments, the segments that a damaged compaction replaced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator

from kfs.errors import CorruptData, SourceLost
from kfs.format.layout import MAGIC_V2, MAX_INT64
from kfs.log.block import Block, Damage
from kfs.log.compare import compare
from kfs.log.directory_name import NEVER_TIERED
from kfs.log.healing import CommonHistory, batches_in, without
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.recover.runs import Run, joined


class Source(ABC):
    """A log that may have records that another log has lost.

    ``undoes_compaction`` says that it may also have records that compaction removed from the other log.
    """

    def __init__(self, log: Log, *, undoes_compaction: bool = False) -> None:
        self.log = log
        self.undoes_compaction = undoes_compaction
        #: Why nothing more is taken from the source, or None.
        self.failure: str | None = None

    @abstractmethod
    def is_proven(self, offsets: OffsetRange) -> bool:
        """Whether the records that this log has at the given offsets also belong there in the other log."""

    def fills(self, gap: OffsetRange) -> bool:
        """Whether offsets that the other log lacks between two segments count as lost if this log has them."""
        return False

    def found(self, offsets: OffsetRange) -> tuple[list[Run], list[OffsetRange]]:
        """Return this log's proven batches within some offsets, and the offsets that are still lost.

        No batch extends beyond the offsets. A source that can't be read yields nothing.
        """
        if self.failure is None:
            try:
                runs = list(joined(self._batches(offsets)))
                if runs and self.is_proven(offsets):
                    return runs, self.lacks(offsets)
            except (CorruptData, SourceLost) as error:
                self.failure = str(error)
        return [], [offsets]

    def _batches(self, offsets: OffsetRange) -> Iterator[Run]:
        after = offsets.start - 1
        for first, last, (path, inode, start, length) in batches_in(self.log, offsets):
            if after < first and last < offsets.end and length is not None:
                yield Run(path, inode, start, start + length, first, last)
                after = last

    def lacks(self, offsets: OffsetRange) -> list[OffsetRange]:
        """Return the offsets whose records this log doesn't know: damaged here too, or in no segment.

        Offsets missing between consecutive intact batches aren't included: only compaction can have removed those.
        """
        unknown = [offsets]
        for segment, start, end in self.log.spans:
            if start < offsets.end and (end is None or end > offsets.start):
                is_cleaned = end is not None and (self.log.first_dirty_offset or 0) >= end
                last = end if is_cleaned and end is not None else segment.tail()[1]
                unknown = without(unknown, start, (last if end is None else min(last, end)) - 1)
        for _, item in self.log.walk(offsets):
            if isinstance(item, Damage) and item.lost is not None:
                lost = OffsetRange(max(item.lost.start, offsets.start), min(item.lost.end, offsets.end))
                unknown = [*without(unknown, lost.start, lost.end - 1), *([lost] if lost.start < lost.end else [])]
        return sorted(unknown, key=lambda each: each.start)


class Copy(Source):
    """Another copy of the partition; only records proven to be of the same history are taken from it."""

    def __init__(self, log: Log, other: Log) -> None:
        super().__init__(other)
        self._history = CommonHistory(log, other)

    def is_proven(self, offsets: OffsetRange) -> bool:
        """See :meth:`Source.is_proven`."""
        return self._history.is_proven(offsets)

    def fills(self, gap: OffsetRange) -> bool:
        """See :meth:`Source.fills`; offsets that compaction may have removed don't count as lost."""
        return not self._history.may_be_compacted(gap)


class Deleted(Source):
    """Segments that were deleted from the log, by compaction or because they belong to another history.

    In one epoch, the leader writes each offset once. So a batch is of the log's history if its epoch is the log's epoch
    at that offset.
    """

    def __init__(self, log: Log, deleted: Log) -> None:
        super().__init__(deleted, undoes_compaction=True)
        self._log_start_offset = log.log_start_offset
        self._epochs = log.leader_epochs()
        self._starts = [entry.start_offset for entry in self._epochs]
        self._history = CommonHistory(log, deleted)

    def is_proven(self, offsets: OffsetRange) -> bool:
        """See :meth:`Source.is_proven`; records below the log start offset are deleted for good."""
        if offsets.start < self._log_start_offset:
            return False
        if self.log.topic not in NEVER_TIERED and all(map(self._is_of_epoch, self._blocks(offsets))):
            return True
        return self._history.is_proven(offsets)

    def _blocks(self, offsets: OffsetRange) -> Iterator[Block]:
        return (item for _, item in self.log.walk(offsets) if isinstance(item, Block))

    def _is_of_epoch(self, block: Block) -> bool:
        header = block.header
        at = bisect_right(self._starts, header.base_offset) - 1
        if header.magic < MAGIC_V2 or header.leader_epoch < 0 or at < 0:
            return False
        end = self._starts[at + 1] if at + 1 < len(self._starts) else MAX_INT64
        return self._epochs[at].leader_epoch == header.leader_epoch and header.last_offset < end


class Replaced(Source):
    """The segments that a compaction replaced with the segment in ``swap``: an earlier form of this same log."""

    def __init__(self, swap: Log, before: Log) -> None:
        super().__init__(before, undoes_compaction=True)
        self._swap = swap
        self._is_same: bool | None = None

    def is_proven(self, offsets: OffsetRange) -> bool:
        """See :meth:`Source.is_proven`; in Kafka's internal topics, no deleted key may come back."""
        if self.log.topic in NEVER_TIERED:
            return False
        if self._is_same is None:
            self._is_same = compare(self._swap, self.log).divergence is None
        return self._is_same
