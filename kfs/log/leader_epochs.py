"""The leader epochs of a partition and their start offsets (``LeaderEpochFileCache.java``)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from kfs.format.checkpoint import EpochEntry

#: What ``end_offset_for`` returns for an unknown epoch (``OffsetsForLeaderEpochResponse``).
UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class LeaderEpochs:
    """Entries with ascending epochs and ascending start offsets."""

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """Load a checkpoint; an entry that goes back, as brokers before 2.0 wrote them, replaces conflicting ones."""
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(entry.leader_epoch, entry.start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, in order, as in the checkpoint file."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        """The highest epoch, or None if none is known."""
        return self._entries[-1].leader_epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` begins at ``start_offset``; return whether the entries changed.

        Entries at or above the epoch or the offset are dropped. Assigning the latest epoch again, at or above its start
        offset, changes nothing.

        Raises:
            ValueError: a number is negative.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} cannot begin at offset {start_offset}")
        latest = self._entries[-1] if self._entries else None
        if latest is not None and latest.leader_epoch == epoch and start_offset >= latest.start_offset:
            return False
        while self._entries and not self._is_before(self._entries[-1], epoch, start_offset):
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))
        return True

    @staticmethod
    def _is_before(entry: EpochEntry, epoch: int, start_offset: int) -> bool:
        return entry.leader_epoch < epoch and entry.start_offset < start_offset

    def assign_from_batch(self, epoch: int, base_offset: int) -> bool:
        """Note a batch's epoch as ``LogSegment.recover`` does: only if it is above all known epochs and above -1."""
        if epoch < 0 or (self._entries and epoch <= self._entries[-1].leader_epoch):
            return False
        return self.assign(epoch, base_offset)

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop the epochs that begin at or after ``end_offset``; return whether there were any."""
        kept = self._count_before(end_offset) if end_offset >= 0 else len(self._entries)
        changed = kept < len(self._entries)
        del self._entries[kept:]
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop the epochs that end before ``start_offset``; the epoch of that offset then begins there.

        Returns whether the entries changed.
        """
        before = self.entries
        count = self._count_before(start_offset + 1)
        if count:
            self._entries[:count] = [EpochEntry(self._entries[count - 1].leader_epoch, start_offset)]
        return self.entries != before

    def clear(self) -> None:
        """Forget every epoch."""
        self._entries.clear()

    def epoch_for(self, offset: int) -> int | None:
        """Return the epoch in which ``offset`` was (or will be) written, or None if it is unknown."""
        count = self._count_before(offset + 1)
        return self._entries[count - 1].leader_epoch if count else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the highest known epoch at or below ``epoch`` and its end offset, as a broker answers its followers.

        An epoch below all known epochs ends where the first known epoch begins. For an epoch above all known ones, or
        for -1, the result is ``(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)``.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        higher = bisect_right(self._entries, epoch, key=lambda entry: entry.leader_epoch)
        if higher == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        floor = self._entries[higher - 1].leader_epoch if higher else epoch
        return floor, self._entries[higher].start_offset

    def _count_before(self, offset: int) -> int:
        return bisect_right(self._entries, offset - 1, key=lambda entry: entry.start_offset)
