"""Records of topics and partitions, put out: all of them, in order, whatever the log is cut into."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from kfs.cat.job import CatJob
from kfs.cat.output import OutputFormat, RecordPart
from kfs.cat.records import CatRequest
from kfs.errors import NotFound, WorkerDied
from kfs.format.codecs import Codec
from kfs.format.record import Record
from kfs.log.data_dir import DataDir
from kfs.log.log_dir import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kfs.log.problem import DamagePolicy
from kfs.log.storage import Storage
from kfs.read.selection import Selection
from kfs.read.workers import pool
from kfs.read.workers.team import BusyWorker
from kfs.tree.options import TreeOptions
from tests.cat.printing import EVERYTHING, LINES, offsets_in, places, printed, written
from tests.corpus import corpus_names
from tests.eager_workers import processes_of
from tests.logs import (
    START,
    Batch,
    batch,
    content_of,
    dense,
    joined,
    log_name,
    open_tree,
    positions,
    record,
    write_checkpoint,
    write_log,
    write_partition,
)

OFFSET_ENTRY = struct.Struct(">ii")
JOBS = pytest.mark.parametrize("jobs", [1, 2, 3])


def one_partition(tmp_path: Path, segments: dict[int, list[Batch]], topic: str = "t", partition: int = 0) -> Path:
    write_partition(tmp_path / f"{topic}-{partition}", segments)
    return tmp_path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """40 records in two segments, every fifth without a value, each fourth with headers."""
    content = [
        Record(
            offset,
            START + offset * 1000,
            b"key %d" % (offset % 3),
            None if offset % 5 == 0 else b"value %d" % offset,
            ((b"n", b"%d" % (offset % 2)), (b"null", None)) if offset % 4 == 0 else (),
        )
        for offset in range(40)
    ]
    batches = [batch(content[start : start + 4], codec=Codec.LZ4) for start in range(0, 40, 4)]
    return one_partition(tmp_path, {0: batches[:6], 24: batches[6:]})


# --- all of it ------------------------------------------------------------------------------------------------------


@JOBS
@pytest.mark.parametrize("name", corpus_names())
@pytest.mark.usefixtures("eager_processes")
def test_a_topic_is_the_lines_of_its_partitions(name: str, jobs: int, corpus: Callable[[str], Path]) -> None:
    root = corpus(name) / "data"
    tree = open_tree(root, options=TreeOptions(on_damage=DamagePolicy.SKIP))
    for topic in tree.data_dir.topics():
        expected = b""
        damaged = False
        for partition in tree.data_dir.partitions(topic):
            expected += content_of(tree, f"{topic}/{partition}/records.jsonl")
            log = tree.data_dir.log(topic, partition)
            assert log is not None
            damaged |= any(problem.file.endswith(".log") for problem in log.problems)
        data, problems = printed(root, topic, jobs=jobs)
        assert data == expected
        assert damaged or not problems


@JOBS
@pytest.mark.parametrize("together", [0, 500, 5000], ids=["alone", "some of a partition", "several partitions"])
@pytest.mark.usefixtures("eager_processes")
def test_partitions_come_in_the_order_of_their_numbers(
    tmp_path: Path, jobs: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CatJob, "together_bytes", together)
    for partition in (10, 2, 0):
        one_partition(tmp_path, {0: dense(0, 30)}, partition=partition)
    lines = printed(tmp_path, "t", jobs=jobs)[0].splitlines()
    found = [(json.loads(line)["partition"], json.loads(line)["offset"]) for line in lines]
    assert found == [(partition, offset) for partition in (0, 2, 10) for offset in range(31)]
    assert offsets_in(printed(tmp_path, "t", 2, jobs=jobs)[0]) == list(range(31))


def test_what_is_not_there_is_not_found(root: Path) -> None:
    with pytest.raises(NotFound):
        printed(root, "nowhere")
    with pytest.raises(NotFound):
        printed(root, "t", 1)


@JOBS
def test_deleted_records_are_left_out(root: Path, jobs: int) -> None:
    write_checkpoint(root, LOG_START_OFFSET_CHECKPOINT, {("t", 0): 7})
    assert offsets_in(printed(root, "t", jobs=jobs)[0]) == list(range(7, 40))


@pytest.mark.parametrize("jobs", [1, 2])
def test_until_the_high_watermark_if_asked_for(root: Path, jobs: int) -> None:
    write_checkpoint(root, HIGH_WATERMARK_CHECKPOINT, {("t", 0): 33})
    data_dir = DataDir([str(root)], Storage(), until_high_watermark=True)
    assert offsets_in(written(CatRequest(EVERYTHING, LINES, jobs=jobs), data_dir, "t")[0]) == list(range(33))
    data_dir.close()


@JOBS
@pytest.mark.parametrize("before", [0, 5])
def test_damage_that_the_log_ends_with_is_a_problem_even_where_a_segment_begins_with_it(
    tmp_path: Path, jobs: int, before: int
) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, before - 1)} if before else {})
    write_log(tmp_path / "t-0", before, bytes(12) + b"\x07" * 300)
    lines, problems = printed(tmp_path, "t", jobs=jobs)
    assert offsets_in(lines) == list(range(before))
    assert [problem.file for problem in problems] == [str(tmp_path / "t-0" / log_name(before))]
    assert not printed(tmp_path, "t", jobs=jobs, selection=Selection(end=before))[1]


# --- where it is cut ------------------------------------------------------------------------------------------------


def reindexed(root: Path, entries: Iterable[tuple[int, int]], base_offset: int = 0) -> None:
    """Give a segment an offset index of these relative offsets and positions."""
    data = b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)
    (root / "t-0" / log_name(base_offset, ".index")).write_bytes(data)


@JOBS
@pytest.mark.usefixtures("eager_processes")
def test_an_index_that_points_into_a_batch_cuts_nothing_in_two(tmp_path: Path, jobs: int) -> None:
    inside = batch([record(7), record(8)]).data
    content = [*dense(0, 4), batch([record(5, inside), record(6)]), *dense(7, 20)]
    root = one_partition(tmp_path, {0: content})
    outer = positions(content)[1]
    data = (root / "t-0" / log_name(0)).read_bytes()
    reindexed(root, [(4, 0), (7, data.index(inside, outer)), (12, positions(content)[3])])
    lines, problems = printed(root, "t", jobs=jobs)
    assert (offsets_in(lines), problems) == (list(range(21)), [])


@JOBS
@pytest.mark.usefixtures("eager_processes")
def test_batches_that_stand_in_the_log_twice_are_put_out_once(tmp_path: Path, jobs: int) -> None:
    content = [*dense(0, 24), *dense(10, 14), *dense(25, 30)]
    write_log(tmp_path / "t-0", 0, joined(content))
    starts = positions(content)
    reindexed(tmp_path, [(4, starts[1]), (14, starts[5]), (29, starts[6])])
    whole = printed(tmp_path, "t", jobs=jobs)
    assert offsets_in(whole[0]) == list(range(31))


@JOBS
@pytest.mark.usefixtures("eager_processes")
def test_what_is_damaged_is_named_and_all_else_is_there(root: Path, jobs: int) -> None:
    path = root / "t-0" / log_name(0)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    lines, problems = printed(root, "t", jobs=jobs)
    assert offsets_in(lines) == list(range(4, 40))
    assert [(problem.file, problem.position) for problem in problems] == [(str(path), 0)]
    lines, problems = printed(root, "t", selection=Selection(start=8), jobs=jobs)
    assert (offsets_in(lines), problems) == (list(range(8, 40)), [])


def test_a_segment_that_is_cut_meanwhile_is_a_problem(root: Path) -> None:
    data_dir = DataDir([str(root)], Storage())
    path = root / "t-0" / log_name(0)
    log = data_dir.log("t", 0)
    assert log is not None
    log.segments[0].file()
    os.truncate(path, 50)
    lines, problems = written(CatRequest(EVERYTHING, LINES), data_dir, "t")
    assert [problem.file for problem in problems] == [str(path)]
    assert offsets_in(lines) == list(range(24, 40))
    data_dir.close()


# --- processes ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("eager_processes")
def test_a_process_that_dies_is_an_error(root: Path, own_pool: pool.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed when it has been given tasks, in whatever it is at."""
    give = BusyWorker.give

    def give_and_kill(self: BusyWorker, given: Any) -> None:
        give(self, given)
        for process in processes_of([self.helper]):
            os.kill(process.pid, signal.SIGKILL)

    monkeypatch.setattr(BusyWorker, "give", give_and_kill)
    with pytest.raises(WorkerDied, match="the output is not complete"):
        printed(root, "t", jobs=2)
    assert not own_pool._busy


@pytest.mark.usefixtures("eager_processes")
def test_what_a_worker_does_not_expect_is_raised_here(root: Path, own_pool: pool.Pool) -> None:
    output = OutputFormat(RecordPart.VALUE, cast(bytes, "text"))
    with pytest.raises(TypeError, match="bytes"):
        printed(root, "t", output=output, jobs=2)
    assert not own_pool._busy


@pytest.mark.usefixtures("eager_processes")
@JOBS
def test_an_output_that_nobody_reads_ends_it(
    root: Path, own_pool: pool.Pool, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr(CatJob, "ready_bytes", 1)
    reading, writing = os.pipe()
    os.close(reading)
    data_dir = DataDir([str(root)], Storage())
    try:
        with pytest.raises(BrokenPipeError):
            list(CatRequest(EVERYTHING, LINES, jobs=jobs).write(writing, places(data_dir, "t")))
        assert not own_pool._busy
    finally:
        os.close(writing)
        data_dir.close()


@pytest.mark.usefixtures("eager_processes", "own_pool")
@JOBS
def test_an_output_that_is_full_is_an_error(root: Path, jobs: int) -> None:
    data_dir = DataDir([str(root)], Storage())
    with open("/dev/full", "wb") as full, pytest.raises(OSError, match="No space left") as raised:
        list(CatRequest(EVERYTHING, LINES, jobs=jobs).write(full.fileno(), places(data_dir, "t")))
    assert raised.value.errno == errno.ENOSPC
    data_dir.close()


@JOBS
@pytest.mark.usefixtures("eager_processes")
def test_what_is_wrong_is_known_to_the_log_and_logged_once(
    root: Path, jobs: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = root / "t-0" / log_name(0)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    data_dir = DataDir([str(root)], Storage())
    log = data_dir.log("t", 0)
    assert log is not None
    _, [problem] = written(CatRequest(EVERYTHING, LINES, jobs=jobs), data_dir, "t")
    assert problem in list(log.problems)
    lines = [record.getMessage() for record in caplog.records if problem.reason in record.getMessage()]
    assert lines == [f"{path}: position 0: {problem.reason}"]
    data_dir.close()


# --- which records --------------------------------------------------------------------------------------------------


def wanted(condition: Callable[[int], bool]) -> list[int]:
    return [offset for offset in range(40) if condition(offset)]


SELECTIONS = {
    "offsets": (Selection(start=9, end=30), lambda offset: 9 <= offset < 30),
    "no offsets": (Selection(start=30, end=9), lambda offset: False),
    "since": (Selection(since=START + 12_500), lambda offset: offset >= 13),
    "before": (Selection(before=START + 12_500), lambda offset: offset <= 12),
    "times": (Selection(since=START + 6_000, before=START + 30_000), lambda offset: 6 <= offset < 30),
    "later than all": (Selection(since=START + 40_000), lambda offset: False),
    "key": (Selection(keys=frozenset((b"key 1",))), lambda offset: offset % 3 == 1),
    "one of the keys": (Selection(keys=frozenset((b"key 1", b"key 2", b"none"))), lambda offset: offset % 3 != 0),
    "the whole key": (Selection(keys=frozenset((b"key",))), lambda offset: False),
    "value": (Selection(value_pattern=re.compile(rb"value 1")), lambda offset: offset % 5 and str(offset)[0] == "1"),
    "header": (Selection(headers=((b"n", b"0"),)), lambda offset: offset % 4 == 0),
    "null header": (Selection(headers=((b"null", None),)), lambda offset: offset % 4 == 0),
    "other header": (Selection(headers=((b"n", b"1"),)), lambda offset: False),
    "all together": (
        Selection(
            10, 39, START + 11_000, START + 38_000, frozenset((b"key 0",)), re.compile(rb"\d\d$"), ((b"null", None),)
        ),
        lambda offset: 11 <= offset < 38 and offset % 12 == 0,
    ),
}


@JOBS
@pytest.mark.usefixtures("eager_processes")
@pytest.mark.parametrize("name", SELECTIONS)
def test_only_what_is_asked_for(root: Path, name: str, jobs: int) -> None:
    selection, condition = SELECTIONS[name]
    assert offsets_in(printed(root, "t", selection=selection, jobs=jobs)[0]) == wanted(condition)
    for count in (0, 1, 3, 100):
        assert offsets_in(printed(root, "t", selection=selection, first=count)[0]) == wanted(condition)[:count]
        last = wanted(condition)[-count:] if count else []
        assert offsets_in(printed(root, "t", selection=selection, last=count)[0]) == last


@pytest.mark.usefixtures("eager_processes")
def test_the_last_of_a_log_full_of_holes(tmp_path: Path) -> None:
    content = [batch([record(offset)]) for offset in (0, 1, 500, 90_000, 90_001)]
    root = one_partition(tmp_path, {0: content})
    assert offsets_in(printed(root, "t", last=3)[0]) == [500, 90_000, 90_001]
    assert offsets_in(printed(root, "t", last=9)[0]) == [0, 1, 500, 90_000, 90_001]


# --- in what form ---------------------------------------------------------------------------------------------------


def values(root: Path) -> list[bytes | None]:
    return [None if offset % 5 == 0 else b"value %d" % offset for offset in range(40)]


@JOBS
@pytest.mark.usefixtures("eager_processes")
def test_raw_fields_with_a_delimiter(root: Path, jobs: int) -> None:
    data, _ = printed(root, "t", output=OutputFormat(RecordPart.VALUE, b"\0"), jobs=jobs)
    assert data == b"".join((value or b"") + b"\0" for value in values(root))
    data, _ = printed(root, "t", output=OutputFormat(RecordPart.KEY, b"--"), jobs=jobs)
    assert data == b"".join(b"key %d--" % (offset % 3) for offset in range(40))


@JOBS
@pytest.mark.usefixtures("eager_processes")
def test_raw_fields_behind_their_length_tell_null(root: Path, jobs: int) -> None:
    data, _ = printed(root, "t", output=OutputFormat(RecordPart.VALUE, None), jobs=jobs)
    found: list[bytes | None] = []
    while data:
        length = int.from_bytes(data[:4], "big", signed=True)
        found.append(None if length < 0 else data[4 : 4 + length])
        data = data[4 + max(length, 0) :]
    assert found == values(root)
