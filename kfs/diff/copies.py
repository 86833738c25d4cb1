"""Compares the copies of one partition, from several brokers' disks or a backup, and chooses the one to keep."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from kfs.format.checkpoint import EpochEntry
from kfs.log.block import Block
from kfs.log.compare import Comparison, Divergence, Lack, LackCause, Place, compare
from kfs.log.healing import Healer
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem, Problems


class State(StrEnum):
    """The state of a copy compared to the one to keep."""

    KEEP = "keep"
    SAME = "same"
    PARTIAL = "partial"  # its records are the same, but some are missing
    DIVERGED = "diverged"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets from ``first`` to ``last``, both inclusive; ``records`` of them have records (-1: not counted).

    ``completed`` of these records come from other copies when all copies are read as one, because they are proven to be
    of the same history. ``place`` is the position of the first record in the copy that has it, if looked up.
    ``is_normal`` marks a difference due to compaction, which every broker does on its own schedule.
    """

    first: int
    last: int
    records: int
    why: str
    place: Place | None = None
    is_normal: bool = False
    completed: int = 0


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The report on one copy; ``log_end_offset`` is exclusive.

    ``lacks`` are the offsets that only the copy to keep has, ``only_here`` those that only this copy has.
    """

    path: str
    state: State
    log_start_offset: int
    log_end_offset: int
    size: int
    leader_epochs: tuple[EpochEntry, ...]
    last_leader_epoch: int
    divergence: Divergence | None
    lacks: tuple[Offsets, ...]
    only_here: tuple[Offsets, ...]
    problems: tuple[Problem, ...]

    @property
    def differs(self) -> bool:
        """Whether this copy's content differs from the copy to keep by more than compaction."""
        if self.state is State.KEEP:
            return False
        return self.state is not State.SAME or any(not offsets.is_normal for offsets in self.only_here)


@dataclass(frozen=True, slots=True)
class ComparedPartition:
    """The copies of a partition; the first is the one to keep."""

    topic: str
    partition: int
    copies: tuple[CopyReport, ...]

    @property
    def differs(self) -> bool:
        """Whether any copy differs, or there is only one."""
        return len(self.copies) < 2 or any(copy.differs for copy in self.copies)


def report_on(logs: Sequence[Log]) -> ComparedPartition:
    """Compare the copies of one partition with the one to keep, chosen by :meth:`~kfs.log.log.Log.standing`.

    Raises:
        CorruptData: a file changed meanwhile.
    """
    kept, *others = sorted(logs, key=lambda log: log.standing(), reverse=True)
    compared = [(log, compare(kept, log)) for log in others]
    completed = _Completed(kept, others)
    judged = [_judge(kept, log, comparison, completed) for log, comparison in compared]
    copies = [_describe(kept, State.KEEP), *judged]
    return ComparedPartition(kept.topic, kept.partition, tuple(copies))


class _Completed:
    """The copy to keep, completed from the other copies where these are proven to be of the same history."""

    def __init__(self, kept: Log, others: Sequence[Log]) -> None:
        self._kept = kept
        self._others = others

    @cached_property
    def _log(self) -> Log:
        kept, healer = self._kept, Healer(self._kept.directory, lambda: [log.directory for log in self._others])
        log = Log(kept.directory, kept.storage, copies=healer, problems=Problems(logging.DEBUG))
        log.complete([segment.files.log.path for segment in log.segments])
        return log

    def count(self, log: Log, lacks: Mapping[LackCause, Lack]) -> dict[LackCause, int]:
        """Return how many records that ``log`` has and the copy to keep ``lacks`` are completed from other copies."""
        lost = {cause: lack.records for cause, lack in lacks.items() if cause is not LackCause.COMPACTED}
        if not any(lost.values()):
            return {}
        still = compare(self._log, log).first_lacks
        left = {cause: lack.records for cause, lack in still.items()}
        return {cause: records - left.get(cause, 0) for cause, records in lost.items()}


def _describe(
    log: Log,
    state: State,
    divergence: Divergence | None = None,
    lacks: Sequence[Offsets] = (),
    only_here: Sequence[Offsets] = (),
) -> CopyReport:
    return CopyReport(
        log.directory.path,
        state,
        log.log_start_offset,
        log.log_end_offset,
        log.size(),
        log.leader_epochs(),
        log.last_leader_epoch(),
        divergence,
        tuple(lacks),
        tuple(only_here),
        tuple(log.problems),
    )


def _judge(kept: Log, log: Log, comparison: Comparison, completed: _Completed) -> CopyReport:
    divergence = comparison.divergence or _longer(kept, log)
    lacks = list(_unmatched(log, kept, comparison.second_lacks, "this copy"))
    counts = completed.count(log, comparison.first_lacks)
    only_here = list(_unmatched(kept, log, comparison.first_lacks, "the copy to keep", counts))
    if divergence is not None:
        lacks = [offsets for offsets in lacks if offsets.first < divergence.offset]
        only_here = [offsets for offsets in only_here if offsets.first < divergence.offset]
        if log.log_end_offset > divergence.offset:
            only_here.append(Offsets(divergence.offset, log.log_end_offset - 1, -1, "at and after the divergence"))
        state = State.DIVERGED
    else:
        state = State.PARTIAL if any(not offsets.is_normal for offsets in lacks) else State.SAME
    return _describe(log, state, divergence, lacks, only_here)


def _longer(kept: Log, log: Log) -> Divergence | None:
    """Return the divergence of a copy that is longer than the one to keep, but ends in an older leader epoch."""
    end = kept.log_end_offset
    if log.log_end_offset <= end:
        return None
    reason = "it continues in an older leader epoch after the end of the copy to keep"
    return Divergence(end, reason, None, _place_at(log, end))


def _place_at(log: Log, offset: int) -> Place | None:
    for _, item in log.walk(OffsetRange(offset, log.log_end_offset)):
        if isinstance(item, Block):
            return Place(item.file, item.position, item.header.leader_epoch)
    return None


def _unmatched(
    lacking: Log,
    having: Log,
    lacks: Mapping[LackCause, Lack],
    name: str,
    completed: Mapping[LackCause, int] = MappingProxyType({}),
) -> Iterator[Offsets]:
    """Yield what ``having`` has and ``lacking`` doesn't; ``name`` is what messages call ``lacking``."""
    start, end = lacking.log_start_offset, lacking.log_end_offset
    if start > having.log_start_offset:
        last = min(start, having.log_end_offset) - 1
        where = f"below the log start offset of {name}"
        if lacking.remote is not None:
            where = f"not on the disk of {name}, which keeps older segments in remote storage"
        yield Offsets(having.log_start_offset, last, -1, where)
    for cause, lack in lacks.items():
        why = f"{cause.value} in {name}"
        is_normal = cause is LackCause.COMPACTED
        found = completed.get(cause, 0)
        yield Offsets(lack.first_offset, lack.last_offset, lack.records, why, lack.place, is_normal, found)
    if end < having.log_end_offset:
        yield Offsets(max(end, having.log_start_offset), having.log_end_offset - 1, -1, f"after the end of {name}")
