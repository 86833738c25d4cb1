"""Every record of logs that grow is read once, however micro-batches are cut and whenever the query starts again."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from kfs.errors import CorruptData, DataLoss, InvalidOption, NotFound
from kfs.format.checkpoint import TopicPartition
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.spark import task_reader
from kfs.spark.stream_offsets import Positions, as_json, from_json, limited
from tests.corpus import corpus_names
from tests.log.some_logs import some_segments
from tests.logs import (
    START,
    Batch,
    batch,
    dense,
    log_name,
    positions,
    records,
    set_log_start,
    write_log,
    write_partition,
)
from tests.recorded_damage import DAMAGED, CorpusPath
from tests.scan.scanning import Row, expected_rows
from tests.spark.reads import rows_of
from tests.spark.streams import Query, offsets_in
from tests.thoroughness import examples

EARLIEST = {"startingOffsets": "earliest"}
EVERY_CORPUS = pytest.mark.parametrize("name", corpus_names())

pytestmark = pytest.mark.usefixtures("eager")


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t: 0 to 99 in partition 0, 0 to 9 in partition 1."""
    write_partition(tmp_path / "data" / "t-0", {0: dense(0, 49), 50: dense(50, 99)})
    write_partition(tmp_path / "data" / "t-1", {0: dense(0, 9)})
    return tmp_path / "data"


def append(data: Path, base: int, first: int, last: int, partition: int = 0) -> None:
    """Append records to a segment."""
    with (data / f"t-{partition}" / log_name(base)).open("ab") as log:
        for one in dense(first, last):
            log.write(one.data)


def partition_offsets(**offsets: int) -> str:
    return json.dumps({"t": {name[1:]: offset for name, offset in offsets.items()}})


# --- everything, once ------------------------------------------------------------------------------------------------


@EVERY_CORPUS
@pytest.mark.parametrize(
    "options",
    [{}, {"maxOffsetsPerTrigger": 7}, {"maxOffsetsPerTrigger": 100, "minPartitions": 7}, {"maxPartitionBytes": 1}],
    ids=str,
)
def test_every_corpus_is_streamed_as_kafka_itself_reads_it(
    name: str, options: dict[str, int], corpus: CorpusPath
) -> None:
    path = corpus(name) / "data"
    topics = ",".join(DataDir([str(path)], Storage()).topics())
    lenient = {"onDamage": "skip", "failOnDataLoss": "false"} if name == DAMAGED else {}
    most = int(options.get("maxOffsetsPerTrigger", 0))
    if most == 7:
        options = {**options, "maxOffsetsPerTrigger": most * len(topics.split(","))}
    streamed = Query(path, subscribe=topics, **EARLIEST, **options, **lenient).rest()
    expected = rows_of(path, subscribe=topics, **lenient) if name == DAMAGED else expected_rows(corpus(name))
    assert ordered(streamed) == ordered(expected)


@pytest.mark.parametrize("name", ["b_txn", "b39_txn", "d_groups"])
def test_a_committed_stream_is_what_a_consumer_got(name: str, corpus: CorpusPath) -> None:
    for level, partitions in json.loads((corpus(name) / "consumed.json").read_text()).items():
        topics = ",".join(sorted({partition.rpartition("-")[0] for partition in partitions}))
        query = Query(
            corpus(name) / "data", subscribe=topics, **EARLIEST, maxOffsetsPerTrigger=40, **{"isolation.level": level}
        )
        rows = query.rest()
        for partition, ranges in partitions.items():
            expected = [offset for first, last in ranges for offset in range(first, last + 1)]
            assert [row["offset"] for row in rows if f"{row['topic']}-{row['partition']}" == partition] == expected


def test_offsets_are_in_the_form_of_sparks_kafka_source(data: Path) -> None:
    query = Query(data, **EARLIEST)
    query.rest()
    assert query.checkpoint == ['{"t": {"0": 100, "1": 10}}']
    offsets = {TopicPartition("u", 0): 1, TopicPartition("t", 10): 2, TopicPartition("t", 9): 3}
    assert json.dumps(as_json(offsets)) == '{"t": {"9": 3, "10": 2}, "u": {"0": 1}}'
    assert from_json(as_json(offsets)) == Positions(offsets)


@pytest.mark.parametrize("text", ["[]", '{"t":1}', '{"t":{"a":1}}', '{"t":{"0":-1}}', '{"t":{"0":"1"}}', "1"])
def test_a_checkpoint_of_another_form_is_refused(text: str, data: Path) -> None:
    query = Query(data)
    query.checkpoint = [text]
    with pytest.raises(InvalidOption, match=r'have to be like \{"topicA":\{"0":23\}\}'):
        query.next()


def test_a_checkpoint_of_sparks_kafka_source_is_gone_on_with(data: Path) -> None:
    query = Query(data)
    query.checkpoint = ['{"t":{"1":4,"0":90}}']
    rows = query.rest()
    assert (offsets_in(rows, 0), offsets_in(rows, 1)) == (list(range(90, 100)), list(range(4, 10)))


# --- logs that grow --------------------------------------------------------------------------------------------------


def test_what_is_appended_is_read_next(data: Path) -> None:
    query = Query(data, **EARLIEST)
    assert len(query.next()) == 110
    assert query.next() == []
    append(data, 50, 100, 119)
    assert offsets_in(query.next()) == list(range(100, 120))
    write_partition(data / "t-0", {120: dense(120, 139)})
    assert offsets_in(query.next()) == list(range(120, 140))
    assert query.rest() == []


def test_new_partitions_topics_and_directories_are_found(data: Path, tmp_path: Path) -> None:
    query = Query(tmp_path / "d*", **EARLIEST)
    assert len(query.next()) == 110
    write_partition(data / "t-2", {0: dense(0, 4)})
    write_partition(data / "u-0", {0: dense(0, 2)})
    assert {(row["topic"], row["partition"]) for row in query.next()} == {("t", 2), ("u", 0)}
    write_partition(tmp_path / "disk2" / "v-0", {0: dense(0, 2)})
    assert {row["topic"] for row in query.next()} == {"v"}
    assert query.rest() == []


def test_a_batch_that_is_not_complete_yet_is_read_when_it_is(data: Path) -> None:
    query = Query(data, **EARLIEST)
    query.rest()
    whole = batch(records(100, 104)).data
    with (data / "t-0" / log_name(50)).open("ab") as log:
        log.write(whole[:-7])
    assert query.rest() == []
    with (data / "t-0" / log_name(50)).open("ab") as log:
        log.write(whole[-7:])
    assert offsets_in(query.rest()) == list(range(100, 105))


def test_a_compaction_under_the_stream_loses_none(data: Path) -> None:
    query = Query(data, **EARLIEST, maxOffsetsPerTrigger=20)
    first = query.next()
    shutil.rmtree(data / "t-0")
    kept = [one for one in dense(0, 99) if one.first_offset % 10]
    write_partition(data / "t-0", {0: kept})
    expected = [offset for offset in range(100) if offset % 10 >= 5 and offset > offsets_in(first)[-1]]
    assert offsets_in(query.rest()) == expected


# --- where it starts -------------------------------------------------------------------------------------------------


def test_a_stream_starts_at_the_end_where_nothing_else_is_said(data: Path) -> None:
    query = Query(data)
    assert query.rest() == []
    append(data, 50, 100, 104)
    assert offsets_in(query.rest()) == list(range(100, 105))


def test_what_came_before_a_crash_in_the_first_micro_batch_is_not_lost(data: Path) -> None:
    query = Query(data)
    append(data, 50, 100, 104)
    assert query.begin()
    append(data, 50, 105, 109)
    query.restart()
    assert query.do() == []
    assert offsets_in(query.rest()) == list(range(105, 110))  # it started when it first asked where the end is


def test_offsets_and_times_start_it(data: Path) -> None:
    start = partition_offsets(p0=95, p1=-1)
    assert offsets_in(Query(data, startingOffsets=start).rest()) == list(range(95, 100))
    rows = Query(data, startingOffsets=partition_offsets(p0=-2, p1=9)).rest()
    assert (len(offsets_in(rows)), offsets_in(rows, 1)) == (100, [9])
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    rows = Query(data, startingTimestamp=START + 90_000, **latest).rest()
    assert (offsets_in(rows), offsets_in(rows, 1)) == (list(range(90, 100)), [])
    with pytest.raises(InvalidOption, match="no record of t-1 has timestamp"):
        Query(data, startingTimestamp=START + 90_000).rest()
    with pytest.raises(InvalidOption, match="they name t-0, read are t-0, t-1"):
        Query(data, startingOffsets=partition_offsets(p0=95)).rest()


def test_a_topic_that_is_not_there_is_named_when_it_starts(data: Path) -> None:
    with pytest.raises(NotFound, match="no topic 'missing'"):
        Query(data, subscribe="t,missing").rest()


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(option: str, data: Path) -> None:
    with pytest.raises(InvalidOption, match=f"{option}' is not valid in streaming queries"):
        Query(data, **{option: "1"})


def test_options_that_change_nothing_in_a_stream_are_logged(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {"endingTimestamp": 1, "kafka.bootstrap.servers": "b", "filterPushdown": "true"}
    with caplog.at_level(logging.WARNING, "kfs.spark"):
        assert len(Query(data, **EARLIEST, **given).rest()) == 110
    assert "options that change nothing: endingTimestamp, filterPushdown, kafka.bootstrap.servers" in caplog.text


# --- how much ---------------------------------------------------------------------------------------------------------


def test_a_micro_batch_has_as_many_offsets_as_was_asked_for_shared_out(data: Path) -> None:
    query = Query(data, **EARLIEST, maxOffsetsPerTrigger=22)
    rows = query.next()
    assert (len(offsets_in(rows, 0)), len(offsets_in(rows, 1))) == (20, 2)
    assert query.offsets == {"t": {"0": 20, "1": 2}}
    sizes = []
    while rows := query.next():
        sizes.append(len(rows))
    assert sum(sizes) == 88
    assert max(sizes) <= 22


def test_no_partition_is_starved_and_no_share_goes_past_an_end() -> None:
    t = [TopicPartition("t", partition) for partition in range(3)]
    latest = {t[0]: 1_000_000, t[1]: 3, t[2]: 5}
    assert limited(10, {t[0]: 0, t[1]: 0, t[2]: 5}, latest, {}) == {t[0]: 9, t[1]: 1, t[2]: 5}
    assert limited(10, {t[1]: 3}, {t[0]: 4, t[1]: 3}, {t[0]: 2}) == {t[0]: 4, t[1]: 3}
    assert limited(10, latest, latest, {}) == latest
    end = 2**63 - 1
    assert limited(end, {t[0]: 5}, {t[0]: end}, {}) == {t[0]: end}


def test_a_micro_batch_waits_for_enough_but_not_too_long(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    query = Query(data, **EARLIEST, minOffsetsPerTrigger=10, maxTriggerDelay="90s")
    assert len(query.next()) == 110  # the first one never waits
    append(data, 50, 100, 104)
    now += 80
    assert query.next() == []
    append(data, 50, 105, 109)
    assert offsets_in(query.next()) == list(range(100, 110))
    append(data, 50, 110, 110)
    now += 89
    assert query.next() == []
    now += 1
    assert offsets_in(query.next()) == [110]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("2 h", None), ("1h", 3600), ("500", 0.5), ("3S", 3), ("x", None), ("1d", 86400)],
)
def test_times_are_written_as_in_spark(text: str, seconds: float | None, data: Path) -> None:
    if seconds is None:
        with pytest.raises(InvalidOption, match="maxTriggerDelay"):
            Query(data, maxTriggerDelay=text)
    else:
        assert Query(data, maxTriggerDelay=text).options.rates.longest_delay == seconds


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": 30}, {"minOffsetsPerTrigger": 1000}])
def test_available_now_ends_where_the_logs_ended_when_it_began(options: dict[str, int], data: Path) -> None:
    query = Query(data, **EARLIEST, **options)
    query.restart(is_available_now=True)
    rows = query.next()
    append(data, 50, 100, 109)
    write_partition(data / "t-2", {0: dense(0, 4)})
    rows += query.rest()
    assert len(rows) == 110
    assert query.offsets == {"t": {"0": 100, "1": 10}}
    query.restart(is_available_now=True)
    assert len(query.rest()) == 15


# --- starting again ---------------------------------------------------------------------------------------------------


def test_a_query_goes_on_where_it_was_and_does_again_what_it_had_not_done(data: Path) -> None:
    query = Query(data, **EARLIEST, maxOffsetsPerTrigger=33)
    rows = query.next()
    while query.begin():
        append(data, 50, 100, 104)  # what is appended is never in a micro-batch that was written down before
        query.restart()
        done = query.do()
        query.restart()
        assert done == query.do()
        rows += done
        if len(query.checkpoint) > 3:
            break
    rows += query.rest()
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows)


# --- data loss --------------------------------------------------------------------------------------------------------


def test_retention_under_the_stream_is_data_loss(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    strict = Query(data, **EARLIEST, maxOffsetsPerTrigger=11)
    lenient = Query(data, **EARLIEST, maxOffsetsPerTrigger=11, failOnDataLoss="false")
    assert strict.next() == lenient.next()
    (data / "t-0" / log_name(0)).unlink()
    with pytest.raises(DataLoss, match=r"offsets 10 to 19 of t-0 are to be read, and the log has 50 to 99; .*=false"):
        strict.next()
    with caplog.at_level(logging.WARNING, "kfs.spark"):
        assert offsets_in(lenient.rest()) == list(range(50, 100))
    assert "reading what there is" in caplog.text


def test_deleted_records_are_data_loss_too(data: Path) -> None:
    query = Query(data, **EARLIEST, maxOffsetsPerTrigger=11)
    query.next()
    set_log_start(data, "t", 0, 30)
    with pytest.raises(DataLoss, match="the log has 30 to 99"):
        query.next()


def test_a_segment_that_goes_while_a_task_is_on_its_way_is_data_loss(data: Path) -> None:
    for fails in ("true", "false"):
        query = Query(data, **EARLIEST, failOnDataLoss=fails)
        query.begin()
        partitions = query._reader.partitions({"t": {"0": 0, "1": 0}}, query.offsets)
        kept = (data / "t-0" / log_name(0)).read_bytes()
        (data / "t-0" / log_name(0)).unlink()
        if fails == "true":
            with pytest.raises(DataLoss, match="were there when the query was planned"):
                list(query._rows(partitions))
        else:
            assert offsets_in(list(query._rows(partitions))) == list(range(50, 100))
        (data / "t-0" / log_name(0)).write_bytes(kept)


@pytest.mark.parametrize("gone", ["a partition", "the topic"])
def test_partitions_that_are_gone_are_data_loss(gone: str, data: Path) -> None:
    write_partition(data / "u-0", {0: dense(0, 4)})
    options = {"subscribe": "t,u", **EARLIEST}
    strict, lenient = Query(data, **options), Query(data, **options, failOnDataLoss="false")
    assert len(strict.next()) == len(lenient.next()) == 115
    shutil.rmtree(data / "t-1")
    if gone == "the topic":
        shutil.rmtree(data / "t-0")
    append_to_u = dense(5, 9)
    with (data / "u-0" / log_name(0)).open("ab") as log:
        log.writelines(one.data for one in append_to_u)
    with pytest.raises(DataLoss, match=r"partitions .*t-1 are gone"):
        strict.next()
    assert [row["topic"] for row in lenient.next()] == ["u"] * 5


def test_a_log_that_was_made_anew_is_data_loss(data: Path) -> None:
    strict, lenient = Query(data, **EARLIEST), Query(data, **EARLIEST, failOnDataLoss="false")
    assert strict.rest() == lenient.rest()
    shutil.rmtree(data / "t-0")
    write_partition(data / "t-0", {0: dense(0, 4)})
    with pytest.raises(DataLoss, match="the log of t-0 ended at 100 and ends at 5 now"):
        strict.next()
    assert lenient.next() == []
    append(data, 0, 5, 9)
    assert offsets_in(lenient.next()) == list(range(5, 10))


def test_a_new_partition_that_does_not_start_at_0_is_data_loss(data: Path) -> None:
    strict, lenient = Query(data, **EARLIEST), Query(data, **EARLIEST, failOnDataLoss="false")
    assert strict.rest() == lenient.rest()
    write_partition(data / "t-2", {7: dense(7, 9)})
    with pytest.raises(DataLoss, match="the new partition t-2 starts at 7, not at 0"):
        strict.next()
    assert offsets_in(lenient.next(), 2) == [7, 8, 9]


# --- damage -----------------------------------------------------------------------------------------------------------


def damage_last_batch(data: Path) -> tuple[Path, int]:
    path = data / "t-0" / log_name(50)
    position = positions(dense(50, 99))[-1]
    content = bytearray(path.read_bytes())
    content[position + 70] ^= 1
    path.write_bytes(content)
    return path, position


def test_damage_where_a_log_ends_stops_the_stream(data: Path) -> None:
    path, position = damage_last_batch(data)
    with pytest.raises(CorruptData, match=f"{path}: position {position}: .*CRC"):
        Query(data, **EARLIEST).rest()


def test_damage_where_a_log_ends_is_skipped_once_and_written_down_when_more_follows(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, position = damage_last_batch(data)
    query = Query(data, **EARLIEST, onDamage="skip", skippedPath=tmp_path / "skipped", maxOffsetsPerTrigger=40)
    with caplog.at_level(logging.WARNING, "kfs.spark"):
        assert offsets_in(query.rest()) == list(range(95))
    assert caplog.text.count("the log ends in damage") == 1
    assert not (tmp_path / "skipped").exists()
    append(data, 50, 100, 104)
    assert offsets_in(query.rest()) == list(range(100, 105))
    lines = [json.loads(line) for one in (tmp_path / "skipped").iterdir() for line in one.read_text().splitlines()]
    assert [(line["file"], line["position"]) for line in lines] == [(str(path), position)]


# --- any log, growing in any way --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
@settings(max_examples=examples(20, 200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), content=some_segments(), most=st.sampled_from([None, 1, 3, 50]))
def test_a_log_that_grows_in_any_way_is_read_once(
    data: st.DataObject, content: dict[int, list[Batch]], most: int | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        first = next(iter(content))
        write_log(root / "t-0", first, b"")
        options = {} if most is None else {"maxOffsetsPerTrigger": most}
        query = Query(root, startingOffsets=json.dumps({"t": {"0": first}}), **options)
        rows: list[Row] = []
        for base, batches in content.items():
            left = list(batches)
            while left:
                count = data.draw(st.integers(1, len(left)))
                with (root / "t-0" / log_name(base)).open("ab") as log:
                    log.writelines(one.data for one in left[:count])
                left = left[count:]
                if data.draw(st.booleans()) and query.begin():
                    if data.draw(st.booleans()):
                        query.restart()
                    rows += query.do()
        rows += query.rest()
        expected = [record.offset for batches in content.values() for one in batches for record in one.records]
        assert [row["offset"] for row in rows] == expected


def test_a_worker_has_the_collector_pass_over_its_modules_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr("gc.freeze", lambda: calls.append("freeze"))
    task_reader._spare_the_collector.cache_clear()
    for _ in range(2):
        assert Query(data, startingOffsets="earliest").rest()
    assert calls == ["freeze"]
