"""Where else there may be what a log has lost: other copies, deleted segments, what a damaged compaction replaces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator

from kfs.errors import CorruptData, SourceLost
from kfs.format.layout import MAGIC_V2, MAX_INT64
from kfs.log.block import Block, Damage
from kfs.log.compare import compare
from kfs.log.healing import CommonHistory, batches_in, without
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.remote_offsets import NEVER_TIERED
from kfs.recover.runs import Run, joined


class Source(ABC):
    """A log that may have what another one has lost.

    ``undoes_compaction`` says that it may have what was removed from that by compaction.
    """

    def __init__(self, log: Log, *, undoes_compaction: bool = False) -> None:
        self.log = log
        self.undoes_compaction = undoes_compaction
        #: Why nothing more is taken from it.
        self.failure: str | None = None

    @abstractmethod
    def is_proven(self, offsets: OffsetRange) -> bool:
        """Whether what it has at some offsets belongs there in the other log, too."""

    def fills(self, gap: OffsetRange) -> bool:
        """Whether offsets are lost that the other log lacks between two segments, if this one has them."""
        return False

    def found(self, offsets: OffsetRange) -> tuple[list[Run], list[OffsetRange]]:
        """Return what it has of some offsets and is proven to belong there, and those that are still lost.

        What it has reaches over none of the offsets. One that can't be read has nothing.
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
        """Return of which offsets it doesn't know what there was: damaged here too, or in no segment.

        What lies between intact batches that follow each other isn't among them: if anything, compaction removed it.
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
    """Another copy of the partition, of which is taken what is proven to be of the same history."""

    def __init__(self, log: Log, other: Log) -> None:
        super().__init__(other)
        self._history = CommonHistory(log, other)

    def is_proven(self, offsets: OffsetRange) -> bool:
        """See :meth:`Source.is_proven`."""
        return self._history.is_proven(offsets)

    def fills(self, gap: OffsetRange) -> bool:
        """See :meth:`Source.fills`; what compaction may have removed isn't lost."""
        return not self._history.may_be_compacted(gap)


class Deleted(Source):
    """Segments that were deleted from the log: by compaction, or because they were of another history.

    One leader writes each offset once in its epoch. So a batch in the epoch that the log had there is of its history.
    """

    def __init__(self, log: Log, deleted: Log) -> None:
        super().__init__(deleted, undoes_compaction=True)
        self._log_start_offset = log.log_start_offset
        self._epochs = log.leader_epochs()
        self._starts = [entry.start_offset for entry in self._epochs]
        self._history = CommonHistory(log, deleted)

    def is_proven(self, offsets: OffsetRange) -> bool:
        """See :meth:`Source.is_proven`; what lies below the log start offset is deleted for good."""
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
    """The segments that a compaction was made of, whose ``.swap`` is ``swap``: a part of this very log."""

    def __init__(self, swap: Log, before: Log) -> None:
        super().__init__(before, undoes_compaction=True)
        self._swap = swap
        self._is_same: bool | None = None

    def is_proven(self, offsets: OffsetRange) -> bool:
        """See :meth:`Source.is_proven`; of Kafka's own topics no key may be back that was deleted."""
        if self.log.topic in NEVER_TIERED:
            return False
        if self._is_same is None:
            self._is_same = compare(self._swap, self.log).divergence is None
        return self._is_same
