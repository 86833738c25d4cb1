"""A broker compacts and deletes between the plan of a read and the read: each record once, and none left out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kfs
from kfs.cat import records
from kfs.errors import CorruptData
from kfs.format.partition_metadata import PARTITION_METADATA_VERSION
from kfs.log.log import Log
from kfs.log.problem import Problem
from kfs.read import plan, split_reader
from kfs.read.selection import Selection
from kfs.read.wanted_offsets import WantedOffsets
from kfs.scan import Scan, scan
from tests.cat.printing import offsets_in, printed
from tests.log.test_while_a_broker_works import SUFFIXES, rename_segment
from tests.logs import batch, dense, log_name, record, write_partition, write_segment
from tests.scan.scanning import opened

pytestmark = pytest.mark.usefixtures("small_pieces", "eager", "eager_workers")

Reader = Callable[[Path, Selection], tuple[list[int], list[str]]]
Step = Callable[[Path], list[int]]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SPLIT_BYTES", 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_partition(tmp_path / "t-0", {base: dense(base, base + 19) for base in (0, 20, 40, 60)})
    return tmp_path


# --- what a broker does; each step returns the offsets that are there then


def take_place(directory: Path, base: int, offsets: list[int]) -> None:
    """Have another file of those offsets in a segment's place."""
    beside = directory.parent / "beside"
    write_segment(beside, base, [batch([record(offset)]) for offset in offsets], interval=0)
    for suffix in SUFFIXES:
        os.replace(beside / log_name(base, suffix), directory / log_name(base, suffix))


def compact(directory: Path) -> list[int]:
    """Every third record of a segment is left."""
    take_place(directory, 20, list(range(20, 40, 3)))
    return [*range(20), *range(20, 40, 3), *range(40, 80)]


def merge(directory: Path) -> list[int]:
    """Three segments become one, of every second record."""
    for base in (20, 40):
        rename_segment(directory, base)
    take_place(directory, 0, list(range(0, 60, 2)))
    return [*range(0, 60, 2), *range(60, 80)]


def compact_all_away(directory: Path) -> list[int]:
    """Of a segment nothing is left, and it is merged into the one before."""
    rename_segment(directory, 20)
    take_place(directory, 0, list(range(0, 20, 2)))
    return [*range(0, 20, 2), *range(40, 80)]


def retain(directory: Path) -> list[int]:
    """The oldest segments are deleted."""
    for base in (0, 20):
        for suffix in SUFFIXES:
            (directory / log_name(base, suffix)).unlink()
    return list(range(40, 80))


def retain_and_merge(directory: Path) -> list[int]:
    """The oldest is deleted, and the two that follow become one."""
    rename_segment(directory, 0)
    rename_segment(directory, 40)
    take_place(directory, 20, list(range(20, 60, 2)))
    return [*range(20, 60, 2), *range(60, 80)]


def roll(directory: Path) -> list[int]:
    """The active segment is written to, and closed."""
    with (directory / log_name(60)).open("ab") as log:
        log.write(b"".join(one.data for one in dense(80, 89)))
    write_segment(directory, 90, dense(90, 99))
    return list(range(80))  # what is appended after the plan is no part of it


STEPS = pytest.mark.parametrize("step", [compact, merge, compact_all_away, retain, retain_and_merge, roll])


# --- who reads


def printing(jobs: int) -> Reader:
    def read(root: Path, selection: Selection) -> tuple[list[int], list[str]]:
        lines, problems = printed(root, "t", selection=selection, jobs=jobs)
        return offsets_in(lines), reasons(problems)

    return read


def scanning(jobs: int) -> Reader:
    def read(root: Path, selection: Selection) -> tuple[list[int], list[str]]:
        pytest.importorskip("pyarrow")
        found = Scan(opened(root).logs, columns=["offset"], selection=selection, jobs=jobs, on_damage="skip")
        offsets: list[int] = found.to_table().column("offset").to_pylist()
        return offsets, reasons(found.problems)

    return read


def first_of_each(root: Path, selection: Selection) -> tuple[list[int], list[str]]:
    lines, problems = printed(root, "t", selection=selection, first=1000)
    return offsets_in(lines), reasons(problems)


def reading(root: Path, selection: Selection) -> tuple[list[int], list[str]]:
    with kfs.open(root, on_damage="skip") as data:
        log = data["t"][0]
        return [one.offset for one in log.read(selection.start, selection.end)], reasons(log.problems)


def reasons(problems: object) -> list[str]:
    assert isinstance(problems, list | tuple)
    assert all(isinstance(one, Problem) and one.file for one in problems)
    return [one.reason for one in problems]


READERS = pytest.mark.parametrize(
    "read",
    [printing(1), printing(3), scanning(1), scanning(3), first_of_each, reading],
    ids=["cat", "cat by 3", "scan", "scan by 3", "first", "api"],
)


@pytest.fixture
def after_plan(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have a step done when a log is planned, and nothing of it is read."""

    def do_after(step: Callable[[], object]) -> None:
        left = [step]

        def planned(log: Log, offsets: WantedOffsets) -> Iterator[plan.Split]:
            found = list(plan.splits_of(log, offsets))
            if left:
                left.pop()()
                log.storage.files.close()
            yield from found

        for module in (split_reader, records, scan):
            monkeypatch.setattr(module, "splits_of", planned)

    return do_after


@READERS
@STEPS
def test_what_is_there_then_is_read_once_and_in_order(
    step: Step, read: Reader, root: Path, after_plan: Callable[[Callable[[], object]], None]
) -> None:
    expected: list[int] = []
    after_plan(lambda: expected.extend(step(root / "t-0")))
    offsets, problems = read(root, Selection())
    assert offsets == expected
    assert problems == []


@READERS
def test_offsets_asked_for_by_number_that_are_gone_are_a_problem(
    read: Reader, root: Path, after_plan: Callable[[Callable[[], object]], None]
) -> None:
    after_plan(lambda: retain(root / "t-0"))
    offsets, problems = read(root, Selection(30, 50))
    assert offsets == list(range(40, 50))
    assert problems
    assert all("the log start moved to 40" in reason for reason in problems)


@READERS
def test_offsets_asked_for_by_number_that_are_still_there_are_none(
    read: Reader, root: Path, after_plan: Callable[[Callable[[], object]], None]
) -> None:
    after_plan(lambda: retain(root / "t-0"))
    assert read(root, Selection(40, 50)) == (list(range(40, 50)), [])


def write_topic_id(directory: Path, topic_id: str) -> None:
    (directory / "partition.metadata").write_text(f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {topic_id}")


@READERS
def test_a_topic_that_was_made_anew_is_not_read_in_place_of_the_older_one(
    read: Reader, root: Path, after_plan: Callable[[Callable[[], object]], None]
) -> None:
    def make_anew() -> None:
        (root / "t-0").rename(root.parent / f"{root.name}-gone")
        write_partition(root / "t-0", {0: dense(0, 99)})
        write_topic_id(root / "t-0", "BBBBBBBBQoqWD5MT3z1xVg")

    write_topic_id(root / "t-0", "AAAAAAAAQoqWD5MT3z1xVg")
    after_plan(make_anew)
    offsets, problems = read(root, Selection())
    assert offsets == []
    assert problems
    assert all("the log is gone" in reason for reason in problems)


@STEPS
def test_a_read_in_python_goes_on_behind_what_it_has_given_out(step: Step, root: Path) -> None:
    with kfs.open(root) as data:
        reader = data["t"][0].read()
        before = [next(reader).offset for _ in range(33)]
        expected = step(root / "t-0")
        data.source.storage.files.close()
        after = [one.offset for one in reader]
    assert before == list(range(33))
    in_memory = [offset for offset in after if offset < 35]  # of the batch that was decoded
    assert in_memory == [33, 34]
    assert after[2:] == [offset for offset in expected if offset >= 35]


def test_offsets_asked_for_that_go_while_they_are_read_in_python_are_an_error(root: Path) -> None:
    with kfs.open(root) as data:
        reader = data["t"][0].read(5)
        assert next(reader).offset == 5
        retain(root / "t-0")
        data.source.storage.files.close()
        with pytest.raises(CorruptData, match="log start moved to 40"):
            list(reader)
