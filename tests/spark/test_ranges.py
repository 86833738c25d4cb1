"""Which records options choose of logs that are there."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from kfs.errors import DataLoss, InvalidOption, NotFound, UnusableSource
from tests.logs import START, dense, set_log_start, write_partition
from tests.spark.reads import offsets_of, rows_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t: 0 to 99, of which 10 to 99 are to be seen. Topic u: 0 to 9 in partition 0, nothing in 1. And others."""
    write_partition(tmp_path / "t-0", {0: dense(0, 49), 50: dense(50, 99)})
    write_partition(tmp_path / "u-0", {0: dense(0, 9)})
    write_partition(tmp_path / "u-1", {0: []})
    write_partition(tmp_path / "__consumer_offsets-0", {0: dense(0, 4)})
    set_log_start(tmp_path, "t", 0, 10)
    return tmp_path


def partitions_of(path: Path, **options: object) -> list[str]:
    """Return the partitions that rows are from."""
    return sorted({f"{row['topic']}-{row['partition']}" for row in rows_of(path, **options)})


def offsets(**numbers: int) -> str:
    """Return offsets of topic t, or others, as JSON."""
    return json.dumps({topic: {"0": number} for topic, number in numbers.items()})


def at(offset: int) -> int:
    """Return the timestamp of the record at an offset."""
    return START + offset * 1000


# --- which partitions ------------------------------------------------------------------------------------------------


def test_topics_are_assigned_subscribed_to_or_matched(data: Path) -> None:
    assert partitions_of(data, subscribe="t,u") == ["t-0", "u-0"]
    assert partitions_of(data, assign='{"u":[0,1]}') == ["u-0"]
    assert partitions_of(data, subscribePattern="^[a-t]$") == ["t-0"]


def test_a_pattern_is_found_anywhere_in_a_name_but_never_in_one_of_kafkas_own(data: Path) -> None:
    assert partitions_of(data, subscribePattern="o") == []
    assert partitions_of(data, subscribePattern=".") == ["t-0", "u-0"]
    assert partitions_of(data, subscribe="__consumer_offsets") == ["__consumer_offsets-0"]


def test_a_topic_that_is_not_there_is_named(data: Path) -> None:
    for options in ({"subscribe": "t,missing"}, {"assign": '{"missing":[0]}'}):
        with pytest.raises(NotFound, match=r"no topic 'missing' in .*; the topics there: __consumer_offsets, t, u"):
            rows_of(data, **options)


def test_a_partition_that_is_not_there_is_left_out(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kfs.spark"):
        assert partitions_of(data, assign='{"t":[0,7]}') == ["t-0"]
    assert "no partition t-7" in caplog.text


# --- where it starts and ends ----------------------------------------------------------------------------------------


def test_everything_is_what_is_to_be_seen(data: Path) -> None:
    assert offsets_of(data, subscribe="t") == list(range(10, 100))


def test_offsets_start_and_end_it(data: Path) -> None:
    assert offsets_of(data, subscribe="t", startingOffsets=offsets(t=20)) == list(range(20, 100))
    assert offsets_of(data, subscribe="t", startingOffsets=offsets(t=-2), endingOffsets=offsets(t=12)) == [10, 11]
    assert offsets_of(data, subscribe="t", startingOffsets=offsets(t=98), endingOffsets=offsets(t=-1)) == [98, 99]
    assert offsets_of(data, subscribe="t", startingOffsets=offsets(t=30), endingOffsets=offsets(t=30)) == []


def test_offsets_have_to_be_those_of_the_partitions_that_are_read(data: Path) -> None:
    for options in ({"startingOffsets": offsets(t=20)}, {"endingOffsets": offsets(t=20)}):
        with pytest.raises(InvalidOption, match=r"name all partitions .* t-0, read are t-0, u-0, u-1"):
            rows_of(data, subscribe="t,u", **options)
    with pytest.raises(InvalidOption, match="they name t-0, u-0, read are t-0"):
        rows_of(data, subscribe="t", startingOffsets=offsets(t=20, u=0))


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ({"startingOffsets": offsets(t=1000)}, 1000, 100),
        ({"startingOffsets": offsets(t=50), "endingTimestamp": at(12)}, 50, 12),
        ({"startingTimestamp": at(90), "endingOffsets": offsets(t=80)}, 90, 80),
        ({"endingOffsets": offsets(t=9)}, 10, 9),
    ],
    ids=str,
)
def test_a_start_behind_the_end_is_refused_whatever_loss_is_accepted(
    fails: str, options: dict[str, object], start: int, end: int, data: Path
) -> None:
    reason = f"the resolved start offset {start} is greater than the resolved end offset {end} of t-0"
    with pytest.raises(InvalidOption, match=reason):
        rows_of(data, subscribe="t", failOnDataLoss=fails, **options)


def test_a_start_at_the_end_of_the_log_reads_nothing(data: Path) -> None:
    assert offsets_of(data, subscribe="t", startingOffsets=offsets(t=100)) == []


def test_times_start_and_end_it(data: Path) -> None:
    assert offsets_of(data, subscribe="t", startingTimestamp=at(90)) == list(range(90, 100))
    assert offsets_of(data, subscribe="t", startingTimestamp=at(90) - 1, endingTimestamp=at(92) + 1) == [90, 91, 92]
    assert offsets_of(data, subscribe="t", startingTimestamp=0, endingTimestamp=at(11)) == [10]
    assert offsets_of(data, subscribe="t", startingOffsetsByTimestamp=offsets(t=at(98))) == [98, 99]
    assert offsets_of(data, subscribe="t", endingOffsetsByTimestamp=offsets(t=at(12))) == [10, 11]
    with pytest.raises(InvalidOption, match="timestamps have to name all partitions that are read and no others: "):
        rows_of(data, subscribe="u", startingOffsetsByTimestamp=offsets(u=0))


def test_a_time_that_no_record_reaches_is_an_error_or_the_end(data: Path) -> None:
    late = at(1000)
    with pytest.raises(InvalidOption, match=f"no record of t-0 has timestamp {late}"):
        rows_of(data, subscribe="t", startingTimestamp=late)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert offsets_of(data, subscribe="t", startingTimestamp=late, **latest) == []
    assert offsets_of(data, subscribe="t", startingOffsetsByTimestamp=offsets(t=late), **latest) == []
    assert len(offsets_of(data, subscribe="t", endingTimestamp=late)) == 90


# --- data loss -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("starting", "ending", "there"),
    [(5, 20, range(10, 20)), (90, 120, range(90, 100)), (0, 200, range(10, 100)), (3, 7, range(0))],
)
def test_offsets_that_the_log_does_not_reach_are_lost(
    starting: int, ending: int, there: range, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"subscribe": "t", "startingOffsets": offsets(t=starting), "endingOffsets": offsets(t=ending)}
    with pytest.raises(DataLoss, match=f"offsets {starting} to {ending - 1} of t-0 .* the log has 10 to 99; .*=false"):
        rows_of(data, **options)
    with caplog.at_level(logging.WARNING, "kfs.spark"):
        assert offsets_of(data, **options, failOnDataLoss="false") == list(there)
    assert "the log has 10 to 99; reading what there is" in caplog.text


# --- paths -----------------------------------------------------------------------------------------------------------


def test_several_directories_and_patterns_are_one_source(tmp_path: Path) -> None:
    for disk in ("disk1", "disk2", "other"):
        write_partition(tmp_path / disk / f"{disk}-0", {0: dense(0, 4)})
    assert partitions_of(tmp_path / "disk*") == ["disk1-0", "disk2-0"]
    both = json.dumps([str(tmp_path / "disk1"), str(tmp_path / "oth??")])
    assert partitions_of(Path(both)) == ["disk1-0", "other-0"]
    assert partitions_of(tmp_path / "disk1" / "disk1-0" / "*.log") == ["disk1-0"]


@pytest.mark.parametrize("path", ["missing", "missing*"])
def test_a_path_that_is_not_there_is_named(path: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableSource, match="missing"):
        rows_of(tmp_path / path)
