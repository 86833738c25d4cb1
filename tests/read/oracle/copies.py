"""Copies of one log, each damaged elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from kfs.format.layout import MAGIC_OFFSET, MAGIC_V2
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.log_segments import gap_behind
from kfs.log.offset_range import OffsetRange
from kfs.log.storage import Storage
from tests.log.damages import Damage, Parts, damaged, draw_local_damage, intact_records, joined_parts
from tests.log.some_logs import draw_segments
from tests.logs import batch, log_name, open_log, record
from tests.read.oracle.judging import is_judged, lost_ranges, shown_at_random
from tests.read.oracle.kind import Kind, LogT, Segments, Size, describe_parts, format_of, write_files
from tests.read.oracle.one_log import WrittenLog
from tests.read.views import Asked, Shown

#: What is done to a segment whose ``.log`` is gone.
GONE: Final[list[Damage]] = []


@dataclass(frozen=True, slots=True)
class Copies:
    """What each copy was as it was written, and what became of its segments; those that are gone are left out."""

    logs: tuple[WrittenLog, ...]
    parts: tuple[Mapping[int, Parts], ...]

    @classmethod
    def of(cls, logs: Sequence[WrittenLog], damages: Sequence[Mapping[int, list[Damage]]]) -> Copies:
        """Damage each copy: ``damages`` are what is done to its segments, by base offset."""
        return cls(tuple(logs), tuple(map(_damaged, logs, damages)))

    @property
    def parts_of_each(self) -> list[Parts]:
        return [[part for parts in copy.values() for part in parts] for copy in self.parts]

    @property
    def is_judged(self) -> bool:
        """Whether what is damaged can't be taken for what it was, or for what another history has."""
        each = self.parts_of_each
        return all(map(is_judged, each)) and not any(part.is_of_other_epoch for parts in each for part in parts)

    def write(self, directory: Path) -> list[Path]:
        """Write a log directory for each copy."""
        roots = []
        for number, (log, copy) in enumerate(zip(self.logs, self.parts, strict=True)):
            files = {name: data for name, data in log.files.items() if not name.endswith(".log")}
            files.update((log_name(base), joined_parts(parts)) for base, parts in copy.items())
            roots.append(write_files(directory / f"broker-{number}", files))
        return roots


def _damaged(log: WrittenLog, damages: Mapping[int, list[Damage]]) -> dict[int, Parts]:
    return {
        base: damaged(content, damages.get(base, []))
        for base, content in log.segments.items()
        if damages.get(base) is not GONE
    }


def served_copy(roots: Sequence[Path]) -> int:
    """Return which of the copies is served."""
    served = DataDir([str(root) for root in roots], Storage()).log("t", 0)
    assert served is not None
    return roots.index(Path(served.directory.path).parent)


def draw_copied_log(random: Random, segments: int = 3, batches: int = 6, records: int = 6) -> Segments:
    """Draw a log whose last batches nothing is done to: they prove that copies are copies."""
    drawn = draw_segments(random, segments, batches, records)
    last = drawn[max(drawn)][-1].last_offset
    return {**drawn, last + 1: [batch([record(last + 1), record(last + 2)])]}


def draw_damages(random: Random, segments: Segments, most: int = 2) -> dict[int, list[Damage]]:
    """Draw what is done to one copy of such a log."""
    *bases, _ = sorted(segments)
    return {
        base: GONE if random.randrange(3) == 0 else [draw_local_damage(random) for _ in range(random.randint(1, most))]
        for base in random.sample(bases, random.randint(0, len(bases)))
    }


def is_compacted(segments: Segments) -> bool:
    """Whether a batch shows that records were taken out of it; in such a log a gap proves nothing."""
    batches = [each for content in segments.values() for each in content if each.data[MAGIC_OFFSET] >= MAGIC_V2]
    return any(len(each.records) <= each.last_offset - each.first_offset for each in batches)


def before_all_anchors(segments: Segments, parts: Sequence[Parts]) -> set[int]:
    """Return what nothing may prove of v0 and v1: the offsets before the first batch that is intact in every copy."""
    batches = [each for base in sorted(segments) for each in segments[base]]
    intact = [intact_records(each) for each in parts]
    lost: set[int] = set()
    for one in batches:
        if all(one.first_offset in each for each in intact):
            break
        lost.update(record.offset for record in one.records)
    return lost if any(one.data[MAGIC_OFFSET] < MAGIC_V2 for one in batches) else set()


class SeveralCopies(Kind[LogT, Copies]):
    """What all kinds have in common that damage copies."""

    def write(self, case: Copies, directory: Path) -> list[Path]:
        return case.write(directory)

    def describe(self, case: Copies) -> Iterator[str]:
        for number, copy in enumerate(case.parts):
            yield f"copy {number}"
            for base, parts in sorted(copy.items()):
                yield from describe_parts(base, parts)

    def traits(self, case: Copies) -> Iterator[str]:
        yield f"{len(case.parts)} copies"
        yield from {format_of(one) for content in case.logs[0].segments.values() for one in content}
        copies = zip(case.logs, case.parts, strict=True)
        yield from ["a segment is gone"] if any(len(parts) < len(log.segments) for log, parts in copies) else []


class OfOneHistory(SeveralCopies[WrittenLog]):
    """What one copy has lost is read from another."""

    def draw_log(self, random: Random, size: Size, directory: Path) -> WrittenLog:
        segments = draw_copied_log(random, size.segments, size.batches, size.records)
        return WrittenLog.of(segments, directory / "t-0")

    def draw(self, random: Random, size: Size, log: WrittenLog) -> Copies:
        while True:
            logs = [log] * random.choice((2, 3))
            case = Copies.of(logs, [draw_damages(random, each.segments, min(size.damages, 2)) for each in logs])
            if case.is_judged:
                return case

    def judge(self, case: Copies, roots: Sequence[Path], random: Random) -> None:
        shown = shown_at_random(Asked.of(*roots), random)
        log = case.logs[0]
        invented = shown.items() - log.originals.items()
        assert not invented, f"what was never written is shown: {invented}"
        check_completed(shown, log, roots[served_copy(roots)], case.parts_of_each)


def check_completed(shown: Shown, log: WrittenLog, served: Path, copies: Sequence[Parts]) -> None:
    """Hold what is shown to have all of what is lost in the ``served`` copy and intact in one of its ``copies``."""
    alone = open_log(served / "t-0")
    # What is missing in the middle of a segment without a trace, nobody looks for.
    lost = [*lost_ranges(alone, 0), *(gaps_in(alone) if not is_compacted(log.segments) else [])]
    intact = {offset for each in copies for offset in intact_records(each)}
    missing = {offset for offset in intact - shown.keys() if any(offset in each for each in lost)}
    unproven = before_all_anchors(log.segments, copies)
    assert missing <= unproven, f"offsets {sorted(missing - unproven)} are intact in a copy, and not shown"


def gaps_in(log: Log) -> list[OffsetRange]:
    """Return the offsets between segments that there is no trace of."""
    return [gap for segment in log.segments if (gap := gap_behind(segment)) is not None]
