"""Copies of one log that aren't the same: one went on by itself, one was compacted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from kfs.format.batch_header import read_header
from kfs.format.codecs import Codec
from kfs.format.layout import MAGIC_V2
from kfs.format.record import Record
from kfs.log.log_dir import CLEANER_OFFSET_CHECKPOINT
from tests.log.damages import intact_records
from tests.logs import Batch, batch, batches, open_log, write_checkpoint
from tests.read.oracle.copies import (
    Copies,
    SeveralCopies,
    check_completed,
    draw_copied_log,
    draw_damages,
    gaps_in,
    served_copy,
)
from tests.read.oracle.judging import lost_ranges, shown_at_random
from tests.read.oracle.kind import Segments, Size
from tests.read.oracle.one_log import History, WrittenLog
from tests.read.views import Asked

Histories = tuple[WrittenLog, ...]


def draw_histories(random: Random, size: Size, directory: Path) -> Histories:
    """Draw a log as it was written, as compaction left it, and as it went on in a clone."""
    segments = draw_copied_log(random, size.segments, size.batches, size.records)
    *below, last = sorted(segments)
    compacted = _changed({base: segments[base] for base in below}, _keeping_some(random))
    offsets = [one.first_offset for content in segments.values() for one in content]
    return (
        WrittenLog.of(segments, directory / "t-0"),
        WrittenLog.of({**compacted, last: segments[last]}, directory / "t-1", History.COMPACTED),
        WrittenLog.of(_changed(segments, _after(random.choice(offsets))), directory / "t-2", History.OTHER),
    )


def _changed(segments: Segments, change: Callable[[Batch], list[Batch]]) -> Segments:
    return {base: [new for one in content for new in change(one)] for base, content in segments.items()}


def _after(divergence: int) -> Callable[[Batch], list[Batch]]:
    """Return what gives other values to the batches from an offset on."""

    def change(one: Batch) -> list[Batch]:
        if one.first_offset < divergence:
            return [one]
        return _encoded(one, [replace(each, value=b"of the clone %d" % each.offset) for each in one.records])

    return change


def _keeping_some(random: Random) -> Callable[[Batch], list[Batch]]:
    """Return what takes records out of batches, as compaction does."""

    def change(one: Batch) -> list[Batch]:
        return _encoded(one, [each for each in one.records if random.randrange(3)])

    return change


def _encoded(one: Batch, records: Sequence[Record]) -> list[Batch]:
    """Encode other records as a batch was; compaction keeps the offsets of v2 batches."""
    if not records:
        return []
    header = read_header(one.data, 0, 0)
    if header.magic < MAGIC_V2:
        return batches(records, magic=header.magic, codec=Codec(header.codec_id))
    return [
        batch(records, codec=Codec(header.codec_id), base_offset=header.base_offset, last_offset=header.last_offset)
    ]


class OfSeveralHistories(SeveralCopies[Histories]):
    """Nothing of another history is shown, and nothing that compaction took out of the copy that is served."""

    def draw_log(self, random: Random, size: Size, directory: Path) -> Histories:
        return draw_histories(random, size, directory)

    def draw(self, random: Random, size: Size, log: Histories) -> Copies:
        as_written, *others = log
        while True:
            logs = [as_written, random.choice(others), random.choice(log)][: random.choice((2, 3))]
            random.shuffle(logs)
            case = Copies.of(logs, [draw_damages(random, each.segments, min(size.damages, 2)) for each in logs])
            if case.is_judged:
                return case

    def write(self, case: Copies, directory: Path) -> list[Path]:
        roots = super().write(case, directory)
        for root, log in zip(roots, case.logs, strict=True):
            if log.history is History.COMPACTED:
                write_checkpoint(root, CLEANER_OFFSET_CHECKPOINT, {("t", 0): max(log.segments)})
        return roots

    def judge(self, case: Copies, roots: Sequence[Path], random: Random) -> None:
        shown = shown_at_random(Asked.of(*roots), random)
        number = served_copy(roots)
        served = case.logs[number]
        invented = shown.items() - _of_its_history(served, case)
        assert not invented, f"what was never written there is shown: {invented}"
        alone = open_log(roots[number] / "t-0")
        gaps = [] if served.history is History.COMPACTED else gaps_in(alone)
        lost = [*lost_ranges(alone, 0), *gaps]
        taken = shown.keys() - intact_records(case.parts_of_each[number])
        needless = {offset for offset in taken if not any(offset in each for each in lost)}
        assert not needless, f"offsets {sorted(needless)} are not lost, and taken from another copy"
        if served.history is History.AS_WRITTEN:
            copies = zip(case.logs, case.parts_of_each, strict=True)
            check_completed(shown, served, roots[number], [parts for log, parts in copies if log is served])

    def traits(self, case: Copies) -> Iterator[str]:
        yield from super().traits(case)
        yield from {log.history for log in case.logs}


def _of_its_history(served: WrittenLog, case: Copies) -> set[tuple[int, bytes | None]]:
    """Return the offsets and values that there ever were in the history of the copy that is served."""
    is_other = served.history is History.OTHER
    logs = [log for log in case.logs if (log.history is History.OTHER) == is_other]
    return {item for log in logs for item in log.originals.items()}
