"""One damaged log: its batches and its indexes, segments without a file or with each other's names, a log start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Final, Self

from kfs.log.log_dir import CLEANER_OFFSET_CHECKPOINT
from kfs.log.offset_range import OffsetRange
from tests.log.damages import Damage, Parts, damaged, draw_disorder, draw_local_damage, joined_parts
from tests.log.some_logs import draw_segments
from tests.logs import log_name, open_log, set_log_start, write_checkpoint, write_partition
from tests.read.oracle.judging import asked_at_random, differences, is_judged, lost_ranges, shown_at_random
from tests.read.oracle.kind import (
    SUFFIXES,
    Files,
    Kind,
    Segments,
    Size,
    describe_parts,
    format_of,
    write_files,
)
from tests.read.views import TELLING, Asked, Shown, tells

#: What becomes of the indexes of a segment.
INDEX_DAMAGE: Final = ("none", "none", "missing", "short", "zeros", "of another")


class History(StrEnum):
    """What became of a log before anything damaged it."""

    AS_WRITTEN = "as written"
    COMPACTED = "compacted"
    #: It went on by itself from somewhere on, with the same ids and leader epochs.
    OTHER = "another history"


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """A log as a broker has written it: the batches of its segments, and its files."""

    segments: Segments
    files: Files
    history: History = History.AS_WRITTEN
    #: Whether there may have been offsets without a record before anything was done.
    has_holes: bool = True

    @classmethod
    def of(
        cls, segments: Segments, directory: Path, history: History = History.AS_WRITTEN, *, has_holes: bool = True
    ) -> Self:
        """Write the segments into a directory that isn't there yet."""
        return cls(segments, read_files(write_partition(directory, segments)), history, has_holes)

    @property
    def originals(self) -> Shown:
        return {one.offset: one.value for content in self.segments.values() for each in content for one in each.records}


def read_files(directory: Path) -> Files:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@dataclass(frozen=True, slots=True)
class Case:
    """A log as it was written, and what was done to it."""

    log: WrittenLog
    parts: dict[int, Parts]
    indexes: tuple[str, ...]
    chosen_start: int | None
    #: Segments, by base offset, of which no file is left.
    gone: frozenset[int] = frozenset()
    #: Whether the first two segments have each other's names.
    is_exchanged: bool = False

    @classmethod
    def draw(cls, random: Random, size: Size, log: WrittenLog, draw_damage: Callable[[Random], Damage]) -> Self:
        bases = sorted(log.segments)
        hit = random.sample(bases, random.randint(1, len(bases)))
        parts = {
            base: damaged(
                content, [draw_damage(random) for _ in range(random.randint(1, size.damages))] if base in hit else []
            )
            for base, content in log.segments.items()
        }
        indexes = tuple(random.choice(INDEX_DAMAGE) for _ in bases)
        return cls(log, parts, indexes, random.randrange(1001) if random.randrange(2) else None)

    @property
    def segments(self) -> Segments:
        return self.log.segments

    @property
    def all_parts(self) -> Parts:
        return [part for base in sorted(self.parts) if base not in self.gone for part in self.parts[base]]

    @property
    def log_start(self) -> int:
        """An offset of the log, or its first base offset."""
        offsets = list(self.log.originals)
        return min(self.segments) if self.chosen_start is None else offsets[self.chosen_start % len(offsets)]

    def files(self) -> Files:
        """Return the files that are there after the damage."""
        files, bases = dict(self.log.files), sorted(self.segments)
        for number, (base, damage) in enumerate(zip(bases, self.indexes, strict=True)):
            files[log_name(base)] = joined_parts(self.parts[base])
            for suffix in SUFFIXES[1:]:
                index = files.pop(log_name(base, suffix))
                if damage != "missing":
                    other = files.get(log_name(bases[number - 1], suffix), b"")
                    files[log_name(base, suffix)] = _damaged_index(index, damage, other)
        for base in self.gone:
            for suffix in SUFFIXES:
                files.pop(log_name(base, suffix), None)
        if self.is_exchanged:
            exchange(files, *bases[:2])
        return files


def _damaged_index(index: bytes, damage: str, other: bytes) -> bytes:
    if damage == "short":
        return index[: len(index) // 2]
    if damage == "zeros":
        return bytes(len(index))
    return other if damage == "of another" else index


def exchange(files: Files, one: int, other: int) -> None:
    """Give the files of two segments each other's names."""
    for suffix in SUFFIXES:
        names = [log_name(base, suffix) for base in (one, other)]
        contents = [files.pop(name, None) for name in reversed(names)]
        files.update((name, data) for name, data in zip(names, contents, strict=True) if data is not None)


def intact(case: Case) -> Shown:
    """What batches hold that are as they were and where they were."""
    return {
        record.offset: record.value
        for part in case.all_parts
        if part.was is not None and part.is_intact
        for record in part.was.records
    }


def destroyed(case: Case) -> list[int]:
    """Return the offsets of broken batches of which bytes are left, and that are intact nowhere."""
    there = intact(case)
    broken = [part.was for part in case.all_parts if part.was is not None and part.data and not part.is_intact]
    return [record.offset for was in broken for record in was.records if record.offset not in there]


def lost_with_segments(case: Case) -> list[int]:
    """Return the offsets of segments between others of which it can be proven that they are missing.

    Where a batch is gone without a trace from the middle of another, it looks as if the log were compacted.
    """
    there = [base for base in case.segments if base not in case.gone]
    traces = [part.was for base in there for part in case.parts[base] if part.data]
    if case.log.has_holes or any(one not in traces for base in there for one in case.segments[base]):
        return []
    between = [base for base in case.gone if min(there) < base < max(there)]
    return [record.offset for base in between for one in case.segments[base] for record in one.records]


class OneLog(Kind[WrittenLog, Case]):
    """What all kinds have in common that damage one log."""

    def draw_log(self, random: Random, size: Size, directory: Path) -> WrittenLog:
        return WrittenLog.of(draw_segments(random, size.segments, size.batches, size.records), directory / "t-0")

    def write(self, case: Case, directory: Path) -> list[Path]:
        root = write_files(directory / "data", case.files())
        if case.chosen_start is not None:
            set_log_start(root, "t", 0, case.log_start)
        return [root]

    def describe(self, case: Case) -> Iterator[str]:
        yield f"log start {case.log_start}; indexes {case.indexes}; names exchanged: {case.is_exchanged}"
        for base, parts in sorted(case.parts.items()):
            yield from ["no file of the next one is left"] if base in case.gone else []
            yield from describe_parts(base, parts)

    def traits(self, case: Case) -> Iterator[str]:
        yield from {format_of(one) for content in case.segments.values() for one in content}
        yield from {f"index: {damage}" for damage in case.indexes}
        yield from ["log start"] if case.chosen_start is not None else []
        yield from ["a segment is gone"] if case.gone else []
        yield from ["names exchanged"] if case.is_exchanged else []


class Intact(OneLog):
    """Every view shows what is intact and nothing else."""

    def draw(self, random: Random, size: Size, log: WrittenLog) -> Case:
        *closed, _ = sorted(log.segments)
        while True:
            gone = frozenset(base for base in closed if random.randrange(3) == 0)
            case = replace(Case.draw(random, size, log, draw_local_damage), gone=gone)
            if is_judged(case.all_parts):
                return case

    def judge(self, case: Case, roots: Sequence[Path], random: Random) -> None:
        log = open_log(roots[0] / "t-0")
        start, end = log.log_start_offset, log.log_end_offset
        expected = {offset: value for offset, value in intact(case).items() if offset >= start}
        assert not [offset for offset in expected if offset >= end], f"what is intact is behind the log end {end}"
        shown = shown_at_random(Asked.of(*roots), random)
        assert shown == expected, differences(shown, expected)


def _any_damage(random: Random) -> Damage:
    return draw_disorder(random) if random.randrange(9) < 2 else draw_local_damage(random)


class OutOfPlace(OneLog):
    """Batches stand twice or where they don't belong: every view shows the same, and nothing that never was."""

    def draw(self, random: Random, size: Size, log: WrittenLog) -> Case:
        is_exchanged = len(log.segments) > 1 and random.randrange(2) == 0
        return replace(Case.draw(random, size, log, _any_damage), is_exchanged=is_exchanged)

    def judge(self, case: Case, roots: Sequence[Path], random: Random) -> None:
        shown = shown_at_random(Asked.of(*roots), random)
        if is_judged(case.all_parts):
            originals = case.log.originals
            invented = [
                offset for offset, value in shown.items() if offset not in originals or originals[offset] != value
            ]
            assert not invented, f"what was never written is shown at offsets {invented}"


class Lost(OneLog):
    """What is lost is told by every view that is asked for it, and overlaps nothing that is shown.

    Of a log that a leader wrote, and nobody compacted, that goes for segments that are missing, too.
    """

    def draw_log(self, random: Random, size: Size, directory: Path) -> WrittenLog:
        has_holes = random.randrange(2) == 0
        most = size.segments if has_holes else size.segments + 2
        segments = draw_segments(random, most, size.batches, size.records, has_holes=has_holes)
        return WrittenLog.of(segments, directory / "t-0", has_holes=has_holes)

    def draw(self, random: Random, size: Size, log: WrittenLog) -> Case:
        *closed, _ = sorted(log.segments)
        while True:
            gone = frozenset(base for base in closed if random.randrange(3) == 0)
            case = replace(Case.draw(random, size, log, draw_local_damage), gone=gone)
            if is_judged(case.all_parts) and (destroyed(case) or lost_with_segments(case)):
                return case

    def write(self, case: Case, directory: Path) -> list[Path]:
        [root] = super().write(case, directory)
        if not case.log.has_holes:
            write_checkpoint(root, CLEANER_OFFSET_CHECKPOINT, {})  # a broker has one, and this log isn't in it
        return [root]

    def judge(self, case: Case, roots: Sequence[Path], random: Random) -> None:
        log = open_log(roots[0] / "t-0")
        start, end = log.log_start_offset, log.log_end_offset
        shown = intact(case)
        lost = lost_ranges(log, start)
        overlapped = [offset for offset in shown for one in lost if offset in one]
        assert not overlapped, f"offsets {overlapped} are shown, and said to be lost"
        every = (*destroyed(case), *lost_with_segments(case))
        wanted = [offset for offset in every if start <= offset < end and offset not in shown]
        if not wanted:
            return
        offset = random.choice(wanted)
        with asked_at_random(Asked.of(*roots), random) as asked:
            for view in random.sample(TELLING, len(TELLING)):
                told = tells(view, asked, OffsetRange(offset, offset + 1))
                assert told, f"{view.__name__} doesn't tell that offset {offset} is lost"
