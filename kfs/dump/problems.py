"""What a dump finds wrong: problems, said at once, and what ``kafka-dump-log`` lists after the last file."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from kfs.log.problem import Problem

Pair = tuple[int, int]


@dataclass(slots=True)
class IndexFindings:
    """Entries of one index that say what isn't so: pairs of what the index says and what the log has."""

    mismatches: list[Pair] = field(default_factory=list)
    out_of_order: list[Pair] = field(default_factory=list)
    not_found: list[Pair] = field(default_factory=list)

    def reasons(self) -> Iterator[str]:
        """Yield each as a sentence."""
        for stated, found in self.mismatches:
            yield f"an entry has timestamp {stated}, its batch {found}"
        for stated, previous in self.out_of_order:
            yield f"an entry has timestamp {stated}, the one before it {previous}"
        for offset, found in self.not_found:
            yield f"an entry has offset {offset}, which no batch ends with" + (f" ({found})" if found >= 0 else "")


class DumpProblems:
    """Collects what is wrong in one file after another; ``say`` gets each problem as a line of text.

    ``is_bad`` says whether there was anything. Holes between offsets aren't wrong (compaction leaves them), but they
    are listed.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.is_bad = False
        self._offset_indexes: dict[str, list[Pair]] = {}
        self._time_indexes: dict[str, IndexFindings] = {}
        self._holes: dict[str, dict[int, int]] = {}

    def problem(self, problem: Problem) -> None:
        """Something is wrong: say so."""
        self.is_bad = True
        self._say(str(problem.error()))

    def unusable(self, path: str, reason: str) -> None:
        """Nothing can be dumped of what a path names: say so."""
        self.is_bad = True
        self._say(f"{path}: {reason}")

    def trailing_bytes(self) -> None:
        """A log ends in bytes that are no batch; the lines say so."""
        self.is_bad = True

    def offset_index(self, path: str, mismatches: list[Pair]) -> None:
        """Entries of an offset index: their offset, and the last one of the batch that they point at."""
        if mismatches:
            self.is_bad = True
            self._offset_indexes[_absolute(path)] = mismatches

    def time_index(self, path: str, findings: IndexFindings) -> None:
        """Entries of a time index that aren't true."""
        if findings.mismatches or findings.out_of_order or findings.not_found:
            self.is_bad = True
            self._time_indexes[_absolute(path)] = findings

    def holes(self, path: str) -> HoleFinder:
        """Return what watches the offsets of a log."""
        return HoleFinder(self._holes.setdefault(_absolute(path), {}))

    def lines(self) -> Iterator[str]:
        """Yield what Kafka's tool writes to standard error at its end; of several files in their order."""
        for path, pairs in self._offset_indexes.items():
            yield f"Mismatches in :{path}"
            for offset, found in sorted(dict(pairs).items(), reverse=True):
                yield f"  Index offset: {offset}, log offset: {found}"
        yield from self._time_lines()
        for path, holes in self._holes.items():
            if holes:
                yield f"Non-consecutive offsets in {path}"
                for before, after in sorted(holes.items()):
                    yield f"  {before} is followed by {after}"

    def _time_lines(self) -> Iterator[str]:
        for path, findings in self._time_indexes.items():
            if findings.mismatches:
                yield f"Found timestamp mismatch in :{path}"
                for stated, found in findings.mismatches:
                    yield f"  Index timestamp: {stated}, log timestamp: {found}"
        for path, findings in self._time_indexes.items():
            if findings.out_of_order:
                yield f"Found out of order timestamp in :{path}"
                for stated, previous in findings.out_of_order:
                    yield f"  Index timestamp: {stated}, Previously indexed timestamp: {previous}"
        for path, findings in self._time_indexes.items():
            if findings.not_found:
                yield f"The following indexed offsets are not found in :{path}"
                for offset, found in findings.not_found:
                    yield f"Indexed offset: {offset}, found log offset: {found}"


class HoleFinder:
    """Finds where the offsets of a log leave some out, or go back. What lies before its first record is no hole."""

    def __init__(self, holes: dict[int, int]) -> None:
        self._holes = holes
        self._last: int | None = None

    def look_at(self, offsets: array[int]) -> None:
        """Take the offsets of the next records."""
        if not offsets:
            return
        first, last = offsets[0], offsets[-1]
        if self._last is not None and first != self._last + 1:
            self._holes[self._last] = first
        if last - first + 1 != len(offsets):
            for before, after in pairwise(offsets):
                if after != before + 1:
                    self._holes[before] = after
        self._last = last


def _absolute(path: str) -> str:
    """Return ``File.getAbsolutePath``: not normalised."""
    return os.path.join(os.getcwd(), path)
