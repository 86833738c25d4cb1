"""The problems that a dump finds: some are reported at once, some listed at the end, as by ``kafka-dump-log``."""

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
    """The wrong entries of one index, as pairs of the index's value and the log's."""

    mismatches: list[Pair] = field(default_factory=list)
    out_of_order: list[Pair] = field(default_factory=list)
    not_found: list[Pair] = field(default_factory=list)

    def reasons(self) -> Iterator[str]:
        """Yield a sentence for each wrong entry."""
        for stated, found in self.mismatches:
            yield f"an entry has timestamp {stated}, its batch {found}"
        for stated, previous in self.out_of_order:
            yield f"an entry has timestamp {stated}, the one before it {previous}"
        for offset, found in self.not_found:
            yield f"an entry has offset {offset}, which no batch ends with" + (f" ({found})" if found >= 0 else "")


class DumpProblems:
    """Collects the problems of all files; ``say`` receives each problem as a line of text.

    ``is_bad`` says whether there was any problem. Offset gaps are listed, but aren't problems: compaction leaves them.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.is_bad = False
        self._offset_indexes: dict[str, list[Pair]] = {}
        self._time_indexes: dict[str, IndexFindings] = {}
        self._holes: dict[str, dict[int, int]] = {}

    def problem(self, problem: Problem) -> None:
        """Report a problem."""
        self.is_bad = True
        self._say(str(problem.error()))

    def unusable(self, path: str, reason: str) -> None:
        """Report a path that can't be dumped at all."""
        self.is_bad = True
        self._say(f"{path}: {reason}")

    def trailing_bytes(self) -> None:
        """Note that a log ends with bytes that aren't a batch; the dump itself shows them."""
        self.is_bad = True

    def offset_index(self, path: str, mismatches: list[Pair]) -> None:
        """Add wrong entries of an offset index: the entry's offset, and the last offset of the batch it points to."""
        if mismatches:
            self.is_bad = True
            self._offset_indexes[_absolute(path)] = mismatches

    def time_index(self, path: str, findings: IndexFindings) -> None:
        """Add the wrong entries of a time index."""
        if findings.mismatches or findings.out_of_order or findings.not_found:
            self.is_bad = True
            self._time_indexes[_absolute(path)] = findings

    def holes(self, path: str) -> HoleFinder:
        """Return a finder of offset gaps for a log."""
        return HoleFinder(self._holes.setdefault(_absolute(path), {}))

    def lines(self) -> Iterator[str]:
        """Yield the lines that Kafka's tool writes to standard error at the end, per kind in the order of files."""
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
    """Finds gaps in a log's offsets, and offsets that decrease. Offsets before the first record aren't a gap."""

    def __init__(self, holes: dict[int, int]) -> None:
        self._holes = holes
        self._last: int | None = None

    def look_at(self, offsets: array[int]) -> None:
        """Process the offsets of the next records."""
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
    """Return the path of Java's ``File.getAbsolutePath``, which isn't normalised."""
    return os.path.join(os.getcwd(), path)
