"""``offset/``, ``value/`` and ``key/``: names, attributes, and listings that can be resumed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.errors import CorruptData, NotADirectory, NotFound
from kfs.format.codecs import Codec
from kfs.format.record import Record, TimestampType
from kfs.format.writer import encode_batch, encode_empty_batch
from kfs.render.record_line import parse_line
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import FOREVER, Directory
from kfs.tree.options import TreeOptions
from kfs.tree.record_files import parse_offset
from tests.log.some_logs import some_segments
from tests.logs import (
    START,
    Batch,
    batch,
    bytes_read,
    content_of,
    dense,
    directory_at,
    file_at,
    joined,
    log_name,
    names,
    open_tree,
    record,
    records,
    set_high_watermark,
    set_log_start,
    watch_reads,
    write_log,
    write_partition,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory with ``t-0``: offsets 10 to 29 in two segments, a hole from 15 to 17."""
    write_partition(tmp_path / "t-0", {10: [*dense(10, 14), *dense(18, 19)], 20: dense(20, 29)})
    return tmp_path


# --- names ----------------------------------------------------------------------------------------------------------


def test_every_record_is_a_file_named_by_its_offset(root: Path) -> None:
    tree = open_tree(root)
    offsets = [*range(10, 15), *range(18, 30)]
    assert names(directory_at(tree, "t/0/offset")) == [f"{offset}.json" for offset in offsets]
    for offset in offsets:
        assert parse_line(content_of(tree, f"t/0/offset/{offset}.json")) == ("t", 0, record(offset))


def test_of_two_wrappers_that_end_at_offset_0_the_first_is_listed_and_read(tmp_path: Path) -> None:
    wrapper = batch(records(0, 0), magic=1, codec=Codec.LZ4)
    write_partition(tmp_path / "t-0", {0: [wrapper, wrapper]})
    tree = open_tree(tmp_path)
    assert names(directory_at(tree, "t/0/offset")) == ["0.json"]
    assert parse_line(content_of(tree, "t/0/offset/0.json")) == ("t", 0, wrapper.records[0])


@pytest.mark.parametrize(
    "name",
    [
        "9.json",
        "15.json",
        "17.json",
        "30.json",
        "1000000.json",
        "9223372036854775807.json",
        "9223372036854775808.json",
        "99999999999999999999.json",
        "010.json",
        "00000000000000000010.json",
        "+10.json",
        "-10.json",
        "-1.json",
        "10",
        "10.JSON",
        "10.json ",
        " 10.json",
        "10.json\n",
        "1_0.json",
        "1e1.json",
        "10.0.json",
        "0x0a.json",
        "\N{ARABIC-INDIC DIGIT ONE}\N{ARABIC-INDIC DIGIT ZERO}.json",
        "\N{SUPERSCRIPT TWO}0.json",
        ".json",
        "json",
        "",
        ".",
        "..",
        "10.jsonl",
        "10.json.json",
    ],
)
def test_no_other_name_is_there(name: str, root: Path) -> None:
    directory = directory_at(open_tree(root), "t/0/offset")
    with pytest.raises(NotFound):
        directory.lookup(name)


@given(st.integers(0, 2**63 - 1))
def test_the_canonical_name_of_an_offset_is_understood(offset: int) -> None:
    assert parse_offset(f"{offset}.json", ".json") == offset
    assert parse_offset(str(offset), "") == offset
    assert parse_offset(f"0{offset}", "") is None


@given(st.text(max_size=25))
def test_any_other_name_is_none_of_an_offset(name: str) -> None:
    offset = parse_offset(name, "")
    assert offset is None or str(offset) == name


def test_a_file_is_no_directory(root: Path) -> None:
    tree = open_tree(root)
    for path in ("t/0/offset/10.json/x", "t/0/first.json/x", "t/0/meta/log.json/x", "t/0/segment/10.jsonl/x"):
        with pytest.raises(NotADirectory):
            tree.resolve(path)
    assert not isinstance(tree.resolve("t/0/offset/10.json"), Directory)


@pytest.mark.parametrize("path", ["u", "t/1", "t/00", "t/-1", "t/0/other", "t/0/offset/10.json2", ".kfs/other", "T/0"])
def test_paths_that_lead_nowhere(path: str, root: Path) -> None:
    with pytest.raises(NotFound):
        open_tree(root).resolve(path)


def test_slashes_at_the_ends_of_a_path_mean_nothing(root: Path) -> None:
    tree = open_tree(root)
    assert tree.resolve("/t//0/").attributes() == tree.resolve("t/0").attributes()
    assert tree.resolve("/") is tree.root
    assert tree.resolve("") is tree.root


# --- values and keys ------------------------------------------------------------------------------------------------


@pytest.fixture
def payloads(tmp_path: Path) -> KafkaTree:
    """Keys and values of every kind: text, bytes, empty and null."""
    content = [
        Record(0, START, b"key", b"value"),
        Record(1, START, None, b"\x00\xff\n"),
        Record(2, START, b"", b""),
        Record(3, START, b"\xfe", None),
        Record(4, START, None, None),
    ]
    write_partition(tmp_path / "t-0", {0: [batch(content, codec=Codec.GZIP)]})
    return open_tree(tmp_path)


def test_values_and_keys_are_their_raw_bytes(payloads: KafkaTree) -> None:
    assert names(directory_at(payloads, "t/0/value")) == ["0", "1", "2"]
    assert names(directory_at(payloads, "t/0/key")) == ["0", "2", "3"]
    values = {name: content_of(payloads, f"t/0/value/{name}") for name in ("0", "1", "2")}
    assert values == {"0": b"value", "1": b"\x00\xff\n", "2": b""}
    keys = {name: content_of(payloads, f"t/0/key/{name}") for name in ("0", "2", "3")}
    assert keys == {"0": b"key", "2": b"", "3": b"\xfe"}


@pytest.mark.parametrize("path", ["value/3", "value/4", "key/1", "key/4", "value/0.json", "value/5", "key/00", "key/x"])
def test_null_has_no_file(path: str, payloads: KafkaTree) -> None:
    with pytest.raises(NotFound):
        payloads.resolve(f"t/0/{path}")


def test_any_part_of_a_file_can_be_read(payloads: KafkaTree) -> None:
    for path in ("t/0/offset/1.json", "t/0/value/0", "t/0/key/0"):
        whole = content_of(payloads, path)
        file = file_at(payloads, path)
        for offset in range(len(whole) + 2):
            for size in (0, 1, 3, 1000):
                assert file.read(offset, size) == whole[offset : offset + size]


# --- attributes -----------------------------------------------------------------------------------------------------


def test_a_file_is_of_the_time_of_its_record(root: Path) -> None:
    tree = open_tree(root)
    for path in ("offset/12.json", "value/12", "key/12"):
        assert tree.resolve(f"t/0/{path}").attributes().mtime_ns == (START + 12_000) * 1_000_000


@pytest.mark.parametrize(
    ("timestamp", "mtime_ns"),
    [
        (0, 0),
        (-2, -2_000_000),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (9_223_372_036_854, 9_223_372_036_854_000_000),
        (9_223_372_036_855, 2**63 - 1),
    ],
)
def test_times_that_no_clock_shows_are_clamped(timestamp: int, mtime_ns: int, tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: [batch([Record(0, timestamp, None, b"v")])]})
    assert open_tree(tmp_path).resolve("t/0/offset/0.json").attributes().mtime_ns == mtime_ns


def test_without_a_timestamp_a_file_is_as_old_as_its_log(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: [*dense(0, 1, magic=0), batch([Record(2, -1, None, b"v")])]})
    os.utime(tmp_path / "t-0" / log_name(0), ns=(5, 1_600_000_000_123_456_789))
    tree = open_tree(tmp_path)
    for offset in range(3):
        assert tree.resolve(f"t/0/offset/{offset}.json").attributes().mtime_ns == 1_600_000_000_123_456_789


@pytest.mark.parametrize(
    ("source", "shown"), [(0o600, 0o400), (0o644, 0o444), (0o640, 0o440), (0o666, 0o444), (0o777, 0o444), (0o200, 0)]
)
def test_a_file_may_be_read_by_those_who_may_read_the_source(source: int, shown: int, root: Path) -> None:
    for base in (10, 20):
        (root / "t-0" / log_name(base)).chmod(source)
    tree = open_tree(root)
    for path in ("offset/12.json", "value/12", "key/12", "segment/10.jsonl"):
        attributes = tree.resolve(f"t/0/{path}").attributes()
        assert attributes.mode == stat.S_IFREG | shown
    for name in ("offset", "value", "segment"):
        for entry in directory_at(tree, f"t/0/{name}").entries():
            assert entry.mode == stat.S_IFREG | shown


@pytest.mark.parametrize(("source", "shown"), [(0o700, 0o500), (0o755, 0o555), (0o750, 0o550), (0o777, 0o555)])
def test_a_directory_may_be_read_by_those_who_may_read_the_source(source: int, shown: int, root: Path) -> None:
    (root / "t-0").chmod(source)
    tree = open_tree(root)
    for path in ("t/0", "t/0/offset", "t/0/value", "t/0/segment", "t/0/meta", "t/0/time", "t/0/at", "t/0/raw"):
        assert tree.resolve(path).attributes().mode == stat.S_IFDIR | shown, path
    for path in ("t/0/meta/log.json", "t/0/meta/batches.jsonl", "t/0/meta/problems.jsonl", "t/0/records.jsonl"):
        assert tree.resolve(path).attributes().mode == stat.S_IFREG | (shown & 0o444), path


def test_owner_and_group_are_the_sources(root: Path) -> None:
    os.chown(root / "t-0" / log_name(10), 1234, 5678)
    os.chown(root / "t-0", 2345, 6789)
    tree = open_tree(root)
    record_file, directory = tree.resolve("t/0/offset/12.json").attributes(), tree.resolve("t/0/offset").attributes()
    assert (record_file.uid, record_file.gid) == (1234, 5678)
    assert (directory.uid, directory.gid) == (2345, 6789)


def test_what_cannot_change_may_be_kept_for_ever(root: Path) -> None:
    tree = open_tree(root)
    assert tree.resolve("t/0/offset/12.json").attributes().lifetime == FOREVER
    assert tree.resolve("t/0/offset/22.json").attributes().lifetime < 5
    assert tree.resolve("t/0/offset").attributes().lifetime < 5


def test_ids_are_stable_and_differ(root: Path) -> None:
    tree = open_tree(root)
    paths = [f"t/0/{kind}" for kind in ("offset/12.json", "offset/13.json", "offset/22.json", "value/12", "key/12")]
    ids = [tree.resolve(path).attributes().node_id for path in paths]
    assert len(set(ids)) == len(ids)
    assert ids == [tree.resolve(path).attributes().node_id for path in paths]
    for path, node_id in zip(paths, ids, strict=True):
        assert tree.node(node_id).attributes() == tree.resolve(path).attributes()


@pytest.mark.parametrize("node_id", [0, -1, 2, 10**6, 2**59 + 5, 2**62, 2**63 - 1])
def test_ids_that_were_never_issued_are_of_nothing(node_id: int, root: Path) -> None:
    with pytest.raises(NotFound):
        open_tree(root).node(node_id)


# --- what is listed -------------------------------------------------------------------------------------------------


def test_control_records_and_empty_batches_are_not_listed(tmp_path: Path) -> None:
    marker = Record(5, START, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")
    data = joined(dense(0, 4)) + encode_batch([marker], control=True, transactional=True, producer_id=9)
    data += encode_empty_batch(6, 9) + joined(dense(10, 11)) + encode_empty_batch(12, 20)
    write_log(tmp_path / "t-0", 0, data)
    tree = open_tree(tmp_path)
    assert names(directory_at(tree, "t/0/offset")) == [f"{at}.json" for at in (0, 1, 2, 3, 4, 10, 11)]
    assert names(directory_at(tree, "t/0/value")) == [str(at) for at in (0, 1, 2, 3, 4, 10, 11)]
    for offset in (5, 6, 9, 12, 20):
        with pytest.raises(NotFound):
            tree.resolve(f"t/0/offset/{offset}.json")


def test_a_listing_begins_at_the_log_start_offset_in_the_middle_of_a_batch(root: Path) -> None:
    set_log_start(root, "t", 0, 12)
    tree = open_tree(root)
    assert names(directory_at(tree, "t/0/offset"))[:3] == ["12.json", "13.json", "14.json"]
    assert names(directory_at(tree, "t/0/value"))[0] == "12"
    assert names(directory_at(tree, ".kfs/deleted/t/0/offset")) == ["10.json", "11.json"]
    assert content_of(tree, "t/0/segment/10.jsonl").startswith(content_of(tree, "t/0/offset/12.json"))
    for kind in ("offset/11.json", "value/11", "key/11"):
        with pytest.raises(NotFound):
            tree.resolve(f"t/0/{kind}")


def test_a_listing_ends_at_the_high_watermark_where_that_is_asked_for(root: Path) -> None:
    set_high_watermark(root, "t", 0, 23)
    tree = open_tree(root, until_high_watermark=True)
    assert names(directory_at(tree, "t/0/offset"))[-1] == "22.json"
    assert content_of(tree, "t/0/segment/20.jsonl").count(b"\n") == 3
    assert content_of(tree, "t/0/records.jsonl").endswith(content_of(tree, "t/0/offset/22.json"))
    with pytest.raises(NotFound):
        tree.resolve("t/0/offset/23.json")
    assert names(directory_at(open_tree(root), "t/0/offset"))[-1] == "29.json"


def test_a_batch_that_cannot_be_decoded_is_listed_by_its_header_and_reads_as_an_error(tmp_path: Path) -> None:
    # Its CRC is right, so its offsets are: only the records can't be had.
    large = [record(at, bytes(1000)) for at in range(5, 10)]
    content = [*dense(0, 4), batch(large, codec=Codec.ZSTD), *dense(10, 14)]
    write_partition(tmp_path / "t-0", {0: content})
    tree = open_tree(tmp_path)
    tree.context.data_dir.storage.max_batch_bytes = 1000
    assert names(directory_at(tree, "t/0/offset"), with_attributes=False) == [f"{at}.json" for at in range(15)]
    listed = {entry.name: entry.attributes for entry in directory_at(tree, "t/0/offset").entries()}
    assert list(listed) == [f"{at}.json" for at in range(15)]
    assert [name for name, attributes in listed.items() if attributes is None] == [f"{at}.json" for at in range(5, 10)]
    with pytest.raises(CorruptData):
        tree.resolve("t/0/offset/7.json")


@settings(max_examples=30)
@given(segments=some_segments(), with_attributes=st.booleans())
def test_a_listing_can_be_resumed_behind_every_entry(
    tmp_path_factory: pytest.TempPathFactory, segments: dict[int, list[Batch]], with_attributes: bool
) -> None:
    root = tmp_path_factory.mktemp("root")
    write_partition(root / "t-0", segments)
    tree = open_tree(root)
    for name in ("offset", "value", "key", "segment"):
        directory = directory_at(tree, f"t/0/{name}")
        whole = list(directory.entries(with_attributes=with_attributes))
        cookies = [entry.cookie for entry in whole]
        assert cookies == sorted(set(cookies))
        assert all(0 < cookie < 2**63 for cookie in cookies)
        for index, cookie in enumerate(cookies):
            assert list(directory.entries(cookie, with_attributes=with_attributes)) == whole[index + 1 :]


def test_every_listing_can_be_resumed_behind_every_entry(root: Path) -> None:
    (root / "u-1").mkdir()
    set_log_start(root, "t", 0, 12)
    tree = open_tree(root, options=TreeOptions(views=True))
    day = "t/0/time/2023-11-14"
    paths = ["", "t", "t/0", "t/0/offset", "t/0/segment", "t/0/meta", "t/0/time", day, f"{day}/22", "t/0/raw", "t/0/at"]
    for path in [*paths, ".kfs", ".kfs/checkpoints", ".kfs/checkpoints/0", ".kfs/deleted", ".kfs/deleted/t/0"]:
        directory = directory_at(tree, path)
        whole = [entry._replace(attributes=None) for entry in directory.entries()]
        assert whole or path == "t/0/at"
        for index, entry in enumerate(whole):
            rest = [one._replace(attributes=None) for one in directory.entries(entry.cookie)]
            assert rest == whole[index + 1 :], path


def test_a_listing_goes_on_behind_an_entry_that_has_vanished(tmp_path: Path, eager: None) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19)})
    tree = open_tree(tmp_path)
    directory = directory_at(tree, "t/0/offset")
    cookie = next(entry.cookie for entry in directory.entries() if entry.name == "4.json")
    for path in (tmp_path / "t-0").glob(log_name(0, ".*")):
        path.unlink()
    assert [entry.name for entry in directory.entries(cookie)] == [f"{at}.json" for at in range(10, 20)]


def test_a_listing_reads_little_for_its_first_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = [batch([record(at, bytes(10_000))]) for at in range(500)]
    write_partition(tmp_path / "t-0", {0: content})
    tree = open_tree(tmp_path)
    directory = directory_at(tree, "t/0/offset")
    reads = watch_reads(monkeypatch)
    assert next(iter(directory.entries())).name == "0.json"
    assert bytes_read(reads) < 600_000


def test_topics_and_partitions_are_listed_without_a_look_at_their_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        write_partition(tmp_path / f"t{number % 5}-{number // 5}", {0: dense(0, 9)})
    reads = watch_reads(monkeypatch)
    tree = open_tree(tmp_path)
    for topic in tree.root.entries():
        assert names(directory_at(tree, topic.name)) == [str(at) for at in range(10)]
    assert bytes_read(reads) == 0


def test_the_timestamp_type_is_in_the_line(tmp_path: Path) -> None:
    one = batch(records(0, 1), timestamp_type=TimestampType.LOG_APPEND_TIME, append_time=START + 99)
    write_partition(tmp_path / "t-0", {0: [one]})
    line = content_of(open_tree(tmp_path), "t/0/offset/0.json")
    assert b'"timestamp":1700000000099,"timestampType":"LogAppendTime"' in line


def test_odd_topic_names_are_encoded_in_paths_and_plain_in_lines(tmp_path: Path) -> None:
    for topic in (".kfs", "a b", "100%"):
        write_partition(tmp_path / f"{topic}-0", {0: dense(0, 1)})
    tree = open_tree(tmp_path)
    assert names(tree.root) == ["%2Ekfs", "100%25", "a%20b"]
    lines = [content_of(tree, f"{name}/0/offset/0.json") for name in names(tree.root)]
    assert [parse_line(line)[0] for line in lines] == [".kfs", "100%", "a b"]
    assert "README" in names(directory_at(tree, ".kfs"))
