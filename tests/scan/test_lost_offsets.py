"""Damage is told where it may hold offsets that were asked for, and only there, whoever asks in whatever way."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import kfs
from kfs.errors import CorruptData
from kfs.format.codecs import Codec
from kfs.log.problem import Problem
from kfs.scan import Scan
from tests.logs import (
    START,
    batch,
    dense,
    joined,
    log_name,
    positions,
    records,
    set_high_watermark,
    write_log,
    write_partition,
)
from tests.scan.scanning import opened
from tests.thoroughness import examples

#: Records, of which each batch has so many; the second of three segments begins with SECOND, the third with THIRD.
END, SIZE, SECOND, THIRD = 60, 5, 20, 40
BATCHES = range(END // SIZE)

Bounds = tuple[int | None, int | None]
#: What was found of some offsets of partition 0 of topic t: the offsets, and where something was damaged.
Found = tuple[list[int], list[tuple[int, int]]]


def flipped(data: bytearray, start: int, end: int) -> None:
    """A bit of a value, so that the CRC is wrong; the header is as it was."""
    data[end - 2] ^= 1


def wiped(data: bytearray, start: int, end: int) -> None:
    """Not even the header says anything."""
    data[start:end] = b"\xab" * (end - start)


DAMAGE = pytest.mark.parametrize("damage", [flipped, wiped])


def write(root: Path, damage: Callable[[bytearray, int, int], None], *broken: int) -> Path:
    """Write three segments, with some of their batches broken."""
    content = dense(0, END - 1, SIZE, codec=Codec.LZ4)
    cuts = [0, SECOND // SIZE, THIRD // SIZE, END // SIZE]
    parts = {one * SIZE: content[one:stop] for one, stop in itertools.pairwise(cuts)}
    write_partition(root / "t-0", parts)
    for number in broken:
        base = max(one for one in parts if one <= number * SIZE)
        at = number - base // SIZE
        starts = [*positions(parts[base]), len(joined(parts[base]))]
        path = root / "t-0" / log_name(base)
        data = bytearray(path.read_bytes())
        damage(data, starts[at], starts[at + 1])
        path.write_bytes(data)
    return root


def place(number: int) -> tuple[int, int]:
    """Return the base offset of the segment, and the byte position, of a batch."""
    content = dense(0, END - 1, SIZE, codec=Codec.LZ4)
    first = number * SIZE // 20 * 20
    return first, sum(len(one.data) for one in content[first // SIZE : number])


def found_in(scan: Scan) -> Found:
    offsets = scan.to_table().column("offset").to_pylist()
    return offsets, [(int(Path(one.file).stem), one.position) for one in scan.problems]


def by_pair(root: Path, bounds: Bounds, jobs: int = 1) -> Found:
    return found_in(Scan(opened(root).logs, offsets=bounds, on_damage="skip", jobs=jobs))


def by_mapping(root: Path, bounds: Bounds, jobs: int = 1) -> Found:
    return found_in(Scan(opened(root).logs, offsets={("t", 0): bounds}, on_damage="skip", jobs=jobs))


def by_reading(root: Path, bounds: Bounds) -> Found:
    with kfs.open(root) as data:
        log = data["t"][0]
        offsets = [record.offset for record in log.read(*bounds, on_damage="skip")]
        try:
            list(log.read(*bounds))
        except CorruptData as error:
            return offsets, [(int(Path(error.file or "").stem), error.position)]
        return offsets, []


WAYS: list[Callable[[Path, Bounds], Found]] = [by_pair, by_mapping, by_reading]
#: Bounds around every batch's, and some that are behind the log's end.
BOUNDS = [*range(0, END, SIZE), *range(SIZE - 1, END, SIZE), 7, 22, END, END + 10]


def is_lost(number: int, start: int, end: int) -> bool:
    """Whether a broken batch may hold some of the offsets; what the last one held, nobody knows."""
    first = number * SIZE
    last = END + 100 if number == BATCHES[-1] else first + SIZE - 1
    return start < end and first < end and start <= last


@pytest.mark.usefixtures("small_pieces", "quiet")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [0, 2, 3, 4, 7, 8, 11])
@DAMAGE
def test_damage_is_told_where_it_may_hold_what_was_asked_for(
    tmp_path: Path, damage: Callable[[bytearray, int, int], None], number: int, way: Callable[[Path, Bounds], Found]
) -> None:
    root = write(tmp_path, damage, number)
    broken = range(number * SIZE, (number + 1) * SIZE)
    pairs = list(itertools.combinations(sorted(BOUNDS), 2))
    for start, end in random.sample(pairs, examples(100, len(pairs))):
        expected = [offset for offset in range(start, min(end, END)) if offset not in broken]
        places = [place(number)] if is_lost(number, start, end) else []
        assert way(root, (start, end)) == (expected, places), (start, end)


@pytest.mark.usefixtures("eager_processes", "quiet")
@pytest.mark.parametrize("way", [by_pair, by_mapping])
@DAMAGE
def test_processes_tell_the_same(
    tmp_path: Path, damage: Callable[[bytearray, int, int], None], way: Callable[[Path, Bounds, int], Found]
) -> None:
    root = write(tmp_path, damage, 0, 4, 7, 11)
    for start, end in [
        (None, None),
        (0, 5),
        (5, 20),
        (20, 25),
        (25, 40),
        (3, 36),
        (5, 35),
        (40, 55),
        (40, 56),
        (57, 99),
    ]:
        assert way(root, (start, end), 2) == way(root, (start, end), 1), (start, end)


@pytest.mark.usefixtures("quiet")
@DAMAGE
def test_the_end_of_the_log_is_not_silent(tmp_path: Path, damage: Callable[[bytearray, int, int], None]) -> None:
    root = write(tmp_path, damage, 10, 11)
    for bounds in [(None, None), (0, None), (54, None), (50, 60), (0, 51), (52, 53)]:
        offsets, problems = by_pair(root, bounds)
        assert offsets == list(range(bounds[0] or 0, 50))
        assert problems[0] == place(10)
        with pytest.raises(CorruptData):
            Scan(opened(root).logs, offsets=bounds, jobs=1).to_table()
    for end in (49, 50):
        assert by_pair(root, (0, end)) == (list(range(end)), [])
        assert by_mapping(root, (0, end)) == (list(range(end)), [])


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.usefixtures("eager_processes")
def test_a_log_of_nothing_but_damage_is_not_silent(tmp_path: Path, jobs: int) -> None:
    write_log(tmp_path / "t-0", 0, b"\xab" * 500)
    assert by_pair(tmp_path, (None, None), jobs) == ([], [(0, 0)])
    assert by_mapping(tmp_path, (3, 8), jobs) == ([], [(0, 0)])
    assert by_mapping(tmp_path, (0, 0), jobs) == ([], [])


@pytest.mark.usefixtures("quiet")
def test_damage_behind_the_high_watermark_is_not_asked_for(tmp_path: Path) -> None:
    root = write(tmp_path, flipped, 11)
    for watermark, problems in ((55, []), (54, []), (56, [place(11)]), (60, [place(11)])):
        set_high_watermark(root, "t", 0, watermark)
        data = opened(root, until_high_watermark=True)
        found = found_in(Scan(data.logs, on_damage="skip", jobs=1))
        assert found == (list(range(min(watermark, 55))), problems)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("broken", "told"), [((11,), [11]), ((10,), [10]), ((7,), []), ((9, 10), [10]), ((9, 11), [11]), ((), [])]
)
def test_the_last_records_and_what_is_damaged_among_them(
    tmp_path: Path, broken: tuple[int, ...], told: list[int]
) -> None:
    root = write(tmp_path, flipped, *broken)
    readable = [offset for offset in range(END) if offset // SIZE not in broken]
    scan = Scan(opened(root).logs, on_damage="skip", last=8)
    offsets, problems = found_in(scan)
    assert offsets == readable[-8:]
    assert set(map(place, told)) <= set(problems) <= set(map(place, broken))
    assert len(problems) == len(set(problems))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("last", range(1, 30))
def test_what_is_looked_for_further_and_further_back_is_told_once(tmp_path: Path, last: int) -> None:
    root = write(tmp_path, flipped, 7, 9, 10)
    told: list[Problem] = []
    Scan(opened(root).logs, on_damage="skip", on_problem=told.append, last=last).to_table()
    assert len(told) == len(set(told))


@pytest.mark.usefixtures("quiet", "small_pieces")
@pytest.mark.parametrize("number", [2, 3, 4, 11])
@DAMAGE
def test_damage_where_a_time_begins_may_be_of_that_time(
    tmp_path: Path, damage: Callable[[bytearray, int, int], None], number: int
) -> None:
    root = write(tmp_path, damage, number)
    first = number * SIZE
    for since in range(first - 2, first + SIZE + 4):
        times = (START + since * 1000, None)
        offsets, problems = found_in(Scan(opened(root).logs, times=times, on_damage="skip", jobs=1))
        assert offsets == [at for at in range(since, END) if at // SIZE != number]
        is_at_the_end = number == BATCHES[-1]
        assert problems == ([place(number)] if since <= first + SIZE or is_at_the_end else []), since


@pytest.mark.usefixtures("quiet")
def test_offsets_that_compaction_left_out_may_have_been_in_the_damage(tmp_path: Path) -> None:
    content = [*dense(0, 9), batch(records(10, 14)), batch(records(40, 44)), *dense(50, 59)]
    path = write_log(tmp_path / "t-0", 0, joined(content))
    data = bytearray(path.read_bytes())
    data[positions(content)[3] - 2] ^= 1  # who knows whether it ended with offset 14: its CRC is wrong
    path.write_bytes(data)
    for start, end, problems in ((30, 35, 1), (39, 45, 1), (40, 45, 0), (45, 60, 0), (0, 10, 0), (0, 11, 1)):
        assert len(by_mapping(tmp_path, (start, end))[1]) == problems, (start, end)
