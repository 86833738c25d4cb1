"""Salvage takes what a segment has lost, or what is in the wrong one, from where it is still intact."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from kfs.errors import KfsError
from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint
from kfs.recover.kafka_mode import KafkaMode
from kfs.recover.log_dir_recovery import recover_copy
from kfs.recover.report import PartitionReport
from kfs.recover.salvage import EXTRA
from kfs.recover.segment_plan import Fate
from tests.logs import (
    Batch,
    batch,
    dense,
    joined,
    log_name,
    open_log,
    positions,
    record,
    records,
    records_in,
    set_log_start,
    write_checkpoint,
    write_log,
    write_partition,
)
from tests.recover.exchanging import exchange
from tests.recover.recordings import CONFIG
from tests.recover.salvaging import check_cover, partition, salvage

pytestmark = pytest.mark.usefixtures("quiet")
Segments = Mapping[int, Sequence[Batch]]
THREE: Segments = {base: dense(base, base + 19, 5) for base in (0, 20, 40)}


def recovered(source: Path, *also: Path, undelete: bool = False) -> PartitionReport:
    """Salvage ``t-0``; hold the report to account for all of it, and a broker's loader to find nothing to cut off."""
    root = source.parent / "out"
    report = salvage(source, root, also=also, undelete=undelete)
    mode = KafkaMode(config=CONFIG, clock=lambda: 0, ignore_clean_shutdown=True)
    assert recover_copy(str(root), str(source.parent / "again"), mode).losses == []
    check_cover(partition(report))
    return partition(report)


def offsets(source: Path) -> list[int]:
    return [one.offset for one in records_in(open_log(source.parent / "out" / "t-0"))]


def extras(source: Path) -> list[str]:
    return sorted(path.name for path in (source.parent / "out" / "t-0").glob(f"{EXTRA}/*"))


def lost(report: PartitionReport) -> list[tuple[int | None, int | None]]:
    return [(loss.first_offset, loss.last_offset) for loss in report.losses if not loss.set_aside]


def broken(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


# --- names that were exchanged --------------------------------------------------------------------------------------

RINGS = [(0, 20), (20, 40), (0, 40), (0, 20, 40), (0, 40, 20)]


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index", ".timeindex")], ids=["log", "all"])
@pytest.mark.parametrize("magic", [0, 2])
def test_segments_whose_names_were_exchanged_go_back(
    ring: Sequence[int], suffixes: Sequence[str], magic: int, tmp_path: Path
) -> None:
    segments = {base: dense(base, base + 19, 5, magic=magic) for base in (0, 20, 40)}
    source = tmp_path / "data"
    directory = write_partition(source / "t-0", segments)
    exchange(directory, ring, suffixes)
    report = recovered(source)
    assert report.losses == []
    assert offsets(source) == list(range(60))
    assert extras(source) == []
    for base, content in segments.items():
        assert (tmp_path / "out" / "t-0" / log_name(base)).read_bytes() == joined(content)
    assert len([change for change in report.changes if "kept as the segment with base offset" in change.what]) == len(
        ring
    )


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("ring", RINGS)
def test_damage_in_an_exchanged_segment_costs_no_more_than_anywhere(
    ring: Sequence[int], number: int, tmp_path: Path
) -> None:
    source = tmp_path / "data"
    directory = write_partition(source / "t-0", THREE)
    base = ring[0]
    broken(directory / log_name(base), positions(THREE[base])[number] + 70)
    exchange(directory, ring, (".log",))
    report = recovered(source)
    first = base + 5 * number
    assert lost(report) == [(first, first + 4)]
    assert offsets(source) == [each for each in range(60) if each not in range(first, first + 5)]


def test_a_segment_under_a_name_that_none_had_gets_its_own(tmp_path: Path) -> None:
    source = tmp_path / "data"
    directory = write_partition(source / "t-0", THREE)
    (directory / log_name(20)).rename(directory / log_name(50))
    report = recovered(source)
    assert report.losses == []
    assert offsets(source) == list(range(60))
    assert sorted(path.name for path in (tmp_path / "out" / "t-0").glob("*.log")) == [log_name(b) for b in (0, 20, 40)]


def test_batches_in_the_values_of_a_broken_segment_are_no_records_of_the_log(tmp_path: Path) -> None:
    source = tmp_path / "data"
    values = [one.data for one in dense(0, 19, 10)]
    holding = batch([record(1000 + at, value) for at, value in enumerate(values)]).data
    write_log(source / "t-0", 1000, holding[:20] + b"\xff" + holding[21:])
    write_log(source / "t-0", 1002, joined(dense(1002, 1009)))
    report = recovered(source)
    assert lost(report) == [(1000, 1001)]
    assert offsets(source) == list(range(1002, 1010))


def test_a_file_of_which_nothing_is_left_takes_the_name_that_is_left(tmp_path: Path) -> None:
    source = tmp_path / "data"
    directory = write_partition(source / "t-0", THREE)
    exchange(directory, (0, 20), (".log",))
    write_log(directory, 0, b"\xa5" * 500)  # it had been that of 20
    report = recovered(source)
    assert [(Path(loss.file).name, loss.first_offset, loss.last_offset) for loss in report.losses] == [
        (log_name(0), 20, 39)
    ]
    assert offsets(source) == [*range(20), *range(40, 60)]


# --- batches in the wrong place -------------------------------------------------------------------------------------


def test_batches_out_of_order_go_back(tmp_path: Path) -> None:
    content = dense(0, 49, 5)
    ordered = [*content[:2], content[3], content[2], *content[4:]]
    source = tmp_path / "data"
    write_log(source / "t-0", 0, joined(ordered))
    report = recovered(source)
    assert report.losses == []
    assert (tmp_path / "out" / "t-0" / log_name(0)).read_bytes() == joined(content)
    assert [(str(taken.source), taken.first_offset, taken.last_offset) for taken in report.taken] == [
        (str(source / "t-0" / log_name(0)), 10, 14)
    ]


def test_batches_in_another_segment_go_to_their_own(tmp_path: Path) -> None:
    source = tmp_path / "data"
    one, two = dense(0, 39, 5), dense(40, 79, 5)
    write_log(source / "t-0", 0, joined([*one[:3], *two[2:5], *one[3:]]))
    write_log(source / "t-0", 40, joined([*two[:2], *two[5:]]))
    report = recovered(source)
    assert report.losses == []
    assert offsets(source) == list(range(80))
    (segment,) = [each for each in report.segments if each.file.endswith(log_name(0))]
    assert [each.fate for each in segment.stretches] == [Fate.KEPT, Fate.MOVED, Fate.KEPT]


def test_a_batch_whose_offset_was_flipped_goes_nowhere(tmp_path: Path) -> None:
    """No CRC covers it: behind the end of the log, or in another hole, such an offset isn't to be believed."""
    flipped = batch(records(5, 7)).data
    for number, content in enumerate((dense(20, 44, 5), [*dense(20, 44, 5), *dense(50, 59, 5)])):
        source = tmp_path / str(number) / "data"
        data = [dense(0, 4)[0].data, (46 - number).to_bytes(8) + flipped[8:], *(each.data for each in content)]
        write_log(source / "t-0", 0, b"".join(data))
        report = recovered(source)
        assert [loss.set_aside for loss in report.losses] == [True]
        assert offsets(source) == [*range(5), *(one.offset for each in content for one in each.records)]


def test_what_stands_twice_stays_beside_the_log(tmp_path: Path) -> None:
    content = dense(0, 39, 5)
    source = tmp_path / "data"
    write_log(source / "t-0", 0, joined([*content, *content[:4]]))
    report = recovered(source)
    assert {loss.set_aside for loss in report.losses} == {True}
    assert extras(source) == [log_name(0)]
    assert (tmp_path / "out" / "t-0" / EXTRA / log_name(0)).read_bytes() == joined(content[:4])


def test_two_that_contradict_each_other_go_nowhere(tmp_path: Path) -> None:
    one, two = dense(0, 39, 5), dense(40, 79, 5)
    other = [batch([record(at, b"another") for at in range(n, n + 5)]) for n in (45, 50, 55)]
    source = tmp_path / "data"
    write_log(source / "t-0", 0, joined([*one[:3], *two[1:4], *one[3:6], *other, *one[6:]]))
    write_log(source / "t-0", 40, joined([*two[:1], *two[4:]]))
    report = recovered(source)
    assert offsets(source) == [*range(45), *range(60, 80)]
    assert {loss.set_aside for loss in report.losses} == {True}


# --- a compaction that was finished, and not put in place -----------------------------------------------------------

BEFORE: Segments = {base: dense(base, base + 9) for base in (0, 10, 20)}
CLEANED = [
    batch([record(3)], base_offset=0, last_offset=4),
    batch([record(8), record(9)], base_offset=5, last_offset=9),
]


def compacted(source: Path, *, flipped: int = 0) -> Path:
    """Write a log the first two segments of which a ``.swap`` replaces, the batch at ``flipped`` of it broken."""
    directory = write_partition(source / "t-0", BEFORE)
    swap = [*CLEANED, *dense(10, 19)]
    path = write_log(directory, 0, joined(swap), ".log.swap")
    broken(path, positions(swap)[flipped] + 70)
    return directory


@pytest.mark.parametrize("flipped", range(4))
def test_a_damaged_compaction_is_undone_where_all_that_it_replaces_is_there(flipped: int, tmp_path: Path) -> None:
    source = tmp_path / "data"
    directory = compacted(source, flipped=flipped)
    report = recovered(source)
    assert report.losses == []
    assert offsets(source) == list(range(30))
    accounts = {Path(each.file).name: [one.fate for one in each.stretches] for each in report.segments}
    assert accounts == {
        log_name(0): [Fate.KEPT],
        log_name(10): [Fate.KEPT],
        log_name(20): [Fate.KEPT],
        log_name(0, ".log.swap"): [Fate.REPLACED],
    }
    said = {change.file: change.what for change in report.changes}
    assert "damaged: the segments that it replaces are kept instead" in said[str(directory / log_name(0, ".log.swap"))]
    assert str(directory / log_name(0)) not in said


def test_a_compaction_of_which_nothing_is_left_is_undone_too(tmp_path: Path) -> None:
    source = tmp_path / "data"
    directory = write_partition(source / "t-0", BEFORE)
    write_log(directory, 0, b"\xa5", ".log.swap")
    assert recovered(source).losses == []
    assert offsets(source) == list(range(30))


def test_where_a_replaced_segment_is_damaged_too_only_what_is_lost_comes_from_it(tmp_path: Path) -> None:
    source = tmp_path / "data"
    directory = compacted(source, flipped=1)
    broken(directory / log_name(10), 70)
    report = recovered(source)
    assert report.losses == []
    assert offsets(source) == [3, *range(5, 30)]
    assert [(taken.source, taken.first_offset, taken.last_offset) for taken in report.taken] == [
        (str(directory / log_name(0)), 5, 9)
    ]
    assert any("compaction" in sentence for sentence in report.consequences)


def test_a_damaged_compaction_is_not_undone_where_it_goes_further(tmp_path: Path) -> None:
    source = tmp_path / "data"
    directory = compacted(source)
    os.truncate(directory / log_name(10), positions(BEFORE[10])[1])
    report = recovered(source)
    assert report.losses == []
    assert offsets(source) == [*range(5), *(8, 9), *range(10, 30)]


def test_what_neither_has_is_lost(tmp_path: Path) -> None:
    source = tmp_path / "data"
    directory = compacted(source, flipped=2)
    broken(directory / log_name(10), 70)
    report = recovered(source)
    assert lost(report) == [(10, 14)]
    assert offsets(source) == [3, 8, 9, *range(15, 30)]


def test_the_cleaner_may_have_deleted_some_of_what_it_replaces(tmp_path: Path) -> None:
    """What an older compaction has deleted there is no part of it."""
    source = tmp_path / "data"
    directory = compacted(source, flipped=2)
    for suffix in (".log", ".index", ".timeindex"):
        (directory / log_name(10, suffix)).rename(directory / log_name(10, f"{suffix}.deleted"))
    write_log(directory, 5, joined(dense(5, 9)), ".log.deleted")
    assert recovered(source).losses == []
    assert offsets(source) == list(range(30))


def test_of_a_topic_of_kafkas_own_a_compaction_is_undone_wholly_or_not_at_all(tmp_path: Path) -> None:
    """A group that was deleted would be back."""
    source = tmp_path / "data"
    directory = compacted(source, flipped=1)
    broken(directory / log_name(10), 70)
    directory.rename(source / "__consumer_offsets-0")
    report = salvage(source, tmp_path / "out")
    assert lost(partition(report, "__consumer_offsets-0")) == [(5, 9)]


def test_an_intact_compaction_stays_done(tmp_path: Path) -> None:
    source = tmp_path / "data"
    directory = write_partition(source / "t-0", BEFORE)
    write_log(directory, 0, joined([*CLEANED, *dense(10, 19)]), ".log.swap")
    assert recovered(source).losses == []
    assert offsets(source) == [3, 8, *range(9, 30)]


def test_old_files_of_which_one_is_missing_undo_nothing(tmp_path: Path) -> None:
    """What the missing one had would be lost without a word."""
    source = tmp_path / "data"
    directory = compacted(source, flipped=2)
    for path in directory.glob(f"{log_name(10, '')}.*"):
        path.unlink()
    report = recovered(source)
    assert lost(report) == [(10, 14)]
    assert offsets(source) == [3, 8, 9, *range(15, 30)]


# --- deleted segments -----------------------------------------------------------------------------------------------


def with_epochs(directory: Path, *entries: tuple[int, int]) -> None:
    checkpoint = encode_leader_epoch_checkpoint([EpochEntry(epoch, start) for epoch, start in entries])
    (directory / "leader-epoch-checkpoint").write_bytes(checkpoint)


def of_epoch(first: int, last: int, epoch: int) -> list[Batch]:
    return [batch(records(at, at + 4), partition_leader_epoch=epoch) for at in range(first, last + 1, 5)]


@pytest.mark.parametrize("epoch", [1, 2])
def test_what_is_lost_comes_from_a_deleted_segment_of_the_same_epoch(epoch: int, tmp_path: Path) -> None:
    """Another epoch is another history: a follower that was cut off has deleted it."""
    source = tmp_path / "data"
    directory = write_partition(source / "t-0", {0: of_epoch(0, 9, 1), 10: of_epoch(10, 19, 1)})
    with_epochs(directory, (1, 0))
    write_log(directory, 0, joined(of_epoch(0, 9, epoch)), ".log.deleted")
    broken(directory / log_name(0), positions(of_epoch(0, 9, 1))[1] + 70)
    report = recovered(source)
    assert lost(report) == ([] if epoch == 1 else [(5, 9)])
    assert offsets(source) == [each for each in range(20) if epoch == 1 or each not in range(5, 10)]


def test_batches_that_are_lost_beside_each_other_are_taken_once(tmp_path: Path) -> None:
    """Also at the end of the log, where each claims how far it goes."""
    source = tmp_path / "data"
    content = of_epoch(0, 24, 1)
    directory = write_partition(source / "t-0", {0: content})
    with_epochs(directory, (1, 0))
    write_log(directory, 0, joined(content), ".log.deleted")
    for number in (1, 2, 4):
        broken(directory / log_name(0), positions(content)[number] + 70)
    broken(directory / log_name(0), positions(content)[3] + 70)
    assert recovered(source).losses == []
    assert offsets(source) == list(range(25))


def test_nothing_below_the_log_start_comes_from_a_deleted_segment(tmp_path: Path) -> None:
    source = tmp_path / "data"
    directory = write_partition(source / "t-0", {0: of_epoch(0, 19, 1), 20: of_epoch(20, 29, 1)})
    with_epochs(directory, (1, 0))
    write_log(directory, 0, joined(of_epoch(0, 19, 1)), ".log.deleted")
    set_log_start(source, "t", 0, 10)
    for number in (1, 3):
        broken(directory / log_name(0), positions(of_epoch(0, 19, 1))[number] + 70)
    assert lost(recovered(source)) == [(5, 9)]


# --- other copies ---------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    for name in ("one", "two"):
        write_partition(tmp_path / name / "t-0", {0: dense(0, 39, 10), 40: dense(40, 59, 10)})
    return [tmp_path / "one", tmp_path / "two"]


FIRST = dense(0, 39, 10)


def test_what_one_copy_has_lost_comes_from_another(two: list[Path]) -> None:
    one, other = (root / "t-0" / log_name(0) for root in two)
    for number in (1, 2):
        broken(one, positions(FIRST)[number] + 70)
    broken(other, 70)
    report = recovered(two[0], two[1])
    assert report.losses == []
    assert (one.parents[2] / "out" / "t-0" / log_name(0)).read_bytes() == joined(FIRST)
    [taken] = report.taken
    assert (taken.file, taken.first_offset, taken.last_offset) == (str(one), 10, 29)
    assert (taken.source, taken.start, taken.end) == (str(other), *positions(FIRST)[1::2])
    assert str(taken) == f"TAKEN offsets 10 to 29 of {one} from {other}: bytes {taken.start} to {taken.end}"


def test_what_is_lost_in_both_is_said_and_no_more(two: list[Path]) -> None:
    for root, numbers in zip(two, ((1, 2), (2,)), strict=True):
        for number in numbers:
            broken(root / "t-0" / log_name(0), positions(FIRST)[number] + 70)
    report = recovered(two[0], two[1])
    assert {*lost(report)} == {(20, 29)}  # of both batches beside each other
    assert offsets(two[0]) == [*range(20), *range(30, 60)]


def test_a_copy_with_other_records_gives_nothing(two: list[Path]) -> None:
    other = [batch([record(at, b"another") for at in range(n, n + 10)]) for n in (0, 10, 20, 30)]
    write_log(two[1] / "t-0", 0, joined(other))
    broken(two[0] / "t-0" / log_name(0), positions(FIRST)[1] + 70)
    report = recovered(two[0], two[1])
    assert (lost(report), report.taken) == ([(10, 19)], [])


def test_a_segment_that_is_nowhere_is_lost(two: list[Path]) -> None:
    """One copy has it broken, the other has it no more: nothing there says that there was nothing."""
    for root in two:
        directory = root / "t-0"
        content = joined(dense(40, 59, 10))
        write_log(directory, 20, joined(FIRST[2:]))
        write_log(directory, 0, joined(FIRST[:2]))
        assert (directory / log_name(40)).read_bytes() == content
    write_log(two[0] / "t-0", 20, b"\xa5" * 300)
    (two[1] / "t-0" / log_name(20)).unlink()
    assert lost(recovered(two[0], two[1])) == [(20, 39)]


def test_a_segment_that_is_gone_comes_from_another_copy(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for root in (one, other):
        write_partition(root / "t-0", THREE)
    (one / "t-0" / log_name(20)).unlink()
    report = recovered(one, other)
    assert (offsets(one), report.losses) == ([*range(60)], [])
    [taken] = report.taken
    assert (taken.first_offset, taken.last_offset, taken.source) == (20, 39, str(other / "t-0" / log_name(20)))


def test_a_segment_that_would_be_too_large_becomes_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for root in (one, other):
        write_partition(root / "t-0", THREE)
    (one / "t-0" / log_name(20)).unlink()
    monkeypatch.setattr("kfs.recover.salvage._MOST_BYTES", len(joined([*THREE[0], *THREE[20]])) - 1)
    report = recovered(one, other)
    assert (offsets(one), report.losses) == ([*range(60)], [])
    assert [segment.base_offset for segment in open_log(one.parent / "out" / "t-0").segments] == [0, 20, 40]


def test_what_compaction_may_have_removed_between_segments_stays_away(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for root in (one, other):
        write_partition(root / "t-0", THREE)
    (one / "t-0" / log_name(20)).unlink()
    write_checkpoint(one, "cleaner-offset-checkpoint", {("t", 0): 40})
    report = recovered(one, other)
    assert (offsets(one), report.losses, report.taken) == ([*range(20), *range(40, 60)], [], [])


def test_a_copy_that_can_t_be_read_keeps_nothing_from_being_recovered(
    two: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(two[0] / "t-0" / log_name(0), positions(FIRST)[1] + 70)
    shutil.copytree(two[1], two[1].parent / "three")
    unreadable = str(two[1] / "t-0" / log_name(40))
    really = os.open

    def opened(path: str, *arguments: int, **options: int) -> int:
        if path == unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return really(path, *arguments, **options)

    monkeypatch.setattr(os, "open", opened)
    for also in ([two[1]], [two[1], two[1].parent / "three"]):
        output = two[0].parent / f"with-{len(also)}"
        report = partition(salvage(two[0], output, also=also))
        assert report.left_out is None
        assert len(report.losses) == 2 - len(also)
        said = {change.file: change.what for change in report.changes}
        assert "Input/output error" in said[str(two[1] / "t-0")]


def test_a_directory_in_itself_is_no_copy(two: list[Path]) -> None:
    broken(two[0] / "t-0" / log_name(0), positions(FIRST)[1] + 70)
    report = recovered(two[0], two[0] / "t-0")
    assert (lost(report), report.taken) == ([(10, 19)], [])


def test_a_partition_alone_and_exchanged_names_are_completed_too(two: list[Path]) -> None:
    directory = two[0] / "t-0"
    broken(directory / log_name(0), positions(FIRST)[1] + 70)
    exchange(directory, (0, 40), (".log",))
    output = two[0].parent / "alone"
    report = partition(salvage(directory, output, also=[two[1] / "t-0"]))
    assert report.losses == []
    assert [one.offset for one in records_in(open_log(output / "t-0"))] == list(range(60))


def test_the_output_lies_apart_from_every_copy(two: list[Path]) -> None:
    with pytest.raises(KfsError, match="lies in"):
        salvage(two[0], two[1] / "out", also=[two[1]])
    assert not (two[1] / "out").exists()


def test_a_compacted_topic_of_kafka_is_not_put_together(tmp_path: Path) -> None:
    """A key that one copy has forgotten would come back."""
    for name in ("one", "two"):
        write_partition(tmp_path / name / "__consumer_offsets-0", {0: FIRST, 40: dense(40, 59, 10)})
        write_checkpoint(tmp_path / name, "cleaner-offset-checkpoint", {("__consumer_offsets", 0): 40})
    broken(tmp_path / "one" / "__consumer_offsets-0" / log_name(0), positions(FIRST)[1] + 70)
    report = salvage(tmp_path / "one", tmp_path / "out", also=[tmp_path / "two"])
    assert lost(partition(report, "__consumer_offsets-0")) == [(10, 19)]


@pytest.fixture
def corpus_twice(tmp_path: Path, corpus: Callable[[str], Path]) -> list[Path]:
    for name in ("one", "two"):
        shutil.copytree(corpus("b_txn") / "data", tmp_path / name)
    return [tmp_path / "one", tmp_path / "two"]


def test_transactions_of_what_was_put_together_are_those_of_the_whole(corpus_twice: list[Path], tmp_path: Path) -> None:
    one, other = corpus_twice
    for path in sorted(one.glob("*/*.log"))[::2]:
        if path.stat().st_size > 300:
            broken(path, path.stat().st_size // 3)
    report = salvage(one, tmp_path / "out", also=[other])
    salvage(other, tmp_path / "whole")
    filled = {Path(taken.file) for each in report.partitions for taken in each.taken}
    assert len(filled) > 2
    for path in filled:
        for kind in (".log", ".txnindex"):
            found, wanted = ((tmp_path / name / path.relative_to(one)).with_suffix(kind) for name in ("out", "whole"))
            assert found.exists() == wanted.exists()
            assert not found.exists() or found.read_bytes() == wanted.read_bytes()


# --- a copy that is better than what is recovered -------------------------------------------------------------------


def said_of_others(report: PartitionReport, *others: Path) -> list[str]:
    return [change.what for change in report.changes for other in others if change.file == str(other / "t-0")]


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_copy_that_reaches_further_is_named(is_damaged: bool, tmp_path: Path) -> None:
    """What is lost at the end of a log nothing proves to be of the same history, but one may choose."""
    source, other, less = (tmp_path / name for name in ("data", "other", "less"))
    for root in (source, other, less):
        write_partition(root / "t-0", THREE if root != less else {0: THREE[0]})
    last = source / "t-0" / log_name(40)
    if is_damaged:
        broken(last, positions(THREE[40])[-1] + 70)
    else:
        os.truncate(last, positions(THREE[40])[-1])
    report = recovered(source, less, other)
    assert offsets(source) == list(range(55))
    assert lost(report) == ([(55, 59)] if is_damaged else [])
    assert said_of_others(report, other, less) == [
        "it ends at offset 60 of leader epoch -1, the recovered log at 55 of -1: recover this copy for the rest"
    ]


def test_a_copy_of_a_later_leader_epoch_is_named(tmp_path: Path) -> None:
    source, other = tmp_path / "data", tmp_path / "other"
    for root, epochs in ((source, [EpochEntry(0, 0)]), (other, [EpochEntry(0, 0), EpochEntry(2, 40)])):
        write_partition(root / "t-0", THREE if root == source else {base: THREE[base] for base in (0, 20)})
        (root / "t-0" / "leader-epoch-checkpoint").write_bytes(encode_leader_epoch_checkpoint(epochs))
    report = recovered(source, other)
    assert said_of_others(report, other) == [
        "it ends at offset 40 of leader epoch 2, the recovered log at 60 of 0: recover this copy for the rest"
    ]


def test_copies_that_are_no_better_are_not_named(tmp_path: Path) -> None:
    source, other = tmp_path / "data", tmp_path / "other"
    for root in (source, other):
        write_partition(root / "t-0", THREE)
    assert said_of_others(recovered(source, other), other) == []
