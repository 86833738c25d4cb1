"""A position is of one log: where the topic was made anew, or the log is another one, that is data loss."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kfs.errors import DataLoss, InvalidOption
from kfs.spark.stream_offsets import as_json, from_json
from tests.spark.reads import options_for, planned, read, rows_of
from tests.spark.streams import Query, offsets_in
from tests.spark.topics import A, B, C, append, make_topic

EARLIEST = {"startingOffsets": "earliest"}
LENIENT = {"failOnDataLoss": "false"}

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t of id A: 0 to 99, from 50 on in leader epoch 1."""
    make_topic(tmp_path / "data", 100, A, {0: 0, 50: 1})
    return tmp_path / "data"


def done(data: Path, **options: object) -> Query:
    """Return a query that has read all there is."""
    query = Query(data, **EARLIEST, **options)
    assert offsets_in(query.rest()) == list(range(100))
    return query


# --- what is in the checkpoint ---------------------------------------------------------------------------------------


def test_a_checkpoint_says_which_logs_its_offsets_are_of(data: Path) -> None:
    make_topic(data, 10, A, name="t-1")
    make_topic(data, 10, None, {0: -1}, name="old-0")
    query = Query(data, **EARLIEST)
    query.rest()
    assert query.offsets == {
        "old": {"0": 10},
        "t": {"0": 100, "1": 10},
        f"kfs:t?topicId={A}&leaderEpochs=0:1,1:0": {},
    }
    positions = from_json(query.offsets)
    assert json.dumps(as_json(positions.offsets, positions.identities)) == query.checkpoint[-1]


def test_epochs_alone_are_kept_where_there_are_no_ids(data: Path) -> None:
    make_topic(data, 100, None, {0: 3})
    assert done(data).offsets == {"t": {"0": 100}, "kfs:t?leaderEpochs=0:3": {}}


def test_an_offset_inside_of_a_batch_has_its_epoch(data: Path) -> None:
    query = Query(data, **EARLIEST, maxOffsetsPerTrigger=52)
    query.next()
    assert query.offsets == {"t": {"0": 52}, f"kfs:t?topicId={A}&leaderEpochs=0:1": {}}


def test_an_offset_that_is_still_to_come_has_no_epoch(data: Path) -> None:
    query = Query(data, startingOffsets='{"t":{"0":150}}')
    assert query._reader.initialOffset() == {"t": {"0": 150}, f"kfs:t?topicId={A}&leaderEpochs=0:-1": {}}


def test_nothing_is_to_be_done_where_nothing_has_changed(data: Path) -> None:
    query = done(data)
    query.restart()
    assert not query.begin()
    (data / "t-0" / "partition.metadata").write_bytes(b"damaged")  # what is known of it isn't forgotten
    query.restart()
    assert not query.begin()


def test_a_checkpoint_that_says_nothing_is_taken_as_it_is_and_says_it_from_then_on(data: Path) -> None:
    query = done(data)
    query.checkpoint[-1] = '{"t":{"0":90}}'  # Spark's Kafka source's, or that of an earlier version
    make_topic(data, 105, B)
    assert offsets_in(query.next()) == list(range(90, 105))
    assert f"kfs:t?topicId={B}&leaderEpochs=0:0" in query.offsets


@pytest.mark.parametrize(
    "name",
    [
        "kfs:",
        "kfs:t",
        "kfs:t?",
        "kfs:t?topicId=x&leaderEpochs=0:1",
        f"kfs:t?topicId={A}",
        f"kfs:t?topicId={A}&leaderEpochs=",
        f"kfs:t?topicId={A}&leaderEpochs=0",
        f"kfs:t?topicId={A}&leaderEpochs=0:x",
        f"kfs:t?topicId={A}&leaderEpochs=99999999999:1",
        f"kfs:t?topicId={A}&leaderEpochs=0:99999999999",
        f"kfs:t?topicId={A}&more=1&leaderEpochs=0:1",
    ],
)
def test_what_no_checkpoint_says_is_refused(name: str, data: Path) -> None:
    query = done(data)
    query.checkpoint[-1] = json.dumps({"t": {"0": 90}, name: {}})
    with pytest.raises(InvalidOption, match="offsets in the checkpoint of a stream have to be like"):
        query.next()
    with pytest.raises(InvalidOption, match="startingOffsets"):
        rows_of(data, startingOffsets=query.checkpoint[-1])


# --- a topic that was made anew --------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [40, 100, 250])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("most", [{}, {"maxOffsetsPerTrigger": 30}], ids=str)
def test_a_topic_made_anew_is_data_loss_and_read_from_its_start_where_that_is_accepted(
    end: int, restarted: bool, most: dict[str, object], data: Path
) -> None:
    strict, lenient = done(data, **most), done(data, **most, **LENIENT)
    make_topic(data, end, B)
    if restarted:
        strict.restart()
        lenient.restart()
    reason = (
        rf"topic t was deleted and re-created: position 100 of t-0 belongs to topic id {A}, and .*/t-0 to topic "
        rf"id {B}; option failOnDataLoss=false reads what there is"
    )
    with pytest.raises(DataLoss, match=reason):
        strict.next()
    assert offsets_in(lenient.rest()) == list(range(end))
    append(data, end, end + 5)
    assert offsets_in(lenient.rest()) == list(range(end, end + 5))


def test_a_topic_made_anew_after_a_micro_batch_was_written_down_is_data_loss(data: Path) -> None:
    for options in ({}, LENIENT):
        make_topic(data, 100, A)
        query = done(data, **options)
        append(data, 100, 110)
        query.begin()
        make_topic(data, 250, B)
        query.restart()
        if not options:
            with pytest.raises(DataLoss, match="topic t was deleted and re-created"):
                query.do()
        else:
            assert query.do() == []  # nothing of what it was to have is there
            assert offsets_in(query.rest()) == list(range(250))


def test_a_topic_made_anew_twice_is_data_loss(data: Path) -> None:
    for options in ({}, LENIENT):
        make_topic(data, 100, A)
        query = done(data, **options)
        make_topic(data, 120, B)
        query.begin()
        make_topic(data, 250, C)
        if not options:
            with pytest.raises(DataLoss, match=f"topic id {B}, and .*/t-0 to topic id {C}"):
                query.do()
        else:
            assert query.do() == []
            assert offsets_in(query.rest()) == list(range(250))


@pytest.mark.parametrize("same_size", [False, True])
def test_a_topic_made_anew_while_a_task_is_on_its_way_is_data_loss(same_size: bool, data: Path) -> None:
    for options in ({}, LENIENT):
        make_topic(data, 100, A)
        query = Query(data, **EARLIEST, **options)
        query.begin()
        partitions = query._reader.partitions({"t": {"0": 0}}, query.offsets)
        make_topic(data, 100 if same_size else 250, B)
        if not options:
            with pytest.raises(DataLoss, match=f"were there when the query was planned, and topic t .*{A}.*{B}"):
                list(query._rows(partitions))
        else:
            assert list(query._rows(partitions)) == []
            query.restart()
            assert len(offsets_in(query.rest())) == (100 if same_size else 250)


def test_a_batch_query_reads_one_topic(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    strict, lenient = options_for(data), options_for(data, **LENIENT)
    plans = planned(strict), planned(lenient)
    make_topic(data, 250, B)
    with pytest.raises(DataLoss, match="were there when the query was planned, and topic t was deleted and re-created"):
        list(read(plans[0], strict))
    with caplog.at_level(logging.WARNING, "kfs.spark"):
        assert list(read(plans[1], lenient)) == []
    assert "topic t was deleted and re-created" in caplog.text


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_of_a_checkpoint_are_of_the_same_log_in_a_batch_query(option: str, data: Path) -> None:
    offsets = json.dumps({"t": {"0": 60}, f"kfs:t?topicId={A}&leaderEpochs=0:1": {}})
    expected = range(60, 100) if option == "startingOffsets" else range(60)
    assert offsets_in(rows_of(data, **{option: offsets})) == list(expected)
    make_topic(data, 250, B)
    with pytest.raises(DataLoss, match="topic t was deleted and re-created: position 60 of t-0"):
        rows_of(data, **{option: offsets})
    rows = rows_of(data, **{option: offsets}, **LENIENT)
    assert offsets_in(rows) == (list(range(250)) if option == "startingOffsets" else [])


# --- another log of the same topic -----------------------------------------------------------------------------------


@pytest.mark.parametrize("topic_id", [A, None])
@pytest.mark.parametrize("end", [100, 250])
def test_a_log_that_went_another_way_is_data_loss_and_read_from_where_it_did(
    topic_id: object, end: int, data: Path
) -> None:
    make_topic(data, 100, A if topic_id else None, {0: 0, 50: 1})
    strict, lenient = done(data), done(data, **LENIENT)
    make_topic(data, end, A if topic_id else None, {0: 0, 50: 1, 70: 4})  # a backup that ended at 70, and went on
    reason = (
        r"the log of t-0 is not the one that was read up to offset 100: the record before it was written in leader "
        r"epoch 1, and .*/t-0 has epoch 4 there: it was restored from a backup, or is a copy that diverged"
    )
    with pytest.raises(DataLoss, match=reason):
        strict.next() or strict.next()
    assert offsets_in(lenient.rest()) == list(range(70, end))


def test_a_log_that_goes_on_in_a_later_epoch_is_the_same(data: Path) -> None:
    query = done(data)
    append(data, 100, 120, epoch=7)
    assert offsets_in(query.rest()) == list(range(100, 120))


def test_a_log_whose_start_has_passed_the_position_is_looked_at_behind_it(data: Path) -> None:
    query = done(data)
    make_topic(data, 200, A, {0: 0})  # behind offset 100 of epoch 1 there is no epoch 0 in the same log
    with pytest.raises(DataLoss, match="has epoch 0 there"):
        query.next()


def test_a_starting_log_without_an_id_that_gets_one_is_the_same(data: Path) -> None:
    make_topic(data, 100, None, {0: 0, 50: 1})
    query = done(data)
    (data / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {A}")  # the broker was upgraded
    append(data, 100, 105, epoch=1)
    assert offsets_in(query.rest()) == list(range(100, 105))
    assert query.offsets == {"t": {"0": 105}, f"kfs:t?topicId={A}&leaderEpochs=0:1": {}}
