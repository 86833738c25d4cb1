"""Every record of every recorded directory as Arrow, whatever it is cut into and whoever does it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.codecs import Codec
from kfs.format.layout import MAGIC_V0, MAGIC_V1
from kfs.format.record import Record
from kfs.render.arrow_columns import Column
from kfs.scan import Scan
from tests.corpus import corpus_names
from tests.expected import ExpectedRecord, expected_batches, expected_records
from tests.format.aiokafka_parser import messages_by_aiokafka
from tests.logs import START, batch, batches, dense, joined, positions, records, write_log, write_partition
from tests.recorded_damage import DAMAGED, UNREADABLE, CorpusPath, damages, intact_records
from tests.scan.scanning import Row, expected_rows, opened, row_of, rows_of

#: Copied after the consumer ended, while a producer went on.
STILL_WRITTEN = "g_running"
#: Corpora without a topic that anybody but Kafka writes to.
NO_TOPICS = {"e_meta", "e39_meta"}
SOUND = [name for name in corpus_names() if name != DAMAGED]
EVERY_SOUND_CORPUS = pytest.mark.parametrize("name", SOUND)
JOBS = pytest.mark.parametrize("jobs", [1, 2])


def scanned(root: Path, **options: Any) -> list[Row]:
    """Return the rows of a scan of everything below ``root``."""
    data_dir = opened(root)
    try:
        scan = Scan(data_dir.logs, **{"jobs": 1, "include_headers": True, **options})
        return rows_of(scan, scan.schema)
    finally:
        data_dir.close()


def offsets_of(rows: list[Row]) -> list[int]:
    return [row["offset"] for row in rows]


# --- all of it ------------------------------------------------------------------------------------------------------


@EVERY_SOUND_CORPUS
@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_the_table_is_what_kafka_itself_reads(name: str, batch_size: int, corpus: CorpusPath) -> None:
    scan = Scan(opened(corpus(name) / "data").logs, include_headers=True, batch_size=batch_size, jobs=1)
    found = list(scan)
    assert all(0 < one.num_rows <= batch_size for one in found)
    for one in found:
        one.validate(full=True)
    assert rows_of(found, scan.schema) == expected_rows(corpus(name))


@EVERY_SOUND_CORPUS
@pytest.mark.usefixtures("eager_processes")
def test_processes_give_the_same(name: str, corpus: CorpusPath) -> None:
    assert scanned(corpus(name) / "data", jobs=2, batch_size=3) == expected_rows(corpus(name))


@EVERY_SOUND_CORPUS
def test_the_table_is_what_aiokafka_reads(name: str, corpus: CorpusPath) -> None:
    compared = unsupported = 0
    for log in opened(corpus(name) / "data").logs():
        parsed: list[Row] = []
        for segment in log.segments:
            found, not_read = messages_by_aiokafka(Path(segment.files.log.path).read_bytes()[: segment.tail()[0]])
            unsupported += not_read
            start = log.visible().start
            parsed += [row_of(log.topic, log.partition, record) for record in found if record.offset >= start]
        rows = rows_of(Scan([log], include_headers=True, jobs=1).to_table())
        if unsupported:
            known = set(offsets_of(parsed))
            rows = [row for row in rows if row["offset"] in known]
        assert rows == parsed
        compared += len(rows)
    assert compared == len(expected_rows(corpus(name), is_wanted=is_read_by_aiokafka))
    assert bool(unsupported) == (compared < len(expected_rows(corpus(name))))


def is_read_by_aiokafka(expected: ExpectedRecord) -> bool:
    """Whether aiokafka knows the codec: it refuses lz4 in format v0, whose frames have a wrong checksum."""
    return (expected.magic, expected.compression) != (MAGIC_V0, Codec.LZ4.label)


@EVERY_SOUND_CORPUS
def test_each_record_knows_its_batch(name: str, corpus: CorpusPath) -> None:
    root = corpus(name)
    found = {(one.file, one.position): one for one in expected_batches(root)}
    expected = {
        (one.file.split("/")[0], one.record.offset): one for one in expected_records(root) if not one.is_control
    }
    columns = [column.label for column in Column]
    for row in scanned(root / "data", columns=columns, include_headers=False):
        directory = f"{row['topic']}-{row['partition']}"
        record = expected[directory, row["offset"]]
        one = found[record.file, row["position"]]
        assert one.base_offset <= row["offset"] <= one.last_offset
        assert row["segment"] == int(Path(record.file).stem)
        assert row["baseOffset"] == one.base_offset
        assert (row["magic"], row["codec"]) == (record.magic, record.compression)
        assert row["leaderEpoch"] == record.leader_epoch
        assert (row["producerId"], row["producerEpoch"]) == (record.producer_id, record.producer_epoch)
        assert (row["sequence"], row["isTransactional"]) == (record.sequence, record.is_transactional)
        assert row["timestampMillis"] == record.record.timestamp


# --- some of it -----------------------------------------------------------------------------------------------------


@EVERY_SOUND_CORPUS
@pytest.mark.parametrize(("step", "batch_size"), [(7, 2), (64, 5000)])
@pytest.mark.usefixtures("small_pieces")
def test_ranges_of_offsets_one_after_another_give_the_whole(
    name: str, step: int, batch_size: int, corpus: CorpusPath
) -> None:
    found: list[Row] = []
    for log in opened(corpus(name) / "data").logs():
        first = log.visible().start
        for start in range(first, log.visible().end, step):
            bounds = {(log.topic, log.partition): (start, start + step)}
            rows = rows_of(Scan([log], include_headers=True, offsets=bounds, batch_size=batch_size, jobs=1).to_table())
            assert all(start <= offset < start + step for offset in offsets_of(rows))
            found += rows
    assert found == expected_rows(corpus(name))
    assert found


@pytest.mark.usefixtures("small_pieces", "quiet")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 400), max_size=6), batch_size=st.integers(1, 50), jobs=st.just(1), data=st.data())
def test_any_split_of_the_offsets_gives_the_whole(
    cuts: list[int], batch_size: int, jobs: int, data: st.DataObject, corpus: CorpusPath
) -> None:
    name = data.draw(st.sampled_from(SOUND))
    data_dir = opened(corpus(name) / "data")
    log = data.draw(st.sampled_from(list(data_dir.logs())))
    bounds = [None, *sorted(cuts), None]
    parts = [
        row
        for start, end in itertools.pairwise(bounds)
        for row in rows_of(
            Scan([log], include_headers=True, offsets=(start, end), batch_size=batch_size, jobs=jobs).to_table()
        )
    ]
    expected = [
        row for row in expected_rows(corpus(name)) if (row["topic"], row["partition"]) == (log.topic, log.partition)
    ]
    assert parts == expected


@JOBS
@pytest.mark.parametrize("name", SOUND)
@pytest.mark.usefixtures("eager_processes")
def test_a_reader_at_a_level_gets_what_a_consumer_got(name: str, jobs: int, corpus: CorpusPath) -> None:
    consumed = corpus(name) / "consumed.json"
    if not consumed.exists():
        assert name == "g_kill9"  # nothing ran any more
        return
    known = {(row["topic"], row["partition"], row["offset"]): row for row in expected_rows(corpus(name))}
    for level, partitions in json.loads(consumed.read_text()).items():
        rows = scanned(corpus(name) / "data", isolation=level, jobs=jobs, batch_size=11)
        for partition, ranges in partitions.items():
            topic, _, number = partition.rpartition("-")
            expected = [
                known[topic, int(number), offset] for first, last in ranges for offset in range(first, last + 1)
            ]
            found = [row for row in rows if f"{row['topic']}-{row['partition']}" == partition]
            if name == STILL_WRITTEN:
                found = found[: len(expected)]
            assert found == expected
        assert bool(partitions) == (name not in NO_TOPICS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two partitions of 40 records, a second and an offset between any two, and another topic."""
    content = [
        Record(offset, START + offset * 1000, b"key %d" % (offset % 3), b"value %d" % offset) for offset in range(40)
    ]
    lz4 = [batch(content[start : start + 4], codec=Codec.LZ4) for start in range(0, 40, 4)]
    write_partition(tmp_path / "t-0", {0: lz4[:6], 24: lz4[6:]})
    write_partition(tmp_path / "t-1", {0: lz4})
    write_partition(tmp_path / "u-0", {0: dense(0, 9)})
    return tmp_path


def in_t0(rows: list[Row]) -> list[int]:
    return [row["offset"] for row in rows if (row["topic"], row["partition"]) == ("t", 0)]


CREATED = datetime.fromtimestamp(START / 1000, UTC)
SELECTIONS: dict[str, tuple[dict[str, Any], Callable[[int], bool]]] = {
    "offsets": ({"offsets": (9, 30)}, lambda offset: 9 <= offset < 30),
    "from an offset on": ({"offsets": (9, None)}, lambda offset: offset >= 9),
    "offsets of a partition": ({"offsets": {0: (9, 30), 1: (0, 0)}}, lambda offset: 9 <= offset < 30),
    "offsets of a topic": ({"offsets": {("t", 0): (9, 30), ("u", 0): (0, 0)}}, lambda offset: 9 <= offset < 30),
    "no offsets of others": ({"offsets": {1: (0, 0)}}, lambda offset: True),
    "milliseconds": ({"times": (START + 6000, START + 30_000)}, lambda offset: 6 <= offset < 30),
    "since": ({"times": (CREATED + timedelta(seconds=12.5), None)}, lambda offset: offset >= 13),
    "before": ({"times": (None, CREATED + timedelta(seconds=12))}, lambda offset: offset < 12),
    "text": ({"times": ("2023-11-14T22:13:26Z", "2023-11-14T23:13:50+01:00")}, lambda offset: 6 <= offset < 30),
    "no zone": ({"times": (datetime(2023, 11, 14, 22, 13, 26), None)}, lambda offset: offset >= 6),
    "another zone": (
        {"times": (datetime(2023, 11, 15, 0, 13, 26, tzinfo=timezone(timedelta(hours=2))), None)},
        lambda offset: offset >= 6,
    ),
    "keys": ({"keys": [b"key 1", "key 2"]}, lambda offset: offset % 3 != 0),
    "no keys": ({"keys": []}, lambda offset: False),
    "all": (
        {"offsets": (3, 39), "times": (START + 5000, None), "keys": ["key 0"]},
        lambda offset: offset % 3 == 0 and 5 <= offset < 39,
    ),
}


@JOBS
@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.usefixtures("eager_processes")
def test_only_what_is_wanted_is_there(root: Path, selection: str, jobs: int) -> None:
    options, is_wanted = SELECTIONS[selection]
    assert in_t0(scanned(root, jobs=jobs, **options)) == [offset for offset in range(40) if is_wanted(offset)]


def test_columns_come_in_the_order_of_their_names(root: Path) -> None:
    assert list(scanned(root, columns=["value", "offset"], include_headers=False)[3].items()) == [
        ("value", b"value 3"),
        ("offset", 3),
    ]
    assert Scan([]).schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert Scan([], include_headers=True).schema.names[7:] == ["headers"]
    assert Scan([], columns=["magic"], include_headers=True).schema.names == ["magic", "headers"]


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    assert Scan([], include_headers=True).schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", headers),
        ]
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"columns": ["nothing"]}, "no column 'nothing'"),
        ({"columns": "key"}, "expected a sequence of names"),
        ({"columns": []}, "no columns"),
        ({"keys": "key"}, "expected a sequence"),
        ({"offsets": (1, 2, 3)}, "expected a pair"),
        ({"offsets": 5}, "expected a pair"),
        ({"offsets": {0: ("1", None)}}, "expected an integer"),
        ({"times": ("yesterday", None)}, "yesterday"),
        ({"isolation": "serializable"}, "serializable"),
        ({"on_damage": "ignore"}, "ignore"),
        ({"batch_size": 0}, "a batch of 0 rows"),
        ({"jobs": 0}, "jobs 0"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Scan([], **options)


@pytest.mark.parametrize("magic", [MAGIC_V0, MAGIC_V1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_the_older_formats_are_batches(tmp_path: Path, magic: int, codec: Codec) -> None:
    content = [*batches(records(0, 4), magic=magic, codec=codec), *batches(records(5, 9), magic=magic, codec=codec)]
    write_log(tmp_path / "t-0", 0, joined(content))
    found = scanned(tmp_path, columns=["offset", "position", "baseOffset", "codec", "magic"], include_headers=False)
    assert found == [
        {"offset": one.offset, "position": at, "baseOffset": part.first_offset, "codec": codec.label, "magic": magic}
        for part, at in zip(content, positions(content), strict=True)
        for one in part.records
    ]


# --- damage ---------------------------------------------------------------------------------------------------------


@JOBS
@pytest.mark.usefixtures("eager_processes")
def test_damage_is_left_out_and_told(jobs: int, corpus: CorpusPath) -> None:
    told: list[Any] = []
    data_dir = opened(corpus(DAMAGED) / "data")
    scan = Scan(data_dir.logs, on_damage="skip", on_problem=told.append, jobs=jobs, include_headers=True)
    found: dict[str, dict[int, Row]] = {}
    for row in rows_of(scan, scan.schema):
        found.setdefault(f"{row['topic']}-{row['partition']}", {})[row["offset"]] = row
    for log in data_dir.logs():
        directory = f"{log.topic}-{log.partition}"
        expected = intact_records(corpus, directory)
        rows = found.get(directory, {})
        start = log.visible().start
        assert [offset for offset in expected if offset >= start and offset not in rows] == []
        for offset, row in rows.items():
            if offset in expected:
                assert row == row_of(log.topic, log.partition, expected[offset])
    assert scan.problems == tuple(told)
    names = {Path(problem.file).parent.name for problem in scan.problems}
    told_of = UNREADABLE - {"length-negative"}  # at the very beginning of the last segment: the log ends before it
    assert {damage.directory for damage in damages(corpus(DAMAGED)) if damage.kind in told_of} <= names


@JOBS
@pytest.mark.usefixtures("eager_processes")
def test_damage_fails_where_it_is_met(root: Path, jobs: int) -> None:
    [path] = (root / "t-0").glob("*24.log")
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    scan = Scan(opened(root).logs, jobs=jobs)
    seen: list[int] = []
    with pytest.raises(CorruptData, match=r"24\.log: position [0-9]+: .*CRC"):  # noqa: PT012
        for one in scan:
            seen += one.column("offset").to_pylist()
    assert seen == list(range(36))
    with pytest.raises(CorruptData, match="CRC"):
        scan.to_table()
    assert offsets_of(scanned(root, jobs=jobs, on_damage="skip"))[:40] == [*range(36), *range(4)]


@JOBS
def test_a_segment_that_is_gone_is_a_problem(root: Path, jobs: int) -> None:
    scan = Scan(opened(root).logs, on_damage="skip", jobs=jobs, batch_size=4)
    batches_of_it = iter(scan)
    next(batches_of_it)
    for path in (root / "t-0").iterdir():
        path.unlink()
    assert sum(one.num_rows for one in batches_of_it) >= 50
    assert all("gone" in problem.reason or "cut" in problem.reason for problem in scan.problems)


def test_a_scan_takes_in_what_was_appended_since(tmp_path: Path) -> None:
    content = dense(0, 9)
    path = write_log(tmp_path / "t-0", 0, joined(content[:1]))
    scan = Scan(opened(tmp_path).logs, jobs=1)
    assert scan.to_table().num_rows == 5
    path.write_bytes(joined(content))
    assert scan.to_table().num_rows == 10
