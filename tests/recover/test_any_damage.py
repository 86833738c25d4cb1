"""Whatever was done to the copies of a log: what one of them still has is recovered, and nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kfs.recover.kafka_mode import KafkaMode
from kfs.recover.log_dir_recovery import recover_copy
from kfs.recover.report import PartitionReport
from tests.log.damages import Damage, Parts, damaged, disorder, intact_records, joined_parts, local_damage
from tests.log.some_logs import some_segments
from tests.logs import joined, open_log, records_in, write_log
from tests.read.oracle.copies import Copies, before_all_anchors, draw_copied_log, draw_damages
from tests.read.oracle.judging import is_judged
from tests.read.oracle.kind import Segments, temporary_directory
from tests.read.oracle.one_log import WrittenLog
from tests.recover.exchanging import exchange
from tests.recover.recordings import CONFIG
from tests.recover.salvaging import check_cover, partition, salvage
from tests.thoroughness import examples

pytestmark = pytest.mark.usefixtures("quiet")
Values = dict[int, bytes | None]


def recovered(roots: Sequence[Path]) -> tuple[Values, PartitionReport]:
    """Salvage the first copy with the help of the others; hold a broker to start on it, and the report to be true."""
    output = roots[0].parent / "out"
    report = partition(salvage(roots[0], output, also=roots[1:]))
    check_cover(report)
    mode = KafkaMode(config=CONFIG, clock=lambda: 0, ignore_clean_shutdown=True)
    assert recover_copy(str(output), str(roots[0].parent / "again"), mode).losses == []
    found = {one.offset: one.value for one in records_in(open_log(output / "t-0"))}
    assert not lost_of(found, report)
    return found, report


def lost_ranges(report: PartitionReport) -> list[range]:
    return [
        range(loss.first_offset, loss.last_offset + 1)
        for loss in report.losses
        if loss.first_offset is not None and loss.last_offset is not None and not loss.set_aside
    ]


def lost_of(offsets: Iterable[int], report: PartitionReport) -> set[int]:
    """Return those offsets that are said to be lost, or to have been."""
    ranges = lost_ranges(report)
    return {offset for offset in offsets if any(offset in each for each in ranges)}


def written(segments: Segments) -> Values:
    return {one.offset: one.value for content in segments.values() for each in content for one in each.records}


def left_of_broken(parts: Parts) -> set[int]:
    """Return the offsets of broken batches of which bytes are left."""
    broken = [part.was for part in parts if part.was is not None and part.data and not part.is_intact]
    return {record.offset for was in broken if was is not None for record in was.records}


def gone(segments: Segments, parts: Parts) -> set[int]:
    """Return the offsets of batches of which no byte is left in a copy, nor anything that tells of them."""
    return written(segments).keys() - {
        one.offset for part in parts if part.data and part.was for one in part.was.records
    }


@st.composite
def rings(draw: st.DrawFn, bases: Sequence[int]) -> list[int]:
    """Draw the base offsets of segments whose names are exchanged; often of none."""
    return draw(st.just([]) | st.permutations(list(bases)).map(lambda some: some[: max(2, len(some) - 1)]))


def unproven(segments: Mapping[int, Parts], ring: Iterable[int]) -> set[int]:
    """Return the offsets of exchanged segments with fewer than two intact batches: nothing proves where they belong."""
    return {
        record.offset
        for base in ring
        if sum(part.is_intact for part in segments[base]) < 2
        for part in segments[base]
        if part.was is not None
        for record in part.was.records
    }


def draw_copies(random: Random) -> Copies:
    """Draw up to three damaged copies of a log."""
    with temporary_directory() as directory:
        log = WrittenLog.of(draw_copied_log(random), directory / "t-0")
    logs = [log] * random.randint(1, 3)
    return Copies.of(logs, [draw_damages(random, each.segments) for each in logs])


@settings(max_examples=examples(25, 200), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), copies=st.randoms(use_true_random=False).map(draw_copies))
def test_what_any_copy_has_is_recovered_and_nothing_else(data: st.DataObject, copies: Copies) -> None:
    segments, parts = copies.logs[0].segments, copies.parts_of_each
    assume(copies.is_judged)
    ring = data.draw(rings(sorted(copies.parts[0])))
    with tempfile.TemporaryDirectory() as name:
        roots = copies.write(Path(name))
        exchange(roots[0] / "t-0", ring, (".log",))
        found, report = recovered(roots)
        originals = written(segments)
        assert all(originals[offset] == value for offset, value in found.items())
        alone = unproven(copies.parts[0], ring)
        aside = alone if any(loss.set_aside for loss in report.losses) else set()  # a wrapper's loss has one offset
        assert intact_records(parts[0]).keys() <= found.keys() | aside
        others = {offset for each in parts[1:] for offset in intact_records(each)}
        assert lost_of(others, report) <= before_all_anchors(segments, parts)
        told = found.keys() | lost_of(originals, report)
        assert left_of_broken(parts[0]) - told - alone <= {
            each for other in parts[1:] for each in gone(segments, other)
        }


@settings(max_examples=examples(15, 100), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    log=st.randoms(use_true_random=False).map(draw_copied_log),
    done=st.lists(local_damage, max_size=2),
    other=st.lists(local_damage, max_size=1),
)
def test_what_a_damaged_compaction_has_lost_is_in_what_it_replaces(
    log: Segments, done: list[Damage], other: list[Damage]
) -> None:
    *bases, active = sorted(log)
    segments = {base: log[base] for base in bases}
    swap = damaged([each for base in bases for each in segments[base]], done)
    old = damaged(segments[bases[-1]], other)
    assume(is_judged(swap) and is_judged(old))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "data" / "t-0"
        write_log(directory, bases[0], joined_parts(swap), ".log.swap")
        write_log(directory, active, joined(log[active]))
        for base in bases:
            write_log(directory, base, joined_parts(old) if base == bases[-1] else joined(segments[base]))
        found, report = recovered([Path(name) / "data"])
        originals = written(log)
        assert all(originals[offset] == value for offset, value in found.items())
        assert intact_records(swap).keys() <= found.keys()
        before = {one.offset for base in bases[:-1] for each in segments[base] for one in each.records}
        assert not lost_of(before | intact_records(old).keys(), report)
        told = found.keys() | lost_of(originals, report)
        assert left_of_broken(swap) - told <= gone({bases[-1]: segments[bases[-1]]}, old)


@settings(max_examples=examples(15, 100), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    segments=some_segments(), done=st.lists(disorder, min_size=1, max_size=3), also=st.lists(local_damage, max_size=1)
)
def test_batches_in_the_wrong_place_cost_no_other(segments: Segments, done: list[Damage], also: list[Damage]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "data" / "t-0"
        for base, content in segments.items():
            parts = damaged(content, [*done, *also])
            assume(is_judged(parts))
            write_log(directory, base, joined_parts(parts))
        before = {one.offset for one in records_in(open_log(directory))}
        found, _ = recovered([Path(name) / "data"])
        originals = written(segments)
        assert all(originals[offset] == value for offset, value in found.items())
        assert before <= found.keys()
