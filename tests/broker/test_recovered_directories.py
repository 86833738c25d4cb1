"""A real Kafka broker starts on what ``kfs recover`` leaves, and a consumer reads from it exactly what it should."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord

from kfs.format.layout import MAGIC_V1, MAGIC_V2
from kfs.format.record import Record
from kfs.log.storage import Storage
from kfs.recover.kafka_mode import KafkaMode
from kfs.recover.log_dir_recovery import recover_copy
from kfs.recover.salvage_mode import SalvageMode
from tests.broker.real_broker import RealBroker, as_read, errors_in
from tests.expected import expected_records
from tests.logs import dense, log_name, write_partition
from tests.recorded_damage import DAMAGED, CorpusPath, intact_records
from tests.recover.recordings import CONFIG, KILLED, UNCLEAN
from tests.requirements import need_kafka

#: The recorded brokers', which the recovered files were made with.
SETTINGS = {
    "log.index.interval.bytes": CONFIG.index_interval_bytes,
    "log.index.size.max.bytes": CONFIG.segment_index_bytes,
}
#: By the corpus: where it says what a consumer got of the recorded broker, and which records there are.
LEFT = {"g_damage": UNCLEAN.left, "g_kill9": KILLED.left, "b_txn": "."}
#: Its last batch says format 7, which Kafka and aiokafka take for 2, and librdkafka, which was recorded, for none.
UNKNOWN_MAGIC = "broken-12"
#: By the isolation level: the least number of records that can be compared.
LEVELS = {"read_uncommitted": 4000, "read_committed": 90}
Ranges = dict[str, list[list[int]]]


def test_a_broker_starts_on_recovered_directories_and_a_consumer_reads_what_is_left(
    corpus: CorpusPath, tmp_path: Path
) -> None:
    broker = RealBroker.make(tmp_path / "broker", need_kafka(), SETTINGS)
    directories = list(recovered(corpus, tmp_path))
    broker.take_over(directories)
    with broker.running() as log:
        for level in LEVELS:
            consumed = broker.consumed(level, [directory.name for directory in directories])
            check_consumed(level, consumed, corpus)
    assert errors_in(log) == []
    assert not list(broker.data.glob("*-stray"))


def test_a_broker_starts_on_salvaged_directories_and_a_consumer_reads_all_that_is_intact(
    corpus: CorpusPath, tmp_path: Path
) -> None:
    recover_copy(str(corpus(DAMAGED) / "data"), str(tmp_path / "output"), SalvageMode(config=CONFIG, storage=Storage()))
    directories = sorted((tmp_path / "output").glob("broken-*"))
    broker = RealBroker.make(tmp_path / "broker", need_kafka(), SETTINGS)
    broker.take_over(directories)
    with broker.running() as log:
        consumed = broker.consumed("read_uncommitted", [directory.name for directory in directories])
    assert errors_in(log) == []
    compared = 0
    for name, records in consumed.items():
        expected = intact_records(corpus, name)
        assert {record.offset: as_read(record) for record in records} == expected, name
        compared += len(expected)
    assert compared > 3500


def recovered(corpus: CorpusPath, root: Path) -> Iterator[Path]:
    """Recover the recorded log directories and yield the partitions of which a consumer read."""
    modes = {recording.corpus: recording for recording in (UNCLEAN, KILLED)}
    for name in LEFT:
        (root / name).mkdir()
        if name in modes:
            source, mode = modes[name].source(corpus, root / name), modes[name].mode(corpus)
        else:
            source, mode = corpus(name) / "data", KafkaMode(config=CONFIG, ignore_clean_shutdown=True)
        recover_copy(str(source), str(root / name / "output"), mode)
        for partition in recorded_ranges(corpus(name) / LEFT[name], "read_uncommitted"):
            yield root / name / "output" / partition


def check_consumed(level: str, consumed: dict[str, list[ConsumerRecord]], corpus: CorpusPath) -> None:
    """Compare with what a consumer got of the recorded brokers."""
    compared = 0
    for name, below in LEFT.items():
        expected = left_by_the_recorded_broker(corpus(name) / below)
        for partition, ranges in recorded_ranges(corpus(name) / below, level).items():
            offsets = ascending(offset for first, last in ranges for offset in range(first, last + 1))
            if partition == UNKNOWN_MAGIC:
                offsets = sorted(expected[partition])
            assert [record.offset for record in consumed[partition]] == offsets, partition
            assert [as_read(record) for record in consumed[partition]] == [
                expected[partition][offset] for offset in offsets
            ], partition
            compared += len(offsets)
    assert compared >= LEVELS[level]


def recorded_ranges(directory: Path, level: str) -> Ranges:
    """Return which offsets a consumer read of the recorded broker: first and last of each run, by partition."""
    found: dict[str, Ranges] = json.loads((directory / "consumed.json").read_text())
    return found.get(level, {})


def left_by_the_recorded_broker(directory: Path) -> dict[str, dict[int, Record]]:
    """Return the records by partition and offset, of one that is there twice the first."""
    found: dict[str, dict[int, Record]] = {}
    for expected in expected_records(directory):
        partition = expected.file.split("/")[0].partition(".")[0]
        found.setdefault(partition, {}).setdefault(expected.record.offset, expected.record)
    return found


def ascending(offsets: Iterable[int]) -> list[int]:
    """Return offsets without those that go back: aiokafka drops what librdkafka, which was recorded, gave again."""
    found: list[int] = []
    for offset in offsets:
        if not found or offset > found[-1]:
            found.append(offset)
    return found


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_consumer_that_reads_to_the_end_of_what_is_salvaged_ends(tmp_path: Path) -> None:
    """The last segment is empty, and what came before it is lost: a consumer still gets to the end offset."""
    for magic in (MAGIC_V1, MAGIC_V2):
        whole = write_partition(tmp_path / "data" / f"v{magic}-0", {0: dense(0, 76, magic=magic), 77: []}) / log_name(0)
        whole.write_bytes(whole.read_bytes()[:-1] + b"?")
    recover_copy(str(tmp_path / "data"), str(tmp_path / "output"), SalvageMode(config=CONFIG, storage=Storage()))
    directories = sorted((tmp_path / "output").glob("v*"))
    broker = RealBroker.make(tmp_path / "broker", need_kafka(), SETTINGS)
    broker.take_over(directories)
    with broker.running() as log:
        consumed = broker.consumed("read_uncommitted", [directory.name for directory in directories])
    assert errors_in(log) == []
    assert {name: records[-1].offset for name, records in consumed.items()} == {"v1-0": 75, "v2-0": 74}
