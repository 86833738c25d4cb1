"""Every record is read once, whatever a batch is cut into."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.spark.planning import DEFAULT_TASK_BYTES, Task
from tests.corpus import corpus_names
from tests.logs import batch, bytes_read, dense, log_name, record, records, watch_reads, write_partition
from tests.recorded_damage import DAMAGED, CorpusPath
from tests.scan.test_scan import expected_rows
from tests.spark.reads import offsets_of, options_for, planned, read, rows_of

EVERY_CORPUS = pytest.mark.parametrize("name", corpus_names())
SPLITS = pytest.mark.parametrize(
    "split",
    [
        {"maxPartitionBytes": 1 << 40},
        {"minPartitions": 2},
        {"minPartitions": 7},
        {"minPartitions": 100},
        {"maxPartitionBytes": 1},  # one per batch
        {"maxRecordsPerPartition": 3},
        {"maxRecordsPerPartition": 100, "minPartitions": 7},
    ],
    ids=lambda split: " ".join(f"{name}={value}" for name, value in split.items()),
)


def by_partition(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Return rows by topic and partition, those of each in the order in which they were read."""
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


@EVERY_CORPUS
@SPLITS
def test_every_corpus_is_read_as_kafka_itself_reads_it(name: str, split: dict[str, int], corpus: CorpusPath) -> None:
    data = corpus(name) / "data"
    if name == DAMAGED:
        whole = rows_of(data, onCorrupt="skip")
        assert len(whole) > 1000
        assert rows_of(data, onCorrupt="skip", **split) == whole
        return
    topics = ",".join(DataDir([str(data)], Storage()).topics())
    assert rows_of(data, subscribe=topics, **split) == expected_rows(corpus(name))


@pytest.fixture
def two_segments(tmp_path: Path) -> Path:
    """A topic of one partition: 200 records in 40 batches, in segments that begin at 0 and 100."""
    write_partition(tmp_path / "t-0", {0: dense(0, 99), 100: dense(100, 199)})
    return tmp_path


def pieces(tasks: Sequence[Task]) -> list[tuple[int, int, int | None, int, int]]:
    """Return each piece's segment, bytes and offsets."""
    return [
        (piece.work.base_offset, piece.work.position, piece.work.end, piece.offsets.start, piece.offsets.end)
        for task in tasks
        for piece in task.pieces
    ]


def test_the_pieces_of_a_log_follow_one_another_without_a_gap(two_segments: Path) -> None:
    tasks = planned(options_for(two_segments, minPartitions=8))
    assert len(tasks) >= 8
    bounds = [(start, end) for _, _, _, start, end in pieces(tasks)]
    assert [end for _, end in bounds] == [*(start for start, _ in bounds[1:]), 200]
    assert max(task.size for task in tasks) < 1.5 * 6400 / 8


def test_one_task_per_batch_is_as_fine_as_it_gets(two_segments: Path) -> None:
    tasks = planned(options_for(two_segments, maxPartitionBytes=1))
    assert [(start, end) for _, _, _, start, end in pieces(tasks)] == [(at, at + 5) for at in range(0, 200, 5)]
    assert len(tasks) == 40


def test_small_logs_share_a_task(tmp_path: Path) -> None:
    for number in range(100):
        write_partition(tmp_path / f"t-{number}", {0: dense(0, 9)})
    assert len(planned(options_for(tmp_path))) == 2  # opening a file counts as half a megabyte
    assert len(planned(options_for(tmp_path, minPartitions=50))) >= 50


def test_a_large_segment_is_cut_for_every_core(tmp_path: Path) -> None:
    value = b"x" * 100_000
    content = [batch([record(offset, value)]) for offset in range(700)]
    write_partition(tmp_path / "t-0", {0: content})
    tasks = planned(options_for(tmp_path))
    assert len(tasks) == 3
    assert max(task.size for task in tasks) <= 1.1 * DEFAULT_TASK_BYTES


@pytest.mark.parametrize("index", ["missing", "empty", "zeros", "of another segment"])
def test_a_segment_without_a_good_index_is_cut_by_its_headers(index: str, two_segments: Path) -> None:
    path = two_segments / "t-0" / log_name(0, ".index")
    if index == "missing":
        path.unlink()
    else:
        other = (two_segments / "t-0" / log_name(100, ".index")).read_bytes()
        path.write_bytes({"empty": b"", "zeros": bytes(80), "of another segment": other}[index])
    options = options_for(two_segments, minPartitions=8)
    tasks = planned(options)
    assert len(tasks) >= 7
    assert [row["offset"] for row in read(tasks, options)] == list(range(200))


def test_a_task_has_no_more_records_than_was_asked_for(two_segments: Path) -> None:
    options = options_for(two_segments, maxRecordsPerPartition=7)
    tasks = planned(options)
    sizes = [len(list(read([task], options))) for task in tasks]
    assert max(sizes) == 7
    assert sum(sizes) == 200
    assert len(tasks) == 29


def test_compacted_logs_are_cut_at_their_holes(tmp_path: Path) -> None:
    holes = [batch([record(offset), record(offset + 40)]) for offset in (0, 1000, 2000, 3_000_000)]
    write_partition(tmp_path / "t-0", {0: holes})
    for split in ({}, {"maxPartitionBytes": 1}, {"minPartitions": 3}):
        assert offsets_of(tmp_path, **split) == [0, 40, 1000, 1040, 2000, 2040, 3_000_000, 3_000_040]


@pytest.mark.parametrize("start", [3, 5, 7, 100, 103])
@pytest.mark.parametrize("end", [8, 100, 101, 104, 200])
def test_offsets_in_the_middle_of_a_batch_bound_what_is_read(start: int, end: int, two_segments: Path) -> None:
    for split in ({}, {"maxPartitionBytes": 1}, {"minPartitions": 5}, {"maxRecordsPerPartition": 4}):
        bounds = {"startingOffsets": f'{{"t":{{"0":{start}}}}}', "endingOffsets": f'{{"t":{{"0":{max(start, end)}}}}}'}
        assert offsets_of(two_segments, **bounds, **split) == list(range(start, end))


def test_planning_reads_indexes_and_not_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = bytes(20_000)
    segments = {
        base: [batch([record(offset, value)]) for offset in range(base, base + 200)] for base in range(0, 1000, 200)
    }
    write_partition(tmp_path / "t-0", segments)
    size = sum(len(one.data) for content in segments.values() for one in content)
    reads = watch_reads(monkeypatch)
    assert len(planned(options_for(tmp_path, minPartitions=10))) == 10
    assert bytes_read(reads) < size / 10
    reads.clear()
    assert len(planned(options_for(tmp_path))) == 1
    assert bytes_read(reads) < size / 50


def test_a_task_reads_only_its_range_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = bytes(5_000)
    write_partition(tmp_path / "t-0", {0: [batch([record(offset, value)]) for offset in range(1600)]})
    options = options_for(tmp_path, minPartitions=4)
    tasks = planned(options)
    assert len(tasks) == 4
    reads = watch_reads(monkeypatch)
    for task in tasks:
        reads.clear()
        assert len(list(read([task], options))) == 400
        assert bytes_read(reads) < task.size + 2 * 256 * 1024
        assert {Path(each.path).name for each in reads} == {log_name(0)}


def test_what_is_appended_after_planning_is_not_read(two_segments: Path) -> None:
    options = options_for(two_segments)
    tasks = planned(options)
    with (two_segments / "t-0" / log_name(100)).open("ab") as log:
        log.write(batch(records(200, 209)).data)
    assert [row["offset"] for row in read(tasks, options)] == list(range(200))
    assert offsets_of(two_segments) == list(range(210))


def test_an_empty_topic_has_no_tasks(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: []})
    assert planned(options_for(tmp_path)) == []
