"""What is kept of the segments of a log that is let go: enough to know each of them again.

A mount shows more partitions than it can hold open, but a segment must stay the same incarnation, with the same slot,
whether or not its log was let go meanwhile: node ids and cache keys are made of slots, and what was seen of a file
before is what tells a truncation later. That takes 64 bytes a segment; all else is found again on the disk.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol, Self
from weakref import ref

from kfs.log.incarnation import IncarnationState
from kfs.log.segment import Segment
from kfs.log.segment_files import SegmentFiles
from kfs.storage.listing import FoundFile
from kfs.storage.status import status_at

#: Base offset, inode, slot, changes behind, flags, size, mtime, log end.
_NUMBERS: Final = 8
_WAS_CLOSED: Final = 1
_NOTHING_MISSING: Final = 2


class _Kept(NamedTuple):
    """The numbers of one segment, in the order in which they are kept."""

    base_offset: int
    inode: int
    slot: int
    changes_behind: int
    flags: int
    size: int
    mtime_ns: int
    log_end: int


class KeptSegments:
    """The segments of a log in ``directory`` that was let go, by base offset."""

    __slots__ = ("_directory", "_in_use", "_last_batches", "_numbers")

    def __init__(self, directory: str, numbers: array[int]) -> None:
        self._directory = directory
        self._numbers = numbers
        #: Position and header of the last batch that was seen of a segment that may grow, by index.
        self._last_batches: dict[int, tuple[int, bytes]] | None = None
        #: Segments that someone has, such as a reader of an open file, by index.
        self._in_use: dict[int, ref[Segment]] | None = None

    @classmethod
    def of(cls, directory: str, segments: Sequence[Segment]) -> Self | None:
        """Return what is to be kept of segments; None if they can't be let go, as more than numbers matters of one."""
        numbers = array("q")
        last_batches: dict[int, tuple[int, bytes]] = {}
        for index, segment in enumerate(segments):
            state = segment.incarnation_state
            can_be_kept = state is not None and not segment.is_pinned and segment.patch is None
            if state is None or not can_be_kept or segment.files.log.path != _path(directory, segment.base_offset):
                return None
            flags = (_WAS_CLOSED if state.was_closed else 0) | (_NOTHING_MISSING if segment.was_told_complete else 0)
            try:
                numbers.extend(
                    _Kept(
                        *(segment.base_offset, segment.files.log.inode, segment.slot, segment.changes_behind),
                        *(flags, state.size, state.mtime_ns, state.log_end),
                    )
                )
            except OverflowError:  # an inode number of 64 bits
                return None
            if state.last_batch is not None and not state.was_closed:
                last_batches[index] = state.last_batch
        kept = cls(directory, numbers)
        kept._last_batches = last_batches or None
        return kept

    @property
    def last_base_offset(self) -> int | None:
        """The base offset of the last segment; None if there are none."""
        return self._numbers[-_NUMBERS] if self._numbers else None

    def note_in_use(self, segments: Sequence[ref[Segment]]) -> None:
        """Note which segments, by index, are still in use although the log has let go of them."""
        self._in_use = {index: each for index, each in enumerate(segments) if each() is not None} or None

    def _each(self) -> Iterator[_Kept]:
        numbers = self._numbers
        return (_Kept(*numbers[at : at + _NUMBERS]) for at in range(0, len(numbers), _NUMBERS))

    def segments(self, make: SegmentMaker) -> Iterator[Segment]:
        """Yield the segments as they were: the same objects where they are in use, others made anew."""
        for index, kept in enumerate(self._each()):
            used = None if self._in_use is None else self._in_use.get(index)
            segment = None if used is None else used()
            if segment is None:
                last_batch = None if self._last_batches is None else self._last_batches.get(index)
                files = SegmentFiles(kept.base_offset, FoundFile(_path(self._directory, kept.base_offset), kept.inode))
                was_closed, is_told = bool(kept.flags & _WAS_CLOSED), bool(kept.flags & _NOTHING_MISSING)
                state = IncarnationState(kept.size, kept.mtime_ns, kept.log_end, was_closed, last_batch)
                segment = make(files, kept.slot)
                segment.resume(state, kept.changes_behind, was_told_complete=is_told)
            yield segment

    def are_unchanged(self) -> bool:
        """Whether the files of all segments that were read are as they were when they were last seen.

        A segment in use may have seen more since then, so its log has to look itself.
        """
        if self._in_use is not None and any(each() is not None for each in self._in_use.values()):
            return False
        for kept in self._each():
            if kept.size:
                try:
                    status = status_at(_path(self._directory, kept.base_offset))
                except OSError:
                    return False
                if (status.inode, status.size, status.mtime_ns) != (kept.inode, kept.size, kept.mtime_ns):
                    return False
        return True


class SegmentMaker(Protocol):
    """Makes a segment of a log."""

    def __call__(self, files: SegmentFiles, slot: int) -> Segment:
        """Return a segment with these files, that has a slot already."""
        ...


def _path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, f"{base_offset:020d}.log")
