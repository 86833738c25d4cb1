"""Each option by itself: what it says, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.errors import InvalidOption
from kfs.format.checkpoint import TopicPartition
from kfs.log.problem import DamagePolicy
from kfs.read.isolation_level import IsolationLevel
from kfs.spark.columns import ddl_of, default_columns
from kfs.spark.offset_limits import (
    Earliest,
    GlobalTimestamp,
    Latest,
    SpecificOffsets,
    SpecificTimestamps,
)
from kfs.spark.options import (
    IGNORED,
    BatchOptions,
    check_options,
    includes_headers,
    only_for_streams,
    parse_batch_options,
    parse_stream_options,
    pushes_filters,
)
from kfs.spark.strategies import Assign, Subscribe, SubscribePattern

SPARK_PAGE = (Path(__file__).parents[2] / "docs" / "SPARK.md").read_text()
#: Of Kafka's consumer (4.3.1), those whose names are most like one of ours.
KAFKAS_OWN = (
    *("max.partition.fetch.bytes", "group.id", "heartbeat.interval.ms", "fetch.min.bytes", "fetch.max.bytes"),
    *("auto.commit.interval.ms", "session.timeout.ms", "partition.assignment.strategy", "max.poll.records"),
)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parsed(**options: str) -> BatchOptions:
    return parse_batch_options({"path": "/data", "subscribe": "t"} | options)


def refused(options: dict[str, str], *, without: str = "") -> str:
    """Return why options are refused."""
    given = {"path": "/data", "subscribe": "t"} | options
    given.pop(without, None)
    with pytest.raises(InvalidOption) as error:
        parse_batch_options(given)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_holds_where_nothing_is_said() -> None:
    options = parsed()
    assert options.paths == ("/data",)
    assert (options.starting, options.ending) == (Earliest(), Latest())
    assert (options.split.min_partitions, options.split.max_records, options.split.max_bytes) == (None, None, None)
    assert options.read.fail_on_data_loss
    assert options.read.isolation is IsolationLevel.READ_UNCOMMITTED
    assert options.read.on_damage is DamagePolicy.FAIL
    assert options.ignored == ()


# --- which partitions ------------------------------------------------------------------------------------------------


def test_a_strategy_says_which_partitions_are_read() -> None:
    assert parsed(subscribe=" t , u,,t ").strategy == Subscribe(("t", "u"))
    assigned = parse_batch_options({"path": "/data", "assign": '{"t":[0,1]}'})
    assert assigned.strategy == Assign((T0, T1))
    pattern = parse_batch_options({"path": "/data", "subscribePattern": " t.* "}).strategy
    assert isinstance(pattern, SubscribePattern)
    assert pattern.pattern.pattern == "t.*"


def test_exactly_one_strategy_has_to_be_given() -> None:
    assert "has to be given" in refused({}, without="subscribe")
    assert "only one" in refused({"assign": '{"t":[0]}'})
    assert "only one" in refused({"subscribePattern": "t"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("assign", "t"),
        ("assign", "{"),
        ("assign", '{"t":0}'),
        ("assign", '{"t":["a"]}'),
        ("assign", "{}x"),
        ("subscribe", " , "),
        ("subscribe", ""),
        ("subscribePattern", " "),
        ("subscribePattern", "("),
    ],
)
def test_a_strategy_that_names_nothing_is_refused(name: str, value: str) -> None:
    assert name in refused({name: value}, without="" if name == "subscribe" else "subscribe")


# --- where it starts and ends ----------------------------------------------------------------------------------------


def test_offsets_are_a_word_or_numbers_for_partitions() -> None:
    assert parsed(startingOffsets=" Earliest ").starting == Earliest()
    assert parsed(endingOffsets="LATEST").ending == Latest()
    assert parsed(startingOffsets='{"t":{"0":23,"1":-2}}').starting == SpecificOffsets({T0: 23, T1: -2})
    assert parsed(endingOffsets='{"t":{"0":23,"1":-1}}').ending == SpecificOffsets({T0: 23, T1: -1})


def test_timestamps_are_one_number_or_numbers_for_partitions() -> None:
    assert parsed(startingTimestamp=" 17 ").starting == GlobalTimestamp(17, latest_where_none=False)
    assert parsed(endingTimestamp="17").ending == GlobalTimestamp(17, latest_where_none=False)
    of_partitions = {"startingOffsetsByTimestamp": '{"t":{"0":17}}', "startingOffsetsByTimestampStrategy": "LATEST"}
    assert parsed(**of_partitions).starting == SpecificTimestamps({T0: 17}, latest_where_none=True)
    assert parsed(endingOffsetsByTimestamp='{"t":{"0":17}}').ending == SpecificTimestamps({T0: 17}, False)


def test_one_timestamp_wins_over_timestamps_and_these_over_offsets() -> None:
    every = {
        "startingTimestamp": "1",
        "startingOffsetsByTimestamp": '{"t":{"0":2}}',
        "startingOffsets": '{"t":{"0":3}}',
        "endingTimestamp": "4",
        "endingOffsetsByTimestamp": '{"t":{"0":5}}',
        "endingOffsets": '{"t":{"0":6}}',
    }
    assert (parsed(**every).starting, parsed(**every).ending) == (GlobalTimestamp(1, False), GlobalTimestamp(4, False))
    del every["startingTimestamp"], every["endingTimestamp"]
    assert parsed(**every).starting == SpecificTimestamps({T0: 2}, False)
    assert parsed(**every).ending == SpecificTimestamps({T0: 5}, False)
    del every["startingOffsetsByTimestamp"], every["endingOffsetsByTimestamp"]
    assert parsed(**every).starting == SpecificOffsets({T0: 3})
    assert parsed(**every).ending == SpecificOffsets({T0: 6})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"startingOffsets": "latest"}, "can't be latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "t-0 can't be latest"),
        ({"endingOffsets": "earliest"}, "can't be earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "t-0 can't be earliest"),
        ({"startingOffsets": "newest"}, "startingOffsets"),
        ({"startingOffsets": '{"t":[0]}'}, "startingOffsets"),
        ({"startingOffsets": '{"t":{"a":0}}'}, "startingOffsets"),
        ({"startingOffsets": '{"t":{"0":"x"}}'}, "startingOffsets"),
        ({"startingOffsets": '{"t":{"-1":0}}'}, "startingOffsets"),
        ({"startingOffsets": "[" * 100_000}, "startingOffsets"),
        ({"startingTimestamp": "yesterday"}, "yesterday"),
        ({"endingTimestamp": "1.5"}, "1.5"),
        ({"endingOffsetsByTimestamp": "7"}, "endingOffsetsByTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "'error' or 'latest'"),
        ({"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'}, "5 of t-0 is greater than"),
        ({"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":6}}'}, "same partitions"),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
            "starting timestamp 5",
        ),
    ],
)
def test_an_end_that_makes_no_sense_is_refused(options: dict[str, str], reason: str) -> None:
    assert reason in refused(options)


def test_a_start_that_is_only_known_from_the_log_is_not_compared_with_the_end() -> None:
    parsed(startingOffsets='{"t":{"0":-2}}', endingOffsets='{"t":{"0":0}}')
    parsed(startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":-1}}')


# --- all else --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition", "maxPartitionBytes", "maxBatchBytes"])
def test_numbers_have_to_be_positive(name: str) -> None:
    for value in ("0", "-1", "many", ""):
        assert name in refused({name: value})
    parsed(**{name: "7"})


def test_numbers_say_how_a_batch_is_cut() -> None:
    split = parsed(minPartitions="2", maxRecordsPerPartition="3", maxPartitionBytes="4").split
    assert (split.min_partitions, split.max_records, split.max_bytes) == (2, 3, 4)


@pytest.mark.parametrize("name", ["failOnDataLoss"])
def test_flags_are_true_or_false(name: str) -> None:
    assert not parsed(**{name: "False"}).read.fail_on_data_loss
    assert name in refused({name: "no"})


def test_headers_and_filters_are_asked_for_by_flags() -> None:
    assert includes_headers({"includeHeaders": "true"})
    assert not includes_headers({})
    assert pushes_filters({"FILTERPUSHDOWN": "TRUE"}, default=False)
    assert not pushes_filters({"filterpushdown": "false"}, default=True)
    assert pushes_filters({}, default=True)
    with pytest.raises(InvalidOption, match="includeHeaders"):
        includes_headers({"includeHeaders": "1"})


def test_names_are_of_any_case() -> None:
    options = parse_batch_options({"PATH": "/data", "Subscribe": "t", "STARTINGOFFSETS": '{"t":{"0":3}}'})
    assert options.starting == SpecificOffsets({T0: 3})


@pytest.mark.parametrize("name", ["kafka.isolation.level", "isolation.level", "Kafka.Isolation.Level"])
def test_the_isolation_level_has_two_names(name: str) -> None:
    assert parsed(**{name: "READ_COMMITTED"}).read.isolation is IsolationLevel.READ_COMMITTED
    assert "read_uncommitted or read_committed" in refused({name: "serializable"})


def test_two_isolation_levels_that_differ_are_refused() -> None:
    assert "differ" in refused({"isolation.level": "read_committed", "kafka.isolation.level": "read_uncommitted"})


def test_corrupt_bytes_fail_or_are_skipped() -> None:
    read = parsed(onDamage="skip", skippedPath="/metrics").read
    assert (read.on_damage, read.skipped_path) == (DamagePolicy.SKIP, "/metrics")
    assert "fail or skip" in refused({"onDamage": "ignore"})


@pytest.mark.parametrize(
    "name", ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"]
)
def test_what_sparks_source_refuses_of_kafka_is_refused(name: str) -> None:
    assert name in refused({f"kafka.{name}": "x"})


def test_what_changes_nothing_is_named() -> None:
    options = parsed(
        **{"kafka.bootstrap.servers": "b", "kafka.group.id": "g", "maxOffsetsPerTrigger": "0", "GROUPIDPREFIX": "p"}
    )
    assert options.ignored == ("groupIdPrefix", "kafka.bootstrap.servers", "kafka.group.id", "maxOffsetsPerTrigger")
    assert only_for_streams(options.ignored) == ["maxOffsetsPerTrigger"]


@pytest.mark.parametrize("parse", [parse_batch_options, parse_stream_options, check_options])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("startingOffset", "there is no option 'startingoffset': is it 'startingOffsets'?"),
        ("subscribed", "is it 'subscribe'?"),
        ("fail.on.data.loss", "is it 'failOnDataLoss'?"),
        ("kafka.isolation_level", "is it 'isolation.level'?"),
        ("kafka.startingOffsets", "is it 'startingOffsets'?"),
        ("checkpointLocation", "there is no option 'checkpointlocation', nor one that is like it"),
        ("topic", "there is no option 'topic', nor one that is like it"),
    ],
)
def test_an_option_that_is_unknown_is_refused_with_the_one_that_is_like_it(
    parse: Callable[[dict[str, str]], object], name: str, reason: str
) -> None:
    with pytest.raises(InvalidOption, match=re.escape(reason)):
        parse({"path": "/data", "subscribe": "t", name: "earliest"})


@pytest.mark.parametrize("name", KAFKAS_OWN)
def test_what_configures_kafkas_consumer_is_kafkas_business(name: str) -> None:
    assert parsed(**{f"kafka.{name}": "x"}).ignored == (f"kafka.{name}",)


def test_the_options_that_change_nothing_are_listed() -> None:
    (line,) = (line for line in SPARK_PAGE.splitlines() if line.startswith("Accepted, without changing anything:"))
    assert set(re.findall("`([^`]+)`", line)) == {*IGNORED, "kafka.*", "kafka.isolation.level"}


def test_without_any_option_it_says_how_tables_are_made() -> None:
    with pytest.raises(InvalidOption, match=r"no options were received. .* CREATE TEMPORARY VIEW \.\.\. USING kfs"):
        check_options({})


def test_where_a_table_is_made_its_properties_are_no_options() -> None:
    given = {"owner": "root", "provider": "kfs", "location": "file:/a", "path": "file:/a", "foo": "bar", "comment": "c"}
    options = parse_batch_options({**given, "subscribe": "t", "option.subscribe": "t"})
    assert (options.paths, options.strategy, options.ignored) == (("/a",), Subscribe(("t",)), ())
    with pytest.raises(InvalidOption, match=r"there is no option 'subscribed': is it 'subscribe'\?"):
        parse_batch_options({**given, "subscribed": "t", "option.subscribed": "t"})


def test_rates_that_contradict_are_refused() -> None:
    assert "minOffsetsPerTrigger (5)" in refused({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"})


# --- paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ({"path": "/a b"}, ("/a b",)),
        ({"path": "file:///a%20b"}, ("/a b",)),
        ({"path": "file:/a"}, ("/a",)),
        ({"path": "FILE://localhost/a?#*"}, ("/a?#*",)),
        ({"path": "file:a"}, ("a",)),
        ({"path": "/a:/b"}, ("/a:/b",)),
        ({"path": "./s3:/b"}, ("./s3:/b",)),
        ({"path": '["/a","/b"]'}, ("/a", "/b")),
        ({"path": "[ab]*"}, ("[ab]*",)),
        ({"paths": '["/a","/b"]'}, ("/a", "/b")),
    ],
)
def test_paths_are_given_in_several_ways(options: dict[str, str], paths: tuple[str, ...]) -> None:
    assert parse_batch_options({"subscribe": "t", **options}).paths == paths


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("hdfs://host/data", "has to be mounted"),
        ("s3a://bucket/data", "has to be mounted"),
        ("oss-hdfs://b/x", "oss-hdfs://b/x has to be mounted"),
        ('["/a", "s3a+v2.x://b/x"]', "has to be mounted"),
        ("dbfs:/mnt/x", "has to be mounted"),
        (r"C:\x", r"C:\x is a Windows path"),
        ("c:/x", "c:/x is a Windows path"),
        (r"\\server\x", "is a Windows path"),
        ("file://host/a", "a file URL has no host"),
        ('["/a",1]', "a JSON array of paths"),
        ('[""]', "a JSON array of paths"),
    ],
)
def test_what_is_no_path_of_a_file_is_refused(path: str, reason: str) -> None:
    assert reason in refused({"path": path})


def test_a_path_has_to_be_given() -> None:
    assert "'path'" in refused({}, without="path")
    assert "'path'" in refused({"path": ""})


# --- columns ---------------------------------------------------------------------------------------------------------


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    assert ddl_of(default_columns(None, include_headers=True)) == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
        "headers array<struct<key:string,value:binary>>"
    )
    assert not ddl_of(default_columns(None, include_headers=False)).endswith("binary>>")


@pytest.mark.parametrize(
    ("names", "ddl"),
    [("offset,value", "offset bigint, value binary"), (" OFFSET , codec ", "offset bigint, codec string")],
)
def test_any_columns_can_be_named(names: str, ddl: str) -> None:
    assert ddl_of(default_columns(names, include_headers=True)) == ddl


@pytest.mark.parametrize("names", ["", "nothing", "offset,OFFSET", ","])
def test_columns_that_are_not_there_are_refused(names: str) -> None:
    with pytest.raises(InvalidOption, match="columns"):
        default_columns(names, include_headers=False)
