"""What was exported is imported again: the same records, whatever the format, codec and sizes."""

from __future__ import annotations

import io
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.broker_log.file_records import FileRecords
from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.unified_log import UnifiedLog
from kfs.demo import demo_topics
from kfs.demo.data_directory import write_data_directory
from kfs.errors import BadLine
from kfs.format.batch_header import BatchHeader
from kfs.format.checkpoint import TopicPartition, parse_offset_checkpoint
from kfs.format.codecs import Codec
from kfs.format.layout import MAX_INT64, NO_PRODUCER_ID
from kfs.format.record import Record, TimestampType
from kfs.imports.layout import BatchLayout
from kfs.imports.lines import ImportedRecord, lines_of
from kfs.imports.records import Import, Imported
from kfs.log.data_dir import DataDir
from kfs.log.log_dir import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kfs.log.storage import Storage
from kfs.read.isolation_level import IsolationLevel
from kfs.render.record_line import parse_line
from kfs.storage.open_files import OpenFile
from tests.cat.printing import printed
from tests.corpus import corpus_names
from tests.imports.some_lines import some_lines
from tests.logs import START, open_log, records_in
from tests.thoroughness import examples

CorpusPath = Callable[[str], Path]
DAMAGED = "g_damage"
NONE, CREATE, APPEND = TimestampType.NO_TIMESTAMP, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME


def stop(line: BadLine) -> None:
    raise line


def imported(
    log_dirs: Path | Sequence[Path],
    lines: bytes | Iterable[ImportedRecord | BadLine],
    layout: BatchLayout,
    **options: Any,
) -> list[Imported]:
    """Import lines into log directories, which are made."""
    directories = [log_dirs] if isinstance(log_dirs, Path) else log_dirs
    for directory in directories:
        directory.mkdir(exist_ok=True)
    content = lines_of(io.BytesIO(lines), "input") if isinstance(lines, bytes) else lines
    with Import([str(path) for path in directories], layout, on_bad_line=stop, **options) as importing:
        importing.add(content)
        return importing.finish()


def topics_in(lines: bytes) -> list[str]:
    return sorted({json.loads(line)["topic"] for line in lines.splitlines()})


def all_lines(root: Path, topics: Iterable[str], isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> bytes:
    return b"".join(printed(root, topic, isolation=isolation)[0] for topic in topics)


def topics_of(root: Path) -> list[str]:
    return DataDir([str(root)], Storage()).topics()


def holds(magic: int | None, codec: Codec, lines: bytes) -> bool:
    """Whether a format with that codec can keep all of some lines."""
    kinds = {parse_line(line)[2].timestamp_type for line in lines.splitlines()}
    has_headers = b'"headers":[{' in lines
    if magic is None:
        return codec is not Codec.ZSTD or NONE not in kinds
    if magic == 2:
        return NONE not in kinds
    if codec is Codec.ZSTD or has_headers:
        return False
    return kinds <= {NONE} if magic == 0 else NONE not in kinds


def headers_in(partition: Path) -> Iterator[BatchHeader]:
    for path in sorted(partition.glob("*.log")):
        yield from FileRecords(OpenFile(str(path)), path.stat().st_size).headers()


# --- there and back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [None, 0, 1, 2])
@pytest.mark.parametrize("name", [name for name in corpus_names() if name != DAMAGED])
def test_every_recorded_topic_comes_back_byte_for_byte(
    name: str, magic: int | None, corpus: CorpusPath, tmp_path: Path
) -> None:
    root = corpus(name) / "data"
    by_topic = {topic: printed(root, topic)[0] for topic in topics_of(root)}
    for codec in Codec:
        kept = [topic for topic, lines in by_topic.items() if lines and holds(magic, codec, lines)]
        layout = BatchLayout(magic, codec, batch_records=7)
        lines = b"".join(by_topic[topic] for topic in kept)
        made = imported(tmp_path / codec.label, lines, layout, segment_bytes=400_000)
        assert all_lines(tmp_path / codec.label, kept) == lines
        assert sum(each.records for each in made) == len(lines.splitlines())
        for topic in by_topic.keys() - kept:
            if by_topic[topic]:
                with pytest.raises(BadLine, match="message format v"):
                    imported(tmp_path / f"{codec.label}-refused", by_topic[topic], layout)
    assert list(tmp_path.glob("*-refused/*")) == []


@pytest.mark.parametrize("name", ["b_txn", "b39_txn"])
def test_what_is_committed_comes_back_as_that(name: str, corpus: CorpusPath, tmp_path: Path) -> None:
    topics = ("ledger", "payments")
    lines = all_lines(corpus(name) / "data", topics, IsolationLevel.READ_COMMITTED)
    imported(tmp_path / "made", lines, BatchLayout())
    for isolation in IsolationLevel:
        assert all_lines(tmp_path / "made", topics, isolation) == lines


def test_the_demo_comes_back_byte_for_byte(tmp_path: Path) -> None:
    write_data_directory(str(tmp_path / "demo"), demo_topics())
    topics = topics_of(tmp_path / "demo")
    lines = all_lines(tmp_path / "demo", topics)
    imported(tmp_path / "made", lines, BatchLayout(codec=Codec.LZ4), segment_bytes=400_000)
    assert all_lines(tmp_path / "made", topics_in(lines)) == lines


_payloads = st.none() | st.binary(max_size=30) | st.integers(0, 255).map(lambda byte: bytes([byte]) * 700)
_headers = st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
_times = st.sampled_from([-1, START, START + 1, 0, MAX_INT64, -MAX_INT64 - 1]) | st.integers(START, START + 10)
_steps = st.integers(1, 3) | st.sampled_from([2**31 - 1, 2**31, 2**40])


@st.composite
def some_records(draw: st.DrawFn, magic: int | None) -> list[Record]:
    """Draw records that a format can hold, their offsets ascending with small and huge holes."""
    offset = draw(st.sampled_from([-1, 6, 2**40]))
    result = []
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(_steps)
        kinds = {None: [NONE, CREATE, APPEND], 0: [NONE], 1: [CREATE, APPEND], 2: [CREATE, APPEND]}[magic]
        kind = draw(st.sampled_from(kinds))
        headers = draw(_headers) if magic in (None, 2) and kind is not NONE else ()
        time = -1 if kind is NONE else draw(_times)
        result.append(Record(offset, time, draw(_payloads), draw(_payloads), headers, kind))
    return result


@settings(max_examples=examples(60, 400))
@given(data=st.data(), magic=st.sampled_from([None, 0, 1, 2]))
@pytest.mark.usefixtures("quiet")
def test_any_records_come_back(data: st.DataObject, magic: int | None) -> None:
    partitions = [TopicPartition("t", 0), TopicPartition("t", 3), TopicPartition("a.b-c_d", 0)]
    content = {
        partition: data.draw(some_records(magic))
        for partition in data.draw(st.lists(st.sampled_from(partitions), min_size=1, unique=True))
    }
    codecs = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4] + ([Codec.ZSTD] if magic == 2 else [])
    layout = BatchLayout(
        magic, data.draw(st.sampled_from(codecs)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 2000))
    )
    mixed = [
        ImportedRecord("input", 1, partition, record)
        for group in itertools.zip_longest(*content.values())
        for partition, record in zip(content, group, strict=True)
        if record is not None
    ]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "made"
        new_offsets = data.draw(st.booleans())
        segment_bytes = data.draw(st.sampled_from([2500, 6000, 1 << 30]))
        made = imported(root, mixed, layout, segment_bytes=segment_bytes, new_offsets=new_offsets)
        assert {each.partition: each.records for each in made} == {
            partition: len(records) for partition, records in content.items()
        }
        for partition, records in content.items():
            expected = [replace(one, offset=at) if new_offsets else one for at, one in enumerate(records)]
            log = open_log(root / str(partition))
            assert records_in(log) == expected
            assert log.log_end_offset == expected[-1].offset + 1
            assert log.log_start_offset == expected[0].offset


# --- what a broker finds --------------------------------------------------------------------------------------------


def test_batches_are_of_epoch_zero_and_of_no_producer(tmp_path: Path) -> None:
    imported(tmp_path, some_lines(100, start=50), BatchLayout(codec=Codec.LZ4, batch_records=30))
    headers = list(headers_in(tmp_path / "t-0"))
    assert [(header.base_offset, header.record_count) for header in headers] == [
        (50, 30),
        (80, 30),
        (110, 30),
        (140, 10),
    ]
    assert {(header.leader_epoch, header.producer_id, header.codec_id) for header in headers} == {
        (0, NO_PRODUCER_ID, Codec.LZ4)
    }
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 50\n"


def test_batches_are_as_large_as_asked_for(tmp_path: Path) -> None:
    imported(tmp_path, some_lines(1000), BatchLayout(batch_bytes=1000))
    sizes = [header.size for header in headers_in(tmp_path / "t-0")]
    assert all(700 < size < 1100 for size in sizes[:-1])


@pytest.mark.parametrize("magic", [1, 2])
def test_a_recovery_changes_nothing(tmp_path: Path, magic: int) -> None:
    layout = BatchLayout(magic, batch_records=5)
    imported(tmp_path, some_lines(3000), layout, segment_bytes=25_000)
    partition = tmp_path / "t-0"
    before = {path.name: path.read_bytes() for path in partition.iterdir()}
    assert len(list(partition.glob("*.log"))) > 3
    log = UnifiedLog.open(str(partition), LogConfig(segment_bytes=25_000, segment_ms=MAX_INT64))
    log.flush()
    log.close()
    assert log.log_end_offset == 3000
    assert {path.name: path.read_bytes() for path in partition.iterdir()} == before


def test_checkpoints_name_what_is_there_and_what_was(tmp_path: Path) -> None:
    imported(tmp_path, some_lines(5, "a"), BatchLayout())
    imported(tmp_path, some_lines(7, "b", 2, start=90), BatchLayout())
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        found = parse_offset_checkpoint((tmp_path / name).read_bytes())
        assert found == {TopicPartition("a", 0): 5, TopicPartition("b", 2): 97}
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_without_the_mark_of_a_clean_stop_there_is_none_afterwards(tmp_path: Path) -> None:
    imported(tmp_path, some_lines(5, "a"), BatchLayout())
    (tmp_path / ".kafka_cleanshutdown").unlink()
    imported(tmp_path, some_lines(5, "b"), BatchLayout())
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


# --- how it goes ----------------------------------------------------------------------------------------------------


def test_more_partitions_than_files_may_be_open(tmp_path: Path) -> None:
    mixed = b"".join(some_lines(1, "t", partition, start) for start in range(3) for partition in range(600))
    made = imported(tmp_path / "made", mixed, BatchLayout(batch_records=1))
    assert len(made) == 600
    assert len(printed(tmp_path / "made", "t")[0].splitlines()) == 1800


def test_a_record_too_large_for_a_segment_is_a_bad_line_and_its_neighbours_are_kept(tmp_path: Path) -> None:
    lines = some_lines(2) + some_lines(1, start=2).replace(b"value 2", b"x" * 5000) + some_lines(2, start=3)
    bad: list[BadLine] = []
    tmp_path.joinpath("made").mkdir()
    layout = BatchLayout(batch_bytes=100_000)
    with Import([str(tmp_path / "made")], layout, on_bad_line=bad.append, segment_bytes=4000) as importing:
        importing.add(lines_of(io.BytesIO(lines), "input"))
        made = importing.finish()
    assert [(line.source, line.number) for line in bad] == [("input", 3)]
    assert "more than a segment may have (4000)" in bad[0].reason
    assert made[0].records == 4
    assert all_lines(tmp_path / "made", ["t"]) == some_lines(2) + some_lines(2, start=3)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": "a/b"}, "'a/b' is not the name of a topic"),
        ({"topic": ".."}, "is not the name of a topic"),
        ({"topic": "x" * 250}, "is not the name of a topic"),
        ({"partition": -1}, "partition -1, expected 0 to 2147483647"),
        ({"partition": 2**31}, "partition 2147483648"),
        ({"offset": -1}, "offset -1"),
        ({"offset": 2**63 - 1}, "offset 9223372036854775807"),
        ({"timestamp": 2**63}, "timestamp 9223372036854775808"),
        ({"value": 5}, "field value is 5, expected text or null"),
        ({"timestampType": "NoTimestampType"}, "timestamp 5 of no type"),
    ],
)
def test_a_line_that_no_log_can_hold_is_named(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    good = {
        "topic": "t", "partition": 0, "offset": 7, "timestamp": 5, "timestampType": "CreateTime", "time": None,
        "key": None, "value": None, "headers": [],
    }  # fmt: skip
    lines = "".join(json.dumps(line) + "\n" for line in (good, {**good, "offset": 8, **changes})).encode()
    with pytest.raises(BadLine) as error:
        imported(tmp_path / "made", lines, BatchLayout())
    assert str(error.value).startswith("input: line 2: ")
    assert reason in error.value.reason
    assert list((tmp_path / "made").iterdir()) == []


def test_an_endless_line_is_a_bad_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfs.imports.lines.MAX_LINE_BYTES", 200)
    lines = some_lines(1) + b"x" * 1000 + b"\n" + some_lines(1, start=1) + b"y" * 500
    found = list(lines_of(io.BytesIO(lines), "input"))
    assert [type(line) for line in found] == [ImportedRecord, BadLine, ImportedRecord, BadLine]
    assert [line.number for line in found] == [1, 2, 3, 4]


def test_how_far_it_is_read_is_told_to_the_byte() -> None:
    lines = some_lines(5000)
    told: list[int] = []
    assert len(list(lines_of(io.BytesIO(lines), "input", told.append))) == 5000
    assert sum(told) == len(lines)
    assert len(told) > 1
