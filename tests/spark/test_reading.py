"""What a task makes of files that are not as they were when it was planned, or that are damaged."""

from __future__ import annotations

import errno
import json
import logging
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from kfs.errors import CorruptData, DataLoss, UnusableSession, UnusableSource
from tests.failing_disk import FailingDisk
from tests.logs import batch, dense, joined, log_name, positions, record, records, write_partition
from tests.recorded_damage import DAMAGED, CorpusPath
from tests.spark.reads import offsets_of, options_for, planned, read, rows_of

BATCHES = dense(0, 99)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic of one partition: 200 records in batches of five, in segments that begin at 0 and 100."""
    write_partition(tmp_path / "data" / "t-0", {0: BATCHES, 100: dense(100, 199)})
    return tmp_path / "data"


def segment(data: Path, base_offset: int) -> Path:
    return data / "t-0" / log_name(base_offset)


def damage(data: Path, number: int) -> int:
    """Break the checksum of a batch of the first segment; return its position."""
    position = positions(BATCHES)[number]
    content = bytearray(segment(data, 0).read_bytes())
    content[position + 70] ^= 1
    segment(data, 0).write_bytes(content)
    return position


# --- files that change -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [{}, {"minPartitions": 7}])
def test_segments_that_were_removed_since_are_lost(split: dict[str, int], data: Path) -> None:
    strict, lax = options_for(data, **split), options_for(data, failOnDataLoss="false", **split)
    tasks = planned(strict)
    for file in (data / "t-0").glob("*00000.*"):
        file.unlink()
    with pytest.raises(DataLoss, match=r"of t-0 were there when the query was planned, and the log has 100 to 199"):
        list(read(tasks, strict))
    assert [row["offset"] for row in read(tasks, lax)] == list(range(100, 200))


def test_a_partition_that_was_removed_since_is_lost(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_partition(data / "u-0", {0: dense(0, 4)})
    strict, lax = options_for(data), options_for(data, failOnDataLoss="false")
    tasks = planned(strict)
    shutil.rmtree(data / "t-0")
    with pytest.raises(DataLoss, match=r"t-0 is not there on .* failOnDataLoss=false"):
        list(read(tasks, strict))
    assert [row["topic"] for row in read(tasks, lax)] == ["u"] * 5


def test_a_segment_that_was_cut_since_is_lost_behind_the_cut(data: Path) -> None:
    strict, lax = options_for(data, minPartitions=4), options_for(data, failOnDataLoss="false", minPartitions=4)
    tasks = planned(strict)
    content = segment(data, 100).read_bytes()
    segment(data, 100).write_bytes(content[: positions(dense(100, 199))[3]])
    with pytest.raises(DataLoss, match="the log has 0 to 114"):
        list(read(tasks, strict))
    assert [row["offset"] for row in read(tasks, lax)] == list(range(115))


@pytest.mark.parametrize("split", [{}, {"minPartitions": 7}, {"maxPartitionBytes": 1}])
def test_a_compaction_in_between_moves_batches_and_loses_none(split: dict[str, int], data: Path) -> None:
    options = options_for(data, **split)
    tasks = planned(options)
    for file in (data / "t-0").iterdir():
        file.unlink()
    kept = [batch([record(offset), record(offset + 4)]) for offset in range(0, 200, 5)]
    write_partition(data / "t-0", {0: kept})  # both segments, merged into one
    expected = [offset for offset in range(200) if offset % 5 in (0, 4)]
    assert [row["offset"] for row in read(tasks, options)] == expected


def test_a_copy_on_another_machine_has_other_inodes_and_the_same_records(data: Path) -> None:
    options = options_for(data, minPartitions=7)
    tasks = planned(options)
    shutil.copytree(data, data.parent / "copy")
    shutil.rmtree(data)
    (data.parent / "copy").rename(data)
    assert [row["offset"] for row in read(tasks, options)] == list(range(200))


def test_a_path_that_an_executor_does_not_see_is_named(data: Path) -> None:
    options = options_for(data, failOnDataLoss="false")
    tasks = planned(options)
    data.rename(data.parent / "elsewhere")
    with pytest.raises(UnusableSource, match=r"t-0 is not there on .*: every executor has to see the log directories"):
        list(read(tasks, options))


def test_a_path_that_an_executor_may_not_read_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_for(data)
    tasks = planned(options)
    FailingDisk(monkeypatch).refuse(data / "t-0", errno.EACCES)
    with pytest.raises(UnusableSource, match=f"{data / 't-0'} can't be read on .*: Permission denied"):
        list(read(tasks, options))


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [{}, {"minPartitions": 7}, {"maxPartitionBytes": 1}])
def test_a_corrupt_batch_fails_the_query_with_file_position_and_reason(split: dict[str, int], data: Path) -> None:
    position = damage(data, 7)
    with pytest.raises(CorruptData, match=rf"{segment(data, 0)}: position {position}: .*CRC") as error:
        rows_of(data, **split)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("split", [{}, {"minPartitions": 7}, {"maxPartitionBytes": 1}])
def test_a_corrupt_batch_is_skipped_logged_and_written_down(
    split: dict[str, int], data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    position = damage(data, 7)
    options = options_for(data, onDamage="skip", skippedPath=tmp_path / "skipped", **split)
    left = [offset for offset in range(200) if not 35 <= offset < 40]
    with caplog.at_level(logging.WARNING, "kfs.spark"):
        for _ in range(2):  # a task that is done again leaves the same files
            assert [row["offset"] for row in read(planned(options), options)] == left
    files = list((tmp_path / "skipped").iterdir())
    assert len(files) == 1
    lines = [json.loads(line) for line in files[0].read_text().splitlines()]
    assert [(line["file"], line["position"], line["size"]) for line in lines] == [
        (str(segment(data, 0)), position, len(BATCHES[7].data))
    ]
    assert "CRC" in lines[0]["reason"]
    assert f"{segment(data, 0)}: position {position}: skipped {len(BATCHES[7].data)} bytes: " in caplog.text


def test_damage_that_is_not_in_the_range_does_not_matter(data: Path) -> None:
    damage(data, 7)
    assert offsets_of(data, startingOffsets='{"t":{"0":40}}') == list(range(40, 200))
    assert offsets_of(data, endingOffsets='{"t":{"0":35}}') == list(range(35))


def test_nothing_is_written_where_nothing_was_skipped(data: Path, tmp_path: Path) -> None:
    assert len(rows_of(data, onDamage="skip", skippedPath=tmp_path / "skipped")) == 200
    assert not (tmp_path / "skipped").exists()


def test_what_was_skipped_has_to_be_written_down(data: Path, tmp_path: Path) -> None:
    damage(data, 7)
    (tmp_path / "file").touch()
    with pytest.raises(UnusableSession, match="what was skipped can't be written to"):
        rows_of(data, onDamage="skip", skippedPath=tmp_path / "file" / "skipped")


def test_an_incomplete_batch_at_the_end_of_the_log_is_no_damage(data: Path) -> None:
    with segment(data, 100).open("ab") as log:
        log.write(batch(records(200, 204)).data[:-1])
    assert offsets_of(data) == list(range(200))


def test_a_batch_that_is_there_twice_is_read_once_and_is_no_damage(data: Path) -> None:
    content = [*BATCHES[:10], BATCHES[4], *BATCHES[10:]]
    segment(data, 0).write_bytes(joined(content))
    for split in ({}, {"minPartitions": 7}, {"maxPartitionBytes": 1}):
        assert offsets_of(data, **split) == list(range(200))


def test_a_batch_over_the_limit_names_it(data: Path) -> None:
    with pytest.raises(CorruptData, match="limit of 100"):
        rows_of(data, maxBatchBytes=100)


def test_every_damage_that_was_recorded_fails_a_query_or_loses_nothing(corpus: CorpusPath) -> None:
    data = corpus(DAMAGED) / "data"
    whole = len(rows_of(data, onDamage="skip"))
    with pytest.raises(CorruptData):
        rows_of(data)
    failed = 0
    for directory in sorted(data.glob("broken-*")):
        try:
            rows_of(directory)
        except CorruptData:
            failed += 1
    assert 0 < failed < 39
    assert whole > 1000


# --- damage where the log ends ----------------------------------------------------------------------------------------


@pytest.fixture(params=["behind records", "a whole segment", "all there is"])
def damaged_end(request: pytest.FixtureRequest, data: Path) -> tuple[Path, Path, int, int]:
    """A log whose last batches are broken: the directory, the file, the position, and the offset where the log ends."""
    if request.param == "all there is":
        segment(data, 0).unlink()
        (data / "t-0" / log_name(0, ".index")).unlink()
    at = positions(dense(100, 199))[-1] if request.param == "behind records" else 0
    content = bytearray(segment(data, 100).read_bytes())
    for position in positions(dense(100, 199)):
        if position >= at:
            content[position + 70] ^= 1
    segment(data, 100).write_bytes(content)
    return data, segment(data, 100), at, 195 if at else 100


SPLITS = pytest.mark.parametrize(
    "split", [{}, {"minPartitions": 7}, {"maxPartitionBytes": 1}, {"maxRecordsPerPartition": 7}], ids=str
)


@SPLITS
def test_damage_at_the_end_of_a_log_fails_a_query_for_all_of_it(
    split: dict[str, int], damaged_end: tuple[Path, Path, int, int]
) -> None:
    data, file, position, _ = damaged_end
    with pytest.raises(CorruptData, match=f"{file}: position {position}: .*CRC"):
        rows_of(data, **split)
    with pytest.raises(CorruptData, match=f"{file}: position {position}: .*CRC"):
        rows_of(data, endingOffsets='{"t":{"0":-1}}', **split)


@SPLITS
def test_damage_at_the_end_of_a_log_is_skipped_once(
    split: dict[str, int], damaged_end: tuple[Path, Path, int, int], tmp_path: Path
) -> None:
    data, file, position, end = damaged_end
    options = options_for(data, onDamage="skip", skippedPath=tmp_path / "skipped", **split)
    there = range(0 if (data / "t-0" / log_name(0)).exists() else end, end)
    assert [row["offset"] for row in read(planned(options), options)] == list(there)
    lines = [json.loads(line) for one in (tmp_path / "skipped").iterdir() for line in one.read_text().splitlines()]
    assert lines[0]["file"] == str(file)
    assert [line["position"] for line in lines] == sorted({line["position"] for line in lines})
    assert lines[0]["position"] == position
    assert sum(line["size"] for line in lines) == file.stat().st_size - position


@SPLITS
def test_damage_behind_the_offsets_that_are_asked_for_is_nobodys_business(
    split: dict[str, int], damaged_end: tuple[Path, Path, int, int]
) -> None:
    data, _, _, end = damaged_end
    ending = json.dumps({"t": {"0": end}})
    start = 0 if (data / "t-0" / log_name(0)).exists() else end
    assert offsets_of(data, endingOffsets=ending, **split) == list(range(start, end))
