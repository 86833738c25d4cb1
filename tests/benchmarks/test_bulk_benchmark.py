"""The benchmark of bulk reading, with few records: does it still run, and does it measure what it says?"""

from __future__ import annotations

import os
import tempfile
from itertools import product
from pathlib import Path

import pytest

for needed in ("kafka", "orjson", "matplotlib"):
    pytest.importorskip(needed, reason="needs kfs[benchmarks]")

import cramjam

import kfs
from benchmarks.bulk import measure, parse
from benchmarks.bulk_report import report
from benchmarks.chart import draw
from benchmarks.events import event_log, many_segments
from benchmarks.measurement import Measurement
from benchmarks.produced import Producer
from benchmarks.readers import aiokafka_ndjson, kfs_ndjson, kfs_validate, kfs_validate_part, limit, parts
from benchmarks.rounds import Sample, best
from kfs.format.codecs import Codec, decompress
from kfs.format.crc import crc32c
from kfs.format.layout import BATCH_OVERHEAD, LOG_OVERHEAD
from kfs.format.record import Record
from kfs.format.writer import encode_batch
from tests.requirements import need_kafka

RECORDS = 3000
LOGS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = ("none, by 10", "none, by 1")
PARSERS = ("limit", "kfs", "kfs, into columns", "aiokafka", "kafka-python")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[Measurement]:
    directory = tmp_path_factory.mktemp("benchmark")
    groups = [f"--only={group}" for group in ("validate", "ndjson", "lookup", "dump")]
    return list(
        measure(parse([f"--records={RECORDS}", "--rounds=1", "--no-java", f"--directory={directory}", *groups]))
    )


def test_every_contender_reads_every_log(measured: list[Measurement]) -> None:
    assert {(each.group, each.log, each.contender) for each in measured} == {
        *product(("validate",), (*LOGS, *SMALL), PARSERS),
        *product(("ndjson",), (*LOGS, *SMALL), ("kfs", "aiokafka and orjson")),
        *product(("dump",), (*LOGS, *SMALL), ("kfs dump", "kfs dump --format json")),
        *product(("lookup",), LOGS, ("nothing decoded", "batch in the cache")),
    }


def test_all_of_them_see_all_records(measured: list[Measurement]) -> None:
    amounts = {(each.log in SMALL, each.amount) for each in measured if each.group != "lookup"}
    assert amounts == {(False, RECORDS), (True, RECORDS // 5)}


def test_there_is_a_table_for_each_group(measured: list[Measurement]) -> None:
    lines = list(report(measured))
    assert len([line for line in lines if not line]) == 4
    assert any(line.startswith("kfs : aiokafka and orjson") for line in lines)


def test_a_chart_is_drawn(measured: list[Measurement], tmp_path: Path) -> None:
    draw(measured, tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text().count("kafka-python") == 1


def test_logs_are_the_same_whoever_makes_them(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        log = event_log(tmp_path / name, Codec.LZ4, RECORDS)
        contents.append([(path.name, path.read_bytes()) for path in log.segments()])
    assert contents[0] == contents[1]


def test_parts_of_a_segment_are_the_whole(tmp_path: Path) -> None:
    [segment] = event_log(tmp_path, Codec.NONE, 30_000).segments()
    cut = list(parts(segment))
    assert len(cut) > 1
    assert sum(kfs_validate_part(*part) for part in cut) == 30_000


def test_many_segments_hold_so_many_records(tmp_path: Path) -> None:
    log = many_segments(tmp_path, event_log(tmp_path, Codec.LZ4, RECORDS), 4, 2)
    assert len(log.segments()) == 5  # and the active one
    assert kfs_validate(log.segments()) == log.records == 4 * 2 * 300


def test_lines_are_written_for_every_record(tmp_path: Path) -> None:
    segments = event_log(tmp_path, Codec.ZSTD, RECORDS).segments()
    for write in (kfs_ndjson, aiokafka_ndjson):
        path = tmp_path / write.__name__
        with path.open("wb") as output:
            assert write(segments, output) == RECORDS
        assert path.read_bytes().count(os.linesep.encode()) == RECORDS


def test_contenders_that_disagree_are_refused() -> None:
    with pytest.raises(RuntimeError, match="different numbers"):
        list(best({"a": lambda: Sample(1, 1.0, 1.0), "b": lambda: Sample(2, 1.0, 1.0)}, 1))


def test_the_least_of_each_clock_counts() -> None:
    samples = iter([Sample(1, 2.0, 1.0), Sample(1, 1.0, 3.0)])
    assert dict(best({"a": lambda: next(samples)}, 2)) == {"a": Sample(1, 1.0, 1.0)}


def test_partitions_are_verified_by_a_process_of_their_own(tmp_path: Path) -> None:
    options = [f"--records={RECORDS}", "--no-java", f"--directory={tmp_path}", "--only=verify", "--cpus=0"]
    found = list(measure(parse(options)))
    assert {(each.log, each.contender) for each in found} == {*product((*LOGS, *SMALL), ["kfs verify, 1 CPU"])}
    assert next(iter(report(found))).startswith("a partition verified")


def test_snappy_without_javas_framing_is_read() -> None:
    content = [Record(offset, 1000, b"key", b"value" * 100) for offset in range(10)]
    data = encode_batch(content, codec=Codec.SNAPPY)
    records = decompress(Codec.SNAPPY, data[BATCH_OVERHEAD:], magic=2, limit=1 << 20)
    raw = data[:BATCH_OVERHEAD] + bytes(cramjam.snappy.compress_raw(records))
    raw = raw[:8] + (len(raw) - LOG_OVERHEAD).to_bytes(4, "big") + raw[LOG_OVERHEAD:]
    raw = raw[:17] + crc32c(raw[21:]).to_bytes(4, "big") + raw[21:]
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        file.write(data + raw)
        file.flush()
        assert limit([Path(file.name)]) == 20


@pytest.mark.long
@pytest.mark.parametrize("producer", [Producer.LIBRDKAFKA, Producer.JAVA])
def test_real_producers_write_the_same_records(producer: Producer, tmp_path: Path) -> None:
    need_kafka()
    own = event_log(tmp_path, Codec.SNAPPY, RECORDS)
    log = event_log(tmp_path, Codec.SNAPPY, RECORDS, producer=producer)
    assert log.directory != own.directory
    assert limit(log.segments()) == RECORDS
    with kfs.open(own.directory.parent) as ours, kfs.open(log.directory.parent) as theirs:
        content = [
            [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in data[each.topic][0]]
            for data, each in ((ours, own), (theirs, log))
        ]
    assert content[0] == content[1]
