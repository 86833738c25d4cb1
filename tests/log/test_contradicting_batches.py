"""No CRC covers a base offset: of batches that contradict each other all readers believe the same one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from kfs.errors import CorruptData
from kfs.format.codecs import Codec
from kfs.format.layout import MAX_INT64
from kfs.format.record import Record
from kfs.log import window
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.storage import Storage
from kfs.read.plan import BatchRange
from kfs.read.selection import Selection
from kfs.read.split_reader import SplitReader
from kfs.read.wanted_offsets import WantedOffsets
from kfs.scan import Scan
from tests.logs import (
    Batch,
    batch,
    damage_in,
    dense,
    find_record,
    joined,
    log_name,
    open_log,
    positions,
    record,
    records,
    records_in,
    write_log,
    write_partition,
)

Answer = TypeVar("Answer")

pytestmark = pytest.mark.usefixtures("quiet")


def compacted(seed: int) -> list[Batch]:
    """Return batches with holes in them and between them."""
    random, offset, content = Random(seed), 0, []
    for _ in range(8):
        offset += random.choice([0, 0, 1, 4])
        inside = []
        for _ in range(random.randint(1, 5)):
            inside.append(record(offset))
            offset += random.choice([1, 1, 1, 2, 3])
        content.append(batch(inside))
    return content


CONTENTS = {"dense": dense(0, 24), "single": dense(0, 7, 1), **{f"compacted {seed}": compacted(seed) for seed in (0,)}}


def moved(content: Sequence[Batch], number: int, claimed: int) -> bytes:
    """Return the batches, one of which claims to begin at another offset."""
    start = positions(content)[number]
    data = joined(content)
    return data[:start] + claimed.to_bytes(8, "big") + data[start + 8 :]


def asked(directory: Path, question: Callable[[Log], Answer]) -> Answer:
    """Return what a log answers of which nothing was asked before."""
    with closing(Storage()) as storage:
        return question(open_log(directory, storage))


def scanned(directory: Path, cuts: Sequence[int] = ()) -> tuple[list[int], int]:
    """Return the offsets that a scan has, and how many problems; of one range of bytes, or of several."""
    [log] = DataDir([str(directory)], Storage()).logs()
    if not cuts:
        scan = Scan([log], on_damage="skip", jobs=1)
        return scan.to_table().column("offset").to_pylist(), len(scan.problems)
    offsets: list[int] = []
    problems: list[object] = []
    for position, end in zip(cuts, [*cuts[1:], None], strict=True):
        work = BatchRange(log.topic, log.partition, 0, position, end, None)
        for chosen in SplitReader(Selection()).select(log, work, WantedOffsets(0, MAX_INT64, MAX_INT64)):
            problems += chosen.problems
            if chosen.records is not None:
                offsets += (chosen.records.columns.offsets[index] for index in chosen.indexes)
    return offsets, len(problems)


# An entry for every batch, or not for all of them; at first a batch at a time is at hand, or several.
@pytest.mark.parametrize(("interval", "first_read"), [(0, 2**14), (250, 2**14), (250, 64)])
@pytest.mark.parametrize("kind", CONTENTS)
def test_a_lookup_finds_what_a_walk_from_the_start_does(
    kind: str, interval: int, first_read: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "FIRST_READ", first_read)
    content = CONTENTS[kind]
    end = content[-1].last_offset + 1
    for number, victim in enumerate(content):
        near = {victim.first_offset + shift for shift in (-3, -1, 1, 5)}
        claims = {0, end - 1, end + 3, *near, *(victim.first_offset ^ (1 << bit) for bit in range(2, 6))}
        for claimed in claims - {victim.first_offset, *range(-6, 0)}:
            case = (number, claimed)
            here = tmp_path / f"{number}-{claimed}"
            indexed = write_partition(here / "indexed-0", {0: content}, interval=interval)
            data = moved(content, number, claimed)
            (indexed / log_name(0)).write_bytes(data)
            plain = write_log(here / "plain-0", 0, data).parent
            walked = {one.offset: one for one in asked(plain, records_in)}
            for directory in (indexed, plain):
                assert asked(directory, lambda log: log.log_end_offset) == max(walked, default=-1) + 1, case
                for offset in range(max(victim.first_offset - 8, 0), victim.last_offset + 9):
                    found = asked(directory, partial(find_record, offset=offset))
                    assert found == walked.get(offset) or (found is CorruptData and offset not in walked), case
                    if offset % 4 == number % 4:
                        following = [one for at, one in walked.items() if at >= offset]
                        assert asked(directory, partial(records_in, start=offset)) == following, case
                assert scanned(directory)[0] == list(walked), case


@pytest.mark.parametrize("kind", CONTENTS)
def test_one_wrong_offset_costs_one_batch_and_is_told(kind: str, tmp_path: Path) -> None:
    content = CONTENTS[kind]
    for number, victim in enumerate(content):
        for claimed in {victim.first_offset ^ (1 << bit) for bit in range(7)}:
            path = write_log(tmp_path / f"{number}-{claimed}-0", 0, moved(content, number, claimed))
            found = {one.value for one in records_in(open_log(path.parent))}
            lost = [one for one in content if not {each.value for each in one.records} <= found]
            assert len(lost) <= 1, (number, claimed)
            if lost and not found & {each.value for each in lost[0].records}:
                assert scanned(path.parent)[1] == 1, (number, claimed)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_first_is_believed_unless_that_hides_more(magic: int, codec: Codec, tmp_path: Path) -> None:
    def one(first: int, last: int) -> Batch:
        return batch(records(first, last) if codec or magic == 2 else [record(last)], magic=magic, codec=codec)

    before, leaps, last = one(0, 4), one(30, 34), one(60, 64)
    cases: dict[str, tuple[list[Batch], list[Batch]]] = {
        "one back": ([before, leaps, one(20, 24), last], [before, leaps, last]),
        "two back": ([before, leaps, one(20, 24), one(25, 29), last], [before, one(20, 24), one(25, 29), last]),
        "where it would have ended": ([before, leaps, one(10, 14)], [before, one(10, 14)]),
        "the same again": ([before, leaps, leaps, leaps, last], [before, leaps, last]),
    }
    for name, (content, shown) in cases.items():
        if name == "where it would have ended" and magic < 2 and not codec:
            content, shown = [one(4, 4), leaps, one(6, 6)], [one(4, 4), one(6, 6)]
        path = write_log(tmp_path / f"{name} {magic}-0", 0, joined(content))
        assert records_in(open_log(path.parent)) == [each for one in shown for each in one.records], name


def test_a_batch_that_only_repeats_takes_nothing_with_it(tmp_path: Path) -> None:
    content = dense(0, 19)
    repeating = [*content, content[1], content[2], content[3]]  # at the end, where no one knows what should follow
    log = open_log(write_log(tmp_path / "t-0", 0, joined(repeating)).parent)
    assert [item.lost for item in damage_in(log)] == [None] * 3
    assert scanned(tmp_path / "t-0") == (list(range(20)), 0)


def test_a_wrapper_at_offset_0_that_holds_nothing_new_leaves_the_end_where_it_is(tmp_path: Path) -> None:
    content = [batch([record(5)], magic=0, codec=Codec.GZIP), batch([record(0)], magic=1, codec=Codec.GZIP)]
    log = open_log(write_log(tmp_path / "t-0", 0, joined(content)).parent)
    assert [one.offset for one in records_in(log)] == [5]
    assert log.log_end_offset == 6
    assert isinstance(find_record(log, 5), Record)


def test_a_last_batch_that_claims_to_be_an_earlier_one_is_not_silently_left_out(tmp_path: Path) -> None:
    directory = write_log(tmp_path / "t-0", 0, moved(dense(0, 19), 3, 5)).parent
    assert scanned(directory) == (list(range(15)), 1)
    with pytest.raises(CorruptData):
        Scan(DataDir([str(directory)], Storage()).logs, jobs=1).to_table()


def test_a_range_of_bytes_that_begins_at_a_contradiction_is_read_as_the_whole(tmp_path: Path) -> None:
    content = compacted(0)
    for number, claimed in ((2, 14), (3, 19), (5, 34)):
        directory = write_log(tmp_path / f"{number}-0", 0, moved(content, number, claimed)).parent
        log = open_log(directory)
        assert scanned(directory, [0])[0] == scanned(directory)[0]
        for start in range(content[-1].last_offset + 1):
            position, seen = log.segments[0].position_before(start)
            assert position == 0 or seen is None or seen < start
        selection = Selection(start=20)
        scan = Scan([log], on_damage="skip", jobs=1, selection=selection)
        assert scan.to_table().column("offset").to_pylist() == [at for at in scanned(directory)[0] if at >= 20]


@pytest.mark.parametrize("interval", [0, 250, None])
@pytest.mark.parametrize("behind", [1, 2, 3])
def test_a_leap_beside_a_broken_batch_hides_no_two_intact_ones(
    behind: int, interval: int | None, tmp_path: Path
) -> None:
    """The first is believed only if that hides no more than one, wherever a reader begins."""
    content = dense(0, 5 * (2 + behind) - 1, 5)
    start = positions(content)[1]
    broken = bytearray(moved(content, 0, 1000))
    broken[start + 70] ^= 1
    directory = write_partition(tmp_path / "t-0", {0: content}, interval=0 if interval is None else interval)
    (directory / log_name(0)).write_bytes(bytes(broken))
    if interval is None:
        (directory / log_name(0, ".index")).unlink()
    walked = [one.offset for one in asked(directory, records_in)]
    wanted = range(10, 5 * (2 + behind)) if behind > 1 else range(1000, 1005)
    assert walked == list(wanted)
    assert asked(directory, lambda log: log.log_end_offset) == wanted.stop
    for offset in wanted:
        found = asked(directory, partial(find_record, offset=offset))
        assert isinstance(found, Record), offset
        assert found.offset == offset
