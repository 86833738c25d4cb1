"""The demo: a data directory as a broker leaves it, the same each time, with something of everything in it."""

from __future__ import annotations

import json
import os
import shlex
import time
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kfs.cli.main import main
from kfs.demo import WrittenTopic, demo_topics, write_demo
from kfs.errors import KfsError
from kfs.format.batch_header import BatchHeader, is_intact, read_header
from kfs.format.control_record import AbortMarker, parse_control_record
from kfs.format.layout import MAGIC_V2, MAX_INT64
from kfs.format.record import Record, TimestampType
from kfs.format.uuid import Uuid
from kfs.log.block import Block
from kfs.log.data_dir import DataDir
from kfs.log.index_file import EntryLayout, IndexBytes
from kfs.log.log import Log
from kfs.log.log_dir import (
    CHECKPOINTS,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kfs.log.offset_index import LAYOUT as OFFSET_LAYOUT
from kfs.log.offset_index import OffsetIndex
from kfs.log.offset_range import OffsetRange
from kfs.log.storage import Storage
from kfs.log.time_index import LAYOUT as TIME_LAYOUT
from kfs.log.time_index import TimeIndex
from kfs.storage.status import Version
from tests.logs import content_of, open_tree, records_in

TOPICS = {topic.name: len(topic.partitions) for topic in demo_topics()}
#: What the documentation shows.
KNOWN_RECORD = (
    '{"topic":"launch_info","partition":0,"offset":368776,"timestamp":1606446771205,"timestampType":"CreateTime",'
    '"time":"2020-11-27T03:12:51.205Z","key":null,"value":"4567890","headers":[{"key":"trace","value":"a1"}]}\n'
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo") / "data"
    write_demo(str(directory))
    return directory


@pytest.fixture
def data_dir(demo: Path) -> DataDir:
    return DataDir([str(demo)], Storage())


def partition(data_dir: DataDir, topic: str, number: int = 0) -> Log:
    log = data_dir.log(topic, number)
    assert log is not None
    return log


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def headers(log_file: Path) -> Iterator[BatchHeader]:
    """Walk a ``.log`` from batch to batch; every CRC must hold."""
    data = log_file.read_bytes()
    at = 0
    while at < len(data):
        header = read_header(data, at, at)
        assert is_intact(header, data[at : at + header.size])
        yield header
        at += header.size


def index_bytes(path: Path, layout: EntryLayout) -> IndexBytes:
    data = path.read_bytes()
    assert len(data) % layout.size == 0
    return IndexBytes(data, len(data) // layout.size, len(data), Version(0, len(data), 0, 0))


def batches(log: Log) -> list[BatchHeader]:
    """The headers of a log that has nothing but v2."""
    return [item.header for _, item in log.walk(OffsetRange(0, MAX_INT64)) if isinstance(item, Block)]


# --- as a directory -------------------------------------------------------------------------------------------------


def test_is_the_same_each_time(demo: Path, tmp_path: Path) -> None:
    write_demo(str(tmp_path / "again"))
    assert files(tmp_path / "again") == files(demo)


def test_is_small_and_quick_to_write(tmp_path: Path) -> None:
    before = time.process_time()
    write_demo(str(tmp_path))
    assert time.process_time() - before < 2
    assert sum(map(len, files(tmp_path).values())) < 5_000_000


def test_has_what_a_stopped_broker_leaves(demo: Path) -> None:
    expected = {*CHECKPOINTS, "meta.properties", ".kafka_cleanshutdown", ".lock"}
    expected |= {f"{topic}-{number}" for topic, count in TOPICS.items() for number in range(count)}
    assert set(os.listdir(demo)) == expected


def test_partitions_have_what_a_broker_keeps_beside_segments(demo: Path, data_dir: DataDir) -> None:
    ids: dict[str, Uuid] = {}
    for log in data_dir.logs():
        metadata = log.partition_metadata()
        assert metadata is not None
        assert ids.setdefault(log.topic, metadata.topic_id) == metadata.topic_id
        assert log.leader_epochs()[0].start_offset <= log.log_end_offset
        for segment in log.segments:
            assert segment.files.index is not None
            assert segment.files.timeindex is not None
    assert len(set(ids.values())) == len(TOPICS)


def test_kfs_finds_nothing_wrong(demo: Path) -> None:
    tree = open_tree(demo)
    for topic, count in TOPICS.items():
        for number in range(count):
            assert content_of(tree, f"{topic}/{number}/meta/problems.jsonl") == b""


def test_checkpoints_speak_of_every_partition(data_dir: DataDir) -> None:
    (log_dir,) = data_dir.log_dirs
    ends = {log.topic_partition: log.log_end_offset for log in data_dir.logs()}
    assert log_dir.checkpoint(RECOVERY_POINT_CHECKPOINT) == ends
    assert log_dir.checkpoint(HIGH_WATERMARK_CHECKPOINT) == ends
    assert [str(key) for key in log_dir.checkpoint(LOG_START_OFFSET_CHECKPOINT)] == ["sensor-readings-0"]
    assert [str(key) for key in log_dir.checkpoint(CLEANER_OFFSET_CHECKPOINT)] == ["customer-profiles-0"]


def test_says_how_many_messages_there_are(tmp_path: Path) -> None:
    written = write_demo(str(tmp_path))
    opened = DataDir([str(tmp_path)], Storage())

    def counted(topic: WrittenTopic) -> int:
        return sum(len(records_in(partition(opened, topic.topic.name, n))) for n in range(len(topic.partitions)))

    assert [each.messages for each in written] == [counted(each) for each in written]


# --- indexes and snapshots ------------------------------------------------------------------------------------------


def test_offset_indexes_are_those_of_kafka_4(demo: Path) -> None:
    """An entry for the first batch after each 4096 bytes: its last offset, and where it begins."""
    for path in demo.rglob("*.log"):
        base_offset = int(path.stem)
        expected, since_last = [], 0
        for header in headers(path):
            if since_last > 4096:
                expected.append((header.last_offset, header.position))
                since_last = 0
            since_last += header.size
        index = OffsetIndex(index_bytes(path.with_suffix(".index"), OFFSET_LAYOUT), base_offset)
        entries = [index.entry(at) for at in range(index.entries)]
        assert [(entry.offset, entry.position) for entry in entries] == expected


def test_time_indexes_name_the_batch_with_the_latest_timestamp_so_far(demo: Path) -> None:
    for path in demo.rglob("*.log"):
        base_offset = int(path.stem)
        found = list(headers(path))
        index = TimeIndex(index_bytes(path.with_suffix(".timeindex"), TIME_LAYOUT), base_offset)
        entries = [index.entry(at) for at in range(index.entries)]
        by_last_offset = {header.last_offset: header for header in found}
        for entry in entries:
            so_far = [header.max_timestamp for header in found if header.last_offset <= entry.offset]
            assert entry.timestamp == by_last_offset[entry.offset].max_timestamp == max(so_far)
        assert all(earlier.timestamp < later.timestamp for earlier, later in pairwise(entries))
        latest = max((header.max_timestamp for header in found), default=-1)
        assert (entries[-1].timestamp if entries else -1) == latest


def test_snapshots_are_of_the_last_batches_before_them(data_dir: DataDir) -> None:
    for log in data_dir.logs():
        snapshots = dict(log.producer_snapshots())
        if log.topic not in ("legacy-audit", "empty"):
            rolled = [segment.base_offset for segment in log.segments[1:]]
            assert list(snapshots) == [*rolled, log.log_end_offset]
        for offset, entries in snapshots.items():
            last = {
                each.producer_id: each for each in batches(log) if each.base_offset < offset and not each.is_control
            }
            assert {entry.producer_id: (entry.last_offset, entry.first_sequence) for entry in entries} == {
                key: (each.last_offset, each.base_sequence) for key, each in last.items() if key >= 0
            }


def test_sequences_of_a_producer_follow_each_other(data_dir: DataDir) -> None:
    for log in data_dir.logs():
        if log.topic == "customer-profiles":
            continue  # compaction took some
        expected: dict[int, int] = {}
        for each in batches(log):
            if each.producer_id >= 0 and not each.is_control:
                assert each.base_sequence == expected.get(each.producer_id, each.base_sequence)
                expected[each.producer_id] = each.base_sequence + each.record_count


# --- topics ---------------------------------------------------------------------------------------------------------


def test_the_record_of_the_documentation_is_there(demo: Path) -> None:
    tree = open_tree(demo)
    assert content_of(tree, "launch_info/0/offset/368776.json").decode() == KNOWN_RECORD
    assert (demo / "launch_info-0" / "00000000000000368769.log").exists()


def test_the_days_are_the_last_of_november_2020(data_dir: DataDir) -> None:
    timestamps = [record.timestamp for record in records_in(partition(data_dir, "orders"))]
    assert (timestamps[0] // 86_400_000, timestamps[-1] // 86_400_000) == (18590, 18595)  # days since 1970


def test_every_codec_and_message_format_is_there(demo: Path) -> None:
    found = {(header.magic, header.codec_label) for path in demo.rglob("*.log") for header in headers(path)}
    assert {codec for magic, codec in found if magic == MAGIC_V2} == {"none", "gzip", "snappy", "lz4", "zstd"}
    legacy = {header.magic for path in (demo / "legacy-audit-0").glob("*.log") for header in headers(path)}
    assert legacy == {0, 1, 2}


def test_formats_change_within_segments_of_the_legacy_log(demo: Path) -> None:
    by_segment = [
        {header.magic for header in headers(path)} for path in sorted((demo / "legacy-audit-0").glob("*.log"))
    ]
    assert [magics for magics in by_segment if len(magics) > 1] == [{0, 1}, {1, 2}]


def test_orders_are_json_with_names_in_many_scripts_and_traces(data_dir: DataDir) -> None:
    found = records_in(partition(data_dir, "orders"))
    parsed = [json.loads(record.value or b"") for record in found]
    assert [each["orderId"].encode() for each in parsed] == [record.key for record in found]
    names = "".join(each["customer"]["name"] for each in parsed)
    assert any("\u0400" <= letter <= "\u04ff" for letter in names)  # Cyrillic
    assert any("\u4e00" <= letter <= "\u9fff" for letter in names)  # Chinese characters
    assert all(dict(record.headers)[b"traceparent"].startswith(b"00-") for record in found)  # type: ignore[union-attr]


def test_some_clicks_come_late(data_dir: DataDir) -> None:
    timestamps = [record.timestamp for record in records_in(partition(data_dir, "clickstream"))]
    assert timestamps != sorted(timestamps)


@pytest.mark.parametrize("number", [0, 1])
def test_aborted_payments_are_those_of_the_transaction_index(data_dir: DataDir, number: int) -> None:
    log = partition(data_dir, "payments", number)
    opened: dict[int, int] = {}
    aborted, committed = [], 0
    for segment, item in log.walk(OffsetRange(0, MAX_INT64)):
        assert isinstance(item, Block)
        header = item.header
        assert header.is_transactional
        if not header.is_control:
            opened.setdefault(header.producer_id, header.base_offset)
            continue
        marker = segment.load(item).columns.record(0)
        first_offset = opened.pop(header.producer_id)
        if isinstance(parse_control_record(marker.key, marker.value), AbortMarker):
            last_stable = min(opened.values(), default=marker.offset + 1)
            aborted.append((segment.base_offset, header.producer_id, first_offset, marker.offset, last_stable))
        else:
            committed += 1
    assert not opened
    assert committed > len(aborted) > 5
    assert aborted == [
        (segment.base_offset, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)
        for segment, entry in log.aborted_transactions()
    ]
    # Some began while another was open, so that the last stable offset lies below their marker.
    assert any(last_stable <= marker for *_, marker, last_stable in aborted)


def test_profiles_are_compacted_up_to_the_active_segment(data_dir: DataDir) -> None:
    log = partition(data_dir, "customer-profiles")
    dirty = data_dir.log_dirs[0].checkpoint(CLEANER_OFFSET_CHECKPOINT)[log.topic_partition]
    assert dirty == log.segments[-1].base_offset
    found = records_in(log)
    cleaned = [record for record in found if record.offset < dirty]
    keys = [record.key for record in cleaned]
    assert len(keys) == len(set(keys))
    assert len(cleaned) < dirty / 2
    assert len(found) - len(cleaned) == log.log_end_offset - dirty
    assert any(record.value is None for record in cleaned)
    assert any(record.value is None for record in found[len(cleaned) :])


def test_compaction_leaves_horizons_and_a_batch_without_records(data_dir: DataDir) -> None:
    found = batches(partition(data_dir, "customer-profiles"))
    assert any(header.delete_horizon is not None for header in found)
    (empty,) = [header for header in found if header.record_count == 0]
    assert (empty.producer_id, empty.last_offset) == (3000, 299)


def test_thumbnails_are_png_pictures(data_dir: DataDir) -> None:
    for record in records_in(partition(data_dir, "thumbnails")):
        assert dict(record.headers)[b"content-type"] == b"image/png"
        assert png_pixels(record) == 48 * (1 + 48 * 3)


def png_pixels(record: Record) -> int:
    """Return the number of bytes that a picture unpacks to; every chunk must hold."""
    data = record.value or b""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, packed, kinds = 8, b"", []
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        chunk = data[at + 4 : at + 8 + length]
        assert zlib.crc32(chunk) == int.from_bytes(data[at + 8 + length : at + 12 + length], "big")
        kinds.append(chunk[:4])
        packed += chunk[4:] if chunk.startswith(b"IDAT") else b""
        at += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
    return len(zlib.decompress(packed))


def test_readings_are_binary_with_the_brokers_timestamps(demo: Path, data_dir: DataDir) -> None:
    log = partition(data_dir, "sensor-readings")
    assert (log.deleted().start, log.log_start_offset) == (0, 250)
    for record in records_in(log):
        assert record.timestamp_type == TimestampType.LOG_APPEND_TIME
        with pytest.raises(UnicodeDecodeError):
            (record.value or b"").decode()
    line = json.loads(content_of(open_tree(demo), "sensor-readings/0/offset/250.json"))
    assert line["valueEncoding"] == "base64"


def test_the_empty_topic_is_empty(demo: Path, data_dir: DataDir) -> None:
    assert records_in(partition(data_dir, "empty")) == []
    assert (demo / "empty-0" / "00000000000000000000.log").stat().st_size == 0


# --- the command ----------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["demo", *arguments])


def test_the_command_says_what_it_wrote_and_what_to_run_next(tmp_path: Path) -> None:
    directory = tmp_path / "not there yet" / "demo"
    result = run(str(directory))
    assert result.exit_code == 0
    for topic in TOPICS:
        assert topic in result.output
    assert f"kfs mount {shlex.quote(str(directory))} MOUNTPOINT\n" in result.output
    assert (directory / "meta.properties").exists()


def test_an_empty_directory_will_do(tmp_path: Path) -> None:
    assert run(str(tmp_path)).exit_code == 0


def test_nothing_is_written_where_something_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    result = run(str(tmp_path))
    assert result.exit_code == 1
    assert "not empty" in result.output
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_file_is_no_directory(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(KfsError, match="file"):
        write_demo(str(tmp_path / where))
    assert (tmp_path / "file").read_text() == "precious"
