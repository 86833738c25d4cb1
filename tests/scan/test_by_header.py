"""What the headers of batches tell is told by them, and is the same as if each record was looked at."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.codecs import Codec
from kfs.format.layout import MAGIC_V0, MAGIC_V1, MAGIC_V2
from kfs.format.record import Record, TimestampType
from kfs.format.writer import encode_batch
from kfs.log.bulk import BulkReader
from kfs.read.selection import Selection
from kfs.render.arrow_columns import Column
from kfs.scan import Scan
from tests.corpus import corpus_names
from tests.expected import expected_batches, expected_records
from tests.logs import START, Batch, batch, batches, dense, joined, record, records, resealed, set_log_start, write_log
from tests.read.some_transactions import Event, committed_offsets, some_transactions, stable_end, write_transactions
from tests.recorded_damage import DAMAGED, CorpusPath
from tests.scan.scanning import Row, expected_rows, opened, rows_of
from tests.thoroughness import examples

SOUND = [name for name in corpus_names() if name != DAMAGED]
EVERY_SOUND_CORPUS = pytest.mark.parametrize("name", SOUND)
LEVELS = pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
#: What no record needs to be asked for.
TOLD = [
    column.label
    for column in Column
    if column.label not in ("key", "value", "headers", "offset", "timestamp", "timestampMillis", "sequence")
]


def told(root: Path, **options: Any) -> tuple[list[Row], tuple[object, ...]]:
    """Return what headers tell of the records below ``root``, and the problems."""
    scan = Scan(opened(root).logs, columns=TOLD, **{"jobs": 1, **options})
    return rows_of(scan, scan.schema), scan.problems


def read(root: Path, **options: Any) -> tuple[list[Row], tuple[object, ...]]:
    """Return the same by asking each record."""
    scan = Scan(opened(root).logs, columns=[*TOLD, "offset"], **{"jobs": 1, **options})
    rows = rows_of(scan, scan.schema)
    for row in rows:
        del row["offset"]
    return rows, scan.problems


def counted(root: Path, **options: Any) -> int:
    return Scan(opened(root).logs, **{"jobs": 1, **options}).count_rows()


@pytest.fixture
def decoded_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the batches (v2) that are decoded."""
    found: list[int] = []
    of_itself = BulkReader.decoded

    def noted(self: BulkReader, scanned: Any) -> Any:
        found.append(scanned.stop - scanned.first)
        return of_itself(self, scanned)

    monkeypatch.setattr(BulkReader, "decoded", noted)
    return found


# --- all of it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", corpus_names())
def test_kafka_counts_the_records_that_it_reads(name: str, corpus: CorpusPath) -> None:
    found = Counter((one.file, one.record.offset) for one in expected_records(corpus(name)) if one.magic == MAGIC_V2)
    for one in expected_batches(corpus(name)):
        if one.magic == MAGIC_V2:
            offsets = range(one.base_offset, one.last_offset + 1)
            assert one.count == sum(found[one.file, offset] > 0 for offset in offsets)


@EVERY_SOUND_CORPUS
@pytest.mark.parametrize("batch_size", [7, 16384])
@pytest.mark.usefixtures("small_pieces")
def test_as_many_as_kafka_itself_reads(name: str, batch_size: int, corpus: CorpusPath) -> None:
    root = corpus(name) / "data"
    expected = expected_rows(corpus(name))
    assert counted(root, batch_size=batch_size) == len(expected)
    rows, problems = told(root, batch_size=batch_size)
    assert [(row["topic"], row["partition"]) for row in rows] == [(row["topic"], row["partition"]) for row in expected]
    assert [row["timestampType"] for row in rows] == [row["timestampType"] for row in expected]
    assert (rows, problems) == read(root)


@LEVELS
@EVERY_SOUND_CORPUS
@pytest.mark.usefixtures("eager_processes")
def test_as_many_as_a_consumer_got(name: str, level: str, corpus: CorpusPath) -> None:
    root = corpus(name) / "data"
    assert told(root, isolation=level, jobs=2) == read(root, isolation=level)
    consumed = corpus(name) / "consumed.json"
    if not consumed.exists() or name == "g_running":  # or copied after the consumer had ended
        return
    for partition, ranges in json.loads(consumed.read_text()).get(level, {}).items():
        topic, _, number = partition.rpartition("-")
        logs = [log for log in opened(root).logs() if (log.topic, log.partition) == (topic, int(number))]
        expected = sum(last + 1 - first for first, last in ranges)
        assert Scan(logs, isolation=level, jobs=1).count_rows() == expected


def test_no_batch_is_decoded_that_need_not_be(tmp_path: Path, decoded_rows: list[int]) -> None:
    write_log(tmp_path / "t-0", 0, joined(dense(0, 99, 5, codec=Codec.LZ4)))
    assert counted(tmp_path) == 100
    assert len(told(tmp_path)[0]) == 100
    assert not decoded_rows
    assert counted(tmp_path, offsets=(7, 93)) == 86
    assert decoded_rows == [1, 1]
    assert counted(tmp_path, first=7) == 7


def test_without_logs_there_is_nothing() -> None:
    assert Scan([]).count_rows() == 0


def test_it_counts_anew_each_time(tmp_path: Path) -> None:
    content = dense(0, 9)
    path = write_log(tmp_path / "t-0", 0, joined(content[:1]))
    scan = Scan(opened(tmp_path).logs, columns=["value"], jobs=1)
    assert scan.count_rows() == 5
    path.write_bytes(joined(content))
    assert scan.count_rows() == 10
    assert scan.to_table().column_names == ["value"]


# --- some of it -----------------------------------------------------------------------------------------------------


@LEVELS
@pytest.mark.usefixtures("small_pieces", "quiet")
@settings(max_examples=examples(60, 600), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_range_of_any_log(level: str, data: st.DataObject, corpus: CorpusPath) -> None:
    name = data.draw(st.sampled_from(SOUND))
    log = data.draw(st.sampled_from(list(opened(corpus(name) / "data").logs())))
    ours = [
        row for row in expected_rows(corpus(name)) if (row["topic"], row["partition"]) == (log.topic, log.partition)
    ]
    offsets = st.none() | st.integers(0, 500) | st.sampled_from([row["offset"] for row in ours] or [0])
    times = st.none() | st.sampled_from([row["timestamp"] // 1000 for row in ours] or [0]).flatmap(
        lambda time: st.integers(time - 2, time + 2)
    )
    start, end, since, before = (data.draw(some) for some in (offsets, offsets, times, times))
    options: dict[str, Any] = {"offsets": (start, end), "times": (since, before), "isolation": level, "jobs": 1}
    expected = [
        row
        for row in ours
        if (start is None or row["offset"] >= start)
        and (end is None or row["offset"] < end)
        and (since is None or row["timestamp"] >= since * 1000)
        and (before is None or 0 <= row["timestamp"] < before * 1000)
    ]
    found = Scan([log], **options).to_table().column("offset").to_pylist()
    assert Scan([log], **options).count_rows() == len(found)
    if level == "read_uncommitted":
        assert found == [row["offset"] for row in expected]
    by_header = rows_of(Scan([log], columns=TOLD, **options).to_table())
    each = rows_of(Scan([log], columns=[*TOLD, "offset"], **options).to_table())
    assert by_header == [{name: row[name] for name in TOLD} for row in each]


@settings(max_examples=examples(40, 400))
@given(events=some_transactions(), start=st.integers(0, 60), size=st.integers(0, 60))
def test_transactions_in_any_order(events: list[Event], start: int, size: int) -> None:
    with TemporaryDirectory() as directory:
        log = write_transactions(Path(directory) / "t-0", events, segment_bytes=500)
        expected = committed_offsets(log)
        root = Path(directory)
        assert counted(root, isolation="read_committed") == len(expected)
        inside = [offset for offset in expected if start <= offset < start + size]
        assert counted(root, isolation="read_committed", offsets=(start, start + size)) == len(inside)
        assert stable_end(log) >= len(expected)
        every = sum(len(one.offsets) for one in log if hasattr(one.event, "codec"))
        assert counted(root) == every


@pytest.mark.parametrize("magic", [MAGIC_V0, MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_every_format(tmp_path: Path, magic: int, codec: Codec) -> None:
    content = [one for first in (0, 5, 10) for one in batches(records(first, first + 4), magic=magic, codec=codec)]
    write_log(tmp_path / "t-0", 0, joined(content))
    assert counted(tmp_path) == 15
    for start in range(16):
        assert counted(tmp_path, offsets=(start, 12)) == max(12 - start, 0)
    assert told(tmp_path, offsets=(3, 12)) == read(tmp_path, offsets=(3, 12))


@pytest.mark.parametrize("count", [-1, 11, 2**31 - 1])
def test_a_count_that_the_offsets_can_t_have_is_not_believed(tmp_path: Path, count: int) -> None:
    write_log(tmp_path / "t-0", 0, resealed(batch(records(0, 9), codec=Codec.LZ4).data, count=count))
    with pytest.raises(CorruptData):
        counted(tmp_path)


def test_what_the_broker_deleted_is_not_counted(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", 0, joined(dense(0, 19)))
    set_log_start(tmp_path, "t", 0, 7)
    assert counted(tmp_path) == 13
    assert told(tmp_path) == read(tmp_path)


def test_what_compaction_left_over(tmp_path: Path) -> None:
    holes = encode_batch([record(1), record(3)], base_offset=0, last_offset=4, codec=Codec.ZSTD)
    empty = encode_batch([record(5)], base_offset=5, last_offset=9)[:61]
    empty = resealed(empty[:8] + (49).to_bytes(4, "big") + empty[12:], count=0)
    write_log(tmp_path / "t-0", 0, holes + empty + joined(dense(10, 14)))
    assert counted(tmp_path) == 7
    assert [counted(tmp_path, offsets=(start, end)) for start, end in ((0, 2), (2, 5), (4, 10), (4, 11))] == [
        1,
        1,
        0,
        1,
    ]
    assert told(tmp_path) == read(tmp_path)


SELECTIONS: dict[str, tuple[Selection, Callable[[Record], bool]]] = {
    "keys": (Selection(keys=frozenset((b"key 1",))), lambda one: one.key == b"key 1"),
    "headers": (Selection(headers=((b"a", b"1"),)), lambda one: (b"a", b"1") in one.headers),
    "since": (Selection(since=START + 12_000), lambda one: one.timestamp >= START + 12_000),
    "before": (Selection(before=START + 12_000), lambda one: one.timestamp < START + 12_000),
    "both": (
        Selection(since=START + 3000, before=START + 12_000),
        lambda one: START + 3000 <= one.timestamp < START + 12_000,
    ),
    "time and key": (
        Selection(since=START + 3000, keys=frozenset((b"key 2",))),
        lambda one: one.timestamp >= START + 3000 and one.key == b"key 2",
    ),
}


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("kind", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
def test_filters_are_asked_of_records_where_headers_do_not_tell(
    tmp_path: Path, selection: str, kind: TimestampType, decoded_rows: list[int]
) -> None:
    """Timestamps are out of order within batches and between them."""
    given_selection, is_wanted = SELECTIONS[selection]
    times = [START + (offset * 7 % 20) * 1000 for offset in range(20)]
    content = [
        Record(offset, times[offset], b"key %d" % (offset % 3), b"", ((b"a", b"%d" % (offset % 2)),))
        for offset in range(20)
    ]
    data, expected = b"", 0
    for first in range(0, 20, 5):
        some = content[first : first + 5]
        latest = max(one.timestamp for one in some)
        data += encode_batch(some, timestamp_type=kind)
        if kind is TimestampType.LOG_APPEND_TIME:
            some = [Record(one.offset, latest, one.key, one.value, one.headers) for one in some]
        expected += sum(map(is_wanted, some))
    write_log(tmp_path / "t-0", 0, data)
    assert counted(tmp_path, selection=given_selection) == expected
    by_header = kind is TimestampType.LOG_APPEND_TIME and not given_selection.looks_into_records
    assert bool(decoded_rows) != by_header


# --- damage ---------------------------------------------------------------------------------------------------------


@LEVELS
def test_damage_is_told_as_if_each_record_was_read(level: str, corpus: CorpusPath) -> None:
    root = corpus(DAMAGED) / "data"
    found = told(root, on_damage="skip", isolation=level)
    assert found == read(root, on_damage="skip", isolation=level)
    assert found[1]
    for log in opened(root).logs():
        skipping = Scan([log], on_damage="skip", isolation=level, jobs=1)
        rows = skipping.to_table().num_rows
        told_of = skipping.problems
        assert skipping.count_rows() == rows
        assert skipping.problems == told_of
        failing = Scan([log], isolation=level, jobs=1)
        if told_of:
            with pytest.raises(CorruptData) as caught:
                failing.count_rows()
            assert (caught.value.file, caught.value.position) in {(one.file, one.position) for one in told_of}


@pytest.mark.parametrize("at", range(4))
def test_damage_counts_where_it_may_hide_what_is_asked_for(tmp_path: Path, at: int) -> None:
    content = dense(0, 19)
    data = bytearray(joined(content))
    data[len(joined(content[: at + 1])) - 2] ^= 1
    write_log(tmp_path / "t-0", 0, bytes(data))
    for start in range(0, 21, 2):
        for end in (None, *range(start, 21, 3)):
            options: dict[str, Any] = {"offsets": (start, end), "on_damage": "skip"}
            assert told(tmp_path, **options) == read(tmp_path, **options)


def of_unknown_codec(data: bytes) -> bytes:
    return resealed(data, attributes=7)


def test_a_codec_that_nobody_knows_is_told(tmp_path: Path) -> None:
    content = [one.data for one in dense(0, 14)]
    write_log(tmp_path / "t-0", 0, content[0] + of_unknown_codec(content[1]) + content[2])
    found = told(tmp_path, on_damage="skip")
    assert found == read(tmp_path, on_damage="skip")
    assert len(found[0]) == 10
    assert len(found[1]) == 1


def test_what_no_broker_appends_counts_as_its_header_says(tmp_path: Path) -> None:
    """The one difference: intact by its CRC, but its records are none, as nothing checked when it was made."""
    good = batch(records(0, 4), codec=Codec.LZ4)
    bad = resealed(batch(records(5, 9)).data, count=4)
    write_log(tmp_path / "t-0", 0, good.data + bad)
    scan = Scan(opened(tmp_path).logs, on_damage="skip", jobs=1)
    assert scan.to_table().num_rows == 5
    assert len(scan.problems) == 1
    assert scan.count_rows() == 9


def test_a_segment_that_is_replaced_meanwhile_is_counted_once(tmp_path: Path) -> None:
    content = dense(0, 39)
    path = write_log(tmp_path / "t-0", 0, joined(content))
    scan = Scan(opened(tmp_path).logs, columns=["partition"], batch_size=3, jobs=1)
    found = iter(scan)
    rows = next(found).num_rows
    replace(path, [*content[:2], *content[4:]])
    rows += sum(one.num_rows for one in found)
    assert rows in (40, 30)


def replace(path: Path, content: list[Batch]) -> None:
    fresh = path.with_suffix(".swap")
    fresh.write_bytes(joined(content))
    fresh.rename(path)
