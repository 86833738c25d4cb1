"""``kfs.open``: every record that Kafka has, by offset, in a row, from any offset or time, at any isolation level."""

from __future__ import annotations

import json
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kfs
from kfs.format.record import Record, TimestampType
from kfs.log.directory_name import parse_directory_name
from kfs.log.log_dir import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kfs.read import plan
from tests.corpus import corpus_names
from tests.log.some_logs import some_segments
from tests.logs import (
    START,
    Batch,
    batch,
    content_of,
    dense,
    log_name,
    open_tree,
    record,
    records,
    watch_reads,
    wrapper_with_broken_message,
    write_checkpoint,
    write_log,
    write_partition,
)
from tests.recorded_damage import DAMAGED, UNREADABLE, damages
from tests.system.expectation import Expectation, fields_of
from tests.thoroughness import examples

CorpusPath = Callable[[str], Path]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory with ``t-0``: offsets 10 to 39 in two segments, a hole from 15 to 19."""
    write_partition(tmp_path / "t-0", {10: [*dense(10, 14), *dense(20, 24)], 25: dense(25, 39)})
    return tmp_path


def offsets(found: Iterable[kfs.Record]) -> list[int]:
    return [one.offset for one in found]


def log_in(data: kfs.Data, directory: str) -> kfs.PartitionLog:
    """Return the log of a partition directory, such as ``orders-0``."""
    name = parse_directory_name(directory)
    assert name is not None
    return data[name.topic][name.partition]


# --- recorded brokers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", corpus_names())
def test_every_record_of_every_corpus_is_there_and_no_other(name: str, corpus: CorpusPath) -> None:
    expected = Expectation(corpus(name)).partitions
    with kfs.open(corpus(name) / "data", on_damage="skip") as data:
        assert sorted(f"{log.topic}/{log.partition}" for log in data.logs()) == sorted(expected)
        for log in data.logs():
            wanted = expected[f"{log.topic}/{log.partition}"]
            assert {one.offset: json.loads(one.json()) for one in log} == wanted
            for offset in list(wanted)[:: max(len(wanted) // 50, 1)]:
                assert json.loads(log[offset].json()) == wanted[offset]
                assert offset in log


@pytest.mark.parametrize("name", ["b_txn", "b39_txn"])
def test_what_is_read_is_what_a_consumer_got(name: str, corpus: CorpusPath) -> None:
    said = json.loads((corpus(name) / "offsets.json").read_text())["read_committed"]
    for level, partitions in json.loads((corpus(name) / "consumed.json").read_text()).items():
        with kfs.open(corpus(name) / "data", isolation=level) as data:
            for partition, ranges in partitions.items():
                log = log_in(data, partition)
                wanted = [offset for first, last in ranges for offset in range(first, last + 1)]
                assert offsets(log) == wanted
                assert offsets(log.tail(7)) == wanted[-7:]
                assert [offset for offset in range(wanted[-1] + 9) if offset in log] == wanted
                assert log.last_stable_offset == said[partition]["latest"][0]
                assert log.log_start_offset == said[partition]["earliest"][0]


# --- what a log says of itself ----------------------------------------------------------------------------------------


def test_data_and_topics_are_mappings(root: Path) -> None:
    write_partition(root / "t-2", {0: dense(0, 1)})
    write_partition(root / "other-0", {0: dense(0, 3)})
    with kfs.open(root) as data:
        assert list(data) == list(data.topics) == ["other", "t"]
        assert list(data["t"]) == list(data["t"].partitions) == [0, 2]
        assert (len(data), len(data["t"])) == (2, 2)
        assert data["t"].name == "t"
        assert [(log.topic, log.partition) for log in data.logs()] == [("other", 0), ("t", 0), ("t", 2)]
        assert data["t"][2] is data["t"][2]
        assert data.get("nothing") is None
        assert "nothing" not in data
        assert 1 not in data["t"]
        assert offsets(data["t"].read()) == [*range(10, 15), *range(20, 40), 0, 1]


def test_what_is_not_there_is_a_key_error_of_ours(root: Path) -> None:
    with kfs.open(root) as data:
        asked: list[Callable[[], object]] = [
            lambda: data["nothing"],
            lambda: data["t"][1],
            lambda: data["t"][0][17],
            lambda: data["t"][0][-1],
            lambda: data["t"][0][40],
        ]
        for ask in asked:
            with pytest.raises(KeyError) as caught:
                ask()
            assert isinstance(caught.value, kfs.NotFound)
            assert str(caught.value)[0] == caught.value.args[0][0]  # a sentence, not in quotes


def test_a_log_says_where_it_begins_and_ends(root: Path) -> None:
    with kfs.open(root) as data:
        log = data["t"][0]
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (10, 40, None)
        assert log.last_stable_offset == 40
        assert log.path == str(root / "t-0")
        first, last = log.segments
        assert (first.base_offset, first.is_active, last.base_offset, last.is_active) == (10, False, 25, True)
        assert first.path == str(root / "t-0" / log_name(10))
        assert first.size + last.size == log.size == sum(path.stat().st_size for path in root.glob("t-0/*.log"))


def test_checkpoints_are_heeded(root: Path) -> None:
    write_checkpoint(root, HIGH_WATERMARK_CHECKPOINT, {("t", 0): 33})
    write_checkpoint(root, LOG_START_OFFSET_CHECKPOINT, {("t", 0): 22})
    with kfs.open(root) as data:
        log = data["t"][0]
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (22, 40, 33)
        assert offsets(log) == list(range(22, 40))
        assert 21 not in log
    with kfs.open(root, until_high_watermark=True) as data:
        assert offsets(data["t"][0]) == list(range(22, 33))
        assert 33 not in data["t"][0]


def test_one_state_of_a_log_that_goes_on(root: Path) -> None:
    with kfs.open(root, until_now=True) as frozen, kfs.open(root) as data:
        write_partition(root / "t-0", {40: dense(40, 44)})
        write_partition(root / "other-0", {0: dense(0, 3)})
        assert (offsets(frozen["t"][0])[-1], frozen.topics) == (39, ("t",))
        assert (offsets(data["t"][0])[-1], data.topics) == (44, ("other", "t"))


def test_topics_are_chosen_by_pattern(root: Path) -> None:
    write_partition(root / "other-0", {0: dense(0, 3)})
    with kfs.open(root, topics="o*") as data:
        assert data.topics == ("other",)
    with kfs.open(root, topics=["t", "x"]) as data:
        assert data.topics == ("t",)


# --- reading --------------------------------------------------------------------------------------------------------


def test_any_part_of_a_log_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SPLIT_BYTES", 1)
    everything = [*range(10, 15), *range(20, 40)]
    with kfs.open(root) as data:
        log = data["t"][0]
        for start in (None, *range(8, 43)):
            for until in (None, *range(8, 43, 3)):
                wanted = [at for at in everything if (start or 0) <= at < (100 if until is None else until)]
                assert offsets(log.read(start, until)) == wanted


def test_a_range_of_times_is_read_however_they_are_said(root: Path) -> None:
    def at(offset: int) -> datetime:
        return datetime.fromtimestamp(START / 1000 + offset, UTC)

    with kfs.open(root) as data:
        log = data["t"][0]
        wanted = [*range(12, 15), *range(20, 30)]
        for since, before in (
            (at(12), at(30)),
            (at(12).replace(tzinfo=None), at(30).astimezone(timezone(timedelta(hours=5)))),
            (at(12).isoformat(), at(30).isoformat()),
            (START + 12_000, START + 30_000),
        ):
            assert offsets(log.read(since=since, before=before)) == wanted
            assert log.offset_at(since) == 12
        assert log.offset_at(at(16)) == 20
        assert log.offset_at(at(40)) is None
        assert offsets(log.read(25, since=at(12), before=at(27))) == [25, 26]
        with pytest.raises(ValueError, match="Invalid isoformat"):
            log.read(since="when the day broke")


def test_times_that_go_back_are_still_within_bounds(tmp_path: Path) -> None:
    times = [5, 1, 7, 2, 9, 3]
    content = [record(offset, timestamp=START + time) for offset, time in enumerate(times)]
    write_partition(tmp_path / "t-0", {0: [batch([one]) for one in content]})
    with kfs.open(tmp_path) as data:
        assert offsets(data["t"][0].read(since=START + 3, before=START + 9)) == [0, 2, 5]


def test_the_last_records_are_found_without_reading_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 4999)})
    with kfs.open(tmp_path) as data:
        log = data["t"][0]
        _ = log.log_end_offset
        reads = watch_reads(monkeypatch)
        assert offsets(log.tail(3)) == [4997, 4998, 4999]
        assert sum(read.length for read in reads) < log.size / 2
        assert offsets(log.tail(10**6)) == list(range(5000))
        assert log.tail(0) == []


def test_records_appended_later_are_there_at_the_next_read(root: Path, eager: None) -> None:
    with kfs.open(root) as data:
        log = data["t"][0]
        reading = log.read(38)
        with (root / "t-0" / log_name(25)).open("ab") as file:
            file.write(batch(records(40, 44)).data)
        assert offsets(reading) == [38, 39]
        assert offsets(log.read(38)) == [38, 39, 40, 41, 42, 43, 44]
        assert log[44].value == b"value 44"
        assert log.log_end_offset == 45


@settings(max_examples=examples(30, 200))
@given(segments=some_segments(), data=st.data())
@pytest.mark.usefixtures("quiet")
def test_any_range_of_any_log_is_its_records(segments: dict[int, list[Batch]], data: st.DataObject) -> None:
    written = [one for content in segments.values() for each in content for one in each.records]
    bounds = st.integers(written[0].offset - 2, written[-1].offset + 3)
    start, until = data.draw(bounds), data.draw(bounds)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "SPLIT_BYTES", 1)
        write_partition(Path(name) / "t-0", segments)
        with kfs.open(name) as opened:
            log = opened["t"][0]
            wanted = [fields_of("t", 0, one) for one in written if start <= one.offset < until]
            assert [json.loads(one.json()) for one in log.read(start, until)] == wanted
            assert [json.loads(log[one.offset].json()) for one in written if start <= one.offset < until] == wanted


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_that_are_decoded_together_may_be_of_several_pieces(
    magic: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "SPLIT_BYTES", 1)
    content = [batch([Record(offset, -1 if magic == 0 else START, None, None)], magic=magic) for offset in (0, 2, 3, 4)]
    write_partition(tmp_path / "t-0", {0: content[:3], 4: content[3:]})
    with kfs.open(tmp_path) as opened:
        assert [one.offset for one in opened["t"][0].read(0, 4)] == [0, 2, 3]


# --- damage ---------------------------------------------------------------------------------------------------------


def test_a_read_fails_where_the_damage_is_and_not_before(corpus: CorpusPath) -> None:
    expected = Expectation(corpus(DAMAGED))
    lost = expected.errors()
    with kfs.open(corpus(DAMAGED) / "data") as data:
        for damage in damages(corpus(DAMAGED)):
            if damage.kind not in UNREADABLE:
                continue
            log = log_in(data, damage.directory)
            seen: list[int] = []
            with pytest.raises(kfs.CorruptData) as caught:
                seen.extend(one.offset for one in log)
            intact = sorted(expected.partitions[damage.tree_path])
            first_lost = min(lost[damage.tree_path])
            assert seen == [offset for offset in intact if offset < first_lost]
            assert caught.value.file == str(corpus(DAMAGED) / "data" / damage.directory / damage.file)
            assert caught.value.position in {problem.position for problem in log.problems}
            assert offsets(log.read(on_damage="skip")) == intact
            assert offsets(log.read(until=first_lost)) == seen
            with pytest.raises(kfs.CorruptData):
                log[first_lost]
        assert {problem.file for log in data.logs() for problem in log.problems} <= {
            problem.file for problem in data.problems
        }


@pytest.mark.parametrize("magic", [0, 1])
def test_a_broken_record_in_an_intact_batch_costs_itself_only(magic: int, tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", 0, wrapper_with_broken_message(magic))
    with kfs.open(tmp_path) as data:
        log = data["t"][0]
        seen: list[int] = []
        with pytest.raises(kfs.CorruptData, match="stored CRC"):
            seen.extend(one.offset for one in log)
        assert seen == [0, 1]
        assert offsets(log.read(3)) == [3, 4]
        assert offsets(log.read(on_damage="skip")) == [0, 1, 3, 4]
        assert log[3].offset == 3
        with pytest.raises(kfs.CorruptData, match="stored CRC"):
            log[2]
        assert len(log.problems) == len(data["t"].problems) == len(data.problems) == 1


@pytest.mark.parametrize("on_damage", ["fail", "skip"])
def test_a_segment_that_vanishes_is_no_damage_but_for_who_asked_for_its_offsets(
    on_damage: Literal["fail", "skip"], root: Path, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "SPLIT_BYTES", 1)
    with kfs.open(root, on_damage=on_damage) as data:
        log = data["t"][0]
        reading, asked = log.read(), log.read(10)
        assert next(reading).offset == next(asked).offset == 10
        (root / "t-0" / log_name(10)).unlink()  # as retention does
        data.source.storage.files.close()
        assert offsets(reading)[-15:] == list(range(25, 40))
        assert not log.problems
        if on_damage == "fail":
            with pytest.raises(kfs.CorruptData, match="are gone"):
                list(asked)
        else:
            assert offsets(asked)[-15:] == list(range(25, 40))
            assert log.problems


# --- scanning -------------------------------------------------------------------------------------------------------


def test_logs_topics_and_all_of_it_are_scanned(root: Path) -> None:
    pytest.importorskip("pyarrow")
    write_partition(root / "t-2", {0: dense(0, 1)})
    write_partition(root / "other-0", {0: dense(0, 3)})
    with kfs.open(root) as data:

        def found(scanned: kfs.Data | kfs.Topic | kfs.PartitionLog, **options: Any) -> list[tuple[object, ...]]:
            table = scanned.scan(columns=["topic", "partition", "offset"], jobs=1, **options).to_table()
            return list(zip(*table.to_pydict().values(), strict=True))

        def read(logs: Iterable[kfs.PartitionLog]) -> list[tuple[object, ...]]:
            return [(one.topic, one.partition, one.offset) for log in logs for one in log]

        assert found(data["t"][0]) == read([data["t"][0]])
        assert found(data["t"]) == read(data["t"].values())
        assert found(data) == read(data.logs())
        assert found(data["t"], offsets={0: (38, None)}) == [("t", 0, 38), ("t", 0, 39), ("t", 2, 0), ("t", 2, 1)]
        assert found(data, offsets=(3, 11)) == [("other", 0, 3), ("t", 0, 10)]
        assert found(data["t"][0], times=(START + 38_000, None)) == [("t", 0, 38), ("t", 0, 39)]
        assert found(data["t"][0], keys=["no such key"]) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_option_of_a_scan_is_heeded_by_logs_topics_and_all(jobs: int, root: Path) -> None:
    pytest.importorskip("pyarrow")
    write_partition(root / "t-2", {0: dense(0, 30)})
    write_partition(root / "other-0", {0: dense(0, 9)})
    path = root / "t-0" / log_name(10)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # the batch with offsets 20 to 24
    path.write_bytes(data)
    options: dict[str, Any] = {
        "columns": ["offset", "key", "partition"],
        "offsets": (3, 38),
        "times": (START + 5_000, START + 36_000),
        "isolation": "read_committed",
        "on_damage": "skip",
        "batch_size": 4,
        "jobs": jobs,
    }
    with kfs.open(root) as opened:
        for scanned, logs in (
            (opened["t"][0], [opened["t"][0]]),
            (opened["t"], list(opened["t"].values())),
            (opened, list(opened.logs())),
        ):
            told: list[kfs.Problem] = []
            batches = list(scanned.scan(**options, on_problem=told.append))
            assert {tuple(batch.schema.names) for batch in batches} == {("offset", "key", "partition")}
            assert all(0 < batch.num_rows <= 4 for batch in batches)
            wanted: list[dict[str, Any]] = [
                {"offset": one.offset, "key": one.key, "partition": one.partition}
                for log in logs
                for one in log.read(3, 38, since=START + 5_000, before=START + 36_000, on_damage="skip")
            ]
            assert [row for batch in batches for row in batch.to_pylist()] == wanted
            assert len(wanted) > 10
            assert [problem.file for problem in told] == [str(path)]
            keys = [key for key in (wanted[0]["key"], wanted[-1]["key"]) if isinstance(key, bytes)]
            assert len(keys) == 2
            some = scanned.scan(**options, keys=keys).to_table().to_pylist()
            assert some == [row for row in wanted if row["key"] in keys]
            with pytest.raises(kfs.CorruptData, match="position"):
                scanned.scan(**options | {"on_damage": "fail"}).to_table()


def test_a_scan_takes_what_was_said_when_it_was_opened(corpus: CorpusPath, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with kfs.open(corpus("b_txn") / "data", isolation="read_committed") as data:
        for log in data.logs():
            assert log.scan(jobs=1).to_table()["offset"].to_pylist() == offsets(log)
            everything = log.scan(jobs=1, isolation="read_uncommitted").to_table()["offset"].to_pylist()
            assert everything == offsets(log.read(isolation="read_uncommitted"))
    write_log(tmp_path / "t-0", 0, bytes(12) + b"\x07" * 300)  # nothing but damage
    with kfs.open(tmp_path) as data, pytest.raises(kfs.CorruptData):
        data.scan(jobs=1).to_table()
    with kfs.open(tmp_path, on_damage="skip") as data:
        assert data.scan(jobs=1).to_table().num_rows == 0
        assert len(data.problems) == 1


# --- what a record is -----------------------------------------------------------------------------------------------


def test_a_record_is_a_value(root: Path) -> None:
    with kfs.open(root) as data:
        log = data["t"][0]
        one = log[12]
        assert one == next(log.read(12)) != log[13]
        assert one == kfs.Record("t", 0, 12, START + 12_000, TimestampType.CREATE_TIME, b"key", b"value 12", ())
        assert pickle.loads(pickle.dumps(one)) == one
        assert len({one, log[12], log[13]}) == 2
        assert one.time == datetime.fromtimestamp(START / 1000 + 12, UTC)


def test_headers_keep_order_duplicates_nulls_and_any_bytes(tmp_path: Path) -> None:
    headers = ((b"a", b"1"), (b"a", None), (b"\xff\x00", b""), ("größe".encode(), b"x" * 300), (b"n" * 200, b"\xff"))
    write_partition(tmp_path / "t-0", {0: [batch([replace(record(0), headers=headers)])]})
    with kfs.open(tmp_path) as data:
        log = data["t"][0]
        assert [(name.encode(errors="surrogateescape"), value) for name, value in log[0].headers] == list(headers)
        assert log[0].headers[3][0] == "größe"
        assert log[0].json() + "\n" == content_of(open_tree(tmp_path), "t/0/offset/0.json").decode()


def test_a_timestamp_that_no_calendar_has_is_no_time(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: [batch([record(0, timestamp=2**62)]), batch([record(1, timestamp=-1)])]})
    with kfs.open(tmp_path) as data:
        assert [(one.timestamp, one.time) for one in data["t"][0]] == [(2**62, None), (-1, None)]


# --- opening, closing, sharing ----------------------------------------------------------------------------------------


def test_what_is_closed_is_closed(root: Path) -> None:
    with kfs.open(root) as data:
        log = data["t"][0]
        reading = log.read()
        next(reading)
    data.close()
    asked: list[Callable[[], object]] = [
        lambda: data.topics,
        lambda: data["t"],
        lambda: log[10],
        lambda: log.read(),
        lambda: log.problems,
        lambda: list(reading),
    ]
    for ask in asked:
        with pytest.raises(ValueError, match="closed"):
            ask()
    assert "closed" in repr(data)


def test_what_makes_no_sense_is_refused(root: Path) -> None:
    with pytest.raises(TypeError, match="at least one"):
        kfs.open()
    with pytest.raises(kfs.UnusableSource):
        kfs.open(root / "nowhere")
    with pytest.raises(ValueError, match="serializable"):
        kfs.open(root, isolation="serializable")  # type: ignore[arg-type]
    with kfs.open(root) as data:
        log = data["t"][0]
        with pytest.raises(TypeError, match="no slices"):
            log[1:2]  # type: ignore[index]
        with pytest.raises(TypeError):
            log["10"]  # type: ignore[index]
        with pytest.raises(ValueError, match="ignore"):
            log.read(on_damage="ignore")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            pickle.dumps(data)


def test_threads_share_it(root: Path) -> None:
    with kfs.open(root, cache_bytes=1) as data:
        log = data["t"][0]
        found: list[list[int]] = []

        def work() -> None:
            for _ in range(20):
                found.append(offsets(log))
                assert log[22].value == b"value 22"

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [[*range(10, 15), *range(20, 40)]] * 80
