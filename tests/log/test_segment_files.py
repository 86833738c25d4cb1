"""Which files of a partition directory count: Kafka's load order, computed without touching the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from kfs.log.segment_files import PartitionFiles, SegmentFiles, list_partition
from kfs.storage.listing import FoundFile
from tests.corpus import compare, take_manifest
from tests.logs import dense, joined, log_name, open_log, records_in, write_log

STATES = ("", ".deleted", ".cleaned", ".swap")


def touch(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).write_bytes(b"")


def listed(directory: Path, ends: dict[int, int] | None = None) -> PartitionFiles:
    """List a directory; ``ends`` are the offsets after the last records of ``.swap`` segments."""

    def next_offset(files: SegmentFiles) -> int:
        assert files.log.path.endswith(".log.swap")
        return (ends or {})[files.base_offset]

    return list_partition(str(directory), next_offset)


def names_of(files: Iterable[FoundFile | None]) -> list[str]:
    return sorted(os.path.basename(found.path) for found in files if found is not None)


def log_names(files: PartitionFiles) -> list[str]:
    return [os.path.basename(segment.log.path) for segment in files.segments]


def test_a_segment_is_its_log_and_what_lies_beside_it(tmp_path: Path) -> None:
    touch(tmp_path, *(log_name(7, suffix) for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")))
    touch(tmp_path, log_name(40), log_name(40, ".timeindex"), "leader-epoch-checkpoint", "partition.metadata")
    files = listed(tmp_path)
    first, second = files.segments
    assert (first.base_offset, second.base_offset) == (7, 40)
    assert names_of([first.log, first.index, first.timeindex, first.txnindex]) == [
        log_name(7, suffix) for suffix in (".index", ".log", ".timeindex", ".txnindex")
    ]
    assert (second.index, second.txnindex) == (None, None)
    assert names_of([second.timeindex]) == [log_name(40, ".timeindex")]
    assert list(files.snapshots) == [7]
    assert sorted(files.others) == ["leader-epoch-checkpoint", "partition.metadata"]
    assert (files.orphans, files.superseded) == ([], [])


def test_found_files_have_their_inode(tmp_path: Path) -> None:
    touch(tmp_path, log_name(0))
    (segment,) = listed(tmp_path).segments
    assert segment.log == FoundFile(str(tmp_path / log_name(0)), (tmp_path / log_name(0)).stat().st_ino)


@pytest.mark.parametrize(
    "name",
    [
        "0.log",
        "0000000000000000000.log",
        "000000000000000000000.log",
        "0000000000000000000x.log",
        "-0000000000000000001.log",
        "9223372036854775808".rjust(20, "0") + ".log",
        "00000000000000000000.log.deleted.swap",
        "00000000000000000000.log.bak",
        "00000000000000000000.LOG",
        "00000000000000000000",
        "\N{ARABIC-INDIC DIGIT ZERO}" * 20 + ".log",
        "00000000000000000000-0000000001.checkpoint.deleted",
        "notes.txt",
    ],
)
def test_other_names_are_no_segments(name: str, tmp_path: Path) -> None:
    touch(tmp_path, name)
    files = listed(tmp_path)
    assert list(files.others) == [name]
    assert (files.segments, files.orphans, files.superseded) == ([], [], [])


def test_the_highest_base_offset_is_one(tmp_path: Path) -> None:
    touch(tmp_path, log_name(2**63 - 1))
    assert [segment.base_offset for segment in listed(tmp_path).segments] == [2**63 - 1]


def test_an_index_without_its_log_is_an_orphan(tmp_path: Path) -> None:
    touch(tmp_path, log_name(0), log_name(5, ".index"), log_name(5, ".timeindex"), log_name(6, ".txnindex"))
    files = listed(tmp_path)
    assert log_names(files) == [log_name(0)]
    assert names_of(files.orphans) == [log_name(5, ".index"), log_name(5, ".timeindex"), log_name(6, ".txnindex")]


# --- what an interrupted compaction leaves --------------------------------------------------------------------------


def kafka_loads(present: dict[str, set[int]], ends: dict[int, int]) -> dict[int, str]:
    """Do what ``LogLoader.load`` does: return the state of the ``.log`` that is loaded for each base offset.

    removeTempFilesAndCollectSwapFiles drops .deleted, the .swap at or above the least .cleaned base, and .cleaned;
    then of the .swap files that remain the range from the least base to the greatest next offset is taken out of the
    plain files, and they are renamed.
    """
    least_cleaned = min(present[".cleaned"], default=2**63)
    swaps = {base for base in present[".swap"] if base < least_cleaned}
    plain = dict.fromkeys(present[""], "")
    if swaps:
        low, high = min(swaps), max(ends[base] for base in swaps)
        plain = {base: state for base, state in plain.items() if not low <= base < high}
    return plain | dict.fromkeys(swaps, ".swap")


@pytest.mark.parametrize("states", list(product(STATES, repeat=3)), ids="|".join)
def test_three_segments_in_any_states_are_loaded_as_kafka_does(states: tuple[str, ...], tmp_path: Path) -> None:
    bases = (0, 10, 20)
    present: dict[str, set[int]] = {state: set() for state in STATES}
    for base, state in zip(bases, states, strict=True):
        touch(tmp_path, log_name(base, ".log" + state), log_name(base, ".index" + state))
        present[state].add(base)
    ends = {base: base + 10 for base in bases}
    files = listed(tmp_path, ends)
    expected = kafka_loads(present, ends)
    assert log_names(files) == [log_name(base, ".log" + expected[base]) for base in sorted(expected)]
    for segment in files.segments:
        assert names_of([segment.index]) == [log_name(segment.base_offset, ".index" + expected[segment.base_offset])]
    dropped = {base: state for base, state in zip(bases, states, strict=True) if base not in expected}
    assert names_of(files.superseded) == sorted(
        log_name(base, kind + state) for base, state in dropped.items() for kind in (".index", ".log")
    )


@pytest.mark.parametrize("extra", list(product(STATES[1:], repeat=2)), ids="|".join)
@pytest.mark.parametrize("covers", [0, 1, 10, 11, 20, 30])
def test_files_in_another_state_beside_plain_ones_are_loaded_as_kafka_does(
    extra: tuple[str, str], covers: int, tmp_path: Path
) -> None:
    present: dict[str, set[int]] = {state: set() for state in STATES}
    for base in (0, 10, 20):
        touch(tmp_path, log_name(base))
        present[""].add(base)
    for base, state in zip((0, 10), extra, strict=True):
        touch(tmp_path, log_name(base, ".log" + state))
        present[state].add(base)
    ends = {0: covers, 10: max(covers, 11)}
    expected = kafka_loads(present, ends)
    files = listed(tmp_path, ends)
    assert log_names(files) == [log_name(base, ".log" + expected[base]) for base in sorted(expected)]
    assert sorted([*log_names(files), *names_of(files.superseded)]) == sorted(os.listdir(tmp_path))


def test_a_swap_wins_over_the_segments_whose_offsets_it_has(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    for base in (0, 10, 20):
        write_log(directory, base, joined(dense(base, base + 9)))
    compacted = [one for one in dense(0, 19, size=2) if one.last_offset % 4 == 1]
    write_log(directory, 0, joined(compacted), ".log.swap")
    before = take_manifest(directory)
    log = open_log(directory)
    expected = [record for one in compacted for record in one.records] + [
        record for one in dense(20, 29) for record in one.records
    ]
    # The last batch of the swap ends at 17: up to there it rules, and 10 begins below that.
    assert compacted[-1].last_offset == 17
    assert records_in(log) == expected
    assert [segment.base_offset for segment in log.segments] == [0, 20]
    assert compare(before, take_manifest(directory)) == []


def test_two_swaps_of_a_split_segment_both_count(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write_log(directory, 0, joined(dense(0, 19)))
    write_log(directory, 0, joined(dense(0, 9)), ".log.swap")
    write_log(directory, 10, joined(dense(10, 19)), ".log.swap")
    log = open_log(directory)
    assert [os.path.basename(segment.files.log.path) for segment in log.segments] == [
        log_name(0, ".log.swap"),
        log_name(10, ".log.swap"),
    ]
    assert [one.offset for one in records_in(log)] == list(range(20))


def test_a_swap_of_an_unfinished_compaction_is_dropped(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write_log(directory, 0, joined(dense(0, 9)))
    write_log(directory, 10, joined(dense(10, 19)))
    write_log(directory, 10, joined(dense(15, 19)), ".log.swap")
    write_log(directory, 10, joined(dense(15, 19)), ".log.cleaned")
    assert [one.offset for one in records_in(open_log(directory))] == list(range(20))


def test_an_empty_swap_rules_nothing_but_its_own_place(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write_log(directory, 0, joined(dense(0, 9)))
    write_log(directory, 0, b"", ".log.swap")
    write_log(directory, 10, joined(dense(10, 19)))
    # The next offset of an empty segment is its base, so Kafka's range is empty, and the rename replaces the file.
    assert [one.offset for one in records_in(open_log(directory))] == list(range(10, 20))


def test_the_indexes_of_a_swap_are_its_own(tmp_path: Path) -> None:
    touch(tmp_path, log_name(0), log_name(0, ".index"), log_name(0, ".timeindex"))
    touch(tmp_path, log_name(0, ".log.swap"), log_name(0, ".timeindex.swap"))
    (segment,) = listed(tmp_path, {0: 5}).segments
    assert names_of([segment.log, segment.timeindex]) == [log_name(0, ".log.swap"), log_name(0, ".timeindex.swap")]
    assert segment.index is None


def test_an_index_swap_whose_log_was_already_renamed_completes_it(tmp_path: Path) -> None:
    # Segment.changeFileSuffixes renames the log first: a crash after it leaves the indexes as .swap.
    touch(tmp_path, log_name(0), log_name(0, ".index.swap"), log_name(0, ".timeindex.swap"))
    (segment,) = listed(tmp_path).segments
    assert names_of([segment.log, segment.index, segment.timeindex]) == [
        log_name(0, ".index.swap"),
        log_name(0, ".log"),
        log_name(0, ".timeindex.swap"),
    ]


def test_a_directory_that_cannot_be_listed_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        listed(tmp_path / "none")
