"""Assigns files to segments where the names are wrong: swapped files, and damaged results of a compaction.

A segment file's name is its base offset, and the file's batches show whether the name is right: under a wrong name, no
batch can be kept in place. So only such files are renamed, and only to a name that such a file has or that is free.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Final

from kfs.format.layout import MAX_INT64
from kfs.log.compare import compare
from kfs.log.log import Log
from kfs.log.offset_range import SegmentBounds
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.resync import find_batch
from kfs.log.segment import Segment
from kfs.log.segment_files import PartitionFiles, SegmentFiles
from kfs.log.window import Window
from kfs.recover.report import Change
from kfs.recover.runs import Run, batches_between
from kfs.recover.segment_plan import Fate, Stretch, plan_segment

#: How far below the lowest wrong name to look for offsets.
_BELOW: Final = 2**30
_SWAP: Final = ".log.swap"

#: A segment, and the fate of each of its bytes.
Planned = tuple[Segment, Sequence[Stretch]]


@dataclass(frozen=True, slots=True)
class ArrangedDirectory(PartitionDirectory):
    """A partition directory that lists the segments ``arranged`` instead of what is on disk."""

    arranged: tuple[SegmentFiles, ...] = ()

    def list(self, next_offset: object) -> PartitionFiles:
        """See :meth:`PartitionDirectory.list`."""
        return PartitionFiles(segments=[*self.arranged])


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A log with its files renamed, the changes to report, and the segments whose compaction is undone."""

    log: Log
    changes: tuple[Change, ...] = ()
    undone: tuple[Segment, ...] = ()

    def has(self, path: str) -> bool:
        """Whether a file belongs to a segment that an undone compaction replaces."""
        return bool(self.undone) and path in self._paths()

    def _paths(self) -> set[str]:
        """Return the paths of all possible files of the segments, existing or not."""
        logs = [segment.files.log.path.rpartition(".log") for segment in self.log.segments]
        kinds = (".log", ".index", ".timeindex", ".txnindex")
        return {f"{stem}{kind}{state}" for stem, _, state in logs for kind in kinds}


def arranged(log: Log, plans: Sequence[Planned], found: PartitionFiles) -> Arrangement:
    """Return a log whose files have the right names, with damaged compactions undone.

    ``plans`` covers the log's segments in order; ``found`` lists all files in the log's directory.

    Raises:
        CorruptData: a file changed meanwhile.
    """
    segments: list[SegmentFiles] = []
    undone: list[Segment] = []
    changes: list[Change] = []
    for segment, stretches in plans:
        before = replaced_by(log, segment, found) if _is_damaged(stretches) else ()
        if before and _is_whole(log, segment, stretches, before):
            segments += before
            undone.append(segment)
            changes.append(Change(segment.files.log.path, "damaged: the segments that it replaces are kept instead"))
        else:
            segments.append(segment.files)
    names = _names(log, [each for each in plans if each[0] not in undone])
    for at, files in enumerate(segments):
        name = names.get(files.log.path, files.base_offset)
        if name != files.base_offset:
            segments[at] = replace(files, base_offset=name, index=None, timeindex=None)
            reason = f"kept as the segment with base offset {name}, to which its batches belong: the name was wrong"
            changes.append(Change(files.log.path, reason))
    if not changes:
        return Arrangement(log)
    segments.sort(key=lambda files: files.base_offset)
    return Arrangement(log_of(log, segments), tuple(changes), tuple(undone))


def log_of(log: Log, segments: Iterable[SegmentFiles]) -> Log:
    """Return the same log with just the given segments."""
    of = log.directory
    return Log(ArrangedDirectory(of.path, of.name, of.log_dir, of.loose, arranged=tuple(segments)), log.storage)


# --- finished compactions whose result is damaged -------------------------------------------------------------------


def replaced_by(log: Log, swap: Segment, found: PartitionFiles) -> tuple[SegmentFiles, ...]:
    """Return the remaining files of the segments that a ``.swap`` segment replaces; nothing for other segments.

    The cleaner renames these files to ``.deleted`` after it has renamed its own result to ``.swap``.
    """
    if not swap.files.log.path.endswith(_SWAP):
        return ()
    end = MAX_INT64 if swap.next_base_offset is None else swap.next_base_offset
    files: dict[int, SegmentFiles] = {}
    for each in found.superseded:
        stem, _, kind = os.path.basename(each.path).partition(".")
        if kind == "log" and swap.base_offset <= int(stem) < end:
            files[int(stem)] = SegmentFiles(int(stem), each)
    there = log_of(log, (files[base] for base in sorted(files)))
    for deleted in found.deleted:
        before = there.segment_for(deleted.base_offset)
        is_older = before is not None and before.tail()[1] > deleted.base_offset  # from an earlier compaction
        if swap.base_offset <= deleted.base_offset < end and not is_older:
            files.setdefault(deleted.base_offset, deleted)
    return tuple(files[base] for base in sorted(files))


def _is_damaged(stretches: Iterable[Stretch]) -> bool:
    return any(each.fate is Fate.LOST for each in stretches)


def _is_whole(log: Log, swap: Segment, stretches: Sequence[Stretch], before: tuple[SegmentFiles, ...]) -> bool:
    """Whether ``before`` is the complete input of a compaction, all of it intact.

    Then it is the log as before the compaction: no deleted record comes back without its tombstone.
    """
    old, new = log_of(log, before), log_of(log, [swap.files])
    segments = old.segments
    if old.segments[0].base_offset != swap.base_offset:
        return False
    segments[-1].next_base_offset = swap.next_base_offset
    if any(each.fate is not Fate.KEPT for segment in segments for each in plan_segment(segment, None)):
        return False
    if any(one.tail()[1] != other.base_offset for one, other in pairwise(segments)):
        return False
    end = segments[-1].tail()[1]
    if any(each.has_offsets and _surely_from(each) >= end for each in stretches):
        return False
    compared = compare(new, old)
    return compared.divergence is None and not compared.second_lacks


def _surely_from(stretch: Stretch) -> int:
    """Return the highest offset that a stretch has; of lost bytes, the lowest that they can have had."""
    return stretch.last_offset if stretch.fate is Fate.KEPT else stretch.first_offset


# --- names that belong to another file ------------------------------------------------------------------------------


def _names(log: Log, plans: Sequence[Planned]) -> dict[str, int]:
    """Return new base offsets, by path, for the files of which nothing can be kept under their own names."""
    wrong = {segment.base_offset: segment for segment, stretches in plans if not _is_kept(stretches)}
    first = {base: _first_batches(segment, wrong) for base, segment in wrong.items()}
    says = {base: _name_of(first[base], wrong, log) for base in wrong}
    names: dict[int, int] = {}
    for base, name in sorted(says.items(), key=lambda each: each[0] != each[1]):  # files with the right name first
        if name is None or name in names.values():
            continue
        # No CRC covers an offset. That of a single batch counts if it is a wrong file's name, or if names were swapped.
        is_exchanged = name in wrong and says[name] not in (None, name)
        is_believed = len(first[base]) > 1 or first[base][0].first == name in wrong or is_exchanged
        if is_believed and (name in wrong or _is_free(name, plans)):
            names[base] = name
    left = [base for base in wrong if base not in names.values()]
    for base in wrong:
        if base not in names and left:
            names[base] = left.pop(left.index(base) if base in left else 0)
    return {wrong[base].files.log.path: name for base, name in names.items()}


def _is_kept(stretches: Iterable[Stretch]) -> bool:
    return any(each.fate is Fate.KEPT for each in stretches)


def _first_batches(segment: Segment, wrong: Iterable[int]) -> list[Run]:
    """Return the first intact batch of a file, whatever the file's name, and the intact batch that follows it."""
    file, size, limit = segment.file(), segment.size(), segment.storage.max_batch_bytes
    window, found = Window(file, size), list[Run]()
    for base in _ranges(wrong):
        position: int | None = 0
        after = base - 1
        batches: list[Run] = []
        while position is not None and len(batches) < 2:
            position = find_batch(window, SegmentBounds(base, None), position, after, limit)
            if position is not None:
                batches += islice(batches_between(segment, position, size), 1)
                if not batches or batches[-1].start != position:  # its offsets can't be read
                    break
                position, after = batches[-1].end, batches[-1].last
        if batches and (not found or batches[0].start < found[0].start):
            found = batches
    return found


def _ranges(names: Iterable[int]) -> list[int]:
    """Return the base offsets of the ranges to search for the offsets of segments with the given names."""
    bases: list[int] = []
    for name in sorted(names):
        if not bases or name - bases[-1] > _BELOW + _BELOW // 2:  # a segment spans 2^31 offsets
            bases.append(max(name - _BELOW, 0))
    return bases


def _name_of(batches: Sequence[Run], wrong: Iterable[int], log: Log) -> int | None:
    """Return the name that fits a file's first batches: the wrong name in whose segment's range they are.

    If they are in the range of no wrong name, return their first offset, but only if they begin the file: inside damage
    there may be batches of another log, in a record's value. Return None if the batches span several segments' ranges.
    """
    if not batches:
        return None
    first = batches[0].first
    bases = [segment.base_offset for segment in log.segments]
    at = bisect_right(bases, first) - 1
    end = bases[at + 1] if at + 1 < len(bases) else MAX_INT64
    if any(batch.last >= end for batch in batches):
        return None
    if at >= 0 and bases[at] in wrong:
        return bases[at]
    return first if batches[0].start == 0 else None


def _is_free(name: int, plans: Sequence[Planned]) -> bool:
    """Whether a name is above all offsets that are kept in segments with lower names."""
    return all(
        stretch.last_offset < name
        for segment, stretches in plans
        for stretch in stretches
        if segment.base_offset <= name and stretch.fate is Fate.KEPT
    )
