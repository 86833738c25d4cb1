"""A log with transactions, damaged, read at either isolation level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kfs.format.layout import MAX_INT64
from kfs.read.isolation_level import IsolationLevel
from tests.log.damages import Parts, damaged, draw_local_damage, joined_parts
from tests.logs import Batch, joined, log_name, open_log, record, set_log_start
from tests.read.oracle.judging import is_judged, shown_at_random
from tests.read.oracle.kind import Files, Kind, Segments, Size, describe_parts, write_files
from tests.read.oracle.one_log import read_files
from tests.read.some_transactions import Data, End, Placed, draw_transactions, encoded, write_transactions
from tests.read.views import Asked


@dataclass(frozen=True, slots=True)
class WrittenTransactions:
    """A log with transactions as a broker has written it: events as they were placed, segments, files."""

    log: list[Placed]
    segments: Segments
    files: Files


@dataclass(frozen=True, slots=True)
class Transactions:
    """Events of producers, as they were placed, and the parts of each segment after the damage."""

    written: WrittenTransactions
    parts: dict[int, Parts]
    #: Segments, by base offset, whose transaction index is gone.
    without_index: frozenset[int]
    start: int | None
    isolation: IsolationLevel

    @property
    def log(self) -> list[Placed]:
        return self.written.log

    @property
    def all_parts(self) -> Parts:
        return [part for base in sorted(self.parts) for part in self.parts[base]]

    @property
    def intact_batches(self) -> set[int]:
        """The base offsets of batches, markers among them, that are as they were and where they were."""
        return {part.was.first_offset for part in self.all_parts if part.was and part.is_intact}

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


class Isolation(Kind[WrittenTransactions, Transactions]):
    """Every view shows the same at either isolation level, and nothing of what was aborted."""

    def draw_log(self, random: Random, size: Size, directory: Path) -> WrittenTransactions:
        events = draw_transactions(random, size.events)
        partition = directory / "t-0"
        log = write_transactions(partition, events, segment_bytes=random.choice((300, 800, 1 << 20)))
        files = read_files(partition)
        bases = sorted(int(name.removesuffix(".log")) for name in files if name.endswith(".log"))
        segments: Segments = {base: [] for base in bases}
        for one in log:
            base = max(base for base in bases if base <= one.offsets[0])
            segments[base].append(Batch(encoded(one), tuple(map(record, one.offsets))))
        assert all(files[log_name(base)] == joined(content) for base, content in segments.items())
        return WrittenTransactions(log, segments, files)

    def draw(self, random: Random, size: Size, log: WrittenTransactions) -> Transactions:
        while True:
            parts = {
                base: damaged(
                    content,
                    [draw_local_damage(random) for _ in range(random.randint(1, size.damages) * random.randrange(2))],
                )
                for base, content in log.segments.items()
            }
            without_index = frozenset(base for base in parts if random.randrange(2) == 0)
            start = random.randint(0, 60) if random.randrange(2) else None
            case = Transactions(log, parts, without_index, start, random.choice(list(IsolationLevel)))
            if is_judged(case.all_parts):
                return case

    def write(self, case: Transactions, directory: Path) -> list[Path]:
        files = dict(case.written.files)
        for base, parts in case.parts.items():
            files[log_name(base)] = joined_parts(parts)
            if base in case.without_index:
                files.pop(log_name(base, ".txnindex"), None)
        root = write_files(directory / "data", files)
        if case.start is not None:
            set_log_start(root, "t", 0, case.start)
        return [root]

    def judge(self, case: Transactions, roots: Sequence[Path], random: Random) -> None:
        log_start = open_log(roots[0] / "t-0").log_start_offset
        shown = shown_at_random(Asked.of(*roots, isolation=case.isolation), random)
        intact = case.intact_batches
        data = [one for one in case.log if isinstance(one.event, Data) and one.offsets[0] in intact]
        offsets = {offset for one in data for offset in one.offsets if offset >= log_start}
        assert all(value == record(offset).value for offset, value in shown.items()), f"another value: {shown}"
        if case.isolation is IsolationLevel.READ_UNCOMMITTED:
            assert shown.keys() == offsets, f"{sorted(shown)} are shown, {sorted(offsets)} are intact"
        else:
            sure, never = case.sure()
            lacking, too_many = (sure & offsets) - shown.keys(), shown.keys() - (offsets - never)
            assert not lacking, f"offsets {sorted(lacking)} are not shown"
            assert not too_many, f"offsets {sorted(too_many)} are shown"

    def describe(self, case: Transactions) -> Iterator[str]:
        yield f"{case.isolation}, log start {case.start}"
        for one in case.log:
            yield f"  {one.offsets}: {one.event}"
        for base, parts in sorted(case.parts.items()):
            yield from describe_parts(base, parts)
            yield from ["  without transaction index"] if base in case.without_index else []

    def traits(self, case: Transactions) -> Iterator[str]:
        yield case.isolation
        yield from ["log start"] if case.start is not None else []
        yield from ["no transaction index"] if case.without_index else []
        yield from ["several segments"] if len(case.parts) > 1 else []
