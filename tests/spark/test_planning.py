"""Every record is read once, whatever a batch is cut into."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from kfs.errors import CorruptData
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.spark import planning
from kfs.spark.planning import DEFAULT_TASK_BYTES, Task
from tests.corpus import corpus_names
from tests.log.some_logs import some_segments
from tests.logs import (
    Batch,
    batch,
    bytes_read,
    dense,
    log_name,
    positions,
    record,
    records,
    watch_reads,
    write_partition,
)
from tests.recorded_damage import DAMAGED, CorpusPath
from tests.scan.scanning import expected_rows
from tests.spark.reads import offsets_of, options_for, planned, read, rows_of
from tests.thoroughness import examples

EVERY_CORPUS = pytest.mark.parametrize("name", corpus_names())
ALL_SPLITS: list[dict[str, int]] = [
    {"maxPartitionBytes": 1 << 40},
    {"minPartitions": 2},
    {"minPartitions": 7},
    {"minPartitions": 100},
    {"maxPartitionBytes": 1},  # one per batch
    {"maxRecordsPerPartition": 3},
    {"maxRecordsPerPartition": 100, "minPartitions": 7},
]
SPLITS = pytest.mark.parametrize(
    "split",
    ALL_SPLITS,
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
        whole = rows_of(data, onDamage="skip")
        assert len(whole) > 1000
        assert rows_of(data, onDamage="skip", **split) == whole
        return
    topics = ",".join(DataDir([str(data)], Storage()).topics())
    assert rows_of(data, subscribe=topics, **split) == expected_rows(corpus(name))


@pytest.mark.parametrize("name", [name for name in corpus_names() if name != "g_running"])  # was copied as it grew
@SPLITS
def test_every_corpus_is_read_as_a_consumer_at_each_level_read_it(
    name: str, split: dict[str, int], corpus: CorpusPath
) -> None:
    consumed = corpus(name) / "consumed.json"
    for level, partitions in json.loads(consumed.read_text() if consumed.exists() else "{}").items():
        expected = [
            row
            for row in expected_rows(corpus(name))
            for first, last in partitions.get(f"{row['topic']}-{row['partition']}", ())
            if first <= row["offset"] <= last
        ]
        topics = ",".join(sorted({partition.rpartition("-")[0] for partition in partitions}))
        options = {"subscribe": topics, "isolation.level": level, **split}
        if topics:
            assert rows_of(corpus(name) / "data", **options) == expected


def break_some(data: st.DataObject, directory: Path, content: dict[int, list[Batch]]) -> None:
    """Damage some batches, and write indexes that name any batch or byte for any offset."""
    for base, batches in content.items():
        log = directory / log_name(base)
        broken = bytearray(log.read_bytes())
        for position in data.draw(st.lists(st.sampled_from(positions(batches)), max_size=2)):
            # Not the lowest byte of an offset, which no CRC covers: then there are two batches of the same offsets, and
            # an index knows only the later one.
            place = position + data.draw(st.sampled_from([0, 8, 11, 16, 17, 20, 25]))
            broken[min(place, len(broken) - 1)] ^= data.draw(st.sampled_from([1, 0x40, 0x80, 0xFF]))
        log.write_bytes(broken[: data.draw(st.sampled_from([len(broken)] * 5 + [len(broken) - 3]))])
        if data.draw(st.booleans()):
            places = st.one_of(st.sampled_from(positions(batches)), st.integers(0, len(broken)))
            entries = data.draw(st.lists(st.tuples(st.integers(0, 60), places), min_size=1, max_size=6))
            if data.draw(st.booleans()):
                entries = sorted(entries)
            index = b"".join(struct.pack(">ii", *entry) for entry in entries)
            (directory / log_name(base, ".index")).write_bytes(index)


@pytest.mark.usefixtures("quiet")
@settings(max_examples=examples(12, 100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), content=some_segments())
def test_no_damage_and_no_index_makes_a_difference_between_one_split_and_another(
    data: st.DataObject, content: dict[int, list[Batch]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write_partition(root / "t-0", content)
        break_some(data, root / "t-0", content)
        whole = rows_of(root, onDamage="skip", skippedPath=root / "whole")
        assert [row["offset"] for row in whole] == sorted({row["offset"] for row in whole})
        for number, split in enumerate(ALL_SPLITS):
            skipped = root / str(number)
            assert rows_of(root, onDamage="skip", skippedPath=skipped, **split) == whole
            once = set if "maxRecordsPerPartition" in split else list  # damage can lie between offsets of two tasks
            assert once(skipped_in(skipped)) == once(skipped_in(root / "whole"))
            if skipped_in(skipped):
                with pytest.raises(CorruptData):
                    rows_of(root, **split)
            else:
                assert rows_of(root, **split) == whole


def skipped_in(directory: Path) -> list[tuple[str, int]]:
    """Return the places that files of skipped ranges name, each as often as it is named."""
    files = directory.iterdir() if directory.exists() else ()
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted((line["file"], line["position"]) for line in lines)


@pytest.fixture
def two_segments(tmp_path: Path) -> Path:
    """A topic of one partition: 200 records in 40 batches, in segments that begin at 0 and 100."""
    write_partition(tmp_path / "t-0", {0: dense(0, 99), 100: dense(100, 199)})
    return tmp_path


def pieces(tasks: Sequence[Task]) -> list[tuple[int, int, int | None, int, int]]:
    """Return each piece's segment, bytes and offsets."""
    return [
        (piece.batches.base_offset, piece.batches.position, piece.batches.end, piece.offsets.start, piece.offsets.end)
        for task in tasks
        for piece in task.splits
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


def test_small_logs_share_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "cores", lambda: 1)
    for number in range(100):
        write_partition(tmp_path / f"t-{number}", {0: dense(0, 9)})
    assert len(planned(options_for(tmp_path))) == 2  # opening a file counts as half a megabyte
    assert len(planned(options_for(tmp_path, minPartitions=50))) >= 50


@pytest.mark.parametrize(("cores", "count"), [(1, 3), (2, 4), (3, 3), (4, 4), (16, 3)])
def test_all_cores_have_about_as_much_to_do(
    cores: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "cores", lambda: cores)
    value = b"x" * 100_000
    parts = (0, 390, 600, 700)  # and so segments of 39, 21, and 10 million bytes
    segments = {
        start: [batch([record(offset, value)]) for offset in range(start, end)] for start, end in pairwise(parts)
    }
    write_partition(tmp_path / "t-0", segments)
    tasks = planned(options_for(tmp_path))
    assert len(tasks) == count
    sizes = [task.size for task in tasks]
    assert max(sizes) <= 1.1 * DEFAULT_TASK_BYTES
    assert max(sizes) < 1.15 * min(sizes)


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


@SPLITS
@pytest.mark.parametrize("start", [0, 4, 5])
def test_damage_that_hides_where_a_task_begins_is_met(start: int, split: dict[str, int], tmp_path: Path) -> None:
    content = dense(0, 14)
    directory = write_partition(tmp_path / "t-0", {0: content})
    log = bytearray((directory / log_name(0)).read_bytes())
    log[positions(content)[1]] ^= 0xFF  # a negative offset: nothing says what was in there
    (directory / log_name(0)).write_bytes(log)
    bounds = {"startingOffsets": f'{{"t":{{"0":{start}}}}}', **split}
    with pytest.raises(CorruptData):
        rows_of(tmp_path, **bounds)
    options = {"onDamage": "skip", "skippedPath": tmp_path / "skipped", **bounds}
    assert offsets_of(tmp_path, **options) == [*range(start, 5), *range(10, 15)]
    assert set(skipped_in(tmp_path / "skipped")) == {(str(directory / log_name(0)), positions(content)[1])}
