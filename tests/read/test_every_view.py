"""Damage, a log start, an isolation level: every view shows the same, all that is intact and nothing else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kfs.format.layout import MAX_INT64
from kfs.log.block import Block
from kfs.log.log import Log
from kfs.log.log_dir import CLEANER_OFFSET_CHECKPOINT
from kfs.log.offset_range import OffsetRange
from kfs.read.isolation import IsolationLevel
from tests.log.damages import Damage, Parts, damaged, disorder, is_ambiguous, joined_parts, local_damage
from tests.log.some_logs import some_segments
from tests.logs import (
    Batch,
    joined,
    log_name,
    open_log,
    record,
    set_log_start,
    write_checkpoint,
    write_log,
    write_partition,
)
from tests.read.some_transactions import Data, End, Event, Placed, encoded, some_transactions, write_transactions
from tests.read.views import TELLING, VIEWS, Asked, Shown, tells
from tests.thoroughness import examples

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("quiet")

Segments = dict[int, list[Batch]]

SUFFIXES = (".log", ".index", ".timeindex")
local = st.lists(local_damage, min_size=1, max_size=3)
anything = st.lists(local_damage | disorder, min_size=1, max_size=3)
#: What becomes of the indexes of each segment.
index_damage = st.sampled_from(["none", "none", "missing", "short", "zeros", "of another"])


@dataclass(frozen=True, slots=True)
class Case:
    """A log as it was written, and what was done to it."""

    segments: Segments
    parts: dict[int, Parts]
    indexes: tuple[str, ...]
    chosen_start: int | None
    #: Segments, by base offset, of which no file is left.
    gone: frozenset[int] = frozenset()
    #: Whether the first two segments have each other's names.
    is_exchanged: bool = False
    #: Whether there may have been offsets without a record before anything was done.
    has_holes: bool = True

    @property
    def all_parts(self) -> Parts:
        return [part for base in sorted(self.parts) if base not in self.gone for part in self.parts[base]]

    @property
    def log_start(self) -> int:
        """An offset of the log, or its first base offset."""
        offsets = [record.offset for content in self.segments.values() for one in content for record in one.records]
        return min(self.segments) if self.chosen_start is None else offsets[self.chosen_start % len(offsets)]


@st.composite
def cases(draw: st.DrawFn, segments: st.SearchStrategy[Segments], damages: st.SearchStrategy[list[Damage]]) -> Case:
    drawn = draw(segments)
    hit = draw(st.sets(st.sampled_from(sorted(drawn)), min_size=1))
    parts = {base: damaged(content, draw(damages) if base in hit else []) for base, content in drawn.items()}
    indexes = tuple(draw(index_damage) for _ in drawn)
    return Case(drawn, parts, indexes, draw(st.none() | st.integers(0, 1000)))


@contextmanager
def written(case: Case) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_partition(root / "t-0", case.segments)
        bases = sorted(case.segments)
        for number, (base, damage) in enumerate(zip(bases, case.indexes, strict=True)):
            write_log(root / "t-0", base, joined_parts(case.parts[base]))
            for suffix in (".index", ".timeindex"):
                path = root / "t-0" / log_name(base, suffix)
                if damage == "missing":
                    path.unlink()
                elif damage == "short":
                    os.truncate(path, path.stat().st_size // 2)
                elif damage == "zeros":
                    path.write_bytes(bytes(path.stat().st_size))
                elif damage == "of another":
                    other = root / "t-0" / log_name(bases[number - 1], suffix)
                    path.write_bytes(other.read_bytes() if other.exists() else b"")
        for base, suffix in product(case.gone, SUFFIXES):
            (root / "t-0" / log_name(base, suffix)).unlink(missing_ok=True)
        if case.is_exchanged:
            exchange(root / "t-0", *bases[:2])
        if case.chosen_start is not None:
            set_log_start(root, "t", 0, case.log_start)
        yield root


def exchange(partition: Path, one: int, other: int) -> None:
    """Give the files of two segments each other's names."""
    for suffix in SUFFIXES:
        paths = [partition / log_name(base, suffix) for base in (one, other)]
        content = [path.read_bytes() if path.exists() else None for path in paths]
        for path, data in zip(paths, reversed(content), strict=True):
            if data is not None:
                path.write_bytes(data)


def intact(case: Case) -> Shown:
    """What batches hold that are as they were and where they were."""
    parts = case.all_parts
    return {
        record.offset: record.value
        for part in parts
        if part.was is not None and part.is_intact
        for record in part.was.records
    }


def originals(case: Case) -> Shown:
    return {
        record.offset: record.value for content in case.segments.values() for one in content for record in one.records
    }


def shown_by_all(asked: Asked) -> Shown:
    """Return what every view shows."""
    first = VIEWS[0](asked)
    for view in VIEWS[1:]:
        shown = view(asked)
        assert shown == first, view.__name__
    return first


def lost_ranges(log: Log, start: int) -> list[OffsetRange]:
    walked = log.walk(OffsetRange(start, MAX_INT64))
    return [item.lost for _, item in walked if not isinstance(item, Block) and item.lost is not None]


# --- plain logs ------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100, 300), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(some_segments(), local), gone=st.sets(st.integers(0, 2), max_size=2))
def test_every_view_shows_what_is_intact_and_nothing_else(case: Case, gone: set[int]) -> None:
    bases = sorted(case.segments)
    case = replace(case, gone=frozenset(base for at, base in enumerate(bases[:-1]) if at in gone))
    assume(not any(part.is_moved for part in case.all_parts) and not is_ambiguous(case.all_parts))
    with written(case) as root:
        log = open_log(root / "t-0")
        start, end = log.log_start_offset, log.log_end_offset
        expected = {offset: value for offset, value in intact(case).items() if offset >= start}
        assert not [offset for offset in expected if offset >= end]
        assert shown_by_all(Asked.of(root)) == expected


@settings(max_examples=examples(100, 300), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(some_segments(), anything), is_exchanged=st.booleans())
def test_every_view_shows_the_same_of_batches_out_of_place(case: Case, is_exchanged: bool) -> None:
    case = replace(case, is_exchanged=is_exchanged and len(case.segments) > 1)
    with written(case) as root:
        shown = shown_by_all(Asked.of(root))
        written_as = originals(case)
        assume(not any(part.is_moved for part in case.all_parts) and not is_ambiguous(case.all_parts))
        assert all(written_as[offset] == value for offset, value in shown.items())


def lost_with_segments(case: Case) -> list[int]:
    """Return the offsets of segments between others of which it can be proven that they are missing.

    Where a batch is gone without a trace from the middle of another, it looks as if the log were compacted.
    """
    there = [base for base in case.segments if base not in case.gone]
    if case.has_holes or any(not part.data for base in there for part in case.parts[base]):
        return []
    between = [base for base in case.gone if min(there) < base < max(there)]
    return [record.offset for base in between for one in case.segments[base] for record in one.records]


plain = cases(some_segments(), local)
of_a_leader = cases(some_segments(5, has_holes=False), local | st.just([])).map(
    lambda case: replace(case, has_holes=False)
)


@settings(max_examples=examples(140, 400), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=plain | of_a_leader, gone=st.sets(st.integers(0, 4), max_size=3), chosen=st.integers(0, 1000))
def test_what_is_lost_is_told_by_every_view_and_overlaps_nothing_that_is_shown(
    case: Case, gone: set[int], chosen: int
) -> None:
    bases = sorted(case.segments)
    case = replace(case, gone=frozenset(base for at, base in enumerate(bases[:-1]) if at in gone))
    assume(not any(part.is_moved for part in case.all_parts) and not is_ambiguous(case.all_parts))
    with written(case) as root:
        if not case.has_holes:
            write_checkpoint(root, CLEANER_OFFSET_CHECKPOINT, {})
        log = open_log(root / "t-0")
        start, end = log.log_start_offset, log.log_end_offset
        shown = intact(case)
        lost = lost_ranges(log, start)
        assert not [offset for offset in shown for one in lost if offset in one]
        broken = [
            record.offset
            for part in case.all_parts
            if part.was is not None and part.data and not part.is_intact
            for record in part.was.records
        ]
        destroyed = [
            offset for offset in (*broken, *lost_with_segments(case)) if start <= offset < end and offset not in shown
        ]
        assume(destroyed)
        offset = destroyed[chosen % len(destroyed)]
        for view in TELLING:
            assert tells(view, Asked.of(root), OffsetRange(offset, offset + 1)), (view.__name__, offset)


# --- transactions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Transactions:
    """Events of producers, as they were placed, and the parts of each segment after the damage."""

    log: list[Placed]
    parts: dict[int, Parts]

    @property
    def intact_batches(self) -> set[int]:
        """The base offsets of batches, markers among them, that are as they were and where they were."""
        return {part.was.first_offset for parts in self.parts.values() for part in parts if part.was and part.is_intact}

    @property
    def is_judged(self) -> bool:
        """Whether what is damaged can't be taken for what it was."""
        every = [part for base in sorted(self.parts) for part in self.parts[base]]
        return not any(part.is_moved for part in every) and not is_ambiguous(every)

    def marker_of(self, number: int) -> int | None:
        """Return which event ended the transaction of a batch, None where none did."""
        producer = self.log[number].event.producer
        ends = (at for at in range(number, len(self.log)) if isinstance(self.log[at].event, End))
        return next((at for at in ends if self.log[at].event.producer == producer), None)

    def sure(self) -> tuple[set[int], set[int]]:
        """Return the offsets that a ``read_committed`` reader gets in any case, and those that it never gets.

        What became of a transaction whose marker is destroyed, the log may tell otherwise, or not at all.
        """
        intact = self.intact_batches
        shown, hidden, undecided = set[int](), set[int](), MAX_INT64
        for number, one in enumerate(self.log):
            event = one.event
            if isinstance(event, End) or event.producer is None or not event.transactional:
                continue
            marker = self.marker_of(number)
            if marker is None or self.log[marker].offsets[0] not in intact:
                undecided = min(undecided, one.offsets[0])
        for number, one in enumerate(self.log):
            event = one.event
            if isinstance(event, End) or one.offsets[0] not in intact:
                continue
            marker = self.marker_of(number) if event.producer is not None and event.transactional else None
            end = None if marker is None else self.log[marker]
            if end is not None and isinstance(end.event, End) and end.offsets[0] in intact and not end.event.is_commit:
                hidden.update(one.offsets)
            elif one.offsets[0] < undecided:
                shown.update(one.offsets)
        return shown, hidden


@contextmanager
def written_transactions(
    events: Sequence[Event], segment_bytes: int, damages: Sequence[list[Damage]], indexes: Sequence[bool]
) -> Iterator[tuple[Path, Transactions]]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        log = write_transactions(root / "t-0", events, segment_bytes=segment_bytes)
        bases = sorted(int(path.stem) for path in (root / "t-0").glob("*.log"))
        content: Segments = {base: [] for base in bases}
        for one in log:
            base = max(base for base in bases if base <= one.offsets[0])
            content[base].append(Batch(encoded(one), tuple(map(record, one.offsets))))
        parts = {}
        for number, base in enumerate(bases):
            assert (root / "t-0" / log_name(base)).read_bytes() == joined(content[base])
            parts[base] = damaged(content[base], damages[number % len(damages)])
            write_log(root / "t-0", base, joined_parts(parts[base]))
            if not indexes[number % len(indexes)]:
                (root / "t-0" / log_name(base, ".txnindex")).unlink(missing_ok=True)
        yield root, Transactions(log, parts)


@settings(max_examples=examples(70, 200), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    events=some_transactions(),
    segment_bytes=st.sampled_from([300, 800, 1 << 20]),
    damages=st.lists(st.just([]) | local, min_size=1, max_size=3),
    indexes=st.lists(st.booleans(), min_size=1, max_size=3),
    start=st.none() | st.integers(0, 60),
    isolation=st.sampled_from(IsolationLevel),
)
def test_every_view_shows_the_same_at_any_isolation_level(
    events: list[Event],
    segment_bytes: int,
    damages: list[list[Damage]],
    indexes: list[bool],
    start: int | None,
    isolation: IsolationLevel,
) -> None:
    with written_transactions(events, segment_bytes, damages, indexes) as (root, case):
        assume(case.is_judged)
        if start is not None:
            set_log_start(root, "t", 0, start)
        log_start = open_log(root / "t-0").log_start_offset
        shown = shown_by_all(Asked.of(root, isolation=isolation))
        intact = case.intact_batches
        data = [one for one in case.log if isinstance(one.event, Data) and one.offsets[0] in intact]
        offsets = {offset for one in data for offset in one.offsets if offset >= log_start}
        assert all(value == record(offset).value for offset, value in shown.items())
        if isolation is IsolationLevel.READ_UNCOMMITTED:
            assert shown.keys() == offsets
        else:
            sure, never = case.sure()
            assert sure & offsets <= shown.keys() <= offsets - never
